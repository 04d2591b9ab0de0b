"""systemd's Journal Export Format (https://systemd.io/JOURNAL_EXPORT_FORMATS): bytes as they come, to entries.

An entry is fields, then an empty line. A field is ``NAME=VALUE`` and a newline where VALUE is printable text, else

    NAME newline, length of VALUE as 8 bytes little-endian, VALUE, newline

so that VALUE may hold newlines, and an empty line in it ends no entry. A line without ``=`` is the name of such a
field.

A process may log hundreds of megabytes as one field. Of a value ``MAX_VALUE`` bytes are kept, the rest is skipped as it
comes; of an entry the first ``MAX_FIELDS`` values. Pure: bytes in, entries out, however the bytes are cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from vedette.model.event import MAX_EVENT

MAX_VALUE = MAX_EVENT + 1
"""Bytes: one more than an event may have, so that it is known to be longer."""
MAX_FIELDS = 1024
"""journald takes as many."""
MAX_NAME = 256
"""Bytes; journald takes names of 64."""

Entry: TypeAlias = Mapping[bytes, list[bytes]]
"""Values by name: a name may come more than once."""


class Malformed(ValueError):
    """Bytes that are no export format."""


class Export:
    """A stream of entries."""

    __slots__ = ("_buffer", "_ended", "_entry", "_fields", "_skip", "_text")

    def __init__(self) -> None:
        self._buffer = b""
        self._entry: dict[bytes, list[bytes]] = {}
        """The begin of an entry that was not taken as a whole."""
        self._fields = 0
        """Values in ``_entry``."""
        self._ended = False
        """The empty line was taken last."""
        self._skip = 0
        """Bytes of a value to be left out, with the newline behind it."""
        self._text = False
        """A line is left out up to its newline."""

    def feed(self, data: bytes) -> Iterator[Entry]:
        """The entries that ``data`` completes; raises Malformed."""
        self._buffer = buffer = self._buffer + data if self._buffer else data
        start = 0
        try:
            while True:
                if not (self._entry or self._skip or self._text):
                    end = buffer.find(b"\n\n", start)
                    if end < 0 and len(buffer) - start < MAX_VALUE:
                        return
                    if end >= 0 and (entry := _texts(buffer[start:end])) is not None:
                        start = end + 2
                        yield entry
                        continue
                after = self._field(buffer, start)
                if after < 0:
                    return
                start = after
                if self._ended and self._entry:
                    entry = self._entry
                    self._entry = {}
                    self._fields = 0
                    yield entry
        finally:
            self._buffer = buffer[start:]

    def _field(self, buffer: bytes, start: int) -> int:
        """Take one field, a part of one, or the empty line; where it ends, negative while it is not there whole."""
        self._ended = False
        if self._skip:
            after = min(start + self._skip, len(buffer))
            self._skip -= after - start
            return after if after > start else -1
        newline = buffer.find(b"\n", start)
        if self._text:
            self._text = newline < 0
            return newline + 1 if newline >= 0 else len(buffer) if len(buffer) > start else -1
        if newline < 0 and len(buffer) - start < MAX_VALUE + MAX_NAME:
            return -1
        line = buffer[start : newline if newline >= 0 else start + MAX_VALUE + MAX_NAME]
        if not line:
            self._ended = True
            return newline + 1
        name, equals, value = line.partition(b"=")
        if len(name) > MAX_NAME:
            raise Malformed(f"a field's name is longer than {MAX_NAME} bytes")
        if equals:
            self._add(name, value[:MAX_VALUE])
            self._text = newline < 0
            return newline + 1 if newline >= 0 else start + len(line)
        begin = newline + 9
        if len(buffer) < begin:
            return -1
        size = int.from_bytes(buffer[newline + 1 : begin], "little")
        length = min(size, MAX_VALUE)
        if len(buffer) < begin + length:
            return -1
        self._add(name, buffer[begin : begin + length])
        self._skip = size - length + 1
        return begin + length

    def _add(self, name: bytes, value: bytes) -> None:
        self._fields += 1
        if self._fields <= MAX_FIELDS:
            self._entry.setdefault(name, []).append(value)


def _texts(data: bytes) -> Entry | None:
    """The entry whose fields are all texts; None when one is not."""
    entry: dict[bytes, list[bytes]] = {}
    for line in data.split(b"\n"):
        name, equals, value = line.partition(b"=")
        if not equals:
            return None
        if name in entry:
            entry[name].append(value)
        else:
            entry[name] = [value]
    return entry
