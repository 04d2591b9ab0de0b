"""Aggregates of rows that have a window already are those of the window itself."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.stream.test_windowed import AGGREGATES as EVERY
from tests.stream.test_windowed import COLUMNS, EVENTS, GRIDS, TABLE, run, stream, windowed
from tests.stream.walk import TIME, statement
from vedette.plan.grid import Grid
from vedette.plan.query import Assign, Grouped, Named

AGGREGATES = EVERY[:5]
NAMES = (*(Named(*one) for one in COLUMNS), *(Named(f"window_{name}", TIME) for name in ("start", "end", "time")))


@pytest.mark.parametrize("grid", [GRIDS[0], GRIDS[4], GRIDS[8]], ids=lambda grid: grid.kind)
@given(events=EVENTS, stops=st.lists(st.integers(0, 30), max_size=3))
@settings(max_examples=15)
def test_a_window_function_and_a_group_by_are_a_window(grid: Grid, events: list[Any], stops: list[int]) -> None:
    rows = stream(events)
    columns = (Named(*COLUMNS[1]), *NAMES[4:6], *(Named(f"a{i}", one.type) for i, one in enumerate(AGGREGATES)))
    node = Grouped(columns, 0, Assign(NAMES, 7, TABLE, grid), (2, 5, 6), tuple(AGGREGATES), (5, 6))
    found = run([statement("a", node)], rows)["a"][0]
    window = run([statement("b", windowed(grid, AGGREGATES))], rows)["b"][0]
    moved = [(*row[:2], *row[-3:-1], *row[2:-3]) for row in window]
    assert sorted(map(repr, found)) == sorted(map(repr, moved))
    if stops:
        assert run([statement("a", node)], rows, stops)["a"][0] == found


@given(events=EVENTS)
@settings(max_examples=15)
def test_a_function_by_itself_gives_each_row_for_each_window_and_drops_none(events: list[Any]) -> None:
    from tests.stream.naive import windows

    rows = stream(events)
    for grid in GRIDS:
        found, late = run([statement("a", Assign(NAMES, 7, TABLE, grid))], rows)["a"]
        expected = [(*row, start, end, end - 1000) for row, _ in rows for start, end in windows(grid, row[1])]
        assert found == expected
        assert late == 0
