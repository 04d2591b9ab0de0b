r"""A daemon's own log file: each line a time, then the daemon's words; no host, no name of a program.

``TIME MESSAGE``, the time one of these, perhaps in brackets, perhaps with a colon behind it:

* seconds since 1970, as mosquitto writes by default: ``1763672400: New connection from …``
* ISO: ``2025-11-20 20:00:00,123``, with ``T``, a fraction, an offset where there is one
* ``[Thu ]Nov 20 20:00:00[ 2025]``, the year inferred as in a syslog header where it is missing
* ``20-Nov-2025 20:00:00.123[ +0100]``; ``7:M 20 Nov 2025 20:00:00.123``, as Redis writes

Who wrote a line is what the input's ``format`` says; ``program_of`` tells it from the line itself, where the words are
one daemon's alone. All that follows the time is message: words that look like a host and a ``TAG[PID]:`` may be a
client's name, which its sender chose. A line without a time (``header`` gives None) is message from its start.
"""

from __future__ import annotations

import re
from datetime import tzinfo

from vedette.decode.syslog import Header
from vedette.model.times import HOUR, bsd_time, dated, iso_time

_ISO = rb"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:[Zz]|[+-]\d\d:?\d\d)?"
_CLOCK = rb"\d\d:\d\d:\d\d(?:\.\d+)?"
_TIME = re.compile(
    rb"(?:\d{1,10}:[CMSX] )?\[?(?:(?P<epoch>\d{10})(?:\.(?P<part>\d+))?|(?P<iso>" + _ISO + rb")"
    rb"|(?:[A-Z][a-z]{2} )?(?P<stamp>[A-Z][a-z]{2} [ \d]\d " + _CLOCK + rb")(?: (?P<year>(?:19|20)\d\d)(?=[\]: ]))?"
    rb"|(?P<date>\d\d[ -][A-Z][a-z]{2}[ -]\d{4} " + _CLOCK + rb")(?: (?P<zone>[+-]\d{4}))?"
    rb")\]?:?(?: +|\r?\n?\Z)"
)

BY_WORDS = {
    "mosquitto": re.compile(
        rb"(?:\d{10}|" + _ISO + rb"): (?:New (?:connection|client connected) from \S{1,256}:\d{1,5} (?:on port|as) "
        rb"|Client .{1,512}? (?:disconnected|closed its connection|already connected, closing|has exceeded timeout)"
        rb"|Denied (?:PUBLISH|SUBSCRIBE) from |(?:Socket error|Bad socket read/write) on client "
        rb"|mosquitto version \S{1,64} (?:starting|running|terminating))"
    ),
    "vsftpd": re.compile(rb"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d [\d:]{8} \d{4} \[pid \d{1,10}\]\s.{1,600}?: Client \""),
    "fail2ban": re.compile(rb"\d{4}-\d\d-\d\d [\d:,]{12} fail2ban\.\w{1,32} {1,32}\[\d{1,10}\]:\s"),
    "squid": re.compile(
        rb"\d{10}\.\d{3} {1,16}\d{1,10} [0-9A-Fa-f.:]{2,45}\s[A-Z_]{3,32}/\d{3} \d{1,20} .{1,65536} HIER_"
    ),
}
"""Programs (keys of ``PROGRAMS``) whose lines are recognized by their words; some of these stand in each."""


def program_of(raw: bytes) -> str:
    """The program whose own log ``raw`` is a line of, as its words tell; empty for none."""
    return next((name for name, words in BY_WORDS.items() if words.match(raw)), "")


def header(raw: bytes, received_at: int = 0, zone: tzinfo | None = None) -> Header | None:
    """The time of ``raw`` and where its message begins; None when it begins with no time.

    ``received_at`` and ``zone`` as for ``syslog.parse``.
    """
    match = _TIME.match(raw)
    if match is None:
        return None
    return Header(None, _time(match, received_at, zone), None, None, None, match.end())


def _time(match: re.Match[bytes], received_at: int, zone: tzinfo | None) -> int | None:
    epoch, iso, stamp, year, date, offset = match.group("epoch", "iso", "stamp", "year", "date", "zone")
    if epoch is not None:
        return int(epoch) * 1_000_000 + int((match["part"] or b"")[:6].ljust(6, b"0"))
    if iso is not None:
        return iso_time(iso.decode(), zone)
    if date is not None:
        day, month, rest = re.split(rb"[ -]", date, maxsplit=2)
        year, _, clock = rest.partition(b" ")
    else:
        month = stamp[:3]
        day = stamp[4:6]
        clock = stamp[7:]
    if year is None:
        return bsd_time(b"%s %2d %s" % (month, int(day), clock[:8]), 0, received_at // HOUR, zone)
    return dated(year.decode(), month.decode(), day.decode(), clock.decode(), (offset or b"").decode(), zone)
