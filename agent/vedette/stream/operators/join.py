"""Joins of two inputs over time.

**Interval join**: two rows join when their keys are equal, right time - left time is within ``lower`` and ``upper``
(both inclusive), and ``when`` holds. A row is kept while the watermark is before the end of its interval: no row that
could still join it in time is refused, and a late row joins what is kept. When the watermark gets there, a row of an
outer side that never joined is given with NULL for the other; a row that comes later than that is not kept, and its
NULL row is given at once. The watermark below is behind by the longer side of the interval, so that what is given
late is not late there. Flink 2.3 keeps rows up to half an interval longer before it looks at them: then a NULL row
comes later than here, and a late row may join what is gone here (``docs/sql.md``).

**Window join**: two rows join when they are of the same window and their keys are equal, and ``when`` holds. All is
given when the watermark passes the window; a row that comes then is late. ``SEMI`` and ``ANTI`` give left rows with and
without a partner.

A NULL key equals nothing, itself neither. An expression that fails on a pair makes it no pair, and is counted.

**Bounds.** Each row meets all rows of its key, so that a key's work grows with the square of its rows. Of a key and
side an interval join keeps ``MAX_CHUNKS`` chunks of rows in each of about ``SLOTS`` parts of the interval; of a window
and key a window join keeps what makes ``MAX_PAIRS`` pairs of chunks, and the longer side gives way. What came first
goes, counted as ``evicted``. No other key loses a row by it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from operator import itemgetter
from typing import ClassVar

from vedette.plan import query
from vedette.plan.query import MILLISECOND, Row
from vedette.stream.expression import FAILURES, condition
from vedette.stream.functions.library import LIBRARY
from vedette.stream.functions.table import Function
from vedette.stream.keyed import Budget, Key
from vedette.stream.operators.base import FOREVER, Operator
from vedette.stream.operators.rows import Entry, Rows, newest_by

LEFT, RIGHT = 0, 1
SLOTS = 8
"""The rows of a key that an interval spans lie in about so many groups by their time."""
MAX_CHUNKS = 32
MAX_PAIRS = 1024
OUTER = {"INNER": (False, False), "LEFT": (True, False), "RIGHT": (False, True), "FULL": (True, True)}
"""By kind whether left and right rows without a partner are given."""


def key_of(columns: tuple[int, ...]) -> Callable[[Row], Key | None]:
    """Return what gives a row's key; None when a part of it is NULL, which equals nothing."""
    if not columns:
        return lambda row: ()
    if len(columns) == 1:
        index = columns[0]
        return lambda row: None if row[index] is None else (row[index],)
    parts = itemgetter(*columns)

    def several(row: Row) -> Key | None:
        key: Key = parts(row)
        return None if None in key else key

    return several


class Join(Operator):
    """The common part of both joins; the node says which of them it makes."""

    renews: ClassVar[bool] = True

    node: query.Join
    library: ClassVar[Mapping[str, Function]] = LIBRARY

    def __new__(cls, node: query.Join, budget: Budget) -> Join:
        return super().__new__(IntervalJoin if node.windows is None else WindowJoin)

    def __init__(self, node: query.Join, budget: Budget) -> None:
        super().__init__(node, budget)
        self._when = None if node.when is None else condition(node.when, self.library)
        self._keys = key_of(node.left_keys), key_of(node.right_keys)
        self._no_left = (None,) * len(node.left.columns)
        self._no_right = (None,) * len(node.right.columns)

    def _pair(self, left: Row, right: Row) -> Row | None:
        row = (left[0] if left[0] > right[0] else right[0], *left[1:], *right[1:])
        if self._when is not None:
            try:
                if not self._when(row):
                    return None
            except FAILURES:
                self.failed += 1
                return None
        return row

    def _alone(self, port: int, row: Row) -> Row:
        return row + self._no_right if port == LEFT else (row[0], *self._no_left, *row[1:])


