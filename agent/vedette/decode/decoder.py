"""From the bytes of one event to its fields, lazily: ``record(raw, codec).get("user")``.

A codec is chosen per input (``codecs.py``); ``auto`` tells each event by its content. Nothing here raises on any bytes:
what a codec cannot read is text, and its ``message`` the whole event. Where a value can come from more than one place,
the first wins:

1. what the agent itself knows (``topic topic_levels topic_level_1 … peer``) and the syslog header (``hostname program
   pid msgid priority facility severity version``, ``SD-ID.parameter``; of the element ``journal``, which the input of
   that name writes, the parameter's name alone): words in a text must not forge them. A message
   that is a document (a JSON object, one of the ``formats``, or pairs from its start) keeps its own fields of these
   names; the header's are always ``log.syslog.hostname`` and so on (``syslog.OWN_NAMES``), which no document can set;
2. the message as JSON object (after syslog, also behind ``@cee:``), and what its make gives further (``formats``); else
   the message in one of the ``formats`` (audit records, CEF, event XML …), else what the program's patterns give
   (``programs.py``) and ``key=value`` pairs; of a line of a daemon's own log (``ownlog.py``) always these;
3. ``message``: what follows the header, or the whole event. (A JSON object's own ``message`` goes before it.)

A message that rsyslog folded (``message repeated 5 times: [ MESSAGE]``) is one event with the fields of MESSAGE, and
``repeated``, which is how often it came.

``get`` tries the exact name, then the dotted path into objects, then the field's other names (``aliases.py``).

Texts are cut out of the event as they are, never trimmed or joined, so that a literal of a rule is in the raw bytes
when it is in the value; what differs from this is declared (``fields.py``). Values of JSON keep their
type; all others are texts, but ``priority`` and ``version``. A key that occurs twice in ``key=value`` text is a list.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Mapping, Sequence
from datetime import tzinfo
from typing import Any

from vedette.decode import access, cisco, kafka, ownlog, peers, sources, syslog
from vedette.decode.aliases import ALIASES
from vedette.decode.codecs import CODECS, Codec, Kind, kind_of
from vedette.decode.computed import Traced
from vedette.decode.fields import JOURNAL, MAX_LEVELS, is_synthetic
from vedette.decode.formats.base import NOWHERE, Format, Shape
from vedette.decode.formats.table import SHAPES, format_at, shape_of
from vedette.decode.programs import NO_PROGRAM, PAIRS, PROGRAMS, is_tag, program_name, starts_with_pair
from vedette.decode.sources import possible_source
from vedette.decode.values import ABSENT, Absent, Value, descend, from_json, path, scalars, to_json
from vedette.model.event import LogSource, Source
from vedette.model.times import named_time, time_of

__all__ = [
    "ABSENT",
    "CODECS",
    "Absent",
    "Codec",
    "Record",
    "Value",
    "from_mapping",
    "heads",
    "possible_source",
    "record",
]


_ANY_SOURCE = LogSource()
_NO_FIELDS: Mapping[str, Value] = {}
_UNREAD: Any = object()


class Record:
    """One event. Construction costs next to nothing; the header is parsed at first need, the message when a field is
    asked for that the header does not have."""

    __slots__ = (
        "_codec",
        "_event",
        "_fields",
        "_format",
        "_further",
        "_head",
        "_header",
        "_logsource",
        "_origin",
        "_owns",
        "_received_at",
        "_remote",
        "_shape",
        "_zone",
        "raw",
        "shown",
        "sure",
        "usual",
    )

    raw: bytes

    def __init__(
        self,
        raw: bytes,
        codec: Codec,
        origin: str,
        received_at: int,
        zone: tzinfo | None,
        logsource: LogSource,
        event: Mapping[str, Value] | None,
    ) -> None:
        if raw[:1] in _LEADS:
            raw = raw.lstrip(b"\0").removeprefix(BOM_UTF8)
        self.raw = raw
        self._codec = codec
        self._origin = origin
        self._received_at = received_at
        self._zone = zone
        self._logsource = logsource
        self._event = event
        self._shape: Kind | None = None
        self._header: syslog.Header | None = _UNREAD
        self._format: Format | Shape | None = _UNREAD
        self._further: dict[str, Value] | None = None
        self._fields: dict[str, Value] | None = None
        self._remote: str | None = None
        self._owns: bool | None = None
        self.usual: re.Match[bytes] | None = _UNREAD
        """The match of ``syslog.usual`` in a syslog line, where it is known already."""
        self._head: tuple[str, int] | None = _UNREAD
        self.sure: tuple[str, LogSource, Sequence[int]] | None = None
        """Of a JSON object that was not evaluated: codec and log source of its input, and the rules that match it."""
        self.shown: Mapping[str, Any] | None = None
        """What ``Native.shown`` gave for these rules."""

    @property
    def decoded(self) -> bool:
        """Whether all fields are at hand."""
        return self._fields is not None

    @property
    def text(self) -> str:
        """The raw event as text."""
        return self.raw.decode("utf-8", "replace")

    @property
    def received_at(self) -> int:
        """UTC microseconds; 0: unknown."""
        return self._received_at

    def get(self, field: str) -> Value | Absent:
        """The value of ``field``: the field of this name, else the dotted path into objects; lists map over."""
        fields = self._fields
        if field in syslog.PARTS and (header := self.header) is not None:
            part = header.field(syslog.PARTS[field])
            return ABSENT if part is None else part
        if fields is None:
            if (field == "message" or field == "program") and not self._event and (head := self._quick()) is not None:
                program, start = head
                if field == "message":
                    return self.raw[start:].rstrip(b"\r\n\0").decode("utf-8", "replace")
                if not self._may_name(field):
                    return program
            if field in syslog.FIELDS and (header := self.header) is not None:
                part = header.field(field)
                if part is not None and not (self._may_name(field) and self._is_document()):
                    return part
            if field == "message" and self._structured() is None:
                return self._message()  # what _decode would give, without reading the message for other fields
            fields = self._decode()
        value = self._named(fields, field)
        if value is not ABSENT:
            return value
        if self._remote is not None and field in peers.NAMES:  # else the answer would depend on former ones
            self._look_for_peer(fields)
            return self.get(field)
        for other in ALIASES.get(field, ()):
            if (value := self._named(fields, other)) is not ABSENT:
                break
        return value

    def _look_for_peer(self, fields: dict[str, Value]) -> None:
        """Adds who and from where, as the message's words tell, which costs more than all other fields."""
        peer = peers.read(self._remote or "", "user" in fields)
        fields.update((name, value) for name, value in peer.items() if name not in fields)
        self._remote = None

    def _quick(self) -> tuple[str, int] | None:
        """Program and place of the message of a line as nearly all are: what the header would say, without the rest
        of it; None: the header has to tell."""
        head = self._head
        if head is _UNREAD:
            usual = self.usual
            if usual is _UNREAD:
                usual = self.usual = syslog.usual(self.raw) if self._kind() is Kind.SYSLOG else None
            head = None if usual is None else syslog.program_and_start(usual, self.raw, self._received_at)
            self._head = head
        return head

    def _named(self, fields: dict[str, Value], field: str) -> Value | Absent:
        """The field of exactly this name, or at this path."""
        value: Any = fields.get(field, _UNREAD)
        if value is not _UNREAD:
            return value  # type: ignore[no-any-return]
        if "." in field and (nested := path(fields, field)) is not ABSENT:
            return nested
        return descend(fields["value"], field) if type(self._event) is _Whole else ABSENT

    def fields(self) -> Mapping[str, Value]:
        """Everything decoded, by name; objects stay nested."""
        fields = self._decode() if self._fields is None else self._fields
        if self._remote is not None:
            self._look_for_peer(fields)
        return fields

    def keywords(self) -> Iterable[str]:
        """The texts that a Sigma keyword searches: all decoded values of a structured event, and the message of others.

        Of an event in a structured text format (audit records, CEF, XML): both. Cisco's tag and what folds a message
        are searched with the message.
        """
        event = self._structured()
        header = self.header
        texts = [self._message()] if event is None else scalars([event])
        if header is not None and (at := self._spoken(header)) < header.message_start:
            texts.append(self.raw[at:].rstrip(b"\r\n\0").decode("utf-8", "replace"))
        if isinstance(form := self._form(), Format) and form.structured:
            texts += scalars([value for name, value in self._more().items() if not is_synthetic(name)])
        if header is not None and header.structured_data:
            texts += scalars(list(header.structured_data.values()))
        return texts

    @property
    def header(self) -> syslog.Header | None:
        """The syslog header, of a daemon's own log no more than its time; None for other events."""
        if self._header is _UNREAD:
            match self._kind():
                case Kind.SYSLOG:
                    raw = self.raw
                    usual = self.usual
                    if usual is _UNREAD or usual is None:
                        parsed = syslog.parse(raw, self._received_at, self._zone)
                    else:
                        parsed = syslog.of_usual(usual, raw, self._received_at, self._zone)
                    if parsed is not None and parsed.app is None:
                        parsed = syslog.tagged(parsed, raw, is_tag)
                    self._header = None if parsed is None else syslog.unfold(parsed, raw)
                case Kind.DAEMON:
                    self._header = ownlog.header(self.raw, self._received_at, self._zone)
                case _:
                    self._header = None
        return self._header

    @property
    def host(self) -> str | None:
        """The host the event is about: as its header or its fields say, else the peer it came from."""
        if (header := self.header) is not None and (header.host or _is_contained(header)):
            return header.host or self.peer
        if self._structured() is not None:
            for name in HOST_FIELDS:
                value = self.get(name)
                if isinstance(value, str) and value:
                    return value
        elif isinstance(self._form(), Format):
            for name in _FORMAT_HOSTS:
                value = self._more().get(name)
                if isinstance(value, str) and value:
                    return value
        elif header is not None and header.app is None and self._kind() is Kind.SYSLOG and b"=" in self.raw:
            for name in _DEVICE_HOSTS:  # firewalls whose message is nothing but pairs
                value = self.get(name)
                if isinstance(value, str) and value:
                    return value
        return self.peer

    @property
    def peer(self) -> str | None:
        """The peer that it came from."""
        if self._kind() is Kind.MQTT or self._origin.startswith(kafka.PREFIX):
            return None
        return self._origin or None

    @property
    def event_time(self) -> int | None:
        """When it happened, as the event says, in UTC microseconds; None when it does not say or not plausibly."""
        if (header := self.header) is not None and header.timestamp is not None:
            return header.timestamp
        if self._kind() is Kind.ACCESS:
            stamp = self.get("timestamp")
            return named_time(stamp) if isinstance(stamp, str) else None
        form = self._form()
        if self._structured() is not None:
            for name in self.time_fields:
                time = time_of(self.get(name), None if name == "UtcTime" else self._zone)
                if time is not None:
                    return time
        return form.time_of(self._more(), self._zone) if isinstance(form, Format) else None

    @property
    def time_fields(self) -> tuple[str, ...]:
        """The fields of a JSON object that may say when it happened; the first that does counts."""
        form = self._form()
        return (*form.times, *_TIME_FIELDS) if isinstance(form, Shape) else _TIME_FIELDS

    @property
    def source(self) -> Source:
        """The log sources the event belongs to."""
        kind = self._kind()
        header = self.header
        facility = -1
        form = self._form()
        if header is not None:
            facility = -1 if header.priority is None else header.priority >> 3
        elif kind is Kind.SYSLOG:
            kind = Kind.TEXT
        if isinstance(form, Shape):
            event = self._structured() or _NO_FIELDS
            further = form.sources if form.source_of is None else form.source_of(event, self._more)
        elif form is not None:
            further = form.sources if form.source_of is None else form.source_of(self._more())
        else:
            further = NOWHERE
        app = self._program()
        return sources.source(kind, app if app in PROGRAMS else "", facility, self._logsource, further)

    def _form(self) -> Format | Shape | None:
        """The format of the message, the make of the JSON object; None for none known."""
        cached: Any = self._format
        if cached is not _UNREAD:
            return cached  # type: ignore[no-any-return]  # a format, as it is not the marker
        form: Format | Shape | None = None
        kind = self._kind()
        only = self._codec.only
        if (row := self._codec.row) is not None:
            form = self._format = row if self._is_of(row) else None
            return form
        if kind is Kind.SYSLOG or kind is Kind.JSON:
            event = self._structured()
            if event is None:
                header = self.header
                if header is None or header.message_end is None:  # records of a format do not repeat
                    form = format_at(self.raw, 0 if header is None else header.message_start)
            elif type(event) is not _Whole:
                form = SHAPES[only] if only is not None and only in SHAPES else shape_of(event)
            if form is not None and only is not None and form.name != only:
                form = None
        self._format = form
        return form

    def _is_of(self, row: Format | Shape) -> bool:
        """Whether the message is one of the codec's own format."""
        event = self._structured()
        if isinstance(row, Shape):
            return event is not None and type(event) is not _Whole and row.fits(event)
        start = 0 if self.header is None else self.header.message_start
        return event is None and re.compile(row.starts).match(self.raw, start) is not None

    def _more(self) -> dict[str, Value]:
        """Return the fields that the format gives, or the further ones that the make of the JSON object gives."""
        more = self._further
        if more is None:
            form = self._form()
            if form is None:
                more = {}
            elif isinstance(form, Shape):
                more = form.read(self._structured() or _NO_FIELDS)
            else:
                more = form.read(self._message())
            _plain_peer(more)
            self._further = more
        return more

    def _may_name(self, field: str) -> bool:
        """Whether the message may give this field of the header's: it is named there, or by a format."""
        return any(map(self.raw.__contains__, NAMED_BY[field]))

    def _is_document(self) -> bool:
        """Whether the message of a syslog line is one: then its own fields go before the header's."""
        owns = self._owns
        if owns is None:
            event = self._structured()
            if event is not None:
                owns = type(event) is not _Whole
            elif isinstance(self._form(), Format):
                owns = True
            else:
                owns = self._program() not in PROGRAMS and starts_with_pair(self._message())
            self._owns = owns
        return owns

    def _kind(self) -> Kind:
        shape = self._shape
        if shape is None:
            shape = self._shape = self._codec.kind or kind_of(self.raw)
        return shape

    def _message(self) -> str:
        """Return the text behind the header, without the line's end."""
        header = self.header
        if header is None:
            return self.raw.rstrip(b"\r\n\0").decode("utf-8", "replace")
        return self.raw[header.message_start : header.message_end].rstrip(b"\r\n\0").decode("utf-8", "replace")

    def _spoken(self, header: syslog.Header) -> int:
        """Where what a device says begins: Cisco's tag, what folds the message, else the message."""
        app = header.app
        start = header.message_start
        if app is not None and app.startswith("%") and cisco.program_key(app):
            return self.raw.rfind(app.encode(), 0, start)
        return start if header.repeated is None else self.raw.rfind(b"message repeated ", 0, start)

    def _structured(self) -> Mapping[str, Value] | None:
        """The event's JSON object, or None."""
        event: Any = self._event
        if event is None:
            event = self._event = self._read_json()
        return event or None

    def _read_json(self) -> Mapping[str, Value]:
        """The JSON object in the event, ``_Whole`` for other JSON, empty for none."""
        shape = self._kind()
        data = self.raw
        if shape in (Kind.TEXT, Kind.ACCESS, Kind.DAEMON):
            return _NO_FIELDS
        if shape is Kind.SYSLOG:
            header = self.header
            start = 0 if header is None else header.message_start
            at = JSON_MESSAGE.match(data, start) if data[start : start + 1] in syslog.JSON_FIRST else None
            if at is None:
                return _NO_FIELDS
            data = data[at.end() - 1 : None if header is None else header.message_end]
        try:
            value = from_json(data)
        except ValueError:
            return _NO_FIELDS
        return value if isinstance(value, dict) else _Whole(value=value)

    def _program(self) -> str:
        """The key of the event's program in ``PROGRAMS``, or what it would be; empty when the event names none."""
        if self._kind() is Kind.DAEMON:
            return self._codec.program or ownlog.program_of(self.raw)
        if self._codec.only is not None:
            return ""
        if (header := self.header) is not None:
            return program_name(header.app) if header.app else ""
        event = self._structured()
        name = None if event is None else event.get("SYSLOG_IDENTIFIER")
        return program_name(name) if isinstance(name, str) else ""

    def _read(self, message: str) -> dict[str, Any]:
        """The fields of an unstructured message, the caller's to change."""
        match self._kind():
            case Kind.TEXT:
                return {}
            case Kind.ACCESS:
                return _plain_peer(access.read(message))
            case _:
                row = PROGRAMS.get(self._program(), NO_PROGRAM if self._codec.only is None else PAIRS)
                fields, unread = row.read(message)
                self._remote = message if unread else None
                return fields

    def _decode(self) -> dict[str, Value]:
        """All fields; weaker origins first, so that stronger ones overwrite them."""
        kind = self._kind()
        header = self.header
        event = self._structured()
        fields: dict[str, Value] = {}
        if event is None:
            message = self._message()
            fields = dict(self._more()) if self._form() is not None else self._read(message)
            if header is not None and _is_contained(header):
                fields = _of_no_container(fields)
            fields["message"] = message
        elif header is not None or type(event) is _Whole:
            fields["message"] = self._message()
            fields.update(self._more())
            fields.update(event)
        else:
            journal = {name: event[key] for key, name in JOURNAL.items() if key in event} if "MESSAGE" in event else {}
            believed = dict if CONTAINERS.isdisjoint(event) else _of_no_host
            if isinstance(text := journal.get("message"), str):
                fields.update(believed(self._read(text)))
            fields.update(journal)
            fields.update(believed(self._more()))
            fields.update(event)
        if header is not None:
            if header.app is not None and header.app.startswith("%"):
                fields.update(cisco.tag(header.app))
            own = header.fields()
            if own.keys().isdisjoint(fields) or not self._is_document():
                fields.update(own)
            else:
                fields.update((syslog.OWN_NAMES[name] if name in fields else name, part) for name, part in own.items())
            if header.repeated is not None:
                fields["repeated"] = header.repeated
            for element, parameters in header.structured_data.items():
                fields.update((f"{element}.{name}", value) for name, value in parameters.items())  # type: ignore[misc]  # str is a Value
                if element == syslog.JOURNAL:  # journald's word goes before the message's
                    fields.update((name, value) for name, value in parameters.items() if name.isupper())  # type: ignore[misc]  # as above
        if kind is Kind.MQTT:
            levels = self._origin.split("/")
            fields["topic"] = self._origin
            fields["topic_levels"] = list(levels)
            fields.update((f"topic_level_{i}", level) for i, level in enumerate(levels[:MAX_LEVELS], 1))
        elif self._origin.startswith(kafka.PREFIX):
            fields.update(kafka.fields(self._origin))
        elif self._origin:
            fields["peer"] = self._origin
        self._fields = fields
        return fields


