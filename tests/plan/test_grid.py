"""Windows of event time: aligned to 1970, and sessions that touch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.plan.grid import Grid, aligned, touch

times = st.integers(-10_000, 10_000)
GRIDS = [Grid("TUMBLE", 60), Grid("TUMBLE", 60, 0, 7), Grid("HOP", 60, 25, 3), Grid("CUMULATE", 60, 20, 5)]


@pytest.mark.parametrize("grid", GRIDS)
@given(time=times)
def test_windows_hold_the_time(grid: Grid, time: int) -> None:
    """Every window that a time is in holds it, and the last of them to end is known by itself."""
    found = grid.windows(time)
    assert all(start <= time < end for start, end in found)
    assert max(end for _, end in found) == grid.last_end(time)
    if grid.kind == "TUMBLE":
        assert found == [(start := aligned(time, 60, grid.offset), start + 60)]
        assert (start - grid.offset) % 60 == 0
    if grid.kind == "HOP":
        assert all((start - grid.offset) % grid.step == 0 and end - start == 60 for start, end in found)
        assert len(found) in (2, 3)


def test_sessions_that_touch() -> None:
    """Exactly a gap apart they are one, in either order."""
    assert touch(0, 10, 10, 20)
    assert touch(10, 20, 0, 10)
    assert not touch(0, 10, 11, 21)
