"""The header of a syslog message: RFC 5424, RFC 3164, and what devices really send.

``parse`` is total: any bytes give a ``Header`` or None (neither a priority, a timestamp nor a TAG[PID]: not syslog).
Nothing is lost: what is not header is message, ``raw[header.message_start:]``; a part that breaks the format ends the
header there. Read in this order, the first that fits:

1. RFC 5424: ``<PRI>VERSION TIME HOST APP PROCID MSGID SD [MSG]`` with ``-`` for nothing. Accepted beyond it: longer
   names, a wrong TIME (no timestamp then), an SD that is missing or broken (it is message then), a ``]`` inside a
   quoted value; names that are missing before ``CEF:`` or ``LEEF:``. Known SD escapes are undone (section 6.3.3).
2. RFC 3164: ``<PRI>Mmm dd hh:mm:ss HOST TAG[PID]: MSG``. Accepted beyond it: no PRI; no HOST (as programs write to the
   local socket); a year before or after the time; a fraction, AM or PM, a colon, a zone or an offset after it, which is
   then the time's; HOST in brackets, twice, or behind a relay's; RFC 3339 or epoch times in place of it,
   also in brackets; NetScaler's ``mm/dd/yyyy:hh:mm:ss GMT`` (whose order of day and month is a setting: no timestamp);
   Cisco's sequence number and ``*``; ``HOST : TAG``; ``facility.severity`` before the HOST, also in ``<>``; F5's
   ``slotN/`` before it and a comma after it; a severity name before TAG[PID]; no time at all after a PRI;
   ``[HOST ]TAG[PID]:`` alone, with digits for PID, as journals are exported. A word without a colon is no TAG: it
   belongs to the message. Without PRI, a word after an RFC 3339 time is a HOST only when a TAG, CEF or LEEF follows,
   or, after a time with ``T``, a JSON object, and the word is no level (``INFO {…}``); never before a colon.
   ``CEF:`` and ``LEEF:`` are no TAG. AIX's ``Message forwarded from HOST:`` before the TAG says whose event it is, so
   does ``HOST`` and a tab before Snare's ``MSWinEventLog``.
3. Cisco: ``[NUMBER: ][HOST: ][NUMBER: ][NODE:][TIME: ][PROCESS[PID]: ]%FACILITY-SEVERITY-MNEMONIC: MSG`` with or
   without PRI and colons, also behind a relay's header, whose HOST its own goes before; TIME may be an uptime (no
   timestamp). HOST (its origin-id) needs a number, NODE or TIME beside it, PROCESS a number, NODE or its own TIME.

``unfold`` reads what rsyslog writes for a run of equal messages, ``tagged`` a TAG without colon and brackets.

A yearless time is dated by ``received_at`` (``model/times.py``); without that it has no timestamp. Timestamps are UTC
microseconds. Time is linear in the length of the header.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import tzinfo
from typing import NamedTuple

from vedette.decode.formats.base import Field, Gives, Provenance, named
from vedette.decode.values import Value
from vedette.model.times import HOUR, ZONES, bsd_time, iso_time, stamped_zone

FACILITIES = (
    *("kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp"),
    *("ntp", "audit", "alert", "clock", *(f"local{i}" for i in range(8))),
)
"""RFC 5424 section 6.2.1, by the names of syslog.conf."""

SEVERITIES = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")

OWN_NAMES: Mapping[str, str] = {
    "hostname": "log.syslog.hostname",
    "program": "log.syslog.appname",
    "pid": "log.syslog.procid",
    "msgid": "log.syslog.msgid",
    "priority": "log.syslog.priority",
    "facility": "log.syslog.facility.name",
    "severity": "log.syslog.severity.name",
    "version": "log.syslog.version",
}
"""``FIELDS`` by ECS's names, which are the header's alone."""
PARTS: Mapping[str, str] = {name: part for part, name in OWN_NAMES.items()}
FIELDS = frozenset(OWN_NAMES)
"""The names of a header's parts as fields of an event."""

