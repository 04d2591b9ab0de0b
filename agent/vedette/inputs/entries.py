"""An entry of systemd's journal as the event that the raw log holds: one line of RFC 5424.

    <PRI>1 TIME HOST PROGRAM PID MESSAGE_ID [journal _TRANSPORT="…" _COMM="…" …] MESSAGE

So whatever is known of syslog holds for it: programs, formats and JSON in messages, rules, the native kernel. TIME is
``__REALTIME_TIMESTAMP``, to the microsecond. PROGRAM is ``SYSLOG_IDENTIFIER``, else ``_COMM``; PID is journald's own
``_PID``, else what the sender said. MESSAGE stands there byte for byte, whatever is in it. The element ``journal``
holds the fields of ``KEPT`` and those that are asked for, under their names; decoders give them under these, too.

An audit record that journald took from the kernel (``_TRANSPORT=audit``) gets the begin back that journald cut off,
``type=TYPE msg=audit(SECONDS.MILLIS:SERIAL):``, and is an audit record as auditd writes it. Pure.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from typing import NamedTuple

from vedette.decode.syslog import JOURNAL
from vedette.inputs.export import Entry
from vedette.model.event import MAX_EVENT

KEPT = (
    b"_TRANSPORT", b"_UID", b"_GID", b"_COMM", b"_EXE", b"_CMDLINE", b"_SYSTEMD_UNIT", b"_SYSTEMD_USER_UNIT",
    b"_AUDIT_LOGINUID", b"_AUDIT_SESSION", b"UNIT", b"CONTAINER_NAME", b"CONTAINER_ID", b"CONTAINER_TAG", b"IMAGE_NAME",
)  # fmt: skip
"""Fields that are kept beside those of the header."""
HEADER = (
    b"MESSAGE", b"MESSAGE_ID", b"PRIORITY", b"SYSLOG_FACILITY", b"SYSLOG_IDENTIFIER", b"SYSLOG_PID", b"_PID",
    b"_HOSTNAME", b"_AUDIT_TYPE", b"_AUDIT_TYPE_NAME", b"_AUDIT_ID", b"_SOURCE_REALTIME_TIMESTAMP",
)  # fmt: skip
"""Fields that the rest of the line is made of."""
MAX_KEPT = 8 << 10
"""Bytes of one value in the element ``journal``."""
MAX_ELEMENT = 256 << 10
"""Bytes of all of them: a field may come a thousand times."""

_KERNEL = 0
_USER = 1
_INFO = 6
_NONE: list[bytes] = []
_UNSAFE = re.compile(rb"[\x00-\x20\x7f]")
_SPECIAL = re.compile(rb'["\\\]]')
_TYPE = re.compile(rb"[A-Z][A-Z0-9_]{0,38}")
_DIGITS = re.compile(rb"[0-9]{1,20}")
"""A number of up to 64 bits."""


class Line(NamedTuple):
    """``cut``: the entry was longer than an event may be."""

    data: bytes
    cut: bool


class Lines:
    """Makes the lines of entries. ``further``: names of fields that are kept beside ``KEPT``."""

    def __init__(self, further: Iterable[str] = ()) -> None:
        self._fields = tuple(dict.fromkeys((*KEPT, *(name.encode() for name in further))))
        self._second = -1
        self._date = b""
        self._element = JOURNAL.encode()

    @property
    def wanted(self) -> tuple[bytes, ...]:
        """Fields of which the line is made."""
        return tuple(dict.fromkeys((*HEADER, *self._fields)))

    def line(self, entry: Entry) -> Line:
        transport = _first(entry, b"_TRANSPORT")
        facility = _number(entry, b"SYSLOG_FACILITY", 23, _KERNEL if transport == b"kernel" else _USER)
        priority = facility << 3 | _number(entry, b"PRIORITY", 7, _INFO)
        head = b"<%d>1 %b %b %b %b %b " % (
            priority,
            self._time(_first(entry, b"__REALTIME_TIMESTAMP")),
            _word(_first(entry, b"_HOSTNAME"), 255),
            _word(_first(entry, b"SYSLOG_IDENTIFIER") or _first(entry, b"_COMM"), 128),
            _word(_first(entry, b"_PID") or _first(entry, b"SYSLOG_PID"), 64),
            _word(_first(entry, b"MESSAGE_ID"), 32),
        )
        said = []
        left = MAX_ELEMENT
        cut = False
        for name in self._fields:
            for value in entry.get(name, _NONE):
                if len(value) > MAX_KEPT:
                    value = value[:MAX_KEPT]
                    cut = True
                left -= len(value) + len(name)
                if left < 0:
                    cut = True
                    break
                if _SPECIAL.search(value):
                    value = _SPECIAL.sub(rb"\\\g<0>", value)
                said.append(b'%b="%b"' % (name, value))
        message = b"\n".join(entry.get(b"MESSAGE", _NONE))
        if transport == b"audit":
            message = _record(entry, message)
        data = b"[%b %b]" % (self._element, b" ".join(said)) if said else b"-"
        line = b"%b%b %b" % (head, data, message)
        return Line(line[:MAX_EVENT], True) if len(line) > MAX_EVENT else Line(line, cut)

    def _time(self, microseconds: bytes) -> bytes:
        try:
            second, rest = divmod(int(microseconds), 1_000_000)
            if second != self._second:
                self._date = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)).encode()
                self._second = second
        except (ValueError, OverflowError, OSError):
            return b"-"
        return b"%b.%06dZ" % (self._date, rest)


def _first(entry: Entry, name: bytes) -> bytes:
    values = entry.get(name)
    return values[0] if values else b""


def _number(entry: Entry, name: bytes, most: int, otherwise: int) -> int:
    text = _first(entry, name)
    return int(text) if text.isdigit() and len(text) < 4 and int(text) <= most else otherwise


def _word(text: bytes, most: int) -> bytes:
    """A part of the header, in which no blank may be; ``-`` for none."""
    return _UNSAFE.sub(b"_", text[:most]) or b"-"


def _record(entry: Entry, message: bytes) -> bytes:
    """An audit record with its begin; journald puts the name of its type in place of that."""
    name, blank, body = message.partition(b" ")
    number = _first(entry, b"_AUDIT_TYPE")
    serial = _first(entry, b"_AUDIT_ID")
    source = _first(entry, b"_SOURCE_REALTIME_TIMESTAMP")
    if not (blank and _TYPE.fullmatch(name) and _DIGITS.fullmatch(serial) and _DIGITS.fullmatch(source)):
        return message
    kind = number if name == b"AUDIT" + number else name  # of a type without a name
    second, rest = divmod(int(source), 1_000_000)
    return b"type=%b msg=audit(%d.%03d:%b): %b" % (kind, second, rest // 1000, serial, body)
