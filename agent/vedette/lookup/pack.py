"""The parts of a lookup from columns and keys: each function in plain Python, with the same answer from the kernel.

Keys lie one behind the other in ``arena``; key i ends at ``ends[i]``, or all are ``width`` bytes.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from vedette.lookup import filter as filters
from vedette.lookup.filter import Shape
from vedette.lookup.keys import hash64
from vedette.lookup.rows import GROUP

Bytes = bytes | bytearray | memoryview
Twins = list[tuple[int, int]]
"""Pairs of rows of the same key, in the order of the table; the first few."""
MAX_TWINS = 8


@dataclass(frozen=True, slots=True)
class Keys:
    arena: Bytes
    ends: array[int] | None
    width: int
    count: int

    def __iter__(self) -> Iterator[bytes]:
        start = 0
        for number in range(self.count):
            end = start + self.width if self.ends is None else self.ends[number]
            yield bytes(self.arena[start:end])
            start = end


def hash_entries(keys: Keys, seed: int, bits: int, unique: bool) -> tuple[array[int], bytes, bytes, Twins]:
    """The row of each entry, ``dir``, ``fps``, twins; ``unique``: only the first row of a key."""
    listed = list(keys)
    hashes, twins = _merged(listed, sorted((hash64(key, seed), row) for row, key in enumerate(listed)), unique)
    order = array("I", [row for _, row in hashes])
    marks = bytes(hash_ >> (56 - bits) & 255 for hash_, _ in hashes)
    return order, directory([hash_ >> (64 - bits) for hash_, _ in hashes], bits), marks, twins


def filtered(keys: Keys, seed: int, shape: Shape) -> tuple[bytes, tuple[int, int]]:
    """The filter of keys, and the fewest and most dots of one."""
    dots = {key.count(b".") for key in keys}
    return filters.made(shape, (hash64(key, seed) for key in keys)), (min(dots, default=0), max(dots, default=0))


def _merged(keys: Sequence[bytes], ranked: list[tuple[int, int]], unique: bool) -> tuple[list[tuple[int, int]], Twins]:
    twins: Twins = []
    merged = ranked[:1]
    for before, here in pairwise(ranked):
        if before[0] == here[0] and keys[before[1]] == keys[here[1]]:
            twins.append((before[1], here[1]))
            if unique:
                continue
        merged.append(here)
    return merged, twins[:MAX_TWINS]


def directory(places: Sequence[int], bits: int) -> bytes:
    """Of each place the number of its first entry, and at last that of all; ``places`` rise."""
    starts = array("I", [0]) * ((1 << bits) + 1)
    for place in places:
        starts[place + 1] += 1
    total = 0
    for place, count in enumerate(starts):
        total += count
        starts[place] = total
    return starts.tobytes()


def points(keys: Keys, bits: int, unique: bool) -> tuple[array[int], bytes, bytes, Twins]:
    """The row of each key in order, ``dir``, ``lows``, twins. Keys of one width; ``unique`` as above."""
    listed = list(keys)
    values = sorted((int.from_bytes(key, "big"), row) for row, key in enumerate(listed))
    ranked, twins = _merged(listed, values, unique)
    low = (keys.width * 8 - bits + 7) // 8
    places = [value >> (keys.width * 8 - bits) for value, _ in ranked]
    lows = b"".join(listed[row][keys.width - low :] for _, row in ranked)
    return array("I", [row for _, row in ranked]), directory(places, bits), lows, twins


def records(columns: Sequence[dict[str, Any]], order: array[int], base: int) -> tuple[bytes, bytes]:
    """``records`` and ``groups`` of the rows ``order``, the first of which lies at ``base`` and begins a group.

    A column: ``code``, ``width``; ``data`` (integers, floats, or the bytes of an arena), and of texts ``ends`` and
    ``there`` (a byte a row: whether it has a text).
    """
    out, groups = bytearray(), array("Q")
    for number, row in enumerate(order):
        if number % GROUP == 0:
            groups.append(base + len(out))
        for column in columns:
            width, data = column["width"], column["data"]
            match column["code"]:
                case "b" | "d":
                    out += int(data[row]).to_bytes(width, "little")
                case "f":
                    out += struct.pack("<d", data[row])
                case "a" | "x":
                    out += data[row * width : (row + 1) * width]
        for column in columns:
            if column["code"] == "t":
                if not column["there"][row]:
                    out += b"\0"
                    continue
                text = column["data"][column["ends"][row - 1] if row else 0 : column["ends"][row]]
                size = len(text) + 1
                while size > 127:
                    out.append(size & 127 | 128)
                    size >>= 7
                out.append(size)
                out += text
    return bytes(out), groups.tobytes()
