"""The view that expressions of MATCH_RECOGNIZE have of a match: rows of its variables, by calls of
``plan/pattern.py``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from vedette.plan import query
from vedette.plan.pattern import AGGREGATE, FIRST, LAST, ROWTIME
from vedette.plan.query import Call, Column, Expression, Row
from vedette.stream.aggregates.accumulators import Accumulators
from vedette.stream.expression import condition
from vedette.stream.operators.automaton import Counts


class View(NamedTuple):
    """``rows`` from ``start`` on: of the match so far; ``counts``: whose they are; ``row``: the one under test, for
    ``variable``, None in a complete match."""

    rows: Sequence[Row]
    start: int
    counts: Counts
    row: Row | None
    variable: int
    time: int

    def span(self, variable: int) -> tuple[int, int]:
        """First place in ``rows`` and number of the rows of a variable (-1: of all), the one under test left out."""
        if variable < 0:
            return self.start, sum(self.counts)
        return self.start + sum(self.counts[:variable]), self.counts[variable]

    def tests(self, variable: int) -> bool:
        """Whether the row under test is one of the variable's."""
        return self.row is not None and variable in (self.variable, -1)

    def of(self, variable: int) -> list[Row]:
        first, count = self.span(variable)
        rows = list(self.rows[first : first + count])
        if self.tests(variable):
            assert self.row is not None
            rows.append(self.row)
        return rows

    def at(self, variable: int, distance: int, from_end: bool) -> Row | None:
        """The row so far from the variable's first or last."""
        first, count = self.span(variable)
        all_of = count + self.tests(variable)
        if distance >= all_of:
            return None
        place = all_of - 1 - distance if from_end else distance
        return self.row if place == count else self.rows[first + place]


def _refer(call: Call, names: dict[str, int]) -> Callable[[View], Any]:
    """Compile a call of ``plan/pattern.py``."""
    if call.name == ROWTIME:
        return lambda view: view.time
    variable = names[call.options[0]]
    if call.name == AGGREGATE:
        return _aggregate(query.Aggregate(call.options[1], call.args, call.type, options=call.options[2:]), variable)
    (column,), distance, from_end = call.args, call.options[1], call.name == LAST
    assert isinstance(column, Column)
    index = column.index

    def value(view: View) -> Any:
        row = view.at(variable, distance, from_end)
        return None if row is None else row[index]

    return value


def _aggregate(aggregate: query.Aggregate, variable: int) -> Callable[[View], Any]:
    accumulators = Accumulators([aggregate])
    add, _, values = accumulators.compiled([aggregate])

    def value(view: View) -> Any:
        fields = accumulators.new()
        for row in view.of(variable):
            add(fields, row)
        return values(fields)[0]

    return value


class Seen:
    """Expressions over a row with what they refer to behind its columns."""

    def __init__(self, width: int, names: dict[str, int]) -> None:
        self._width, self._names = width, names
        self._calls: dict[Call, int] = {}

    def rewritten(self, expression: Expression, variable: int = -2) -> Expression:
        """``expression`` with columns in place of calls that refer to rows; ``variable`` is the one being defined."""
        if not isinstance(expression, Call):
            return expression
        if expression.name not in (LAST, FIRST, AGGREGATE, ROWTIME):
            args = tuple(self.rewritten(argument, variable) for argument in expression.args)
            return Call(expression.name, args, expression.type, expression.options)
        if (
            expression.name == LAST
            and expression.options[1] == 0
            and variable >= 0
            and (self._names[expression.options[0]] in (variable, -1))
        ):  # the row under test
            return expression.args[0]
        index = self._calls.setdefault(expression, len(self._calls))
        return Column(self._width + index, expression.type)

    def references(self) -> list[Callable[[View], Any]]:
        return [_refer(call, self._names) for call in self._calls]


class Condition:
    """The condition of one variable. ``plain``: of a row alone, when it refers to no other."""

    def __init__(self, expression: Expression, variable: int, width: int, names: dict[str, int]) -> None:
        seen = Seen(width, names)
        self._test = condition(seen.rewritten(expression, variable))
        self._references = seen.references()
        self.variable, self.plain = variable, not self._references

    def alone(self, row: Row) -> bool:
        return self._test(row)

    def holds(self, row: Row, rows: Sequence[Row], start: int, counts: Counts) -> bool:
        view = View(rows, start, counts, row, self.variable, 0)
        return self._test((*row, *[refer(view) for refer in self._references]))
