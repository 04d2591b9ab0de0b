"""How the events of an input are read: a table of codecs, one of which an input's ``format`` names.

``auto`` tells each event by its first bytes. A codec that names a format reads that alone (behind a syslog header, if
there is one); one that names a daemon reads that daemon's own log file (``ownlog.py``); the others find formats by
content (``formats/``) and programs by name (``programs.py``).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from vedette.decode import access, ownlog
from vedette.decode.formats.base import Format, Shape


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
    kind: Kind | None
    """The outermost layer of its events; None: recognized by content."""
    only: str | None = None
    """The one row of ``formats`` it reads; empty: none, and no program of a header either; None: all."""
    program: str = ""
    """The daemon whose own log it reads, a key of ``PROGRAMS``; empty: recognized by content."""
    row: Format | Shape | None = None
    """What reads its messages and is no row of the tables of formats: declared by a rule set, or a plugin's; ``only``
    is its name."""

    @property
    def kinds(self) -> frozenset[Kind]:
        """All that ``kind_of`` can give for its events."""
        return _BY_CONTENT if self.kind is None else frozenset({self.kind})


_BY_CONTENT = frozenset({Kind.SYSLOG, Kind.JSON, Kind.ACCESS, Kind.DAEMON})


def kind_of(raw: bytes) -> Kind:
    """The outermost layer of ``raw``, by its first bytes."""
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


CODECS: Mapping[str, Codec] = MappingProxyType(
    {
        codec.name: codec
        for codec in (
            Codec("auto", "recognized per event: syslog, JSON, web access log or text, and the formats in them", None),
            Codec("syslog", "RFC 5424, RFC 3164 and legacy headers; JSON messages too", Kind.SYSLOG),
            Codec("json", "a JSON object per event", Kind.JSON),
            Codec("text", "the whole event is the message", Kind.TEXT),
            Codec("access", "web access log: common or combined", Kind.ACCESS),
            Codec("mqtt", "MQTT payload: JSON or text, with its topic", Kind.MQTT),
            Codec("auditd", "the Linux audit log", Kind.SYSLOG, "auditd"),
            Codec("cef", "Common Event Format", Kind.SYSLOG, "cef"),
            Codec("leef", "Log Event Extended Format 1.0 and 2.0", Kind.SYSLOG, "leef"),
            Codec("eventxml", "Windows event XML, Sysmon for Linux", Kind.SYSLOG, "eventxml"),
            Codec("apache_error", "Apache's error log", Kind.SYSLOG, "apache_error"),
            Codec("nginx_error", "nginx's error log", Kind.SYSLOG, "nginx_error"),
            Codec("keyvalue", "key=value pairs", Kind.SYSLOG, ""),
            Codec("windows", "Windows events as JSON", Kind.JSON, "windows"),
            Codec("zeek", "Zeek's logs as JSON", Kind.JSON, "zeek"),
            *(Codec(name, f"the log file of {name}", Kind.DAEMON, "", name) for name in DAEMONS),
        )
    }
)
"""Codec names that an input's ``format`` may have."""


DECLARED = "rules:"
"""Before the name of a format that a rule set declares, where an input names it."""


def builtin(name: str) -> Codec:
    """The built-in codec of this name; of another name, which rules or a plugin may have, that of ``auto``."""
    return CODECS.get(name, CODECS["auto"])


class Codecs(dict[str, Codec]):
    """Codecs by name. One of another name (declared by rules that are not there) is read as ``auto`` reads it."""

    def __missing__(self, name: str) -> Codec:
        return CODECS["auto"]


plugged: dict[str, Codec] = {}
"""Those of decoder plugins, by name: set once, before events are evaluated (``runtime/decoders.py``)."""


def with_declared(declared: Iterable[Codec]) -> Codecs:
    """All codecs that events can have: built-in, of plugins, ``declared``."""
    return Codecs({**CODECS, **plugged, **{one.name: one for one in declared}})
