"""What is measured of numbers: exact, and rounded once."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.state import naive
from tests.state.drawn import made
from tests.state.naive import Hit
from vedette.plan.relation import Kind
from vedette.state import measure
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
    c, window = made(kind, percentile=percent), Window()
    for i, value in enumerate(values):
        window.insert(i, i, 0, value, None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "MIN_SLIDE", least)
        found = measure.metric(c, window, 0, len(values))
    hits = [Hit(i, i, 0, (), Fraction(value)) for i, value in enumerate(values)]
    expected = naive.measure(c, hits)
    assert found is not None
    assert float(found) == expected.numerator / expected.denominator


@given(numbers, st.integers(1, 12), percents)
def test_of_equal_numbers(value: int | float, count: int, percent: float) -> None:
    """Of equal numbers it is that number: ``gt: 3`` does not hold for three times 3."""
    for kind in (Kind.VALUE_PERCENTILE, Kind.VALUE_MEDIAN, Kind.VALUE_AVG):
        c, window = made(kind, percentile=percent), Window()
        for i in range(count):
            window.insert(i, i, 0, value, None)
        assert measure.metric(c, window, 0, count) == value


@given(st.lists(numbers, min_size=1, max_size=12), percents, percents)
def test_a_percentile_rises(values: list[int | float], one: float, other: float) -> None:
    """A higher percentile of the same numbers is no lower number, and lies among them."""
    low, high = (measure.percentile(values, percent) for percent in sorted((one, other)))
    assert min(values) <= low <= high <= max(values)
