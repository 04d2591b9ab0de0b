"""Aggregates of rows that already have a window, by its start and end and other keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from vedette.plan import query
from vedette.plan.query import MILLISECOND, Row
from vedette.stream.accumulators import Accumulators
from vedette.stream.keyed import Budget
from vedette.stream.operator import NEVER, Operator
from vedette.stream.slices import Layer
from vedette.stream.userfunctions import Functions


def _end(window: tuple[int, int]) -> int:
    return window[0]


class Grouped(Operator):
    """A slice for each window; a row whose window is complete is late."""

    exact: ClassVar[bool] = True  # a row in time is of no window that a watermark before it completes

    def __init__(self, node: query.Grouped, budget: Budget) -> None:
        super().__init__(node, budget)
        start, end = node.window
        slice_of = (f"(row[{end}], row[{start}])", "at[0] > done")
        self.groups = Layer(budget, "windows", Accumulators(node.aggregates), node.keys, slice_of, newest=_end)
        self.tables.append(self.groups)
        self._give = self.groups.giver(node.aggregates, "")

    def call_by(self, functions: Functions | None) -> None:
        self.groups.accumulators.users.calls.functions = functions

    def _done(self) -> int:
        return self.mark + MILLISECOND if self.mark > NEVER else NEVER

    def push(self, port: int, rows: Sequence[Row]) -> None:
        failed, late = self.groups.update(rows, self._done())
        self.failed += failed + self.groups.accumulators.users.failed()
        self.late += len(late)

    def due(self, mark: int) -> None:
        done = self._done()
        for window in sorted(one for one in self.groups.slices if one[0] <= done):
            self.emit(self._give(self.groups.slices[window], window[1], window[0]))
            self.groups.remove_slice(window)
        self.failed += self.groups.accumulators.users.failed()
