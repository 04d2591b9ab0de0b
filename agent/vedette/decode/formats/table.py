"""The formats of messages that are neither a program's words nor plain ``key=value``: a table, searched in order."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from vedette.decode.formats import auditd, cef, eventxml, fortinet, leef, services, weblog, windows, zeek
from vedette.decode.formats.base import Format, Seen, Shape

FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        row.name: row
        for row in (
            *(auditd.FORMAT, cef.FORMAT, leef.FORMAT, eventxml.FORMAT),
            *(fortinet.FORMAT, weblog.APACHE, weblog.NGINX),
        )
    }
)
"""Text, recognized by how a message begins."""

SHAPES: Mapping[str, Shape] = MappingProxyType(
    {row.name: row for row in (windows.SHAPE, zeek.SHAPE, *weblog.SHAPES, *services.SHAPES)}
)
"""JSON objects, recognized by the names that they hold; the first that fits."""

_STARTS = re.compile(b"|".join(b"(?P<%s>%s)" % (row.name.encode(), row.starts) for row in FORMATS.values()))
_PREFIXED = re.compile(rb"(?:\S{1,255} ){1,2}?(?:(?P<cef>%s)|(?P<leef>%s))" % (cef.STARTS, leef.STARTS))
"""CEF and LEEF behind a date and a host that are no syslog header."""


FIRST = frozenset(b"%c" % code for code in b"\t\n\v\f\r <CLadnt[0123456789")
"""First bytes of a message in one of ``FORMATS``: looked at before ``_STARTS``, as most messages are in none."""


PREFIXED = b"EF:", 520
"""Bytes in a message that is in one behind other words, and within how many bytes they stand."""


def format_at(raw: bytes, start: int) -> Format | None:
    """The format of the message of ``raw`` that begins at ``start``."""
    match = _STARTS.match(raw, start) if raw[start : start + 1] in FIRST else None
    mark, within = PREFIXED
    if match is None and raw.find(mark, start, start + within) >= 0:
        match = _PREFIXED.match(raw, start)
    return FORMATS[match.lastgroup] if match is not None and match.lastgroup is not None else None


def shape_of(event: Seen) -> Shape | None:
    """The make of a JSON object."""
    for shape in SHAPES.values():
        if shape.fits(event):
            return shape
    return None
