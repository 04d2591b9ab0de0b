"""OVER by time, by rows and without bounds, with what is late, ties and restarts."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.stream import naive
from tests.stream.test_windowed import AGGREGATES, COLUMNS, EVENTS, ORDERED, TABLE, run, stream
from tests.stream.walk import BIGINT, DOUBLE, TIME, scan, seconds, statement
from vedette.plan.query import ALL_ROWS, SECOND, Aggregate, Call, Column, Named, Over
from vedette.stream.keyed import Budget
from vedette.stream.network.network import Network


def over(rows: int | None = None, range: int | None = None) -> Over:
    aggregates = (*AGGREGATES, *ORDERED)
    names = (*(Named(*one) for one in COLUMNS), *(Named(f"a{i}", one.type) for i, one in enumerate(aggregates)))
    return Over(names, 1, TABLE, (2,), aggregates, rows, range)


@pytest.mark.parametrize(
    ("rows", "range"),
    [(0, None), (1, None), (4, None), (ALL_ROWS, None), (None, 10 * SECOND), (None, 0), (None, None)],
)
@given(events=EVENTS, stops=st.lists(st.integers(0, 30), max_size=3))
@settings(max_examples=15)
def test_each_row_has_the_aggregates_of_its_frame(
    rows: int | None, range: int | None, events: list[Any], stops: list[int]
) -> None:
    node = over(rows, range)
    given_rows = stream(events)
    expected, late = naive.over(node, given_rows)
    found = run([statement("a", node)], given_rows)["a"]
    assert found[1] == late
    assert naive.ordered(found[0]) == naive.ordered(expected)
    assert [row[1] for row in found[0] if row[2] == "a"] == [row[1] for row in expected if row[2] == "a"]
    if stops:
        assert run([statement("a", node)], given_rows, stops)["a"] == found


def test_a_long_frame_costs_no_more_for_each_row_than_a_short_one() -> None:
    """Merges are counted: a frame of 1,000 rows does as many as one of 10."""

    def merges(rows: int) -> int:
        one = Network([statement("a", over(rows))], Budget())
        operator: Any = one.operators[over(rows).fingerprint]
        count = 0
        merge = operator._merge

        def counted(*args: Any) -> None:
            nonlocal count
            count += 1
            merge(*args)

        operator._merge = counted
        for i in range(3000):
            one.feed("r", (i, seconds(i), "a", i, None))
        one.finish()
        return count

    assert merges(1000) <= merges(10)


def test_values_that_are_held_leave_the_frame() -> None:
    """DISTINCT holds the values of a frame once, however long it is; NaN, which equals nothing, leaves as it came."""
    table = scan((("ts", TIME), ("d", DOUBLE)))
    value = Column(2, DOUBLE)
    difference = Call("-", (value, value), DOUBLE)
    aggregates = (
        Aggregate("COUNT", (difference,), BIGINT, distinct=True),
        Aggregate("COUNT", (value,), BIGINT),
        Aggregate("COUNT", (value,), BIGINT, distinct=True),
    )
    names = (*table.columns, *(Named(f"a{i}", one.type) for i, one in enumerate(aggregates)))
    network = Network([statement("a", Over(names, 1, table, (), aggregates, 2))], Budget())
    for n, number in enumerate((0.0, math.inf, math.inf, math.inf, 1.0, 2.0, 2.0, 2.0)):
        network.feed("r", (n, seconds(n), number))
    (operator,) = network.operators.values()
    found = [row[3:] for _, row in network.finish()]
    assert [one[0] for one in found] == [1, 2, 3, 3, 3, 2, 1, 1]
    assert [one[1] for one in found] == [1, 2, 3, 3, 3, 3, 3, 3]
    assert [one[2] for one in found] == [1, 2, 2, 1, 2, 3, 2, 1]
    (state,) = operator.states.values.values()  # type: ignore[attr-defined]
    assert [len(bag) for bag in state.held] == [1, 1]
