"""A heap whose order among equals is that of Java's priority queue."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vedette.stream.operators import heap

ITEMS = st.lists(st.tuples(st.integers(0, 5), st.integers()), max_size=30)


@given(ITEMS, st.integers(0, 5))
def test_least_first(items: list[tuple[int, int]], least: int) -> None:
    """Items come out by their first element, after some were removed as well; none is lost."""
    made = heap.keep(heap.filled(items), lambda item: item[0] >= least)
    taken = [heap.take(made) for _ in range(len(made))]
    assert [item[0] for item in taken] == sorted(item[0] for item in items if item[0] >= least)
    assert sorted(taken) == sorted(item for item in items if item[0] >= least)


def test_order_of_equals() -> None:
    """The moves of java.util.PriorityQueue: of equal items the last goes to the front when the first is taken."""
    made = heap.filled([(1, "a"), (1, "b"), (1, "c"), (1, "d")])
    assert [heap.take(made)[1] for _ in range(4)] == ["a", "d", "c", "b"]
    assert heap.keep(heap.filled([(3, "a"), (3, "b"), (4, "c")]), lambda item: item[1] != "a") == [(3, "b"), (4, "c")]
