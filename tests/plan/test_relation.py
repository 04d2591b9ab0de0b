"""Correlations that refer to each other, as they come from a plan: in order, and bounded, however they are written."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.plan.aggregates import Kind
from vedette.plan.relation import MAX_CHAIN, Correlation, Slot, ordered


def correlation(name: str, *below: str) -> Correlation:
    slots = tuple(Slot(rule, True) for rule in below) or (Slot("rule", False),)
    return Correlation(name, name, "low", (), Kind.TEMPORAL, slots, (), 60_000_000, (("gte", 1),))


def chain(numbers: Iterable[int]) -> list[Correlation]:
    return [correlation(f"{n:02}", *([f"{n - 1:02}"] if n else [])) for n in numbers]


@given(st.permutations(range(MAX_CHAIN + 1)))
def test_a_chain_in_any_order(numbers: list[int]) -> None:
    """Each comes after what it refers to; one more is too many, wherever a walk begins."""
    whole = chain(n for n in numbers if n < MAX_CHAIN)
    assert [one.id for one in ordered(whole)] == sorted(one.id for one in whole)
    with pytest.raises(ValueError, match=f"chained deeper than {MAX_CHAIN}"):
        ordered(chain(numbers))


def test_a_cycle_and_a_lack() -> None:
    """Neither has an order."""
    with pytest.raises(ValueError, match="refers to itself"):
        ordered([correlation("a", "b"), correlation("b", "a")])
    with pytest.raises(ValueError, match="is not there"):
        ordered([correlation("a", "b")])
