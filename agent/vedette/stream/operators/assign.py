"""A window table function by itself: each row once for each of its windows. Nothing is late but for sessions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vedette.plan import query
from vedette.plan.query import MILLISECOND, Grid, Row
from vedette.stream.operator import Operator
from vedette.stream.operators.session import SessionRows


class Assign(Operator):
    @classmethod
    def kind_for(cls, node: Any) -> type[Operator]:
        return SessionRows if node.grid.kind == "SESSION" else cls

    def push(self, port: int, rows: Sequence[Row]) -> None:
        node = self.node
        assert isinstance(node, query.Assign)
        grid, time = node.grid, node.input.time
        self.emit([(*row, start, end, end - MILLISECOND) for row in rows for start, end in windows(grid, row[time])])


def windows(grid: Grid, time: int) -> list[tuple[int, int]]:
    """Those that a row of this time is in: of HOP the newest first, of CUMULATE the shortest."""
    size, step, offset = grid.size, grid.step, grid.offset
    if grid.kind == "HOP":
        last = time - (time - offset) % step
        return [(start, start + size) for start in range(last, time - size, -step)]
    start = time - (time - offset) % size
    if grid.kind == "TUMBLE":
        return [(start, start + size)]
    first = time - (time - start) % step + step
    return [(start, end) for end in range(first, start + size + 1, step)]
