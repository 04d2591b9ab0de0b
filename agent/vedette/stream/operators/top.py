"""ROW_NUMBER(): the first rows of each key in a window; without one the very first by time, or the first to come."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import cmp_to_key
from heapq import heapify, heappop, heappush
from typing import Any, ClassVar

from vedette.plan import query
from vedette.plan.query import MILLISECOND, Row
from vedette.stream.keyed import Budget, Key, Table
from vedette.stream.operators.base import Operator
from vedette.stream.operators.rows import weigh


class TopInWindow(Operator):
    """Given when the window is complete; a row that comes afterwards is late. Equal rows rank by arrival."""

    renews: ClassVar[bool] = True
    exact: ClassVar[bool] = True  # what a row in time changes has not been given at any watermark before it

    def __init__(self, node: query.Top, budget: Budget) -> None:
        super().__init__(node, budget)
        self.top = node
        start, end = node.window
        self._key = (end, start, *(at for at in node.keys if at not in node.window))
        self._order = [_ranking(*ordering) for ordering in node.order]
        self._rank = cmp_to_key(self._compared)
        (column, descending, _), *others = node.order
        by_time = node.input.columns[column - 1].type.name.startswith("TIMESTAMP")
        self._newest = by_time and descending and not others and node.last == 1
        """The last row by time: of those of one time it is the last to come, as in Flink."""
        self.rows: Table[list[Row]] = Table(
            budget, lambda rows: 64 + sum(map(weigh, rows)), load=list, newest=lambda key, rows: int(key[0])
        )
        self.tables.append(self.rows)
        self._windows: dict[int, dict[Key, None]] = {}
        """Keys by the end of their window."""

    def push(self, port: int, rows: Sequence[Row]) -> None:
        for row in rows:
            key = tuple([row[at] for at in self._key])
            if key[0] - MILLISECOND <= self.mark:
                self.late += 1
                continue
            first_rows = self.rows.values.get(key)
            if first_rows is None:
                first_rows = []
                self._windows.setdefault(key[0], {})[key] = None
            place = (bisect_left if self._newest else bisect_right)(first_rows, self._rank(row), key=self._rank)
            if place < self.top.last:
                first_rows.insert(place, row)
                del first_rows[self.top.last :]
                self.rows.put(key, first_rows)

    def _compared(self, row: Row, other: Row) -> int:
        """Below 0: ``row`` is before ``other``."""
        for value, descending in self._order:
            own, others = value(row), value(other)
            if own != others:
                return 1 if (own > others) != descending else -1
        return 0

    def due(self, mark: int) -> None:
        first, ranked = self.top.first, self.top.ranked
        for end in sorted(end for end in self._windows if end - MILLISECOND <= mark):
            output: list[Row] = []
            for key in self._windows.pop(end):
                for rank, row in enumerate(self.rows.values.get(key, ()), 1):
                    if rank >= first:
                        output.append((*row, rank) if ranked else row)
                self.rows.remove(key)
                output = self.so_far(output)
            self.emit(output)

    def resume(self) -> None:
        self._windows = {}
        for key in self.rows.values:
            self._windows.setdefault(key[0], {})[key] = None


class Top(Operator):
    """The first row of each key by time: given when the watermark reaches it; then the key is done with. A row before
    the watermark is late."""

    renews: ClassVar[bool] = True
    exact: ClassVar[bool] = True  # what a row in time changes has not been given at any watermark before it

    def __init__(self, node: query.Top, budget: Budget) -> None:
        super().__init__(node, budget)
        self.top = node
        self.time = node.order[0][0]
        self.first: Table[tuple[Any, ...]] = Table(budget, lambda row: weigh(row) if row else 0, load=tuple)
        """The first row so far; an empty tuple when it was given."""
        self.tables.append(self.first)
        self._waiting: list[tuple[int, str, Key]] = []

    @classmethod
    def kind_for(cls, node: Any) -> type[Operator]:
        return TopInWindow if node.window != (0, 0) else TopByReceipt if node.last > 1 else cls

    def push(self, port: int, rows: Sequence[Row]) -> None:
        time = self.time
        for row in rows:
            if row[time] < self.mark:
                self.late += 1
                continue
            key = tuple([row[at] for at in self.top.keys])
            first = self.first.values.get(key)
            if first is None or (first and row[time] < first[time]):
                self.first.put(key, row)
                heappush(self._waiting, (row[time], repr(key), key))

    def due(self, mark: int) -> None:
        output = []
        while self._waiting and self._waiting[0][0] <= mark:
            at, _, key = heappop(self._waiting)
            row = self.first.values.get(key)
            if row and row[self.time] == at:
                output.append((*row, 1) if self.top.ranked else row)
                self.first.put(key, ())
        self.emit(output)

    def resume(self) -> None:
        self._waiting = [(row[self.time], repr(key), key) for key, row in self.first.values.items() if row]
        heapify(self._waiting)


class TopByReceipt(Operator):
    """The first rows of each key to come, each given at once: the time of receipt is their order."""

    def __init__(self, node: query.Top, budget: Budget) -> None:
        super().__init__(node, budget)
        self.top = node
        self.ranks: Table[int] = Table(budget, lambda rank: 32)
        """How many rows of a key have come, up to the last that is given."""
        self.tables.append(self.ranks)

    def push(self, port: int, rows: Sequence[Row]) -> None:
        first, last, output = self.top.first, self.top.last, []
        for row in rows:
            key = tuple([row[at] for at in self.top.keys])
            rank = self.ranks.values.get(key, 0) + 1
            if rank > last:
                continue
            self.ranks.put(key, rank)
            if rank >= first:
                output.append((*row, rank) if self.top.ranked else row)
        self.emit(output)


def _ranking(column: int, descending: bool, nulls_last: bool) -> tuple[Callable[[Row], Any], bool]:
    """Return what of a row to compare, and whether downwards."""
    null, other = (1, 0) if nulls_last != descending else (0, 1)
    return lambda row: (null, None) if row[column] is None else (other, row[column]), descending
