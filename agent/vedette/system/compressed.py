"""Compressed files, read as what is in them: gzip (RFC 1952), Zstandard (RFC 8878) and xz, by their first bytes.

Memory is bounded, whatever is in a file: ``STEP`` bytes are taken in at a time, at most ``MAX_WINDOW`` is kept of what
was unpacked before, and a read gives no more than it asks for. Members may follow each other, of any kind, with zeros
between. What is damaged or cut off ends the file at the last byte that could be unpacked (of Zstandard the last step,
of xz the last read before the damage); ``damage`` says what and where, and how much was read.
"""

from __future__ import annotations

import io
import lzma
import zlib
from typing import Any, Protocol

import zstandard

STEP = 128
"""Bytes of Zstandard given to its decompressor at once: 128 KiB may come of every four."""
READ = 64 << 10
MAX_WINDOW = 128 << 20


class Readable(Protocol):
    def read(self, size: int = -1, /) -> bytes: ...


class Ahead:
    """A file whose first bytes, ``head``, have been looked at."""

    damage = ""

    def __init__(self, file: Readable, size: int) -> None:
        self._file, self.head = file, b""
        while len(self.head) < size and (data := file.read(size - len(self.head))):
            self.head += data

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            head, self.head = self.head, b""
            return head + self._file.read()
        head, self.head = self.head[:size], self.head[size:]
        return head or self._file.read(size)


class _Zstandard:
    """One frame, with the interface of ``bz2`` and ``lzma``."""

    def __init__(self) -> None:
        self._object = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW).decompressobj()
        self._input, self._at, self._made = b"", 0, io.BytesIO()
        self._left = 0
        """Bytes of what was made that are not given yet."""
        self._error: zstandard.ZstdError | None = None

    def decompress(self, data: bytes, max_length: int) -> bytes:
        if data:
            self._input, self._at = self._input[self._at :] + data, 0
        if not self._left:
            if self._error is not None:
                raise self._error
            parts = list[bytes]()
            while self._left < max_length and self._at < len(self._input) and not self._object.eof:
                try:
                    parts.append(self._object.decompress(self._input[self._at : self._at + STEP]))
                except zstandard.ZstdError as error:
                    self._error = error
                    break
                self._at += STEP
                self._left += len(parts[-1])
            self._made = io.BytesIO(b"".join(parts))
        given = self._made.read(max_length)
        self._left -= len(given)
        return given

    @property
    def needs_input(self) -> bool:
        return not self._left and self._at >= len(self._input) and self._error is None

    @property
    def eof(self) -> bool:
        return bool(self._object.eof) and not self._left

    @property
    def unused_data(self) -> bytes:
        return bytes(self._object.unused_data) + self._input[self._at :]


class _Gzip:
    """One member, with the same interface."""

    def __init__(self) -> None:
        self._object = zlib.decompressobj(wbits=31)
        self._error: zlib.error | None = None

    def decompress(self, data: bytes, max_length: int) -> bytes:
        if self._error is not None:
            raise self._error
        data = self._object.unconsumed_tail + data
        before = self._object.copy()
        try:
            return self._object.decompress(data, max_length)
        except zlib.error as error:  # what this call had made is lost with it: make it again, byte for byte
            self._error = error
        made = list[bytes]()
        try:
            for i in range(len(data)):
                made.append(before.decompress(data[i : i + 1]))
        except zlib.error:
            pass
        return b"".join(made)

    @property
    def needs_input(self) -> bool:
        return not self._object.unconsumed_tail and self._error is None

    @property
    def eof(self) -> bool:
        return self._object.eof

    @property
    def unused_data(self) -> bytes:
        return self._object.unused_data


def _xz() -> Any:
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_WINDOW)


_SKIPPED = tuple(bytes([first]) + b"\x2a\x4d\x18" for first in range(0x50, 0x60))
"""Zstandard's skippable frames; ``pzstd`` begins with one."""
_KINDS: tuple[tuple[str, tuple[bytes, ...], Any], ...] = (
    ("gzip", (b"\x1f\x8b",), _Gzip),
    ("zstd", (b"\x28\xb5\x2f\xfd", *_SKIPPED), _Zstandard),
    ("xz", (b"\xfd7zXZ\x00",), _xz),
)
HEAD = 6


def _kind(head: bytes) -> tuple[str, Any] | None:
    return next(((name, made) for name, magics, made in _KINDS if head.startswith(magics)), None)


class Unpacked:
    """See the module's text. ``damage`` is empty as long as all is well."""

    def __init__(self, file: Readable, name: str, one: Any) -> None:
        self._file, self._name, self._one = file, name, one
        self._input, self._ended = b"", False
        self._taken = self._given = 0
        self.damage = ""

    def read(self, size: int = -1) -> bytes:
        """Up to ``size`` bytes, all that there are when it is negative; none at the end."""
        if size < 0:
            parts = list(iter(lambda: self.read(READ), b""))
            return b"".join(parts)
        while not self.damage and not self._ended:
            if self._one.needs_input and not self._input:
                self._take()
                if not self._input:
                    self._damaged("it is cut off")
                    break
            data, self._input = self._input, b""
            try:
                made: bytes = self._one.decompress(data, size)
                self._given += len(made)
                if self._one.eof:
                    self._next()
            except (zlib.error, lzma.LZMAError, zstandard.ZstdError) as error:
                self._damaged(str(error))
                break
            if made:
                return made
        return b""

    def _take(self) -> None:
        data = self._file.read(READ)
        self._taken += len(data)
        self._input += data

    def _next(self) -> None:
        """A member has ended: begin the one after it, if there is one."""
        self._input = self._one.unused_data.lstrip(b"\0")
        while len(self._input) < HEAD:
            before = self._taken
            self._take()
            self._input = self._input.lstrip(b"\0")
            if self._taken == before:
                break
        if not self._input:
            self._ended = True
            return
        kind = _kind(self._input)
        if kind is None:
            self._damaged("what follows is not compressed")
            return
        self._name, self._one = kind[0], kind[1]()

    def _damaged(self, reason: str) -> None:
        self.damage = (
            f"damaged {self._name} data before byte {self._taken:,}: {reason};"
            f" the {self._given:,} bytes unpacked before were read"
        )


def unpacked(file: Readable) -> Unpacked | Ahead:
    """``file``, or what is in it when it is compressed."""
    ahead = Ahead(file, HEAD)
    kind = _kind(ahead.head)
    return ahead if kind is None else Unpacked(ahead, kind[0], kind[1]())
