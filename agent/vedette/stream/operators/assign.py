"""A window table function by itself: each row once for each of its windows. Nothing is late but for sessions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vedette.plan import query
from vedette.plan.query import MILLISECOND, Row
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
        self.emit([(*row, start, end, end - MILLISECOND) for row in rows for start, end in grid.windows(row[time])])
