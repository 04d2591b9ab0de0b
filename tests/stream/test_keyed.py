"""State by key: accounted, bounded, and the same after all deltas."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from vedette.stream.keyed import KEY_BYTES, Budget, Table, pack, unpack
from vedette.udf import values

KEYS = st.tuples(st.one_of(st.none(), st.text(max_size=3), st.integers(-3, 3), st.decimals(0, 9, places=2)))


def table(budget: Budget) -> Table[list[Any]]:
    return Table(budget, len, load=list)


def test_whole_numbers_of_any_size_are_kept() -> None:
    """As Python has them: a time that is moved by an event's own number may lie beyond 64 bits."""
    one, other = Table[Any](Budget(), lambda value: 8), Table[Any](Budget(), lambda value: 8)
    one.put((1 << 70, "a"), (-(1 << 200), Decimal("1.50"), {"b": 1 << 64}))
    other.restore(unpack(pack(one.delta())))
    assert other.values == one.values
    assert values.unpack(pack(1 << 70)) == 1 << 70  # a user function's argument


@given(st.lists(st.tuples(KEYS, st.none() | st.lists(st.integers(0, 9), max_size=3), st.booleans())))
def test_all_deltas_give_the_same_table(steps: list[tuple[tuple[Any, ...], list[int] | None, bool]]) -> None:
    """Whenever deltas are taken, a table restored from them holds what the first holds, and accounts the same."""
    one, other = table(Budget()), table(Budget())
    for key, value, write in steps:
        if value is None:
            one.remove(key)
        else:
            one.put(key, value)
        if write and (made := one.delta()) is not None:
            other.restore(unpack(pack(made)))
    if (made := one.delta()) is not None:
        other.restore(unpack(pack(made)))
    assert other.values == one.values
    assert other.bytes == one.bytes
    assert one.delta() is None


def test_the_budget_lets_the_oldest_keys_of_the_largest_table_go() -> None:
    """Beyond the budget the keys that went unchanged longest are gone, counted, and gone in the delta, too."""
    budget = Budget(3 * (KEY_BYTES + 10))
    large, small = table(budget), table(budget)
    small.put((0,), [1])
    for number in range(4):
        large.put((number,), [0] * 10)
    large.settle()
    large.put((0,), [0] * 10)
    budget.settle()
    assert budget.used <= budget.limit
    assert (list(large.values), large.evicted) == ([(3,), (0,)], 2)
    assert list(small.values) == [(0,)]
    other = table(Budget())
    other.restore(unpack(pack(large.delta())))
    assert other.values == large.values


def test_what_gave_way_is_gone_from_what_is_written() -> None:
    """Also keys that were written before."""
    budget = Budget(3 * (KEY_BYTES + 10))
    full, other = table(budget), table(Budget())
    for number in range(4):
        full.put((number,), [0] * 10)
    other.restore(unpack(pack(full.delta())))
    assert len(other) == 4
    budget.settle()
    assert full.evicted == 1
    if (delta := full.delta()) is not None:
        other.restore(unpack(pack(delta)))
    assert other.values == full.values


def test_values_of_rows_survive_packing() -> None:
    """Tuples, decimals, bytes and None come back as they were."""
    value = (1, 2.5, "a", b"b", None, True, Decimal("1.50"), ((1, 2), {"k": (Decimal(3),)}))
    assert unpack(pack(value)) == value
