"""UNNEST and LATERAL TABLE: rows of a function behind the row."""

from __future__ import annotations

from tests.stream.operators.steps import Driven, at
from tests.stream.walk import BIGINT, TIME, scan
from vedette.plan.query import Call, Column, Expand, Named, Row, Type
from vedette.stream.operators.stateless import Expand as Operator

LIST = Type("ARRAY", args=(BIGINT,))
SCAN = scan((("ts", TIME), ("list", LIST)))
UNNEST = Call("UNNEST", (Column(2, LIST),), Type("ARRAY", args=(Type("ROW", args=(("", BIGINT),)),)))


def expanded(rows: list[Row], outer: bool, function: Call = UNNEST) -> tuple[list[Row], Driven]:
    node = Expand((*SCAN.columns, Named("n", BIGINT)), 1, SCAN, function, outer)
    driven = Driven(lambda budget: Operator(node, budget))
    return driven.run([(0, row) for row in rows]), driven


ROWS: list[Row] = [(0, at(1), (5, None)), (1, at(2), ()), (2, at(3), None)]


def test_rows_behind_the_row() -> None:
    """One row for each element, NULL among them; no elements give no row, under LEFT JOIN one with NULL."""
    assert expanded(ROWS, False)[0] == [(0, at(1), (5, None), 5), (0, at(1), (5, None), None)]
    assert expanded(ROWS, True)[0][2:] == [(1, at(2), (), None), (2, at(3), None, None)]


def test_a_function_that_fails() -> None:
    """The row is dropped and counted."""
    failing = Call("UNNEST", (Call("%", (Column(2, LIST), Column(2, LIST)), LIST),), UNNEST.type)
    found, driven = expanded([(0, at(1), 0)], True, failing)
    assert (found, driven.operator.failed) == ([], 1)
