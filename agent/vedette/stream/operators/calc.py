"""WHERE and SELECT of single rows: one compiled function for both. A row on which an expression fails is counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from vedette.plan import query
from vedette.plan.query import Row
from vedette.stream import expression
from vedette.stream.functions.library import LIBRARY
from vedette.stream.functions.table import Function
from vedette.stream.keyed import Budget
from vedette.stream.operator import Operator


class Calc(Operator):
    library: ClassVar[Mapping[str, Function]] = LIBRARY
    """The functions of expressions; a plan with functions of its own runs a subclass."""

    def __init__(self, node: query.Calc, budget: Budget) -> None:
        super().__init__(node, budget)
        self._calculate = expression.calc(node.exprs, node.when, self.library)

    def push(self, port: int, rows: Sequence[Row]) -> None:
        self.emit(self.given(rows))

    def given(self, rows: Sequence[Row]) -> list[Row]:
        """What ``rows`` become."""
        given, failed = self._calculate(rows)
        self.failed += failed
        return given