def heads(field: str) -> set[str]:
    """Names in ``Record.fields`` of a JSON object: where none of them is, ``Record.get`` has nothing for ``field``, but
    what a syslog header gives."""
    names: set[str] = set()
    for name in (field, *ALIASES.get(field, ())):
        parts = name.split(".")
        names.update(".".join(parts[:count]) for count in range(1, len(parts) + 1))
    return names


def head_of(name: str) -> str:
    """The first part of a name, however it is written: ``container`` of ``_Container.id``."""
    return name.lstrip("_").partition(".")[0].lower()


def _is_contained(header: syslog.Header) -> bool:
    """Whether a container printed what is behind the header: it says nothing of host and container, as whoever runs in
    it chose every word."""
    return not CONTAINERS.isdisjoint(header.structured_data)


def _of_no_container(fields: Mapping[str, Value]) -> dict[str, Value]:
    return {name: value for name, value in fields.items() if head_of(name) not in CONTAINERS}


def _of_no_host(fields: Mapping[str, Value]) -> dict[str, Value]:
    return {name: value for name, value in _of_no_container(fields).items() if name not in HOST_FIELDS}


def _plain_peer(fields: dict[str, Any]) -> dict[str, Any]:
    """``fields`` with ``src_ip`` as programs' rows give it."""
    if isinstance(address := fields.get("src_ip"), str):
        if isinstance(address, Traced):
            address.give(fields, peers.PLAIN)
        else:
            fields["src_ip"] = peers.plain(address)
    return fields


