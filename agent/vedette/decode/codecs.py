"""How the events of an input are read: a table of codecs, one of which an input's ``format`` names.

``auto`` tells each event by its first bytes. A codec that names a format reads that alone (behind a syslog header, if
there is one); one that names a daemon reads that daemon's own log file (``ownlog.py``); the others find formats by
content (``formats/``) and programs by name (``programs.py``).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from vedette.decode import access, ownlog


class Kind(enum.Enum):
    """The outermost layer of an event."""

    SYSLOG = 1
    JSON = 2
    ACCESS = 3
    MQTT = 4
    TEXT = 5
    DAEMON = 6


class Codec(NamedTuple):
    """How the events of an input are read."""

    name: str
    describes: str
    sniff: Callable[[bytes], Kind]
    only: str | None = None
    """The one row of ``formats`` it reads; empty: none, and no program of a header either; None: all."""
    program: str = ""
    """The daemon whose own log it reads, a key of ``PROGRAMS``; empty: recognized by content."""


def _sniff_auto(raw: bytes) -> Kind:
    first = raw[:1]
    if first == b"<":
        return Kind.SYSLOG
    if first == b"{" or (first in b" \t\xef" and raw[:64].lstrip(b" \t\xef\xbb\xbf").startswith(b"{")):
        return Kind.JSON
    if access.looks_like(raw):
        return Kind.ACCESS
    return Kind.DAEMON if ownlog.program_of(raw) else Kind.SYSLOG


DAEMONS = ("asterisk", "fail2ban", "mosquitto", "named", "openvpn", "proftpd", "roundcube", "vsftpd")
"""Programs whose own log files have a codec of their name."""


def _always(kind: Kind) -> Callable[[bytes], Kind]:
    return lambda raw: kind


_SYSLOG, _JSON = _always(Kind.SYSLOG), _always(Kind.JSON)

CODECS: Mapping[str, Codec] = MappingProxyType(
    {
        codec.name: codec
        for codec in (
            Codec(
                "auto",
                "recognized per event: syslog, JSON, web access log or text, and the formats in them",
                _sniff_auto,
            ),
            Codec("syslog", "RFC 5424, RFC 3164 and legacy headers; JSON messages too", _SYSLOG),
            Codec("json", "a JSON object per event", _JSON),
            Codec("text", "the whole event is the message", _always(Kind.TEXT)),
            Codec("access", "web access log: common or combined", _always(Kind.ACCESS)),
            Codec("mqtt", "MQTT payload: JSON or text, with its topic", _always(Kind.MQTT)),
            Codec("auditd", "the Linux audit log", _SYSLOG, "auditd"),
            Codec("cef", "Common Event Format", _SYSLOG, "cef"),
            Codec("leef", "Log Event Extended Format 1.0 and 2.0", _SYSLOG, "leef"),
            Codec("eventxml", "Windows event XML, Sysmon for Linux", _SYSLOG, "eventxml"),
            Codec("apache_error", "Apache's error log", _SYSLOG, "apache_error"),
            Codec("nginx_error", "nginx's error log", _SYSLOG, "nginx_error"),
            Codec("keyvalue", "key=value pairs", _SYSLOG, ""),
            Codec("windows", "Windows events as JSON", _JSON, "windows"),
            Codec("zeek", "Zeek's logs as JSON", _JSON, "zeek"),
            *(Codec(name, f"the log file of {name}", _always(Kind.DAEMON), "", name) for name in DAEMONS),
        )
    }
)
"""Codec names that an input's ``format`` may have."""

KINDS: Mapping[str, frozenset[Kind]] = {
    "auto": frozenset({Kind.SYSLOG, Kind.JSON, Kind.ACCESS, Kind.DAEMON}),
    "json": frozenset({Kind.JSON}),
    "text": frozenset({Kind.TEXT}),
    "access": frozenset({Kind.ACCESS}),
    "mqtt": frozenset({Kind.MQTT}),
    "windows": frozenset({Kind.JSON}),
    "zeek": frozenset({Kind.JSON}),
    **dict.fromkeys(DAEMONS, frozenset({Kind.DAEMON})),
}
"""What a codec's ``sniff`` can say; ``SYSLOG`` alone for the others."""
