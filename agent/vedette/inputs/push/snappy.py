"""Snappy's block format (google/snappy, format_description.txt): what Loki's own agents pack their pushes in.

    varint: length unpacked, then elements, by the low two bits of their first byte:
    00 literal, its length - 1 in the upper six bits, or in 1 to 4 bytes behind them (60 to 63)
    01 copy of 4 to 11 bytes, offset of 11 bits;  10, 11 copy of 1 to 64 bytes, offset of 2 or 4 bytes

A copy repeats what was unpacked before, at most ``offset`` bytes back, and may reach into itself. Nothing is unpacked
beyond the length that was announced, and that is held against ``most`` first.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

TURN = 4096
"""Elements unpacked at once, about 2 ms, so that the event loop gets its turn."""

T = TypeVar("T")


def unpack(body: bytes, most: int) -> Generator[list[T], None, bytes]:
    """Yield nothing, at times, and return the bytes that were packed. Raises OverflowError where they are more than
    ``most``, ValueError for what is no Snappy block."""
    try:
        size, at = _length(body)
        if size > most:
            raise OverflowError(f"{size} bytes, at most {most}")
        out = bytearray()
        end = len(body)
        turn = TURN
        while at < end:
            if not (turn := turn - 1):
                turn = TURN
                yield []
            tag = body[at]
            kind = tag & 3
            if kind == 0:
                length = (tag >> 2) + 1
                at += 1
                if length > 60:
                    width = length - 60
                    length = int.from_bytes(body[at : at + width], "little") + 1
                    at += width
                if at + length > end:
                    raise ValueError("is cut off")
                out += body[at : at + length]
                at += length
            else:
                if kind == 1:
                    length = (tag >> 2 & 7) + 4
                    offset = (tag >> 5) << 8 | body[at + 1]
                    at += 2
                elif kind == 2:
                    length = (tag >> 2) + 1
                    offset = body[at + 1] | body[at + 2] << 8
                    at += 3
                else:
                    length = (tag >> 2) + 1
                    offset = int.from_bytes(body[at + 1 : at + 5], "little")
                    at += 5
                start = len(out) - offset
                if offset == 0 or start < 0:
                    raise ValueError("copies from before its beginning")
                if offset >= length:
                    out += out[start : start + length]
                else:
                    out += (out[start:] * (length // offset + 1))[:length]
            if len(out) > size:
                raise ValueError("is longer than it says")
    except IndexError:
        raise ValueError("is cut off") from None
    if len(out) != size:
        raise ValueError("is shorter than it says")
    return bytes(out)


def _length(body: bytes) -> tuple[int, int]:
    """Return the length unpacked, and where it ends. Raises IndexError, ValueError."""
    size = at = shift = 0
    while True:
        byte = body[at]
        at += 1
        size |= (byte & 127) << shift
        if byte < 128:
            return size, at
        shift += 7
        if shift > 28:
            raise ValueError("its length is no number")
