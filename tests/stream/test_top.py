"""ROW_NUMBER() in a window, and the first row of each key without one."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.deep import examples
from tests.stream.operators.steps import Driven, at
from tests.stream.test_windowed import COLUMNS, EVENTS, TABLE, run, stream
from tests.stream.walk import BIGINT, TIME, statement
from vedette.plan.grid import Grid
from vedette.plan.query import MILLISECOND, SECOND, Assign, Named, Top
from vedette.stream.operators.top import Top as Operator

SIZE = 20 * SECOND
NAMES = (*(Named(*one) for one in COLUMNS), *(Named(f"window_{name}", TIME) for name in ("start", "end", "time")))
ASSIGNED = Assign(NAMES, 7, TABLE, Grid("TUMBLE", SIZE))
ORDERS = st.lists(
    st.tuples(st.sampled_from([1, 2, 3]), st.booleans(), st.booleans()),
    min_size=1,
    max_size=3,
    unique_by=lambda one: one[0],
)


@given(EVENTS, ORDERS, st.integers(1, 2), st.integers(0, 3), st.lists(st.integers(0, 30), max_size=3))
@examples(75)
def test_the_first_rows_of_a_window_by_any_order(
    events: list[Any], order: list[tuple[int, bool, bool]], first: int, more: int, stops: list[int]
) -> None:
    rows = stream(events)
    node = Top((*NAMES, Named("rank", BIGINT)), 7, ASSIGNED, (2, 5, 6), tuple(order), first, first + more, (5, 6))
    mark, late = -(1 << 62), 0
    groups: dict[Any, list[Any]] = {}
    for row, after in rows:
        start = row[1] // SIZE * SIZE
        end = start + SIZE
        if end - MILLISECOND > mark:
            groups.setdefault((end, row[2]), []).append((*row, start, end, end - MILLISECOND))
        else:
            late += 1
        mark = max(mark, after)
    expected = []
    for held in groups.values():
        ranked = held
        for column, descending, nulls_last in reversed(order):
            nulls = [row for row in ranked if row[column] is None]
            others = [row for row in ranked if row[column] is not None]
            others.sort(key=itemgetter(column), reverse=descending)
            ranked = [*others, *nulls] if nulls_last else [*nulls, *others]
        expected += [(*row, i) for i, row in enumerate(ranked, 1) if first <= i <= first + more]
    found = run([statement("a", node)], rows)["a"]
    assert sorted(map(repr, found[0])) == sorted(map(repr, expected))
    assert found[1] == late
    if stops:
        assert run([statement("a", node)], rows, stops)["a"] == found


@given(EVENTS, st.lists(st.integers(0, 30), max_size=3))
@examples(75)
def test_the_first_row_of_a_key_is_given_once(events: list[Any], stops: list[int]) -> None:
    rows = stream(events)
    node = Top(TABLE.columns, 1, TABLE, (2,), ((1, False, False),), 1, 1, ranked=False)
    mark, late = -(1 << 62), 0
    waiting: dict[Any, Any] = {}
    expected: dict[Any, Any] = {}
    for row, after in rows:
        if row[1] < mark:
            late += 1
        elif row[2] not in expected and (row[2] not in waiting or row[1] < waiting[row[2]][1]):
            waiting[row[2]] = row
        mark = max(mark, after)
        expected.update({key: row for key, row in waiting.items() if key not in expected and row[1] <= mark})
    expected = {**waiting, **expected}
    found = run([statement("a", node)], rows)["a"]
    assert sorted(found[0], key=repr) == sorted(expected.values(), key=repr)
    assert found[1] == late
    if stops:
        assert run([statement("a", node)], rows, stops)["a"] == found


def test_a_row_at_the_watermark_is_in_time() -> None:
    """Only one before it is late."""
    node = Top(TABLE.columns, 1, TABLE, (2,), ((1, False, False),), 1, 1, ranked=False)
    driven = Driven(lambda budget: Operator(node, budget))
    driven.run([(0, (0, at(10), "a", 0, None)), (0, at(10))])
    driven.run([(0, (1, at(10), "b", 0, None)), (0, (2, at(9.999), "c", 0, None)), (0, at(11))])
    assert ([row[2] for row in driven.sink.rows], driven.operator.late) == (["a", "b"], 1)
