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
from vedette.stream.aggregates import parts
from vedette.stream.aggregates.accumulators import Accumulators
from vedette.stream.expression import FAILURES
from vedette.stream.keyed import EVER, Budget, Key, Table
from vedette.stream.operators.base import FOREVER, NEVER, Operator
from vedette.stream.operators.rows import weigh


class _KeyState:
    """The state of one key. What ``front`` and ``back`` hold follows from ``rows``; of an unbounded frame, ``back`` is
    all there is."""

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


def _newest(key: Key, state: _KeyState) -> int:
    return max((state.last, *state.waiting))


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
        self.states: Table[_KeyState] = Table(budget, self._size, self._dump, self._load, _newest)
        self.retains = EVER if node.range is None else node.range
        self.tables.append(self.states)
        self._alarms: list[int] = []
        """A heap of those of all keys."""
        self._times: list[tuple[int, str, Key]] = []
        """A heap of the times of rows that wait."""

    def push(self, port: int, rows: Sequence[Row]) -> None:
        time, states, mark = self.time, self.states, self.mark
        for row in rows:
            key = tuple([row[at] for at in self.over.keys])
            state = states.values.get(key)
            at = row[time]
            if at <= (mark if not self.bounded else state.last if state is not None else NEVER):
                self.late += 1
                continue
            if state is None:
                state = _KeyState()
                state.back = self.kinds.new()
            if at in state.waiting:
                state.waiting[at].append(row)
            else:
                heappush(self._times, (at, repr(key), key))
                state.waiting[at] = [row]
            if self.over.range is not None:
                self._forget_later(state, key, at, self.over.range)
            states.put(key, state)

    def _forget_later(self, state: _KeyState, key: Key, at: int, range: int) -> None:
        """As Flink does, for what is late afterwards depends on it."""
        if not state.alarms or state.alarms[-1] < at + range + MILLISECOND:
            state.alarms.append(at + range // MILLISECOND * 3 // 2 * MILLISECOND + MILLISECOND)
            heappush(self._times, (state.alarms[-1], repr(key), key))
            heappush(self._alarms, state.alarms[-1])

    def due(self, mark: int) -> None:
        output: list[Row] = []
        times = self._times
        while self._alarms and self._alarms[0] <= mark:
            heappop(self._alarms)
        while times and times[0][0] <= mark:
            at, _, key = heappop(times)
            state = self.states.values.get(key)
            if state is None:
                continue
            if state.alarms and state.alarms[-1] <= at:
                self.states.remove(key)
                continue
            ready = state.waiting.pop(at, [])
            if at in state.alarms:
                state.alarms.remove(at)
            elif not ready:
                continue
            state.last = max(state.last, at)
            self._give(state, at, ready, output)
            self.states.put(key, state)
        self.emit(output)

    def _give(self, state: _KeyState, at: int, ready: Sequence[Row], output: list[Row]) -> None:
        accepted = []
        for row in ready:
            try:
                self._add(self.kinds.new(), row)
            except FAILURES:
                self.failed += 1
            else:
                accepted.append(row)
        if self.over.rows is not None:
            for row in accepted:
                self._take(state, row)
                self._leave(state, len(state.rows) - self.over.rows - 1)
                output.append((*row, *self._now(state)))
            return
        for row in accepted:
            self._take(state, row)
        if self.over.range is not None:
            oldest = at - self.over.range
            self._leave(state, bisect_left(state.rows, oldest, key=lambda row: row[self.time]))
        values = self._now(state)
        output += [(*row, *values) for row in accepted]

    def _take(self, state: _KeyState, row: Row) -> None:
        self._add(state.back, row)
        if self.bounded:
            state.rows.append(row)

    def _leave(self, state: _KeyState, count: int) -> None:
        """The first rows are out of the frame."""
        for _ in range(count):
            if not state.front:
                state.split = len(state.rows)
                behind = self.kinds.new()
                for row in reversed(state.rows):
                    fields = self.kinds.new()
                    self._add(fields, row)
                    self._merge(fields, behind)
                    state.front.append(fields)
                    behind = fields
                state.back = self.kinds.new()
            state.front.pop()
            del state.rows[0]
            state.split -= 1

    def _now(self, state: _KeyState) -> tuple[Any, ...]:
        if not state.front:
            values: tuple[Any, ...] = self._values(state.back)
            return values
        fields = self.kinds.new()
        self._merge(fields, state.front[-1])
        self._merge(fields, state.back)
        values = self._values(fields)
        return values

    def boundary(self, mark: int) -> int:
        """With RANGE, when a key is forgotten; rows that are in time have their alarms after their range."""
        if self.over.range is None:
            return FOREVER
        first = self._alarms[0] if self._alarms else FOREVER
        return max(mark + 1, min(first, mark + self.over.range))

    # --- state

    def _size(self, state: _KeyState) -> int:
        per_row = sum(map(weigh, state.rows)) + sum(weigh(row) for rows in state.waiting.values() for row in rows)
        fields = sum(map(parts.size, self.kinds.fields, state.back))
        return 200 + per_row + fields * (1 + len(state.front))

    def _dump(self, state: _KeyState) -> Any:
        fields = [] if self.bounded else list(map(parts.dump, self.kinds.fields, state.back))
        return [state.last, state.alarms, [row for rows in state.waiting.values() for row in rows], state.rows, fields]

    def _load(self, data: Any) -> _KeyState:
        state = _KeyState()
        state.last, alarms, waiting, rows, fields = data
        state.alarms, state.rows = list(alarms), list(rows)
        for row in waiting:
            state.waiting.setdefault(row[self.time], []).append(row)
        state.back = self.kinds.new()
        if self.bounded:
            for row in rows:
                self._add(state.back, row)
        else:
            state.back = list(map(parts.load, self.kinds.fields, fields))
        return state

    def resume(self) -> None:
        self._times = [
            (at, repr(key), key)
            for key, state in self.states.values.items()
            for at in sorted({*state.waiting, *state.alarms})
        ]
        heapify(self._times)
        self._alarms = [at for state in self.states.values.values() for at in state.alarms]
        heapify(self._alarms)
