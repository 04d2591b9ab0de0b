"""Operators that keep nothing, so that no watermark moves them: what becomes of a row follows from that row alone.

``Calc``: WHERE and SELECT, one compiled function for both. ``Expand``: LATERAL TABLE and UNNEST, a row for each that a
table function gives behind it; where it gives nothing (NULL, no rows) there is none, under ``outer`` one with NULLs.
``Assign``: a window table function by itself, each row once for each of its windows (nothing is late but for sessions).
``Union``: UNION ALL, the rows of all inputs in the order in which they come; the watermark is the least of theirs.

A row on which an expression or a function fails is dropped and counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from vedette.plan import query
from vedette.plan.query import MILLISECOND, Row
from vedette.stream.expression import FAILURES, calc, evaluator
from vedette.stream.functions.library import LIBRARY
from vedette.stream.functions.table import Function
from vedette.stream.keyed import Budget
from vedette.stream.operators.apply import Rows
from vedette.stream.operators.base import Operator
from vedette.stream.operators.session import SessionRows


class Calc(Operator):
    library: ClassVar[Mapping[str, Function]] = LIBRARY
    """The functions of expressions; a plan with functions of its own runs a subclass."""

    def __init__(self, node: query.Calc, budget: Budget) -> None:
        super().__init__(node, budget)
        self._calculate = calc(node.exprs, node.when, self.library)

    def push(self, port: int, rows: Sequence[Row]) -> None:
        self.emit(self.calculated(rows))

    def calculated(self, rows: Sequence[Row]) -> list[Row]:
        """Return what ``rows`` become."""
        calculated, failed = self._calculate(rows)
        self.failed += failed
        return calculated


class Expand(Operator):
    node: query.Expand
    library: ClassVar[Mapping[str, Function]] = LIBRARY

    def __init__(self, node: query.Expand, budget: Budget) -> None:
        super().__init__(node, budget)
        self._function = evaluator(node.function, self.library)
        self._nothing = (None,) * (len(node.columns) - len(node.input.columns))

    @classmethod
    def kind_for(cls, node: query.Expand) -> type[Operator]:
        return Rows if node.function.name == query.PYTHON else cls

    def push(self, port: int, rows: Sequence[Row]) -> None:
        function, outer = self._function, self.node.outer
        output: list[Row] = []
        for row in rows:
            try:
                produced = function(row)
            except FAILURES:
                self.failed += 1
                continue
            if produced:
                output += [row + part for part in produced]
            elif outer:
                output.append(row + self._nothing)
        self.emit(output)


class Assign(Operator):
    @classmethod
    def kind_for(cls, node: Any) -> type[Operator]:
        return SessionRows if node.grid.kind == "SESSION" else cls

    def push(self, port: int, rows: Sequence[Row]) -> None:
        node = self.node
        assert isinstance(node, query.Assign)
        grid, time = node.grid, node.input.time
        self.emit([(*row, start, end, end - MILLISECOND) for row in rows for start, end in grid.windows(row[time])])


class Union(Operator):
    def push(self, port: int, rows: Sequence[Row]) -> None:
        self.emit(list(rows))
