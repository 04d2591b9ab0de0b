"""Compressed files, read as what is in them: gzip (RFC 1952), Zstandard (RFC 8878) and xz, by their first bytes.

Memory is bounded, whatever is in a file: ``STEP`` bytes are unpacked at a time, at most ``MAX_WINDOW`` is kept of what
was unpacked before, and a read gives no more than it asks for. Members may follow each other, of any kind, with zeros
between. What is damaged or cut off ends the file at the last step that could be unpacked; ``damage`` says what and
where, and how much was read.
"""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import zstandard

STEP = 128
"""Bytes unpacked at once. Of Zstandard 128 KiB may come of every four; gzip and xz give less."""
READ = 8 << 10
MAX_WINDOW = 128 << 20
HEAD = 6
"""Bytes by which a kind is recognised."""
_KINDS: dict[str, tuple[tuple[bytes, ...], Callable[[], Any]]] = {
    "gzip": ((b"\x1f\x8b",), lambda: zlib.decompressobj(wbits=31)),
    "zstd": (
        (b"\x28\xb5\x2f\xfd", *(bytes([first]) + b"\x2a\x4d\x18" for first in range(0x50, 0x60))),
        lambda: zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW).decompressobj(),
    ),
    "xz": ((b"\xfd7zXZ\x00",), lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_WINDOW)),
}
"""First bytes of each kind, among Zstandard's those of skippable frames (``pzstd`` begins with one), and what unpacks a
member."""


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


def _kind(head: bytes) -> str:
    return next((name for name, (magics, _) in _KINDS.items() if head.startswith(magics)), "")


class Unpacked:
    """See the module's text. ``damage`` is empty as long as all is well."""

    def __init__(self, file: Readable) -> None:
        self._file, self._parts, self._ready, self._taken = file, self._unpack(), bytearray(), 0
        self.damage = ""

    def read(self, size: int = -1) -> bytes:
        """Up to ``size`` bytes, all that there are when it is negative; none at the end."""
        while (size < 0 or len(self._ready) < size) and (part := next(self._parts, None)) is not None:
            self._ready += part
        data = bytes(self._ready if size < 0 else self._ready[:size])
        del self._ready[: len(data)]
        return data

    def _unpack(self) -> Iterator[bytes]:
        data, size_before, name = b"", 0, ""

        def damaged(reason: str) -> None:
            self.damage = (
                f"damaged {name} data before byte {self._taken:,}: {reason};"
                f" the {size_before:,} bytes unpacked before were read"
            )

        while True:
            data = data.lstrip(b"\0")
            while len(data) < HEAD and (more := self._take()):
                data = (data + more).lstrip(b"\0")
            if not data:
                return
            if not (kind := _kind(data)):
                return damaged("what follows is not compressed")
            name, member = kind, _KINDS[kind][1]()
            while not member.eof:
                data = data or self._take()
                if not data:
                    return damaged("it is cut off")
                step, data = data[:STEP], data[STEP:]
                try:
                    part = member.decompress(step)
                except (zlib.error, lzma.LZMAError, zstandard.ZstdError) as error:
                    return damaged(str(error))
                size_before += len(part)
                yield part
            data = member.unused_data + data

    def _take(self) -> bytes:
        data = self._file.read(READ)
        self._taken += len(data)
        return data


def unpacked(file: Readable) -> Unpacked | Ahead:
    """``file``, or what is in it when it is compressed."""
    ahead = Ahead(file, HEAD)
    return Unpacked(ahead) if _kind(ahead.head) else ahead