_MADE = {
    "priority": frozenset(map(str, range(192))),
    "facility": frozenset(FACILITIES),
    "severity": frozenset(SEVERITIES),
    "version": frozenset(map(str, range(1, 1000))),
}
GIVES = Gives(
    "priority, time, `[HOST ]TAG[PID]:`, or `%FACILITY-SEVERITY-MNEMONIC:`; of RFC 5424 `SD-ID.parameter`",
    (
        *named(name for part, own in OWN_NAMES.items() for name in (part, own) if part not in _MADE),
        *named(["repeated"]),
        *(Field(name, how=Provenance.SYNTHETIC, values=values) for name, values in _MADE.items()),
        *(Field(OWN_NAMES[name], how=Provenance.SYNTHETIC, values=values) for name, values in _MADE.items()),
    ),
    Provenance.ESCAPED,
)

StructuredData = Mapping[str, Mapping[str, "str | list[str]"]]
"""SD-ID to parameters; a parameter given twice is a list."""

NO_DATA: StructuredData = {}
JOURNAL = "journal"
"""The SD-ID with the fields of an entry of systemd's journal (``inputs/entries.py``)."""


class Header(NamedTuple):
    """The parts before the message. Texts are decoded as UTF-8 (U+FFFD for what is not); None: not given."""

    priority: int | None
    timestamp: int | None
    host: str | None
    app: str | None
    pid: str | None
    message_start: int
    msgid: str | None = None
    structured_data: StructuredData = NO_DATA
    version: int | None = None
    """RFC 5424's; None for anything else."""
    message_end: int | None = None
    """Where the message ends, when it is folded; None: with the event."""
    repeated: str | None = None
    """How often a folded message came, in digits."""

    def field(self, name: str) -> str | int | None:
        """The value of a field of ``FIELDS``; facility and severity by name."""
        match name:
            case "hostname":
                return self.host
            case "program":
                return self.app
            case "facility":
                return None if self.priority is None else FACILITIES[self.priority >> 3]
            case "severity":
                return None if self.priority is None else SEVERITIES[self.priority & 7]
            case "pid":
                return self.pid
            case "msgid":
                return self.msgid
            case "version":
                return self.version
            case _:
                return self.priority

    def fields(self) -> dict[str, Value]:
        """All of ``FIELDS`` that are given."""
        priority, _, host, app, pid, _, msgid, _, version, _, _ = self
        fields: dict[str, Value] = {}
        if host is not None:
            fields["hostname"] = host
        if app is not None:
            fields["program"] = app
        if pid is not None:
            fields["pid"] = pid
        if msgid is not None:
            fields["msgid"] = msgid
        if priority is not None:
            fields["priority"] = priority
            fields["facility"] = FACILITIES[priority >> 3]
            fields["severity"] = SEVERITIES[priority & 7]
        if version is not None:
            fields["version"] = version
        return fields


_NAMES = (
    rb"(?!(?:[A-Z]{2,5}|[+-]\d\S*) )([^\s\[<]++)(?<!:) "
    rb"(?!CEF:|LEEF:)([^\s\[:=\"{},;]{1,128}+)(?:\[([^\]\s]{1,64})\])?:(?!/) ?"
)
_PLAIN = re.compile(rb"(?:<(\d{1,3})>)?([JFMASOND][aepuco][nbrylgptvc] [ \d]\d \d\d:\d\d:\d\d) %b" % _NAMES)
"""The header of nearly all RFC 3164 senders; ``_legacy`` reads the rest, also where a zone may stand for the host."""

_RFC5424 = re.compile(rb"<(\d{1,3})>([1-9]\d{0,2}) (-|\d\S*+) (\S++) (\S++) (\S++) (\S++)(?: |$)")
_SD = re.compile(rb'\[([^\s="\]\[]+)((?: +[^\s="\]]+= ?"(?:[^"\\]++|\\.)*+")*+) *\]', re.S)
_SD_PARAM = re.compile(rb' +([^\s="\]]+)= ?"((?:[^"\\]++|\\.)*+)"', re.S)
_SD_ESCAPE = re.compile(r'\\(["\\\]])')

