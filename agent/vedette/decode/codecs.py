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
    kind: Kind | None
    """The outermost layer of its events; None: recognized by content."""
    only: str | None = None
    """The one row of ``formats`` it reads; empty: none, and no program of a header either; None: all."""
    program: str = ""
    """The daemon whose own log it reads, a key of ``PROGRAMS``; empty: recognized by content."""
    row: Format | Shape | None = None
    """The reader of its messages that is no row of the tables of formats: declared by a rule set, or a plugin's;
    ``only`` is its name."""

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


DAEMONS = (
    *("asterisk", "dovecot", "exim", "fail2ban", "mosquitto", "mysqld", "named", "openvpn", "postgres", "proftpd"),
    *("redis", "roundcube", "squid", "vsftpd"),
)
"""Programs whose own log files have a codec of their name."""


CODECS: Mapping[str, Codec] = MappingProxyType(
    {
        codec.name: codec
        for codec in (
            Codec("auto", None),
            Codec("syslog", Kind.SYSLOG),
            Codec("json", Kind.JSON),
            Codec("text", Kind.TEXT),
            Codec("access", Kind.ACCESS),
            Codec("mqtt", Kind.MQTT),
            Codec("auditd", Kind.SYSLOG, "auditd"),
            Codec("cef", Kind.SYSLOG, "cef"),
            Codec("leef", Kind.SYSLOG, "leef"),
            Codec("eventxml", Kind.SYSLOG, "eventxml"),
            Codec("apache_error", Kind.SYSLOG, "apache_error"),
            Codec("nginx_error", Kind.SYSLOG, "nginx_error"),
            Codec("keyvalue", Kind.SYSLOG, ""),
            Codec("windows", Kind.JSON, "windows"),
            Codec("zeek", Kind.JSON, "zeek"),
            *(Codec(name, Kind.DAEMON, "", name) for name in DAEMONS),
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
"""Those of decoder plugins, by name: set once, before events are evaluated (``runtime/options/decoders.py``)."""


def with_declared(declared: Iterable[Codec]) -> Codecs:
    """All codecs that events can have: built-in, of plugins, ``declared``."""
    return Codecs({**CODECS, **plugged, **{codec.name: codec for codec in declared}})
