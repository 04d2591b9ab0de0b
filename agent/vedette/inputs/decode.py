"""From the bytes of one event to its fields, lazily: ``record(raw, codec).get("user")``.

A codec is chosen per input; ``auto`` sniffs each event. Nothing here raises on any bytes: what a codec cannot read is
text, and its ``message`` the whole event. Where a value can come from more than one place, the first wins:

1. the syslog header (``hostname program pid msgid priority facility severity version``, ``SD-ID.parameter``) and what
   the agent itself knows (``topic topic_levels peer``): a sender must not forge them in the text it sends;
2. the message as JSON object (after syslog, also behind ``@cee:``), then what the program's patterns give
   (``programs.py``), then ``key=value`` pairs;
3. ``message``: what follows the header, or the whole event. (A JSON object's own ``message`` goes before it.)

Texts are cut out of the event as they are, never trimmed or joined, so that a literal of a rule is in the raw bytes
when it is in the value; what differs from this is told by ``provenance``. Values of JSON keep their type; all others
are texts, but ``priority`` and ``version``. A key that occurs twice in ``key=value`` text gives a list.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import tzinfo
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

import orjson

from vedette.event import LogSource, Source
from vedette.inputs import access, syslog
from vedette.inputs.programs import NO_PROGRAM, PROGRAMS, program_name
from vedette.inputs.values import ABSENT, Absent, Value, descend, path, scalars, time_of

__all__ = [
    "ABSENT",
    "CODECS",
    "Absent",
    "Codec",
    "Provenance",
    "Record",
    "Value",
    "from_mapping",
    "provenance",
    "record",
]


class Provenance(enum.Enum):
    """How a field's value stands in the raw bytes of its event."""

    VERBATIM = "verbatim"
    """As it is (but for U+FFFD in place of invalid UTF-8)."""
    ESCAPED_JSON = "escaped_json"
    """Verbatim, or as a JSON text or number, or with a backslash before ``"``, ``\\`` and ``]`` (RFC 5424)."""
    SYNTHETIC = "synthetic"
    """Perhaps not at all."""


_SYNTHETIC = frozenset({"topic", "topic_levels", "peer", "priority", "facility", "severity", "version"})


def provenance(field: str, codec: str = "auto") -> Provenance:
    """The weakest provenance of ``field`` over all decoders that a ``codec`` can lead to (JSON may give any field)."""
    if field.partition(".")[0] in _SYNTHETIC:
        return Provenance.SYNTHETIC
    return Provenance.VERBATIM if codec in ("text", "access") else Provenance.ESCAPED_JSON


class _Shape(enum.Enum):
    SYSLOG = 1
    JSON = 2
    ACCESS = 3
    MQTT = 4
    TEXT = 5


class Codec(NamedTuple):
    """How the events of an input are read."""

    name: str
    describes: str
    sniff: Callable[[bytes], _Shape]


def _sniff_auto(raw: bytes) -> _Shape:
    first = raw[:1]
    if first == b"<":
        return _Shape.SYSLOG
    if first == b"{" or (first in b" \t\xef" and raw[:64].lstrip(b" \t\xef\xbb\xbf").startswith(b"{")):
        return _Shape.JSON
    return _Shape.ACCESS if access.looks_like(raw) else _Shape.SYSLOG


CODECS: Mapping[str, Codec] = MappingProxyType(
    {
        codec.name: codec
        for codec in (
            Codec("auto", "sniffed per event: syslog, JSON, web access log or text", _sniff_auto),
            Codec("syslog", "RFC 5424, RFC 3164 and legacy headers; JSON messages too", lambda raw: _Shape.SYSLOG),
            Codec("json", "a JSON object per event", lambda raw: _Shape.JSON),
            Codec("text", "the whole event is the message", lambda raw: _Shape.TEXT),
            Codec("access", "web access log: common or combined", lambda raw: _Shape.ACCESS),
            Codec("mqtt", "MQTT payload: JSON or text, with its topic", lambda raw: _Shape.MQTT),
        )
    }
)
"""Codec names that an input's ``format`` may have."""