_PRI = re.compile(rb"<(\d{1,3})>")
_TIME = (
    rb" *+(?:: *+)?(?:\d{1,10}: ){0,2}[*.%%]?\[?"
    rb"(?:(?:(?P<year>(?:19|20)\d\d) (?=[A-Z]))?(?P<month>[JFMASONDjfmasond][A-Ya-y]{2}) ++(?P<day>\d{1,2}),?"
    rb"(?: (?P<year_in>(?:19|20)\d\d))? (?P<clock>\d\d:\d\d:\d\d)(?P<half> [AP]M)?(?:[.,](?P<fraction>\d+))?"
    rb"(?: (?P<year_at>(?:19|20)\d\d)(?= ))?"
    rb"|(?:[1-9]\d? )?(?P<iso>\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:[Zz]|[+-]\d\d:?\d\d)?)Z?"
    rb"|(?:1 )?(?P<epoch>\d{10})(?:\.?(?P<parts>\d{1,9})\d{0,9})?(?= )"
    rb"|(?:\d\d/\d\d/\d{4}:)?\d\d:\d\d:\d\d(?:\.\d{1,6})?(?= GMT))"
    rb"(?:(?P<zone> ?(?:UTC|GMT|TZ)?[+-]\d\d?(?::?\d\d)?(?=[\s:])| ?Z(?=[\s:])| (?:%b)(?=[\s:\]]|$)"
    rb"| [A-Za-z]{2,5}(?= ?:(?: \S{1,80})? +%%))(?: (?P<year_end>(?:19|20)\d\d)(?= ))?)?"
    rb"\]?(?=[\s:]|$) *+:? *+"
) % b"|".join(map(str.encode, ZONES))
_STAMP = re.compile(_TIME)
_TAG = re.compile(rb"([^\s\[]{1,128}?)(?:\[([^\]\s]{0,64})\])?:(?:\s|$)")
"""The first word when it ends in a colon: no host precedes it."""

_LEVEL = (
    rb"(?i:emerg|panic|fatal|alert|crit|critical|severe|err|error|warn|warning|notice|info|information|debug|trace"
    rb"|verbose|audit|stdout|stderr)"
)
_HOST = re.compile(
    rb"(?:slot\d{1,2}/|[a-z0-9]{2,8}\.[a-z]{3,7} (?=\S+ \S+:)|<[a-z0-9]{2,8}\.[a-z]{3,7}> +)?"
    rb"([^\s,;=\"{}\[]{1,255})(?: +:(?= )|,(?=\w+=)|(?=\s|$)) *"
)
_BRACKETED = re.compile(rb"\[(?!(?:\d+|%b)\])([^\s,;=\"{}\[\]]{1,255})\] +" % _LEVEL)
_NO_HOST = re.compile(rb"[\d.]{7,15}|[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*|[A-Z]{3,5}")
"""An address, or a zone that is not known: before HOST and TAG[PID] it is no host."""
_FORMATTED = re.compile(rb"(?:CEF|LEEF): ?\d")
_EXPORTED = re.compile(rb"(?:([A-Za-z0-9][\w.-]{0,254}) )?([A-Za-z][\w./-]{0,127}(?:\(\w{1,32}\))?)\[(\d{1,10})\]: ?")
"""The header that journals are exported with: no time."""
_TAG_AFTER_HOST = re.compile(
    rb"(?:(?:emerg|alert|crit|err(?:or)?|warn(?:ing)?|notice|info|debug) +(?=\S+\[\d+\]:))?"
    rb"([^\s\[:=\"{},;]{1,128})(?:\[([^\]\s]{0,64})\](?::|(?= |$))|:(?!/)) ?"
)
_SNARE = re.compile(rb"([A-Za-z0-9][\w.-]{0,254})\t(?=MSWinEventLog)")
"""The host before Snare's own format."""
_FORWARDED = re.compile(rb"(?:[^\s,;=\"{}\[]{1,255} )?Message forwarded from (\S{1,255}): ")
_NO_LEVEL = re.compile(rb"(?!%b[\s:])([^\s,;=\"{}\[]{1,255}) " % _LEVEL)
_OBJECT = re.compile(rb"\{\s*[\"}]")
_WORD = re.compile(rb"([A-Za-z/][A-Za-z0-9_./-]{1,63}) (?=\S)")
_UPTIME = rb"(?:(?:\d{1,5}[ywdhms]){1,4}|\d{1,4}:\d\d:\d\d): "
_CISCO_TAG = rb"%\d?[A-Za-z][\w/-]{0,150}-[0-7A-Z]-\w{1,64}"
_TAGGED = re.compile(_CISCO_TAG)
_CISCO = re.compile(
    rb"(?:<\d{1,3}>)?[ :]*+(?:(?P<number>\d{1,10})[: ] *+)?"
    rb"(?:(?!\d{1,10}: |%b)(?P<host>[^\s,;=\"{}\[%%*<]{1,255}?)(?: ?:)? ++)?(?:\d{1,10}: ++)?(?:\*\w{1,64}: ++)?"
    rb"(?P<node>[A-Z0-9/]{1,24}CPU\d{1,3}:)?(?P<time>%b|%b *+)?(?P<process>[\w.-]{1,64}(?:\[\d{1,10}\])?: ++)?"
    rb"(?P<tag>%b)(?: ?:|(?=\s))(?: |(?=\s)|$)" % (_UPTIME, _TIME, _UPTIME, _CISCO_TAG)
)
RELAYED = 160
"""Bytes of a message in which Cisco's tag begins that came by a relay."""
_FOLDED = re.compile(rb"message repeated ([1-9]\d{0,9}) times: \[ ?")


