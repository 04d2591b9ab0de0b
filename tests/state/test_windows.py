"""The entries of a group's window: in order, with all their parts."""

from __future__ import annotations

import pytest

from tests.state.drawn import row_of
from vedette.state import windows
from vedette.state.entries import meta
from vedette.state.windows import Window


def test_entries_keep_their_parts() -> None:
    """Slot and length come back, and so does everything over a restart."""
    window = Window()
    window.insert(7, 1 << 50, meta(63, 1 << 20), "a", ("x", None, 2))
    window.insert(3, 5, meta(1, 9), None, (None, None, None))
    window.hold(1)
    assert (window.time(1), window.offset(1), window.slot(1), window.length(1)) == (7, 1 << 50, 63, 1 << 20)
    copy = Window()
    copy.apply(row_of(window))
    assert row_of(copy) == row_of(window)
    assert (copy.held(0), copy.held(1), copy.size) == (False, True, window.size)


def test_entries_of_one_time_lie_by_their_offsets() -> None:
    """Also those that came later, as occurrences of other groups do; each is found."""
    window = Window()
    for offset, value in ((7, "a"), (5, "a"), (9, "a"), (5, "b"), (6, "a")):
        assert not window.has(3, offset, value, (0,))
        window.insert(3, offset, meta(0, 1), value, None)
        assert window.has(3, offset, value, (0,))
        assert not window.has(3, offset, value, (1,))
    assert [window.offset(i) for i in range(5)] == [5, 5, 6, 7, 9]


def test_a_window_knows_few_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more, those whose last event is longest ago go, but never the one that is furthest ahead."""
    monkeypatch.setattr(windows, "LANES", 3)
    window, waiting = Window(), Window()
    for lane in range(1, 8):
        window.join((lane,))
        waiting.join((lane,), lambda lane: 100 if lane == 1 else lane)
    assert [*window.sources] == [5, 6, 7]
    assert [*waiting.sources] == [1, 6, 7]
    assert window.size == waiting.size
