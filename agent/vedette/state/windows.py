"""The events of one group, in the order of their times, and what a correlation measures over a stretch of them.

An entry is three integers in one array: event time, raw offset, and ``meta`` (bit 0: the condition held at it; bits 8
to 15: its slot; from bit 16: the event's length in bytes). Entries of one time keep the order in which they came.
Values of the correlation's field and what correlations above want to know stand beside, index by index, where needed.

``compact`` forgets what can no longer matter, given that no event before ``settled`` comes any more: all that lies
before the last window that may still change; and of a prompt correlation, before ``settled``, all but the newest
entries that decide: as many as ``least`` asks for, one of each value or slot, or (ordered) those that a chain can use.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Callable
from typing import Any

from vedette.compiler.relation import Clause, Correlation, Kind

HELD = 1
ENTRY_BYTES = 24
WINDOW_BYTES = 400
"""What a window without entries takes, with its key and its places in the tables."""

MIN_LIMIT = 16
"""Entries below which a window is not compacted."""

Number = int | float


def meta(slot: int, length: int) -> int:
    return length << 16 | slot << 8


class Window:
    """See the module's text."""

    __slots__ = ("carried", "decided", "entries", "limit", "size", "sources", "values")

    def __init__(self, key_bytes: int = 0) -> None:
        self.size = WINDOW_BYTES + key_bytes
        """Bytes of memory, about."""
        self.entries = array("q")
        self.values: list[Any] | None = None
        self.carried: list[tuple[Any, ...]] | None = None
        self.sources: tuple[int, ...] = ()
        self.decided: int | None = None
        """Of a correlation that is not prompt: matches up to this time are decided."""
        self.limit = MIN_LIMIT
        """Entries at which to compact."""

    def __len__(self) -> int:
        return len(self.entries) // 3

    def _cost(self) -> int:
        """Bytes of the entries."""
        return ENTRY_BYTES * len(self) + sum(map(_bytes, self.values or ())) + sum(map(_bytes, self.carried or ()))

    def time(self, i: int) -> int:
        return self.entries[3 * i]

    def offset(self, i: int) -> int:
        return self.entries[3 * i + 1]

    def slot(self, i: int) -> int:
        return self.entries[3 * i + 2] >> 8 & 0xFF

    def length(self, i: int) -> int:
        return self.entries[3 * i + 2] >> 16

    def held(self, i: int) -> bool:
        return bool(self.entries[3 * i + 2] & HELD)

    def hold(self, i: int, last: int = -1) -> None:
        """Mark entry ``i``, or the entries ``i`` to ``last``."""
        for number in range(i, max(i, last) + 1):
            self.entries[3 * number + 2] |= HELD

    def begins(self, i: int) -> int:
        """The first entry of the event that entry ``i`` is of: one event may match several rules."""
        time, offset, entries = self.entries[3 * i], self.entries[3 * i + 1], self.entries
        while i and entries[3 * i - 2] == offset and entries[3 * i - 3] == time:
            i -= 1
        return i

    def ends(self, i: int) -> int:
        """The last entry of that event."""
        time, offset, entries = self.entries[3 * i], self.entries[3 * i + 1], self.entries
        while 3 * i + 3 < len(entries) and entries[3 * i + 4] == offset and entries[3 * i + 3] == time:
            i += 1
        return i

    def first(self, time: int) -> int:
        """The index of the first entry not before ``time``."""
        entries, low, high = self.entries, 0, len(self.entries) // 3
        while low < high:
            middle = (low + high) // 2
            if entries[3 * middle] < time:
                low = middle + 1
            else:
                high = middle
        return low

    def insert(self, time: int, offset: int, mark: int, value: Any, carried: tuple[Any, ...] | None) -> int:
        """Put an entry in its place, after those of the same time; returns its index."""
        entries = self.entries
        n = len(entries)
        if not n or time >= entries[n - 3]:
            entries.extend((time, offset, mark))
            i = n // 3
        else:
            i = self.first(time + 1)
            entries[3 * i : 3 * i] = array("q", (time, offset, mark))
        self.size += ENTRY_BYTES + _bytes(value) + _bytes(carried)
        if value is not None and self.values is None:
            self.values = [None] * (n // 3)
        if self.values is not None:
            self.values.insert(i, value)
        if carried is not None and self.carried is None:
            self.carried = [()] * (n // 3)
        if self.carried is not None:
            self.carried.insert(i, carried or ())
        return i

    def has(self, time: int, offset: int, value: Any, slots: tuple[int, ...]) -> bool:
        """True when an entry of one of ``slots`` is this very event with this value."""
        if not self.entries or time > self.entries[-3]:  # what comes most
            return False
        i = self.first(time)
        while i < len(self) and self.time(i) == time:
            if (
                self.offset(i) == offset
                and self.slot(i) in slots
                and (None if self.values is None else self.values[i]) == value
            ):
                return True
            i += 1
        return False

    def keep(self, indexes: list[int]) -> None:
        """Forget all entries but those at ``indexes``, ascending."""
        entries, kept = self.entries, array("q")
        for i in indexes:
            kept.extend(entries[3 * i : 3 * i + 3])
        self.entries = kept
        if self.values is not None:
            self.values = [self.values[i] for i in indexes]
        if self.carried is not None:
            self.carried = [self.carried[i] for i in indexes]

    def compact(self, c: Correlation, settled: int) -> None:
        """See the module's text."""
        base = self.size - self._cost()
        self.drop(self.first(settled - c.span))
        n = len(self)
        until = self.first(settled)
        if c.prompt and self.carried is None and until > 1 and c.kind in _DECIDING:
            deciding = _DECIDING[c.kind](c, self, until)
            if len(deciding) < until:
                self.keep([*deciding, *range(until, n)])
        self.limit = max(MIN_LIMIT, 2 * len(self))
        self.size = base + self._cost()

    def drop(self, n: int) -> None:
        """Forget the first ``n`` entries."""
        if n:
            base = self.size - self._cost()
            del self.entries[: 3 * n]
            if self.values is not None:
                del self.values[:n]
            if self.carried is not None:
                del self.carried[:n]
            self.size = base + self._cost()

    def recarry(self, before: tuple[str, ...], now: tuple[str, ...]) -> None:
        """What correlations above want to know is no longer ``before`` but ``now``; what was not kept is not known."""
        if before == now:
            return
        base = self.size - self._cost()
        rows = self.carried or [()] * len(self)
        self.carried = [tuple(dict(zip(before, row, strict=False)).get(name) for name in now) for row in rows]
        if not now:
            self.carried = None
        self.size = base + self._cost()

    def pack(self) -> list[Any]:
        """For msgpack; ``unpack`` is its inverse."""
        return [self.entries.tobytes(), self.values, self.carried, self.sources, self.decided, self.limit]

    @classmethod
    def unpack(cls, row: list[Any], key_bytes: int = 0) -> Window:
        """Raises ValueError or TypeError when ``row`` is not what ``pack`` gives."""
        window = cls(key_bytes)
        entries, values, carried, sources, decided, limit = row
        window.entries.frombytes(entries)
        window.values = None if values is None else [tuple(v) if isinstance(v, list) else v for v in values]
        window.carried = None if carried is None else [tuple(v) for v in carried]
        window.sources, window.decided, window.limit = tuple(sources), decided, limit
        window.size += window._cost()
        return window


def _bytes(value: Any) -> int:
    """Of memory, about, that a value or a row of values takes besides its entry."""
    if value is None:
        return 0
    if isinstance(value, str):
        return 64 + len(value)
    return 64 + sum(map(_bytes, value)) if isinstance(value, tuple) else 40


def _newest(c: Correlation, window: Window, until: int) -> list[int]:
    return list(range(max(0, until - max(c.least, 1)), until))


def _one_each(c: Correlation, window: Window, until: int) -> list[int]:
    """The newest entry of each value (or slot), and the newest of all."""
    seen: set[Any] = set()
    kept = []
    for i in range(until - 1, -1, -1):
        what = window.slot(i) if c.kind is Kind.TEMPORAL else window.values[i] if window.values is not None else None
        if i == until - 1 or (what is not None and what not in seen):
            kept.append(i)
        seen.add(what)
    return kept[::-1]


def _chain(c: Correlation, window: Window, until: int) -> list[int]:
    """Going back, the newest entry of each slot before any kept one of a later slot, of another event."""
    covered = [False] * len(c.slots)
    kept: list[int] = []
    i = until - 1
    while i >= 0:
        offset, here = window.offset(i), []
        while i >= 0 and window.offset(i) == offset:  # one event is one link at most
            if not covered[window.slot(i)] or i == until - 1:
                here.append(i)
            i -= 1
        kept += here
        for slot in map(window.slot, here):
            covered[slot] = True
        for slot in map(window.slot, here):
            covered[:slot] = [False] * slot
    return kept[::-1]


_DECIDING: dict[Kind, Callable[[Correlation, Window, int], list[int]]] = {
    Kind.EVENT_COUNT: _newest,
    Kind.VALUE_COUNT: _one_each,
    Kind.TEMPORAL: _one_each,
    Kind.TEMPORAL_ORDERED: _chain,
}


def metric(c: Correlation, window: Window, start: int, stop: int) -> Number | None:
    """What ``c`` measures over the entries ``start`` to ``stop`` (exclusive)."""
    match c.kind:
        case Kind.EVENT_COUNT:
            return stop - start
        case Kind.TEMPORAL:
            return len(_slots(c, window, start, stop))
        case Kind.TEMPORAL_ORDERED:
            return longest_chain(c, window, start, stop)
    values = [] if window.values is None else [v for v in window.values[start:stop] if v is not None]
    match c.kind:
        case Kind.VALUE_COUNT:
            return len(set(values))
        case _ if not values:
            return None
        case Kind.VALUE_SUM:
            return _total(values)
        case Kind.VALUE_AVG:
            return _total(values) / len(values)
        case Kind.VALUE_MEDIAN:
            return percentile(values, 50.0)
        case Kind.VALUE_PERCENTILE:
            return percentile(values, c.percentile)
    raise ValueError(f"a correlation of kind {c.kind} needs an engine that this version lacks")


def _total(values: list[Number]) -> Number:
    """The exact sum, rounded once."""
    total = sum(values)
    if isinstance(total, int):
        return total
    try:
        return math.fsum(values)
    except OverflowError:
        return total


def percentile(values: list[Number], percent: float) -> float | int:
    """By linear interpolation between the two nearest ranks (of n values, the first has rank 0, the last n - 1)."""
    ranked = sorted(values)
    position = (len(ranked) - 1) * percent / 100
    low = math.floor(position)
    if position == low:
        return ranked[low]
    return ranked[low] * (low + 1 - position) + ranked[low + 1] * (position - low)


def _slots(c: Correlation, window: Window, start: int, stop: int) -> set[int]:
    """The slots with an entry in the stretch."""
    found: set[int] = set()
    for i in range(stop - 1, start - 1, -1):
        found.add(window.slot(i))
        if len(found) == len(c.slots):
            break
    return found


def longest_chain(c: Correlation, window: Window, start: int, stop: int) -> int:
    """How many slots can be picked in ascending order, each from a later event than the one before."""
    best = [0] * (len(c.slots) + 1)
    """By slot, plus one: the longest chain that ends at this slot or a lower one."""
    i = start
    while i < stop:
        offset, reached = window.offset(i), []
        while i < stop and window.offset(i) == offset:  # one event is one link at most
            slot = window.slot(i)
            reached.append((slot, best[slot] + 1))
            i += 1
        for slot, size in reached:
            for higher in range(slot + 1, len(best)):
                best[higher] = max(best[higher], size)
    return best[-1]


def clause_holds(c: Correlation, clause: Clause, window: Window, start: int, stop: int) -> int | None:
    """The index of the entry that completes ``clause``'s wanted slots in the stretch; None when it does not hold."""
    if any(window.slot(i) in clause.forbidden for i in range(start, stop)):
        return None
    if c.kind is Kind.TEMPORAL_ORDERED:
        wanted = list(clause.wanted)
        last = None
        for i in range(start, stop):
            if window.slot(i) == wanted[0] and window.offset(i) != last:
                del wanted[0]
                last = window.offset(i)
                if not wanted:
                    return i
        return None
    missing = set(clause.wanted)
    for i in range(start, stop):
        missing.discard(window.slot(i))
        if not missing:
            return i
    return None


_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?")


def number_of(value: Any) -> Number | None:
    """A number, or the one that a text is written as in JSON's syntax; None for all else."""
    if isinstance(value, str):
        value = value.strip()
        if len(value) > 300 or not (match := _NUMBER.fullmatch(value)):
            return None
        value = int(value) if match[1] is match[2] is None else float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value if abs(value) < 1 << 63 else float(value)
