"""OVER (PARTITION BY … ORDER BY time): aggregates of the rows up to each row, by time.

A row is given when the watermark reaches its time, ties by arrival; with RANGE it counts all rows of its time, with
ROWS those before it only. Which rows are late is Flink's choice: with a bound, those at or before the time of the key's
last row that was given (even behind the watermark), else those at or before the watermark. With RANGE a key is
forgotten when the watermark has passed its newest row by between one range and one and a half.

A bounded frame keeps its rows. Its aggregates are those of two stacks: of what is in front, the aggregates of each
row and all behind it; of what came since, one for all. So a row costs a few merges however long the frame is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Any, ClassVar

from vedette.plan import query
from vedette.plan.query import ALL_ROWS, MILLISECOND, Row
from vedette.stream import parts
from vedette.stream.accumulators import Accumulators
from vedette.stream.expression import FAILURES
from vedette.stream.keyed import EVER, Budget, Key, Table
from vedette.stream.operator import FOREVER, NEVER, Operator
from vedette.stream.operators.rows import weigh


class _Held:
    """Of one key. What ``front`` and ``back`` hold follows from ``rows``; of an unbounded frame, ``back`` is all there
    is."""

    __slots__ = ("alarms", "back", "front", "last", "rows", "split", "waiting")

    def __init__(self) -> None:
        self.alarms: list[int] = []
        """Watermarks to come: at the last all of it goes, each other is as late as a row given then makes it."""
        self.last = NEVER
        """The time of the last row that was given."""
        self.waiting: dict[int, list[Row]] = {}
        """By time, of each as they came."""
        self.rows: list[Row] = []
        """Given and in the frame of rows to come."""
        self.front: list[list[Any]] = []
        """Fields for the first of ``rows`` last, with all up to ``split``."""
        self.split = 0
        self.back: list[Any] = []


def _newest(key: Key, held: _Held) -> int:
    return max((held.last, *held.waiting))


class Over(Operator):
    renews: ClassVar[bool] = True
    exact: ClassVar[bool] = True

    def __init__(self, node: query.Over, budget: Budget) -> None:
        super().__init__(node, budget)
        self.over = node
        self.time = node.input.time
        self.bounded = node.range is not None or node.rows not in (None, ALL_ROWS)
        self.kinds = Accumulators(node.aggregates)
        self._add, self._merge, self._values = self.kinds.compiled(node.aggregates)
        self.held: Table[_Held] = Table(budget, self._size, self._dump, self._load, _newest)
        self.retains = EVER if node.range is None else node.range
        self.tables.append(self.held)
        self._alarms: list[int] = []
        """A heap of those of all keys."""
        self._times: list[tuple[int, str, Key]] = []
        """A heap of the times of rows that wait."""

    def push(self, port: int, rows: Sequence[Row]) -> None:
        time, held, mark = self.time, self.held, self.mark
        for row in rows:
            key = tuple([row[at] for at in self.over.keys])
            one = held.values.get(key)
            at = row[time]
            if at <= (mark if not self.bounded else one.last if one is not None else NEVER):
                self.late += 1
                continue
            if one is None:
                one = _Held()
                one.back = self.kinds.new()
            if at in one.waiting:
                one.waiting[at].append(row)
            else:
                heappush(self._times, (at, repr(key), key))
                one.waiting[at] = [row]
            if self.over.range is not None:
                self._forget_later(one, key, at, self.over.range)
            held.put(key, one)

    def _forget_later(self, one: _Held, key: Key, at: int, range: int) -> None:
        """As Flink does, for what is late afterwards depends on it."""
        if not one.alarms or one.alarms[-1] < at + range + MILLISECOND:
            one.alarms.append(at + range // MILLISECOND * 3 // 2 * MILLISECOND + MILLISECOND)
            heappush(self._times, (one.alarms[-1], repr(key), key))
            heappush(self._alarms, one.alarms[-1])

    def due(self, mark: int) -> None:
        found: list[Row] = []
        times = self._times
        while self._alarms and self._alarms[0] <= mark:
            heappop(self._alarms)
        while times and times[0][0] <= mark:
            at, _, key = heappop(times)
            one = self.held.values.get(key)
            if one is None:
                continue
            if one.alarms and one.alarms[-1] <= at:
                self.held.remove(key)
                continue
            ready = one.waiting.pop(at, [])
            if at in one.alarms:
                one.alarms.remove(at)
            elif not ready:
                continue
            one.last = max(one.last, at)
            self._give(one, at, ready, found)
            self.held.put(key, one)
        self.emit(found)

    def _give(self, one: _Held, at: int, ready: Sequence[Row], found: list[Row]) -> None:
        taken = []
        for row in ready:
            try:
                self._add(self.kinds.new(), row)
            except FAILURES:
                self.failed += 1
            else:
                taken.append(row)
        if self.over.rows is not None:
            for row in taken:
                self._take(one, row)
                self._leave(one, len(one.rows) - self.over.rows - 1)
                found.append((*row, *self._now(one)))
            return
        for row in taken:
            self._take(one, row)
        if self.over.range is not None:
            oldest = at - self.over.range
            self._leave(one, bisect_left(one.rows, oldest, key=lambda row: row[self.time]))
        values = self._now(one)
        found += [(*row, *values) for row in taken]

    def _take(self, one: _Held, row: Row) -> None:
        self._add(one.back, row)
        if self.bounded:
            one.rows.append(row)

    def _leave(self, one: _Held, count: int) -> None:
        """The first rows are out of the frame."""
        for _ in range(count):
            if not one.front:
                one.split = len(one.rows)
                behind = self.kinds.new()
                for row in reversed(one.rows):
                    fields = self.kinds.new()
                    self._add(fields, row)
                    self._merge(fields, behind)
                    one.front.append(fields)
                    behind = fields
                one.back = self.kinds.new()
            one.front.pop()
            del one.rows[0]
            one.split -= 1

    def _now(self, one: _Held) -> tuple[Any, ...]:
        if not one.front:
            found: tuple[Any, ...] = self._values(one.back)
            return found
        fields = self.kinds.new()
        self._merge(fields, one.front[-1])
        self._merge(fields, one.back)
        found = self._values(fields)
        return found

    def boundary(self, mark: int) -> int:
        """With RANGE, when a key is forgotten; rows that are in time have their alarms after their range."""
        if self.over.range is None:
            return FOREVER
        first = self._alarms[0] if self._alarms else FOREVER
        return max(mark + 1, min(first, mark + self.over.range))

    # --- state

    def _size(self, one: _Held) -> int:
        per_row = sum(map(weigh, one.rows)) + sum(weigh(row) for rows in one.waiting.values() for row in rows)
        fields = sum(map(parts.size, self.kinds.fields, one.back))
        return 200 + per_row + fields * (1 + len(one.front))

    def _dump(self, one: _Held) -> Any:
        fields = [] if self.bounded else list(map(parts.dump, self.kinds.fields, one.back))
        return [one.last, one.alarms, [row for rows in one.waiting.values() for row in rows], one.rows, fields]

    def _load(self, data: Any) -> _Held:
        one = _Held()
        one.last, alarms, waiting, rows, fields = data
        one.alarms, one.rows = list(alarms), list(rows)
        for row in waiting:
            one.waiting.setdefault(row[self.time], []).append(row)
        one.back = self.kinds.new()
        if self.bounded:
            for row in rows:
                self._add(one.back, row)
        else:
            one.back = list(map(parts.load, self.kinds.fields, fields))
        return one

    def resume(self) -> None:
        self._times = [
            (at, repr(key), key) for key, one in self.held.values.items() for at in sorted({*one.waiting, *one.alarms})
        ]
        heapify(self._times)
        self._alarms = [at for one in self.held.values.values() for at in one.alarms]
        heapify(self._alarms)
