"""User functions: for runs of rows their values behind each row; and their rows, for LATERAL TABLE.

Functions are called for all rows of a run together. A row on which an argument or a function fails is dropped and
counted. Of a chain of functions within each other each has an operator of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vedette.plan import query
from vedette.plan.query import Row
from vedette.stream.expression import FAILURES, several
from vedette.stream.keyed import Budget
from vedette.stream.operators.base import Operator
from vedette.stream.userfunctions import Calls, Functions, Spec


def spec_of(call: query.Call, result: tuple[query.Type, ...]) -> Spec:
    """Raises ValueError for a call that no front end makes."""
    if call.name != query.PYTHON or len(call.options) != 2 or not all(type(option) is str for option in call.options):
        raise ValueError(f"not a user function: {call.name!r:.40}")
    target, digest = call.options
    return Spec(digest, target, "eval", tuple(argument.type for argument in call.args), result)


class _Arguments:
    """The arguments of one call for rows, and where they have none."""

    def __init__(self, call: query.Call) -> None:
        self._of: Callable[[Row], tuple[Any, ...]] = several(call.args)

    def __call__(self, rows: Sequence[Row]) -> tuple[list[tuple[Any, ...]], list[int]]:
        """Arguments, and the places of the rows that they are of."""
        arguments: list[tuple[Any, ...]] = []
        places: list[int] = []
        for at, row in enumerate(rows):
            try:
                arguments.append(self._of(row))
            except FAILURES:
                continue
            places.append(at)
        return arguments, places


class Apply(Operator):
    node: query.Apply

    def __init__(self, node: query.Apply, budget: Budget) -> None:
        super().__init__(node, budget)
        self._calls = Calls()
        self._functions = [(spec_of(call, (call.type,)), _Arguments(call)) for call in node.functions]

    def call_by(self, functions: Functions | None) -> None:
        self._calls.functions = functions

    def push(self, port: int, rows: Sequence[Row]) -> None:
        before = len(rows)
        for spec, arguments in self._functions:
            inputs, places = arguments(rows)
            if not inputs:
                rows = ()
                break
            answers = self._calls.call(spec, inputs)
            failed = answers.failed
            rows = [
                (*rows[place], value)
                for at, (place, value) in enumerate(zip(places, answers.values, strict=True))
                if at not in failed
            ]
        self.failed += before - len(rows)
        self.emit(list(rows))


class Rows(Operator):
    """An ``Expand`` whose function is the user's."""

    node: query.Expand

    def __init__(self, node: query.Expand, budget: Budget) -> None:
        super().__init__(node, budget)
        self._calls = Calls()
        behind = tuple(column.type for column in node.columns[len(node.input.columns) :])
        self._spec, self._arguments = spec_of(node.function, behind), _Arguments(node.function)
        self._nothing = (None,) * len(behind)

    def call_by(self, functions: Functions | None) -> None:
        self._calls.functions = functions

    def push(self, port: int, rows: Sequence[Row]) -> None:
        inputs, places = self._arguments(rows)
        self.failed += len(rows) - len(inputs)
        if not inputs:
            return
        answers = self._calls.call(self._spec, inputs)
        self.failed += len(answers.failed)
        output: list[Row] = []
        for at, (place, produced) in enumerate(zip(places, answers.values, strict=True)):
            if at in answers.failed:
                continue
            if produced:
                output += [rows[place] + part for part in produced]
            elif self.node.outer:
                output.append(rows[place] + self._nothing)
        self.emit(output)
