"""Sessions merge as rows close gaps, are late as a whole, and survive a restart at any point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.deep import examples
from tests.stream import naive
from tests.stream.operators.steps import Driven, at
from tests.stream.test_windowed import AGGREGATES, COLUMNS, EVENTS, TABLE, run, stream, windowed
from tests.stream.walk import TIME, statement
from vedette.plan.grid import Grid
from vedette.plan.query import MILLISECOND, SECOND, Assign, Named
from vedette.stream.operators.session import Session


def _values(states: Sequence[Any]) -> list[Any]:
    return [naive.aggregate(one, states) for one in AGGREGATES]


def check(rows: Sequence[Any], gap: int, stops: Sequence[int]) -> None:
    grid = Grid("SESSION", gap)
    aggregated = statement("aggregated", windowed(grid, AGGREGATES))
    names = (*(Named(*one) for one in COLUMNS), *(Named(f"window_{name}", TIME) for name in ("start", "end", "time")))
    by_row = statement("rows", Assign(names, 7, TABLE, grid, (2,)))
    found, late = naive.sessions(gap, rows)
    given_ = run([aggregated, by_row], rows)
    assert given_["aggregated"][1] == given_["rows"][1] == late
    expected = [
        (max(row[0] for row in held), held[0][2], *_values(held), start, end, end - MILLISECOND)
        for start, end, held in found
    ]
    assert naive.ordered(given_["aggregated"][0]) == naive.ordered(expected)
    flat = [(*row, start, end, end - MILLISECOND) for start, end, held in found for row in held]
    assert naive.ordered(given_["rows"][0]) == naive.ordered(flat)
    assert [row[-2] for row in given_["rows"][0]] == sorted(row[-2] for row in given_["rows"][0])
    if stops:
        assert run([aggregated, by_row], rows, stops) == given_


@given(EVENTS, st.sampled_from([1, 5, 20, 100]), st.lists(st.integers(0, 30), max_size=3))
@examples(75)
def test_sessions_give_what_all_of_their_rows_give(events: list[Any], gap: int, stops: list[int]) -> None:
    check(stream(events), gap * SECOND, stops)


def test_a_row_whose_own_session_is_over_counts_if_it_closes_a_gap_to_one_that_is_not() -> None:
    rows = stream([(60, "a", 0, None), (65, "a", 1, None), (84, "z", 2, None), (45, "a", 3, None), (30, "y", 4, None)])
    check(rows, 20 * SECOND, [3])
    found, late = naive.sessions(20 * SECOND, rows)
    assert [len(held) for _, _, held in found] == [3, 1]
    assert late == 1


def test_a_session_is_given_when_its_end_is_reached() -> None:
    """At the watermark of its last millisecond, and not before."""
    driven = Driven(lambda budget: Session(windowed(Grid("SESSION", 20 * SECOND), AGGREGATES[:1]), budget))
    assert driven.run([(0, (0, at(10), "a", 1, None)), (0, at(29.998))]) == []
    assert len(driven.run([(0, at(29.999))])) == 1