class IntervalJoin(Join):
    """Groups of rows are (key, slot of time); an entry adds its number among all, and whether it has joined."""

    exact = True

    def __init__(self, node: query.Join, budget: Budget) -> None:
        super().__init__(node, budget)
        lower, upper = node.lower, node.upper
        self._times = node.left.time, node.right.time
        self._reach = (lower, upper), (-upper, -lower)
        """Of a row of each port the times of its partners, from its own."""
        self._outer = OUTER[node.kind]
        self._delay = max(0, upper, -lower)
        self._slot = max(MILLISECOND, abs(upper - lower) // SLOTS)
        self.retains = max(abs(lower), abs(upper))
        self._sides = Rows(budget, newest_by(node.left.time)), Rows(budget, newest_by(node.right.time))
        self.tables += [side.table for side in self._sides]
        self._slots: tuple[dict[Key, list[int]], dict[Key, list[int]]] = ({}, {})
        """By key the slots of each side."""
        self._looks: tuple[dict[Key, int], dict[Key, int]] = ({}, {})
        """By group when it is looked at next."""
        self._due: list[tuple[int, int, int, Key]] = []
        """A heap of these: when, a number, port, group. One that ``_looks`` does not have is void."""
        self._number = self._pushed = 0

    def push(self, port: int, rows: Sequence[Row]) -> None:
        key_of, time, (first, last) = self._keys[port], self._times[port], self._reach[port]
        slots, outer, mark = self._slots[1 - port], self._outer[port], self.mark
        output: list[Row] = []
        for row in rows:
            key, at = key_of(row), row[time]
            joined = key is not None and key in slots and self._join(port, row, key, (at + first, at + last), output)
            if key is not None and at + last > mark:
                self._keep(port, key, row, joined)
            elif outer and not joined:
                output.append(self._alone(port, row))
            output = self.so_far(output)
        self.emit(output)

    def _join(self, port: int, row: Row, key: Key, within: tuple[int, int], output: list[Row]) -> bool:
        """Whether the row joins any that is kept."""
        other, mark = 1 - port, self.mark
        side, time, expires, outer = self._sides[other], self._times[other], self._reach[other][1], self._outer[other]
        low, high = within
        before, slots = len(output), self._slots[other][key]
        for number in slots[bisect_left(slots, low // self._slot) : bisect_right(slots, high // self._slot)]:
            for place, chunk in side.chunks((*key, number)):
                self.budget.give_way()
                for entry in chunk:
                    partner = entry[0]
                    at = partner[time]
                    if not low <= at <= high or at + expires <= mark:
                        continue
                    pair = self._pair(row, partner) if port == LEFT else self._pair(partner, row)
                    if pair is not None:
                        output.append(pair)
                        if outer and not entry[3]:
                            entry[3] = True
                            side.touch(place)
        return len(output) > before

    def _keep(self, port: int, key: Key, row: Row, joined: bool) -> None:
        number = row[self._times[port]] // self._slot
        group = (*key, number)
        slots = self._slots[port].get(key)
        if slots is None:
            self._slots[port][key] = [number]
        elif number not in slots:
            insort(slots, number)
        entry = self._sides[port].add(group, row, self._number, joined)
        self._sides[port].bound(group, MAX_CHUNKS)
        self._number += 1
        self._look_at(port, group, entry)

    def _look_at(self, port: int, group: Key, entry: Entry) -> None:
        """See that ``group`` is looked at when ``entry`` asks for it."""
        reach = self._reach[port][1]
        if self._outer[port] and not entry[3]:
            when = entry[0][self._times[port]] + reach
        else:
            when = (group[-1] + 1) * self._slot + reach
        looks = self._looks[port]
        if when < looks.get(group, FOREVER):
            looks[group] = when
            heappush(self._due, (when, self._pushed, port, group))
            self._pushed += 1

    def due(self, mark: int) -> None:
        alone: list[tuple[int, int, Row]] = []
        heap = self._due
        while heap and heap[0][0] <= mark:
            self.budget.give_way()
            when, _, port, group = heappop(heap)
            if self._looks[port].get(group) != when:
                continue
            del self._looks[port][group]
            side, time, reach = self._sides[port], self._times[port], self._reach[port][1]
            left = False
            for place, chunk in list(side.chunks(group)):
                staying = []
                for entry in chunk:
                    at = entry[0][time]
                    if at + reach > mark:
                        staying.append(entry)
                    elif self._outer[port] and not entry[3]:
                        alone.append((at, entry[2], self._alone(port, entry[0])))
                if len(staying) < len(chunk):
                    side.keep(place, staying)
                for entry in staying:
                    left = True
                    self._look_at(port, group, entry)
            if not left:
                self._forget(port, group)
        alone.sort(key=itemgetter(0, 1))
        self.emit([row for _, _, row in alone])

    def _forget(self, port: int, group: Key) -> None:
        self._sides[port].drop(group)
        slots = self._slots[port][group[:-1]]
        slots.remove(group[-1])
        if not slots:
            del self._slots[port][group[:-1]]

    def passed(self, mark: int) -> int:
        return mark - self._delay if mark < FOREVER else mark

    def boundary(self, mark: int) -> int:
        """When a row is given alone: of those that are kept, and of those that may come."""
        if not any(self._outer):
            return FOREVER
        ends = (reach for (_, reach), outer in zip(self._reach, self._outer, strict=True) if outer)
        return max(mark + 1, min(self._due[0][0] if self._due else FOREVER, mark + min(ends)))

    def resume(self) -> None:
        self._due.clear()
        self._number = 0
        for port, side in enumerate(self._sides):
            side.resume()
            self._slots[port].clear()
            self._looks[port].clear()
            for group in side.groups():
                insort(self._slots[port].setdefault(group[:-1], []), group[-1])
                for entry in side.entries(group):
                    self._number = max(self._number, entry[2] + 1)
                    self._look_at(port, group, entry)


def _end(group: Key, chunk: list[Entry]) -> int:
    return int(group[0])


class WindowJoin(Join):
    """Groups of rows are (window's end, its start, key); an entry adds its number among all."""

    def __init__(self, node: query.Join, budget: Budget) -> None:
        super().__init__(node, budget)
        assert node.windows is not None
        self._windows = tuple(itemgetter(end, start) for start, end in node.windows)
        left, right = OUTER.get(node.kind, (False, False))
        self._outer = left or node.kind == "ANTI", right
        self._sides = Rows(budget, _end), Rows(budget, _end)
        self.tables += [side.table for side in self._sides]
        self._open: dict[int, dict[Key, int]] = {}
        """By end the groups of all windows of that end, with the number of their first entry."""
        self._ends: list[int] = []
        """A heap of the ends of ``_open``."""
        self._number = 0
        self._grid = _grid(node.left)

    def push(self, port: int, rows: Sequence[Row]) -> None:
        keys, outer, mark = (self.node.left_keys, self.node.right_keys)[port], self._outer[port], self.mark
        window, side, other = self._windows[port], self._sides[port], self._sides[1 - port]
        for row in rows:
            end, start = window(row)
            if end - MILLISECOND <= mark:
                self.late += 1
                continue
            key = tuple([row[index] for index in keys])
            if None in key and not outer:
                continue
            group = (end, start, *key)
            side.add(group, row, self._number)
            if (chunks := side.chunks_of(group)) * (others := other.chunks_of(group)) > MAX_PAIRS and None not in key:
                (side if chunks >= others else other).bound(group, MAX_PAIRS // min(chunks, others))
            self._note(group, self._number)
            self._number += 1

    def _note(self, group: Key, number: int) -> None:
        groups = self._open.get(group[0])
        if groups is None:
            groups = self._open[group[0]] = {}
            heappush(self._ends, group[0])
        if number < groups.get(group, FOREVER):
            groups[group] = number

    def due(self, mark: int) -> None:
        while self._ends and self._ends[0] - MILLISECOND <= mark:
            groups = self._open.pop(heappop(self._ends))
            output: list[Row] = []
            for group in sorted(groups, key=groups.__getitem__):
                for rows in self._fire(group):
                    output += rows
                    output = self.so_far(output)
                for side in self._sides:
                    side.drop(group)
            self.emit(output)

    def _fire(self, group: Key) -> Iterator[list[Row]]:
        """The rows of a window and key: those of each left row, then of right rows without a partner."""
        kind = self.node.kind
        lefts, rights = ([entry[0] for entry in side.entries(group)] for side in self._sides)
        if None in group[2:]:
            partners: list[Row] = []
        else:
            partners = rights
        joined = [False] * len(rights)
        for left in lefts:
            pairs: list[Row] = []
            for place, right in enumerate(partners):
                pair = self._pair(left, right)
                if pair is None:
                    continue
                joined[place] = True
                pairs.append(pair)
                if kind in {"SEMI", "ANTI"}:
                    break
            if kind in {"SEMI", "ANTI"}:
                pairs = [left] if bool(pairs) == (kind == "SEMI") else []
            elif not pairs and self._outer[LEFT]:
                pairs = [self._alone(LEFT, left)]
            yield pairs
        if self._outer[RIGHT]:
            yield [self._alone(RIGHT, right) for right, was in zip(rights, joined, strict=True) if not was]

    def boundary(self, mark: int) -> int:
        if self._grid is None:
            return mark + 1
        step, offset = self._grid
        return ((mark + MILLISECOND - offset) // step + 1) * step + offset - MILLISECOND

    def resume(self) -> None:
        self._open.clear()
        self._ends.clear()
        self._number = 0
        for side in self._sides:
            side.resume()
            for group in side.groups():
                for entry in side.entries(group):
                    self._note(group, entry[2])
                    self._number = max(self._number, entry[2] + 1)


def _grid(node: query.Node) -> tuple[int, int] | None:
    """Step and offset of all ends of the windows that the rows of ``node`` have, if they are regular."""
    if isinstance(node, query.Assign | query.Windowed):
        grid = node.grid
        return None if grid.kind == "SESSION" else (grid.step or grid.size, grid.offset)
    grids = {_grid(below) for below in node.inputs} if node.inputs else {None}
    return grids.pop() if len(grids) == 1 else None
