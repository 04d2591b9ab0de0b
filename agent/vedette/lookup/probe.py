"""Where a key lies, in plain Python: each layout of an index read from the mapped bytes.

Before each but ``ranges`` a filter (``filter.py``) rules out nearly all keys that are not there.

hash     keys by a hash of 64 bits: its upper ``bits`` name a place in ``dir``, which gives the first entry there;
         of each entry one further byte of the hash in ``fps``; its row in ``refs``, or the entry's own number
sorted   keys of one width in order, of tables that have no other column: ``dir`` by their upper ``bits``, the
         remaining bytes of each in ``lows``
fst      texts, of tables that have no other column: an automaton (``fst.py``)
ranges   the points at which another range becomes the narrowest, as ``sorted``; at each in ``nodes`` which that is,
         plus one; of it the next wider one in ``parents``, plus one, and its row in ``refs``

Keys that are domains have ``dots[0]`` to ``dots[1]`` dots: what has more or fewer is not asked for.
"""

from __future__ import annotations

import ipaddress
import struct
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Any

from vedette.lookup import fst
from vedette.lookup.filter import Filter
from vedette.lookup.keys import canonical, gather, hash64, spread
from vedette.lookup.rows import Rows

Part = Callable[[str], memoryview]
Found = tuple[Any, ...]


class Hashed:
    """``rows`` are found by ``column``, and compared, as the entries hold a part of the hash only."""

    def __init__(self, layout: dict[str, Any], part: Part, kind: str, column: int, rows: Rows) -> None:
        self._bits, self._seed, self._kind, self._column, self._rows = (
            layout["bits"], layout["seed"], kind, column, rows,
        )  # fmt: skip
        self._dir, self._fps = part(layout["dir"]).cast("I"), part(layout["fps"])
        self._refs = part(layout["refs"]).cast("I") if layout["refs"] else None
        self._filter, self._dots = _filter(layout, part), layout["dots"]

    def find(self, key: bytes) -> Iterator[Found]:
        for suffix in suffixes(key, self._dots) if self._kind == "domain" else (key,):
            hash_ = hash64(suffix, self._seed)
            if not self._filter.may_hold(hash_):
                continue
            place = hash_ >> (64 - self._bits)
            mark = hash_ >> (56 - self._bits) & 255
            for at in range(self._dir[place], self._dir[place + 1]):
                if self._fps[at] == mark:
                    row = self._rows.row(at if self._refs is None else self._refs[at])
                    if canonical(self._kind, row[self._column]) == suffix:
                        yield row


def _filter(layout: dict[str, Any], part: Part) -> Filter:
    return Filter(layout["filter"], part(layout["filter"]["part"]))


def suffixes(domain: bytes, dots: list[int]) -> Iterator[bytes]:
    """Of a domain and all above it, the longest first, those that have as many dots as a key may have."""
    least, most = dots
    for left in range(domain.count(b"."), -1, -1):
        if domain and least <= left <= most:
            yield domain
        domain = domain.partition(b".")[2]


class Points:
    """Keys of ``width`` bytes in order, without their upper bits."""

    def __init__(self, layout: dict[str, Any], part: Part) -> None:
        self.width, self._bits = layout["width"], layout["bits"]
        self._low = (self.width * 8 - self._bits + 7) // 8
        self._dir, self._lows = part(layout["dir"]).cast("I"), part(layout["lows"])

    def _cut(self, key: bytes) -> tuple[int, bytes]:
        place = int.from_bytes(key, "big") >> (self.width * 8 - self._bits)
        return place, key[self.width - self._low :]

    def _at(self, entry: int) -> bytes:
        return bytes(self._lows[entry * self._low : (entry + 1) * self._low])

    def holds(self, key: bytes) -> bool:
        place, low = self._cut(key)
        start, end = self._dir[place], self._dir[place + 1]
        entry = bisect_left(range(end), low, start, end, key=self._at)
        return entry < end and self._at(entry) == low

    def last(self, key: bytes) -> int:
        """The last entry that is not above ``key``; -1: there is none."""
        place, low = self._cut(key)
        start, end = self._dir[place], self._dir[place + 1]
        while start < end:
            middle = (start + end) // 2
            if self._at(middle) <= low:
                start = middle + 1
            else:
                end = middle
        return start - 1


class Sorted:
    """The keys themselves: the row is the key."""

    def __init__(self, layout: dict[str, Any], part: Part, kind: str) -> None:
        self._parts = {points["width"]: Points(points, part) for points in layout["parts"]}
        self._kind, self._seed, self._filter = kind, layout["seed"], _filter(layout, part)

    def find(self, key: bytes) -> Iterator[Found]:
        if not self._filter.may_hold(hash64(key, self._seed)):
            return
        if self._kind in ("text", "nocase"):
            key = unhex(key) or b""
        elif self._kind == "number":
            key = struct.pack(">Q", spread(struct.unpack("<Q", key)[0]))
        points = self._parts.get(len(key))
        if points is not None and points.holds(key):
            yield (shown(self._kind, key),)


def unhex(key: bytes) -> bytes | None:
    """The bytes that lower-case hex digits represent; None when it is another text."""
    try:
        raw = bytes.fromhex(key.decode("ascii"))
    except ValueError:
        return None
    return raw if raw.hex().encode() == key else None


def shown(kind: str, key: bytes) -> Any:
    """The value of a key as ``Points`` holds it."""
    if kind == "number":
        return struct.unpack("<q", struct.pack("<Q", gather(int.from_bytes(key, "big"))))[0]
    return str(ipaddress.ip_address(key)) if kind in ("ip", "cidr") else key.hex()


class Automaton:
    def __init__(self, layout: dict[str, Any], part: Part, kind: str) -> None:
        self._set, self._kind, self._seed = fst.Set(part(layout["fst"])), kind, layout["seed"]
        self._filter, self._dots = _filter(layout, part), layout["dots"]

    def find(self, key: bytes) -> Iterator[Found]:
        for suffix in suffixes(key, self._dots) if self._kind == "domain" else (key,):
            if self._filter.may_hold(hash64(suffix, self._seed)) and self._set.holds(suffix):
                yield (suffix.decode("utf-8", "surrogatepass"),)


class Ranges:
    def __init__(self, layout: dict[str, Any], part: Part, rows: Rows) -> None:
        self._parts = {
            ranges["width"]: (Points(ranges, part), part(ranges["nodes"]).cast("I")) for ranges in layout["parts"]
        }
        self._parents, self._refs = part(layout["parents"]).cast("I"), part(layout["refs"]).cast("I")
        self._rows = rows

    def find(self, key: bytes) -> Iterator[Found]:
        if len(key) not in self._parts:
            return
        points, nodes = self._parts[len(key)]
        entry = points.last(key)
        node = nodes[entry] if entry >= 0 else 0
        while node:
            yield self._rows.row(self._refs[node - 1])
            node = self._parents[node - 1]
