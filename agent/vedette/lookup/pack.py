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


def hash_entries(keys: Keys, seed: int, bits: int) -> tuple[array[int], bytes, bytes, Twins]:
    """The row of each entry, ``dir``, ``fps``, twins."""
    listed = list(keys)
    hashes = sorted((hash64(key, seed), row) for row, key in enumerate(listed))
    order = array("I", [row for _, row in hashes])
    twins: Twins = []
    for before, here in pairwise(hashes):
        if before[0] == here[0] and listed[before[1]] == listed[here[1]] and len(twins) < MAX_TWINS:
            twins.append((before[1], here[1]))
    marks = bytes(found >> (56 - bits) & 255 for found, _ in hashes)
    return order, directory([found >> (64 - bits) for found, _ in hashes], bits), marks, twins


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


def points(keys: Keys, bits: int) -> tuple[array[int], bytes, bytes, Twins]:
    """The row of each key in order, ``dir``, ``lows``, twins. Keys of one width."""
    ranked = sorted((key, row) for row, key in enumerate(keys))
    twins = [(a[1], b[1]) for a, b in pairwise(ranked) if a[0] == b[0]][:MAX_TWINS]
    low = (keys.width * 8 - bits + 7) // 8
    places = [int.from_bytes(key, "big") >> (keys.width * 8 - bits) for key, _ in ranked]
    lows = b"".join(key[keys.width - low :] for key, _ in ranked)
    return array("I", [row for _, row in ranked]), directory(places, bits), lows, twins


def records(columns: Sequence[dict[str, Any]], order: array[int]) -> tuple[bytes, bytes, list[bytes]]:
    """``records``, ``groups`` and symbols of the rows ``order``.

    A column: ``code``, ``width``; ``data`` (integers, floats, or the bytes of an arena), and of texts ``ends`` and
    ``there`` (a byte a row: whether it has a text).
    """
    out, groups = bytearray(), array("Q")
    for number, row in enumerate(order):
        if number % GROUP == 0:
            groups.append(len(out))
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
    return bytes(out), groups.tobytes(), []
