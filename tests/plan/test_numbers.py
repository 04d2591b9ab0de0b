"""Sums that are rounded once: as exact arithmetic says, and for what is no finite number as IEEE 754 does."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.plan.numbers import exact_sum

NUMBERS = st.integers(-(1 << 70), 1 << 70) | st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(NUMBERS, max_size=8))
def test_it_is_rounded_once(values: list[float]) -> None:
    exact = sum(map(Fraction, values), Fraction())
    try:
        expected = float(exact)
    except OverflowError:
        expected = math.inf if exact > 0 else -math.inf
    assert exact_sum(values) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1e308, 1e308, math.inf], math.inf),
        ([1e308, 1e308, -math.inf], -math.inf),
        ([math.inf, 1 << 60], math.inf),
        ([math.inf, -math.inf], math.nan),
        ([1e308, 1e308, math.nan], math.nan),
    ],
)
def test_what_is_no_finite_number(values: list[float], expected: float) -> None:
    assert exact_sum(values) == pytest.approx(expected, nan_ok=True)
