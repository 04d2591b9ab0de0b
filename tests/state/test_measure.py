"""What is measured is exact and rounded once, and the same however a window was gone through."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.deep import examples
from tests.state import naive
from tests.state.drawn import correlation_of
from tests.state.naive import Hit
from vedette.plan.aggregates import Kind
from vedette.plan.relation import Correlation
from vedette.state import measure
from vedette.state.clock import Clock
from vedette.state.correlate import Correlator
from vedette.state.entries import meta
from vedette.state.graph import Item
from vedette.state.measure import metric
from vedette.state.windows import Window

numbers = st.integers(-(1 << 53), 1 << 53) | st.floats(-1e300, 1e300) | st.sampled_from([0.1, 0.7, 3, 3.3, 5e-324])
percents = st.floats(0, 100) | st.sampled_from([10.0, 25.0, 33.3, 90.0, 99.9])


@pytest.mark.parametrize("kind", [Kind.VALUE_PERCENTILE, Kind.VALUE_MEDIAN, Kind.VALUE_AVG])
@pytest.mark.parametrize("least", [0, 1 << 30])
@given(st.data(), percents)
def test_rounded_once(kind: Kind, least: int, data: st.DataObject, percent: float) -> None:
    """A percentile, a median or an average is what exact arithmetic gives, rounded to the nearest number; looked at
    anew or by a slide."""
    values = data.draw(st.lists(numbers, min_size=1, max_size=8))
    c, window = correlation_of(kind, percentile=percent), Window()
    for i, value in enumerate(values):
        window.insert(i, i, 0, value, None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "MIN_SLIDE", least)
        found = metric(c, window, 0, len(values))
    hits = [Hit(i, i, 0, (), Fraction(value)) for i, value in enumerate(values)]
    expected = naive.measure(c, hits)
    assert found is not None
    assert float(found) == expected.numerator / expected.denominator


@given(numbers, st.integers(1, 12), percents)
def test_of_equal_numbers(value: int | float, count: int, percent: float) -> None:
    """Of equal numbers it is that number: ``gt: 3`` does not hold for three times 3."""
    for kind in (Kind.VALUE_PERCENTILE, Kind.VALUE_MEDIAN, Kind.VALUE_AVG):
        c, window = correlation_of(kind, percentile=percent), Window()
        for i in range(count):
            window.insert(i, i, 0, value, None)
        assert metric(c, window, 0, count) == value


def test_sums_are_exact() -> None:
    """A sum is rounded once, whatever the order; whole numbers stay whole."""
    window = Window()
    for i, value in enumerate([0.1] * 10 + [1e16, -1e16]):
        window.insert(i, i, meta(0, 1), value, None)
    assert metric(correlation_of(Kind.VALUE_SUM), window, 0, len(window)) == 1.0
    whole = Window()
    whole.insert(0, 0, meta(0, 1), (1 << 62) + 1, None)
    assert metric(correlation_of(Kind.VALUE_SUM), whole, 0, 1) == (1 << 62) + 1


NUMBERS = st.none() | st.integers(-(1 << 62), 1 << 62) | st.floats(allow_nan=False, allow_infinity=False)
SMALL = st.none() | st.sampled_from([1, 1.0, 2, 2.5, -3])
KINDS = [Kind.VALUE_COUNT, Kind.VALUE_SUM, Kind.VALUE_AVG, Kind.VALUE_MEDIAN, Kind.VALUE_PERCENTILE, Kind.TEMPORAL]
STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "add", "add", "look", "look", "drop"]), st.integers(0, 30), st.integers(0, 30))
)


def anew(c: Correlation, window: Window, start: int, stop: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    with monkeypatch.context() as patch:
        patch.setattr(measure, "MIN_SLIDE", 1 << 30)
        return metric(c, window, start, stop)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("values", [NUMBERS, SMALL])
@given(data=st.data(), steps=STEPS)
@examples(30)
def test_slides(kind: Kind, values: st.SearchStrategy[Any], data: st.DataObject, steps: list[Any]) -> None:
    """Whatever is put in anywhere, goes from the front, and is asked for: value and type are as if looked at anew."""
    c, window = correlation_of(kind, percentile=30.0), Window()
    with pytest.MonkeyPatch.context() as patch:
        for number, (what, a, b) in enumerate(steps):
            if what == "add":
                window.insert(a, number, meta(b % 3, 1), data.draw(values), None)
            elif what == "drop":
                window.drop(min(a // 4, len(window)))
            else:
                start, stop = sorted((a % (len(window) + 1), b % (len(window) + 1)))
                patch.setattr(measure, "MIN_SLIDE", 0)
                found, expected = metric(c, window, start, stop), anew(c, window, start, stop, patch)
                assert (found, type(found)) == (expected, type(expected))


LARGE = [*KINDS, Kind.TEMPORAL_ORDERED, Kind.EVENT_COUNT]


@pytest.mark.parametrize("kind", LARGE)
@pytest.mark.parametrize("settle", [False, True])
@pytest.mark.parametrize("number", range(3))
def test_large_windows(kind: Kind, settle: bool, number: int) -> None:
    """Hundreds of events in one group, some out of order: what fires does not depend on slides."""
    seed = random.Random(number)
    bound = {Kind.VALUE_COUNT: 30, Kind.TEMPORAL: 2, Kind.TEMPORAL_ORDERED: 2 - number % 2, Kind.VALUE_SUM: 300}.get(
        kind, 3
    )
    c = correlation_of(kind, bounds=(("gt", bound),), span=100_000)
    events = []
    for i in range(400):
        late = seed.choice([0, 0, 0, 50, 3000])
        slot = 0 if seed.random() < 0.98 else seed.randrange(3)
        value = f"v{seed.randrange(40)}" if kind is Kind.VALUE_COUNT else seed.choice([1, 2, 3.5, 9, None])
        events.append(((i + 5000) * 1000 - late * 10, i, slot, value))
    found = []
    for least in (0, 1 << 30):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(measure, "MIN_SLIDE", least)
            patch.setattr(measure, "MIN_LINKS", least)
            one = Correlator([c], Clock(20_000), max_bytes=1 << 30, settle=settle)
            fired = []
            for time, offset, slot, value in events:
                source, _ = one.clock.observe("in", "h", time)
                item = Item(one.nodes[0], slot, ("g",), value if c.field else None, None)
                fired += one.add([item], source, time, offset, 9)
            found.append([(f.event, f.metric, f.count, f.contributing) for f in fired + one.finish()])
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_does_not_grow_with_the_window(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty thousand matches in one group: one more moves a slide by one entry, it does not look at all of them."""
    c, window, moved = correlation_of(kind, percentile=90.0), Window(), []
    for i in range(20_000):
        window.insert(i, i, meta(0, 1), i % 1000, None)
    metric(c, window, 0, 19_990)
    assert window.slides is not None
    running = type(window.slides[0].running)
    take, leave = running.take, running.leave

    def entered(self: Any, read: Sequence[Any]) -> None:
        moved.append(len(read))
        take(self, read)

    def left(self: Any, read: Sequence[Any]) -> None:
        moved.append(len(read))
        leave(self, read)

    monkeypatch.setattr(running, "take", entered)
    monkeypatch.setattr(running, "leave", left)
    for stop in range(19_991, 20_001):
        metric(c, window, stop - 19_990, stop)
    assert moved == [1] * 20
