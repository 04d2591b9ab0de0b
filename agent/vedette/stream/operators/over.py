"""OVER (PARTITION BY … ORDER BY time): aggregates of the rows up to each row, by time.

A row is given when the watermark reaches its time, ties by arrival; with RANGE it counts all rows of its time, with
ROWS those before it only. Which rows are late is Flink's choice: with a bound, those at or before the time of the key's
last row that was given (even behind the watermark), else those at or before the watermark. With RANGE a key is
forgotten when the watermark has passed its newest row by between one range and one and a half.

A bounded frame keeps its rows. Its aggregates are those of two stacks: of what is in front, the aggregates of each
row and all behind it; of what came since, one for all. So a row costs a few merges however long the frame is.
Aggregates that hold values (DISTINCT, LISTAGG) are one for the frame: a row that leaves it is taken out of them.
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
from vedette.stream.aggregates.table import row_of
from vedette.stream.expression import FAILURES
from vedette.stream.keyed import EVER, Budget, Key, Table
from vedette.stream.operators.base import FOREVER, NEVER, Operator
from vedette.stream.operators.rows import weigh

HELD_BYTES = 110
"""What an aggregate takes that holds the value of a row, about."""


class _KeyState:
    """The state of one key. What ``front`` and ``back`` hold follows from ``rows``; of an unbounded frame, ``back`` is
    all there is."""

    __slots__ = ("alarms", "back", "front", "held", "last", "rows", "split", "waiting", "weight")

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
        self.held: list[Any] = []
        """Fields of the aggregates that hold values, for all of ``rows``."""
        self.weight = 0
        """Bytes of ``waiting`` and ``rows``."""


def _newest(key: Key, state: _KeyState) -> int:
    return max((state.last, *state.waiting))


def _holds(aggregate: query.Aggregate) -> bool:
    """Whether it holds the values of all rows, and the first of them can be taken out again."""
    in_order = aggregate.distinct and row_of(aggregate.name).ordered  # of equal values which came first matters
    return not in_order and Accumulators([aggregate]).fields in ("l", "m")


class Over(Operator):
    renews: ClassVar[bool] = True
    exact: ClassVar[bool] = True

    def __init__(self, node: query.Over, budget: Budget) -> None:
        super().__init__(node, budget)
        self.over = node
        self.time = node.input.time
        self.bounded = node.range is not None or node.rows not in (None, ALL_ROWS)
        holding = [aggregate for aggregate in node.aggregates if self.bounded and _holds(aggregate)]
        others = [aggregate for aggregate in node.aggregates if aggregate not in holding]
        self.kinds, self.holding = Accumulators(others), Accumulators(holding)
        self._add, self._merge, self._values = self.kinds.compiled(others)
        self._hold, _, self._held = self.holding.compiled(holding)
        self._let_go = self.holding.leaving() if holding else None
        self._places = [[*others, *holding].index(aggregate) for aggregate in node.aggregates]
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
                state = self._new()
            state.weight += weigh(row)
            if at in state.waiting:
                state.waiting[at].append(row)
            else:
                heappush(self._times, (at, repr(key), key))
                state.waiting[at] = [row]
            if self.over.range is not None:
                self._forget_later(state, key, at, self.over.range)
            states.put(key, state)

    def _new(self) -> _KeyState:
        state = _KeyState()
        state.back, state.held = self.kinds.new(), self.holding.new()
        return state

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
            output = self.so_far(output)
        self.emit(output)

    def _give(self, state: _KeyState, at: int, ready: Sequence[Row], output: list[Row]) -> None:
        accepted = []
        for row in ready:
            self.budget.give_way()
            try:
                self._add(self.kinds.new(), row)
                self._hold(self.holding.new(), row)
            except FAILURES:
                self.failed += 1
                state.weight -= weigh(row)
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
        self.budget.give_way()
        self._add(state.back, row)
        if not self.bounded:
            state.weight -= weigh(row)
            return
        state.rows.append(row)
        self._hold(state.held, row)

    def _leave(self, state: _KeyState, count: int) -> None:
        """The first rows are out of the frame."""
        for _ in range(count):
            if not state.front:
                state.split = len(state.rows)
                behind = self.kinds.new()
                for row in reversed(state.rows):
                    self.budget.give_way()
                    fields = self.kinds.new()
                    self._add(fields, row)
                    self._merge(fields, behind)
                    state.front.append(fields)
                    behind = fields
                state.back = self.kinds.new()
            state.front.pop()
            row = state.rows.pop(0)
            state.weight -= weigh(row)
            if self._let_go is not None:
                self._let_go(state.held, row)
            state.split -= 1

    def _now(self, state: _KeyState) -> tuple[Any, ...]:
        fields = state.back
        if state.front:
            fields = self.kinds.new()
            self._merge(fields, state.front[-1])
            self._merge(fields, state.back)
        values: tuple[Any, ...] = self._values(fields)
        if self._let_go is None:
            return values
        values += self._held(state.held)
        return tuple([values[place] for place in self._places])

    def boundary(self, mark: int) -> int:
        """With RANGE, when a key is forgotten; rows that are in time have their alarms after their range."""
        if self.over.range is None:
            return FOREVER
        first = self._alarms[0] if self._alarms else FOREVER
        return max(mark + 1, min(first, mark + self.over.range))

    # --- state

    def _size(self, state: _KeyState) -> int:
        fields = sum(map(parts.size, self.kinds.fields, state.back))
        held = HELD_BYTES * len(self.holding.fields) * len(state.rows)
        return 200 + state.weight + held + fields * (1 + len(state.front))

    def _dump(self, state: _KeyState) -> Any:
        fields = [] if self.bounded else list(map(parts.dump, self.kinds.fields, state.back))
        return [state.last, state.alarms, [row for rows in state.waiting.values() for row in rows], state.rows, fields]

    def _load(self, data: Any) -> _KeyState:
        state = self._new()
        state.last, alarms, waiting, rows, fields = data
        state.alarms, state.rows = list(alarms), list(rows)
        state.weight = sum(map(weigh, (*waiting, *rows)))
        for row in waiting:
            state.waiting.setdefault(row[self.time], []).append(row)
        if self.bounded:
            for row in rows:
                self._add(state.back, row)
                self._hold(state.held, row)
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
