"""UNION ALL: the rows of all inputs in the order in which they come; the watermark is the least of theirs."""

from __future__ import annotations

from collections.abc import Sequence

from vedette.plan.query import Row
from vedette.stream.operator import Operator


class Union(Operator):
    def push(self, port: int, rows: Sequence[Row]) -> None:
        self.emit(list(rows))
