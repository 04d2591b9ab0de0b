"""LATERAL TABLE and UNNEST: for each row those of a table function behind its columns.

A function that gives nothing (NULL, no rows) gives no row, under ``outer`` one with NULLs. A row on which it fails is
dropped and counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from vedette.plan import query
from vedette.plan.query import Row
from vedette.stream.expression import FAILURES, one
from vedette.stream.functions.library import LIBRARY
from vedette.stream.functions.table import Function
from vedette.stream.keyed import Budget
from vedette.stream.operator import Operator
from vedette.stream.operators.apply import Rows


class Expand(Operator):
    node: query.Expand
    library: ClassVar[Mapping[str, Function]] = LIBRARY

    def __init__(self, node: query.Expand, budget: Budget) -> None:
        super().__init__(node, budget)
        self._function = one(node.function, self.library)
        self._nothing = (None,) * (len(node.columns) - len(node.input.columns))

    @classmethod
    def kind_for(cls, node: query.Expand) -> type[Operator]:
        return Rows if node.function.name == query.PYTHON else cls

    def push(self, port: int, rows: Sequence[Row]) -> None:
        function, outer = self._function, self.node.outer
        given: list[Row] = []
        for row in rows:
            try:
                found = function(row)
            except FAILURES:
                self.failed += 1
                continue
            if found:
                given += [row + part for part in found]
            elif outer:
                given.append(row + self._nothing)
        self.emit(given)
