"""One operator by itself: rows and watermarks go in step by step, with its state written and read again between any."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from vedette.plan.query import MILLISECOND, SECOND, Row
from vedette.stream.keyed import Budget, pack, unpack
from vedette.stream.operators.base import FOREVER, Operator

Step = tuple[int, Row | int]
"""A port, with a row or a watermark."""


class Taken:
    """What takes the rows of an operator, and its watermarks."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.marks: list[int] = []
        self.late: list[Row] = []
        """Rows whose time (``time`` of the operator's node) was not after the watermark before them."""
        self.time = 0

    def push(self, port: int, rows: Sequence[Row]) -> None:
        self.rows += rows
        if self.marks and self.time:
            self.late += [row for row in rows if row[self.time] is not None and row[self.time] <= self.marks[-1]]

    def advance(self, port: int, mark: int) -> None:
        assert not self.marks or mark > self.marks[-1], "a watermark went back"
        self.marks.append(mark)


class Driven:
    """``make`` gives the operator; ``cuts``: numbers of steps before which it is made anew from what was written."""

    def __init__(self, make: Callable[[Budget], Operator], limit: int = 64 << 20) -> None:
        self._make, self._limit = make, limit
        self.sink = Taken()
        self.deltas: list[bytes] = []
        self.operator = self._new()

    def _new(self) -> Operator:
        self.budget = Budget(self._limit)
        operator = self._make(self.budget)
        sink: Any = self.sink
        self.sink.time = operator.node.time
        operator.serve(operator.node, [(sink, 0)])
        return operator

    def write(self) -> None:
        self.budget.settle()
        delta = self.operator.delta()
        if delta is not None:
            self.deltas.append(pack(delta))

    def again(self) -> None:
        """As after a crash."""
        self.write()
        self.operator = self._new()
        for delta in self.deltas:
            self.operator.restore(unpack(delta))
        self.operator.resume()

    def run(self, steps: Sequence[Step], cuts: Collection[int] = ()) -> list[Row]:
        for number, (port, step) in enumerate(steps):
            if number in cuts:
                self.again()
            elif cuts and number % 3 == 0:
                self.write()
            if isinstance(step, tuple):
                self.operator.push(port, [step])
            elif step > self.operator.marks[port]:
                self.operator.advance(port, step)
            self.budget.settle()
        return self.sink.rows


def stream(rows: Sequence[Row], time: int = 1, delay: int = 5, port: int = 0, end: bool = True) -> list[Step]:
    """Each row, then its watermark; at last the end."""
    steps: list[Step] = []
    for row in rows:
        steps += [(port, row), (port, row[time] - delay * SECOND)]
    return [*steps, (port, FOREVER)] if end else steps


def at(seconds: float) -> int:
    return round(seconds * 1000) * MILLISECOND