_ANY_SOURCE = LogSource()
_HEADER_FIELDS = frozenset({"hostname", "program", "pid", "msgid", "priority", "facility", "severity", "version"})
_NO_FIELDS: Mapping[str, Value] = {}
_UNREAD: Any = object()


class Record:
    """One event. Construction costs next to nothing; the header is parsed at first need, the message when a field is
    asked for that the header does not have."""

    __slots__ = (
        "_codec",
        "_event",
        "_fields",
        "_header",
        "_logsource",
        "_origin",
        "_received_at",
        "_shape",
        "_zone",
        "raw",
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
        self.raw = raw
        self._codec = codec
        self._origin = origin
        self._received_at = received_at
        self._zone = zone
        self._logsource = logsource
        self._event = event
        self._shape: _Shape | None = None
        self._header: syslog.Header | None = _UNREAD
        self._fields: dict[str, Value] | None = None

    @property
    def text(self) -> str:
        """The raw event as text."""
        return self.raw.decode("utf-8", "replace")

    def get(self, field: str) -> Value | Absent:
        """The value of ``field``: the field of this name, else the dotted path into objects; lists map over."""
        fields = self._fields
        if fields is None:
            if field in _HEADER_FIELDS and (header := self.header) is not None:
                known = _header_field(header, field)
                if known is not None:
                    return known
            if field == "message" and self._structured() is None:
                return self._message()  # what _decode would give, without reading the message for other fields
            fields = self._decode()
        value: Any = fields.get(field, _UNREAD)
        if value is not _UNREAD:
            return value  # type: ignore[no-any-return]
        if "." in field and (found := path(fields, field)) is not ABSENT:
            return found
        return descend(fields["value"], field) if type(self._event) is _Whole else ABSENT

    def fields(self) -> Mapping[str, Value]:
        """Everything decoded, by name; objects stay nested."""
        return self._decode() if self._fields is None else self._fields

    def keywords(self) -> Iterable[str]:
        """The texts that a Sigma keyword searches: all scalars of a structured event, else the message."""
        event, header = self._structured(), self.header
        texts = [self._message()] if event is None else scalars([event])
        if header is not None and header.structured_data:
            texts += scalars(list(header.structured_data.values()))
        return texts

    @property
    def header(self) -> syslog.Header | None:
        """The syslog header; None for other events."""
        if self._header is _UNREAD:
            if self._kind() is _Shape.SYSLOG:
                self._header = syslog.parse(self.raw, self._received_at, self._zone)
            else:
                self._header = None
        return self._header

    @property
    def host(self) -> str | None:
        """The host the event is about: as its header or its fields say, else the peer it came from."""
        if (header := self.header) is not None and header.host:
            return header.host
        if self._structured() is not None:
            for name in _HOST_FIELDS:
                value = self.get(name)
                if isinstance(value, str) and value:
                    return value
        return (self._origin or None) if self._kind() is not _Shape.MQTT else None

    @property
    def event_time(self) -> int | None:
        """When it happened, as the event says, in UTC microseconds; None when it does not say or not plausibly."""
        if (header := self.header) is not None and header.timestamp is not None:
            return header.timestamp
        if self._kind() is _Shape.ACCESS:
            stamp = self.get("timestamp")
            return access.time(stamp) if isinstance(stamp, str) else None
        if self._structured() is not None:
            for name in _TIME_FIELDS:
                time = time_of(self.get(name), self._zone)
                if time is not None:
                    return time
        return None

    @property
    def source(self) -> Source:
        """The log sources the event belongs to."""
        shape, header, facility = self._kind(), self.header, -1
        if header is not None:
            facility = -1 if header.priority is None else header.priority >> 3
        elif shape is _Shape.SYSLOG:
            shape = _Shape.TEXT
        app = self._program()
        return _source(shape, app if app in PROGRAMS else "", facility, self._logsource)

    def _kind(self) -> _Shape:
        shape = self._shape
        if shape is None:
            shape = self._shape = self._codec.sniff(self.raw)
        return shape

    def _message(self) -> str:
        """What follows the header, without the line's end."""
        header = self.header
        start = 0 if header is None else header.message_start
        return self.raw[start:].rstrip(b"\r\n\0").decode("utf-8", "replace")

    def _structured(self) -> Mapping[str, Value] | None:
        """The event's JSON object, or None."""
        event: Any = self._event
        if event is None:
            event = self._event = self._read_json()
        return event or None

    def _read_json(self) -> Mapping[str, Value]:
        """The JSON object in the event, ``_Whole`` for other JSON, empty for none."""
        shape, data = self._kind(), self.raw
        if shape is _Shape.TEXT or shape is _Shape.ACCESS:
            return _NO_FIELDS
        if shape is _Shape.SYSLOG:
            header = self.header
            at = _JSON_MESSAGE.match(data, 0 if header is None else header.message_start)
            if at is None:
                return _NO_FIELDS
            data = data[at.end() - 1 :]
        try:
            value = orjson.loads(data.strip(b" \t\r\n\0").removeprefix(b"\xef\xbb\xbf"))
        except ValueError:
            return _NO_FIELDS
        return value if isinstance(value, dict) else _Whole(value=value)

    def _program(self) -> str:
        """The key of the event's program in ``PROGRAMS``, or what it would be; empty when the event names none."""
        if (header := self.header) is not None:
            return program_name(header.app) if header.app else ""
        event = self._structured()
        name = None if event is None else event.get("SYSLOG_IDENTIFIER")
        return program_name(name) if isinstance(name, str) else ""

    def _decode(self) -> dict[str, Value]:
        """All fields; weaker origins first, so that stronger ones overwrite them."""
        shape, header, event = self._kind(), self.header, self._structured()
        fields: dict[str, Value] = {}
        if event is None:
            message = self._message()
            fields.update(_read(shape, self._program(), message))
            fields["message"] = message
        elif header is not None or type(event) is _Whole:
            fields["message"] = self._message()
            fields.update(event)
        else:
            journal = {name: event[key] for name, key in _JOURNAL.items() if key in event and "MESSAGE" in event}
            if isinstance(text := journal.get("message"), str):
                fields.update(_read(shape, self._program(), text))
            fields.update(journal)
            fields.update(event)
        if header is not None:
            for name in _HEADER_FIELDS:
                if (known := _header_field(header, name)) is not None:
                    fields[name] = known
            for element, parameters in header.structured_data.items():
                fields.update((f"{element}.{name}", value) for name, value in parameters.items())  # type: ignore[misc]
        if shape is _Shape.MQTT:
            fields["topic"] = self._origin
            fields["topic_levels"] = list(self._origin.split("/"))
        elif self._origin:
            fields["peer"] = self._origin
        self._fields = fields
        return fields


class _Whole(dict[str, Value]):
    """JSON that is no object, as the field ``value``."""


def _read(shape: _Shape, program: str, message: str) -> Mapping[str, Any]:
    """The fields of an unstructured message."""
    if shape is _Shape.ACCESS:
        return access.read(message)
    return _NO_FIELDS if shape is _Shape.TEXT else PROGRAMS.get(program, NO_PROGRAM).read(message)


_JSON_MESSAGE = re.compile(rb"\s*(?:@cee: ?)?\{")
_JOURNAL = {"message": "MESSAGE", "program": "SYSLOG_IDENTIFIER", "hostname": "_HOSTNAME", "pid": "_PID"}
"""systemd's journal as JSON: the generic names of its fields."""

_HOST_FIELDS = ("hostname", "host", "host.name", "_HOSTNAME", "Computer", "device_id", "device")
_TIME_FIELDS = ("@timestamp", "timestamp", "time", "ts", "eventTime", "UtcTime", "__REALTIME_TIMESTAMP")


def record(
    raw: bytes,
    codec: str,
    *,
    origin: str = "",
    received_at: int = 0,
    zone: tzinfo | None = None,
    logsource: LogSource = _ANY_SOURCE,
    event: Mapping[str, Value] | None = None,
) -> Record:
    """The event ``raw`` of an input with this codec (a key of ``CODECS``, else KeyError).

    ``origin``: peer address or MQTT topic. ``received_at``: UTC microseconds, 0 for unknown. ``zone``: of times without
    an offset (None: UTC). ``logsource``: the input's own. ``event``: its JSON object, where it is already parsed.
    """
    return Record(raw, CODECS[codec], origin, received_at, zone, logsource, event)


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
    raw = orjson.dumps(event, default=str, option=orjson.OPT_NON_STR_KEYS)
    return record(raw, codec, origin=origin, received_at=received_at, zone=zone, logsource=logsource)


def _header_field(header: syslog.Header, field: str) -> str | int | None:
    match field:
        case "hostname":
            return header.host
        case "program":
            return header.app
        case "pid":
            return header.pid
        case "msgid":
            return header.msgid
        case "version":
            return header.version
        case "priority":
            return header.priority
        case "facility":
            return None if header.priority is None else syslog.FACILITIES[header.priority >> 3]
        case _:
            return None if header.priority is None else syslog.SEVERITIES[header.priority & 7]


_FACILITY_SERVICES = {4: "auth", 10: "auth", 9: "cron", 2: "mail", 13: "auditd"}
_SHAPE_SOURCES = {
    _Shape.SYSLOG: Source(services=frozenset({"syslog"})),
    _Shape.ACCESS: Source(categories=frozenset({"webserver"})),
    _Shape.MQTT: Source(frozenset(), frozenset({"iot"}), frozenset({"mqtt"})),
}


@lru_cache(maxsize=4096)
def _source(shape: _Shape, program: str, facility: int, logsource: LogSource) -> Source:
    base = _SHAPE_SOURCES.get(shape, Source())
    row = PROGRAMS.get(program, NO_PROGRAM)
    by_facility = {_FACILITY_SERVICES[facility]} if facility in _FACILITY_SERVICES else set()
    return Source(
        base.products | ({logsource.product} - {""}),
        base.categories | row.categories | ({logsource.category} - {""}),
        base.services | row.services | by_facility | ({logsource.service} - {""}),
    )


@lru_cache(maxsize=256)
def possible_source(codec: str, logsource: LogSource) -> Source:
    """All that the ``source`` of an event can hold that comes from an input with this codec and log source.

    What does not fit it never meets such an event: so a rule is known to be idle on an input, or dead on an agent.
    """
    products, categories, services = ({part} - {""} for part in logsource)
    shapes = _SHAPES[codec]
    for shape in shapes:
        base = _SHAPE_SOURCES.get(shape, Source())
        products, categories, services = (
            products | base.products,
            categories | base.categories,
            services | base.services,
        )
    if shapes & {_Shape.SYSLOG, _Shape.JSON}:
        categories = categories.union(*(row.categories for row in PROGRAMS.values()))
        services = services.union(_FACILITY_SERVICES.values(), *(row.services for row in PROGRAMS.values()))
    return Source(frozenset(products), frozenset(categories), frozenset(services))


_SHAPES = {
    "auto": {_Shape.SYSLOG, _Shape.JSON, _Shape.ACCESS},
    "syslog": {_Shape.SYSLOG},
    "json": {_Shape.JSON},
    "text": {_Shape.TEXT},
    "access": {_Shape.ACCESS},
    "mqtt": {_Shape.MQTT},
}
"""What a codec's ``sniff`` can say."""