class _Whole(dict[str, Value]):
    """JSON that is no object, as the field ``value``."""


_ALSO_BY = {"severity": (b"CEF:",), "hostname": (b"CEF:", b"node=", b"devname="), "pid": (b"#",)}
NAMED_BY = {field: (field.encode(), b"\\u", b"&#", *_ALSO_BY.get(field, ())) for field in syslog.FIELDS}
"""Bytes of a document that has this field: its name, perhaps escaped, or what the format holds that gives it
under another name (CEF, the audit log, Fortinet, nginx's error log)."""

_LEADS = frozenset((b"\0", BOM_UTF8[:1]))
"""What stands before an event and is no part of it: a byte order mark, the hole before what is written to a truncated
file."""
JSON_MESSAGE = re.compile(rb"\s*(?:@cee: ?)?\{")
"""Begins with one of ``syslog.JSON_FIRST``."""
HOST_FIELDS = ("hostname", "host", "host.name", "_HOSTNAME", "Computer", "device_id", "device", "hostIdentifier")
CONTAINERS = frozenset(("kubernetes", "docker", "container", "container_id", "container_name"))
"""First parts of names, and elements of a header, that say which container printed what stands beside them."""
_FORMAT_HOSTS = ("hostname", "Computer", "dvchost", "deviceHostName")
_DEVICE_HOSTS = ("devname", "fw", "device_name")