def parse(raw: bytes, received_at: int = 0, zone: tzinfo | None = None) -> Header | None:
    """The header of ``raw``; None when it begins with neither a priority, a timestamp nor a TAG[PID].

    ``received_at`` (UTC microseconds, 0: unknown) tells the year of a time that has none; ``zone`` (None: UTC) is that
    of times that name none.
    """
    if match := _PLAIN.match(raw):
        pri, stamp, host, app, pid = match.groups()
        timestamp = bsd_time(stamp, 0, received_at // HOUR, zone)
        if (timestamp is not None or not received_at) and (pri is None or int(pri) < 192):
            priority = None if pri is None else int(pri)
            end = match.end()
            if (
                raw.find(b" %", end - 1, end + RELAYED) >= 0
                and _TAGGED.search(raw, end, end + RELAYED + 600)
                and (relayed := _cisco(raw, match.start(4), priority, received_at, zone))
            ):
                return relayed._replace(host=relayed.host or _text(host), timestamp=relayed.timestamp or timestamp)
            return Header(
                priority,
                timestamp,
                _text(host),
                app.decode("utf-8", "replace"),
                None if pid is None else pid.decode("utf-8", "replace"),
                end,
            )
    return _rfc5424(raw, zone) or _legacy(raw, received_at, zone)


_USUAL = re.compile(
    rb"<(\d{1,2}|1[0-8]\d|19[01])>"
    rb"(?:((?:J(?:an|u[nl])|Feb|Ma[ry]|A(?:pr|ug)|Sep|Oct|Nov|Dec) (?: [1-9]|1\d|2[0-8]) "
    rb"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d) "
    rb"%b|([1-9]\d{0,2}) \d{4}-\S*+ (\S++) (\S++) \S++ (?=\S++ ))" % _NAMES
)
"""Lines that ``parse`` for sure reads as ``_PLAIN`` (of the days only those that each month has: then the time is one)
or as RFC 5424 (with a time that is none the header is read all the same)."""


usual = _USUAL.match


def without_time(match: re.Match[bytes], raw: bytes, host: bool, pid: bool) -> bytes:
    """A line, of whose header ``match`` is what ``usual`` gives, without its time, and without its host and its process
    id unless these are wanted. Lines for which this is the same have the same header and message but for what is left
    out."""
    if match[3] is not None:
        if pid:
            return b"<%b>%b" % (match[1], raw[match.start(3) :])
        if host:
            return b"<%b>%b %b:%b" % (*match.group(1, 3, 4), raw[match.end() :])
        return b"<%b>%b:%b" % (*match.group(1, 4), raw[match.end() :])
    if pid:
        return b"5%b>%b %b" % (match[1], match[6], raw[match.start(7) :])
    if host:
        return b"5%b>%b %b %b %b" % (*match.group(1, 6, 7, 8), raw[match.end() :])
    return b"5%b>%b %b %b" % (*match.group(1, 6, 8), raw[match.end() :])


def of_usual(match: re.Match[bytes], raw: bytes, received_at: int, zone: tzinfo | None) -> Header | None:
    """Return the header that ``parse`` gives for such a line, which need not be matched again."""
    priority, stamp, host, app, pid = match.group(1, 2, 3, 4, 5)
    end = match.end()
    if app is None or 0 < received_at < HOUR or raw.find(b" %", end - 1, end + RELAYED) >= 0:
        return parse(raw, received_at, zone)
    return Header(
        int(priority),
        bsd_time(stamp, 0, received_at // HOUR, zone),
        _text(host),
        app.decode("utf-8", "replace"),
        None if pid is None else pid.decode("utf-8", "replace"),
        end,
    )


def program_and_start(match: re.Match[bytes], raw: bytes, received_at: int) -> tuple[str, int] | None:
    """The program of such a line as ``parse`` gives it, and where its message begins; None: ``parse`` has to tell.

    None, too, where the message is folded, or may be JSON.
    """
    app, start = match[4], match.end()
    if app is None or 0 < received_at < HOUR or raw.find(b" %", start - 1, start + RELAYED) >= 0:
        return None
    if raw[start : start + 1] in JSON_FIRST or raw.startswith(b"message repeated ", start):
        return None
    return app.decode("utf-8", "replace"), start


JSON_FIRST = frozenset((b" ", b"\t", b"\n", b"\v", b"\f", b"\r", b"@", b"{"))
"""First bytes of a message that may be JSON."""


def unfold(header: Header, raw: bytes) -> Header:
    """The header with the message that stands in ``message repeated N times: [ MESSAGE]``, if it is folded so."""
    if not raw.startswith(b"message repeated ", header.message_start):
        return header
    folded = _FOLDED.match(raw, header.message_start)
    end = len(raw)
    while end and raw[end - 1] in b"\r\n\0":
        end -= 1
    if folded is None or end <= folded.end() or raw[end - 1 : end] != b"]":
        return header
    return header._replace(message_start=folded.end(), message_end=end - 1, repeated=folded[1].decode())


def tagged(header: Header, raw: bytes, is_tag: Callable[[str, str], bool]) -> Header:
    """The header with the program that the message begins with, without a colon, if ``is_tag`` says so of its first
    word and the rest."""
    host, start = header.host, header.message_start
    if header.app is not None or header.version is not None or header.message_end is not None:
        return header
    if host is None and header.priority is None and raw[10:11] == b"T" and (own := _NO_LEVEL.match(raw, start)):
        host, start = _text(own[1]), own.end()
    bare = host is None and (header.priority is None or header.timestamp is not None)
    word = None if bare else _WORD.match(raw, start)
    end = 0 if word is None else word.end()
    if word is None or not is_tag(app := word[1].decode("ascii"), raw[end : end + 1024].decode("utf-8", "replace")):
        return header
    return header._replace(host=host, app=app, message_start=end)


def _text(value: bytes) -> str | None:
    if value[:1] == b"[" and value[-1:] == b"]":
        value = value[1:-1]
    return None if value == b"-" else value.decode("utf-8", "replace")


def _rfc5424(raw: bytes, zone: tzinfo | None) -> Header | None:
    match = _RFC5424.match(raw)
    if match is None or int(match[1]) > 191:
        return None
    pri, version, stamp, host, app, procid, msgid = match.groups()
    if stamp[4:5] not in (b"", b"-"):
        return None
    timestamp = iso_time(stamp.decode("ascii", "replace"), zone)
    for group in (5, 6, 7):  # names are missing before the message
        if _FORMATTED.match(match[group]):
            names = [_text(name) for name in (app, procid)[: group - 5]]
            app_name, pid = [*names, None, None][:2]
            return Header(int(pri), timestamp, _text(host), app_name, pid, match.start(group), version=int(version))
    data, start = _structured_data(raw, match.end())
    if raw.startswith(b"\xef\xbb\xbf", start):
        start += 3
    header = Header(
        int(pri), timestamp, _text(host), _text(app), _text(procid), start, _text(msgid), data, int(version)
    )
    cisco = _CISCO.match(raw, start) if raw.startswith(b"%", start) else None
    return header._replace(app=cisco["tag"].decode("ascii"), message_start=cisco.end()) if cisco else header


def _structured_data(raw: bytes, start: int) -> tuple[StructuredData, int]:
    """The elements at ``start`` and where the message begins; when they are broken, none and ``start``."""
    if raw.startswith(b"-", start) and raw[start + 1 : start + 2] in (b"", b" "):
        return NO_DATA, min(start + 2, len(raw))
    data: dict[str, dict[str, str | list[str]]] = {}
    end = start
    while match := _SD.match(raw, end):
        end = match.end()
        element = data.setdefault(match[1].decode("utf-8", "replace"), {})
        for name, value in _SD_PARAM.findall(match[2]):
            text = value.decode("utf-8", "replace")
            add(element, name.decode("utf-8", "replace"), _SD_ESCAPE.sub(r"\1", text) if "\\" in text else text)
    if not data or raw[end : end + 1] not in (b"", b" ", b"\r", b"\n", b"\0"):
        return NO_DATA, start
    return data, min(end + 1, len(raw))


def add(fields: dict[str, str | list[str]], name: str, value: str) -> None:
    """Set a field; a further value of the same name makes it a list, so that none hides another."""
    old = fields.get(name)
    if old is None:
        fields[name] = value
    elif isinstance(old, list):
        old.append(value)
    else:
        fields[name] = [old, value]


def _legacy(raw: bytes, received_at: int, zone: tzinfo | None) -> Header | None:
    priority = None
    pos = 0
    if match := _PRI.match(raw):
        priority = int(match[1])
        pos = match.end()
        if priority > 191:
            return None
    stamp = _STAMP.match(raw, pos)
    near = _TAGGED.search(raw, pos, pos + 600)
    if stamp is None:
        if near and (cisco := _cisco(raw, pos, priority, received_at, zone)):
            return cisco
        if priority is None:
            if snare := _SNARE.match(raw):
                return Header(None, None, _text(snare[1]), None, None, snare.end())
            exported = _EXPORTED.match(raw)
            return None if exported is None else _exported(exported)
        if _FORMATTED.match(raw, pos):
            return Header(priority, None, None, None, None, pos)
        tag = _TAG.match(raw, pos) or _TAG_AFTER_HOST.match(raw, pos)
        return _with_tag(priority, None, None, tag) if tag else Header(priority, None, None, None, None, pos)
    timestamp = _stamp_time(stamp, received_at, zone)
    pos = stamp.end()
    if _FORMATTED.match(raw, pos):
        return Header(priority, timestamp, None, None, None, pos)
    if forwarded := _FORWARDED.match(raw, pos):
        tag = _TAG.match(raw, forwarded.end()) or _TAG_AFTER_HOST.match(raw, forwarded.end())
        if tag:
            return _with_tag(priority, timestamp, _text(forwarded[1]), tag)
        return Header(priority, timestamp, _text(forwarded[1]), None, None, forwarded.end())
    host = _HOST.match(raw, pos)
    for relay in (None, host) if near else ():
        place = pos if relay is None else relay.end()
        if cisco := _cisco(raw, place, priority, received_at, zone, timed=relay is None):
            origin = cisco.host or (None if relay is None else _text(relay[1]))
            return cisco._replace(host=origin, timestamp=cisco.timestamp or timestamp)
    if priority is None and stamp["iso"] is not None and b":" in stamp[0][-2:]:
        return Header(priority, timestamp, None, None, None, pos)  # a colon behind the time: a program's own log
    if tag := _TAG.match(raw, pos):
        return _with_tag(priority, timestamp, None, tag)
    own_log = priority is None and stamp["month"] is None  # a program's: no host between time and text
    if host is None and not own_log:
        inner = _BRACKETED.match(raw, pos)
        tag = _TAG_AFTER_HOST.match(raw, pos if inner is None else inner.end())
        if tag is not None and (inner is not None or (tag[2] or b"").isdigit()):
            return _with_tag(priority, timestamp, None if inner is None else _text(inner[1]), tag)
        return Header(priority, timestamp, None, None, None, pos)
    if host is not None and _FORMATTED.match(raw, host.end()):
        return Header(priority, timestamp, _text(host[1]), None, None, host.end())
    if host is not None and (tag := _TAG_AFTER_HOST.match(raw, host.end())):
        return _with_tag(priority, timestamp, _text(host[1]), tag)
    if host is not None and (again := _again(raw, host, priority)):
        return again._replace(timestamp=timestamp)
    if own_log and host is not None:
        host = _NO_LEVEL.match(raw, pos) if b"T" in stamp[0] else None
        host = host if host is not None and _OBJECT.match(raw, host.end()) else None
    if host is None:
        return Header(priority, timestamp, None, None, None, pos)
    return Header(priority, timestamp, _text(host[1]), None, None, host.end())


def _again(raw: bytes, relay: re.Match[bytes], priority: int | None) -> Header | None:
    """Return the header, without its time, where a relay has put its time and its name for the host before another
    header, or its name before the host."""
    if inner := _PLAIN.match(raw, relay.end()):
        return Header(priority, None, _text(inner[3]), inner[4].decode("utf-8", "replace"), None, inner.end())
    host = _HOST.match(raw, relay.end())
    tag = None if host is None else _TAG_AFTER_HOST.match(raw, host.end())
    if host is None or tag is None:
        return None
    names = [name.lower().partition(b".")[0] for name in (relay[1], host[1])]
    if names[0] != names[1] and not (tag[2] and _NO_HOST.fullmatch(relay[1])):
        return None
    return _with_tag(priority, None, _text(host[1]), tag)


def _with_tag(priority: int | None, timestamp: int | None, host: str | None, tag: re.Match[bytes]) -> Header:
    pid = None if not tag[2] else tag[2].decode("utf-8", "replace")
    return Header(priority, timestamp, host, tag[1].decode("utf-8", "replace"), pid, tag.end())


def _cisco(
    raw: bytes, pos: int, priority: int | None, received_at: int, zone: tzinfo | None, *, timed: bool = False
) -> Header | None:
    """Return the header of a Cisco device at ``pos`` (form 3 above), which a time precedes (``timed``); None for
    anything else."""
    match = _CISCO.match(raw, pos)
    if match is None:
        return None
    sure = match["number"] or match["time"] or match["node"]
    host = None if match["host"] is None else _text(match["host"])
    host = None if host in ZONES else host
    if not sure and (match["process"] or (host is not None and not timed)):
        return None
    timestamp = _stamp_time(match, received_at, zone)
    return Header(priority, timestamp, host, match["tag"].decode("ascii"), None, match.end())


def _exported(match: re.Match[bytes]) -> Header:
    host, app, pid = (None if part is None else part.decode("utf-8", "replace") for part in match.groups())
    return Header(None, None, host, app, pid, match.end())


def _stamp_time(match: re.Match[bytes], received_at: int, zone: tzinfo | None) -> int | None:
    """The time of a match of ``_TIME``; None where it has none."""
    if name := match["zone"]:
        zone = stamped_zone(name.decode("ascii").strip(), zone)
    if match["iso"] is not None:
        return iso_time(match["iso"].decode("ascii"), zone)
    if match["epoch"] is not None:
        return int(match["epoch"]) * 1_000_000 + _micros(match["parts"])
    if match["month"] is None:
        return None
    clock = match["clock"]
    if match["half"]:
        clock = b"%02d%b" % (int(clock[:2]) % 12 + 12 * (match["half"] == b" PM"), clock[2:])
    stamp = b"%s %2d %s" % (match["month"], int(match["day"]), clock)
    year = int(match["year"] or match["year_in"] or match["year_at"] or match["year_end"] or 0)
    seconds = bsd_time(stamp, year, received_at // HOUR, zone)
    return None if seconds is None else seconds + _micros(match["fraction"])


def _micros(fraction: bytes | None) -> int:
    return int(fraction[:6].ljust(6, b"0")) if fraction else 0
