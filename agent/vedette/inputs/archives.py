"""Rotated files that are compressed, read as a stream: gzip (RFC 1952) and Zstandard (RFC 8878), also of several parts.

What can be read of a torn or damaged file is given before the damage is named. Memory is bounded whatever is in it: so
little is unpacked at a time that a bomb gives 16 MB at most, and a window beyond MAX_WINDOW is refused.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

import zstandard

from vedette.model.event import CHUNK_BYTES

MAX_WINDOW = 32 << 20
READ_BYTES = 16 << 10
LEAST_BYTES = 1 << 20
"""Read of the packed file before ``read`` returns without content: holes and empty members have none."""
STEP = 512
"""Bytes unpacked at a time: of Zstandard a block of 4 bytes can be 128 KiB."""


class Damaged(Exception):
    """The rest of the file cannot be read, and why."""


def _zstd() -> Any:
    return zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW).decompressobj(write_size=16 << 10)


SUFFIXES: Mapping[str, Callable[[], Any]] = {".gz": lambda: zlib.decompressobj(31), ".zst": _zstd}
"""By the end of a name: what unpacks one member."""


class Archive:
    """The content of an open file, which it owns."""

    def __init__(self, file: BinaryIO, suffix: str) -> None:
        self._file = file
        self._make = SUFFIXES[suffix]
        self._input = b""
        self._member: Any = None
        self._damage = ""
        self._ended = False

    @property
    def ended(self) -> bool:
        return self._ended

    def read(self, least: int = CHUNK_BYTES) -> bytes:
        """Some bytes more, ``least`` unless it ends or has none for long; empty and ``ended``: it has ended. Raises
        Damaged and OSError."""
        pieces = []
        size = 0
        furthest = self._file.tell() + LEAST_BYTES
        while size < least and not self._ended and (size or self._file.tell() < furthest):
            piece = self._unpack()
            pieces.append(piece)
            size += len(piece)
        if not size and self._damage:
            raise Damaged(self._damage)
        return b"".join(pieces)

    def _unpack(self) -> bytes:
        if not self._input:
            self._input = self._file.read(READ_BYTES)
            if not self._input:
                self._ended = True
                self._damage = "it is cut off" if self._member is not None else ""
                return b""
        if self._member is None:
            self._input = self._input.lstrip(b"\0")  # some writers fill up the last block
            if not self._input:
                return b""
            self._member = self._make()
        member = self._member
        step, self._input = self._input[:STEP], self._input[STEP:]
        try:
            data: bytes = member.decompress(step)
        except (zlib.error, zstandard.ZstdError) as error:
            self._damage = str(error)
            self._ended = True
            return b""
        if member.eof:
            self._input = member.unused_data + self._input
            self._member = None
        return data

    def close(self) -> None:
        self._file.close()