_TIME_FIELDS = ("@timestamp", "timestamp", "time", "ts", "eventTime", "UtcTime", "__REALTIME_TIMESTAMP", "unixTime")


def record(
    raw: bytes,
    codec: str | Codec,
    *,
    origin: str = "",
    received_at: int = 0,
    zone: tzinfo | None = None,
    logsource: LogSource = _ANY_SOURCE,
    event: Mapping[str, Value] | None = None,
) -> Record:
    """The event ``raw`` of an input with this codec (or a key of ``CODECS``, else KeyError).

    ``origin``: peer address, MQTT topic or place in Kafka (``kafka.py``). ``received_at``: UTC microseconds, 0 for
    unknown. ``zone``: of times without
    an offset (None: UTC). ``logsource``: the input's own. ``event``: its JSON object, where it is already parsed.
    """
    return Record(raw, CODECS[codec] if isinstance(codec, str) else codec, origin, received_at, zone, logsource, event)


def from_mapping(
    event: Mapping[str, Value],
    *,
    codec: str = "json",
    origin: str = "",
    received_at: int = 0,
    zone: tzinfo | None = None,
    logsource: LogSource = _ANY_SOURCE,
) -> Record:
    """A structured event as a record, as if it had arrived as the JSON text of ``event``."""
    return record(to_json(event), codec, origin=origin, received_at=received_at, zone=zone, logsource=logsource)
