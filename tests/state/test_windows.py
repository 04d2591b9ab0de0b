"""A group's window: numbers, percentiles, chains, and what compaction may forget."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.state.drawn import made
from vedette.plan.relation import Kind
from vedette.state.measure import longest_chain, metric, percentile
from vedette.state.windows import Window, meta, number_of


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (5, 5), (2.5, 2.5), ("7", 7), (" -2.5e1 ", -25.0), ("0x10", None), ("1_0", None), ("nan", None), ("", None),
        (True, None), (None, None), (float("inf"), None), ("1e999", None), ("9" * 400, None), ("١", None),
        (1 << 70, float(1 << 70)),
    ],
)  # fmt: skip
def test_numbers(value: object, number: object) -> None:
    """Numbers and what is written as one in JSON; nothing else, and nothing infinite."""
    assert number_of(value) == number
    assert type(number_of(value)) is type(number)


@given(st.lists(st.integers(-1000, 1000), min_size=2))
def test_percentiles(values: list[int]) -> None:
    """The ends are the least and the greatest, the middle is the median, quartiles are those of the library."""
    assert percentile(list(values), 0) == min(values)
    assert percentile(list(values), 100) == max(values)
    assert percentile(list(values), 50) == statistics.median(values)
    quarters = statistics.quantiles(values, n=4, method="inclusive")
    assert [percentile(list(values), p) for p in (25, 50, 75)] == pytest.approx(quarters)


def test_sums_are_exact() -> None:
    """A sum is rounded once, whatever the order; whole numbers stay whole."""
    window = Window()
    for i, value in enumerate([0.1] * 10 + [1e16, -1e16]):
        window.insert(i, i, meta(0, 1), value, None)
    assert metric(made(Kind.VALUE_SUM), window, 0, len(window)) == 1.0
    whole = Window()
    whole.insert(0, 0, meta(0, 1), (1 << 62) + 1, None)
    assert metric(made(Kind.VALUE_SUM), whole, 0, 1) == (1 << 62) + 1


def test_a_chain_takes_one_link_of_an_event() -> None:
    """One event that matches two rules is not the one after the other; two events of one time are, as they came."""
    c = made(Kind.TEMPORAL_ORDERED)
    window = Window()
    window.insert(5, 100, meta(0, 1), None, None)
    window.insert(5, 100, meta(1, 1), None, None)
    assert longest_chain(c, window, 0, 2) == 1
    window.insert(5, 200, meta(1, 1), None, None)
    assert longest_chain(c, window, 0, 3) == 2


def test_entries_keep_their_parts() -> None:
    """Slot and length come back, and so does everything over a restart."""
    window = Window()
    window.insert(7, 1 << 50, meta(63, 1 << 20), "a", ("x", None, 2))
    window.insert(3, 5, meta(1, 9), None, (None, None, None))
    window.hold(1)
    assert (window.time(1), window.offset(1), window.slot(1), window.length(1)) == (7, 1 << 50, 63, 1 << 20)
    copy = Window.unpack(window.pack())
    assert copy.pack() == window.pack()
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
