"""Interval joins and window joins: against every pair of rows, by examples, and over crashes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.stream.operators.steps import Driven, Step, at, stream
from tests.stream.walk import BIGINT, BOOLEAN, STRING, TIME, scan
from vedette.plan.grid import Grid
from vedette.plan.query import MILLISECOND, SECOND, Assign, Call, Column, Expression, Join, Named, Row
from vedette.stream.keyed import Budget
from vedette.stream.operators.base import FOREVER
from vedette.stream.operators.join import IntervalJoin, WindowJoin
from vedette.stream.operators.join import Join as Operator

COLUMNS = (("ts", TIME), ("host", STRING), ("n", BIGINT))
LEFT, RIGHT = scan(COLUMNS, table="l"), scan(COLUMNS, table="r")
LESS = Call("<", (Column(3, BIGINT), Column(6, BIGINT)), BOOLEAN)
"""The left row's n is less than the right row's."""


def interval(kind: str, lower: float, upper: float, when: Expression | None = None) -> Join:
    columns = (*LEFT.columns, *RIGHT.columns)
    return Join(columns, 1, LEFT, RIGHT, kind, (2,), (2,), when, at(lower), at(upper))


def run(node: Join, steps: Sequence[Step], cuts: Any = ()) -> tuple[list[Row], Driven]:
    driven = Driven(lambda budget: Operator(node, budget))
    return driven.run(steps, cuts), driven


def both(*steps: tuple[str, float, str | None, int], delay: float = 0, end: bool = True) -> list[Step]:
    """``("l", seconds, host, n)`` in order; each watermark behind the row by ``delay``, at both ports."""
    found: list[Step] = []
    for origin, (side, second, host, n) in enumerate(steps):
        found.append(("lr".index(side), (origin, at(second), host, n)))
        found += [(0, at(second - delay)), (1, at(second - delay))]
    return [*found, (0, FOREVER), (1, FOREVER)] if end else found


def numbers(rows: Sequence[Row]) -> list[tuple[int | None, int | None]]:
    return [(row[3], row[6]) for row in rows]


# --- interval joins


def test_bounds_are_inclusive() -> None:
    """A partner at either end of the interval joins, a millisecond beyond does not; the origin is the later row's."""
    steps = both(("l", 10, "a", 1), ("r", 10, "a", 2), ("r", 20, "a", 3), ("r", 20.001, "a", 4))
    found, _ = run(interval("INNER", 0, 10), steps)
    assert numbers(found) == [(1, 2), (1, 3)]
    assert [row[0] for row in found] == [1, 2]


def test_null_keys_equal_nothing() -> None:
    """Rows with NULL in a key join no row, neither of their kind, and are given alone on outer sides."""
    steps = both(("l", 1, None, 1), ("r", 1, None, 2))
    assert run(interval("INNER", -9, 9), steps)[0] == []
    assert numbers(run(interval("FULL", -9, 9), steps)[0]) == [(1, None), (None, 2)]


def test_a_missing_partner_is_given_when_the_watermark_passes() -> None:
    """LEFT: at the end of the interval, not before, once; with rows that joined left out."""
    node = interval("LEFT", 0, 10)
    found, driven = run(node, both(("l", 1, "a", 1), ("l", 2, "a", 2), ("r", 3, "b", 3), end=False))
    assert found == []
    driven.run([(0, at(10.999)), (1, at(10.999))])
    assert found == []
    driven.run([(0, at(11)), (1, at(11))])
    assert found == [(0, at(1), "a", 1, None, None, None)]
    driven.run([(1, (9, at(12), "a", 9)), (0, FOREVER), (1, FOREVER)])
    assert numbers(found) == [(1, None), (2, 9)]


def test_late_rows() -> None:
    """A late row joins what is kept; without a partner its NULL row is given at once, and it is not kept."""
    node = interval("LEFT", 0, 30)
    steps = both(("r", 70, "a", 2), ("l", 50, "a", 8), ("l", 20, "a", 9), ("r", 40, "a", 3), delay=5, end=False)
    found, _ = run(node, steps)
    assert numbers(found) == [(8, 2), (9, None)]


def test_the_watermark_below_waits_for_what_may_come() -> None:
    """It is behind by the longer side of the interval, so that nothing that is given is late."""
    for bounds in ((-3, 8), (-8, 3)):
        _, driven = run(interval("FULL", *bounds), both(("l", 1, "a", 1), ("l", 30, "b", 2), ("r", 50, "c", 3)))
        assert driven.sink.marks == [at(-7), at(22), at(42), FOREVER]
        assert not driven.sink.late


def test_that_a_row_has_joined_outlives_a_crash() -> None:
    """It was written before it joined, and again after: it is not given alone then."""
    driven = Driven(lambda budget: Operator(interval("LEFT", 0, 10), budget))
    driven.run([(0, (0, at(1), "a", 1))])
    driven.again()
    driven.run([(1, (1, at(2), "a", 2))])
    driven.again()
    driven.run([(0, FOREVER), (1, FOREVER)])
    assert numbers(driven.sink.rows) == [(1, 2)]


def test_when_fails() -> None:
    """A pair on which the condition fails is no pair, and counted."""
    by_zero = Call(">=", (Call("%", (Column(3, BIGINT), Column(6, BIGINT)), BIGINT), Column(6, BIGINT)), BOOLEAN)
    found, driven = run(interval("LEFT", 0, 9, by_zero), both(("l", 1, "a", 1), ("r", 1, "a", 0)))
    assert numbers(found) == [(1, None)]
    assert driven.operator.failed == 1


def test_interval_that_holds_nothing() -> None:
    """With its lower end above its upper one nothing joins; outer rows are given alone."""
    found, _ = run(interval("FULL", 5, 1), both(("l", 1, "a", 1), ("r", 3, "a", 2)))
    assert sorted(numbers(found), key=repr) == [(1, None), (None, 2)]


def test_nothing_stays() -> None:
    """What can join no more takes nothing; a budget that is short evicts, counts, and the join goes on."""
    node = interval("FULL", -5, 5)
    steps = both(*[("lr"[i % 2], float(i), f"h{i % 5}", i) for i in range(100)], delay=2, end=False)
    _, driven = run(node, steps)
    assert sum(len(table) for table in driven.operator.tables) < 20
    driven.run([(0, FOREVER), (1, FOREVER)])
    assert driven.budget.used == 0
    short = Driven(lambda budget: Operator(node, budget), limit=2_000)
    short.run([*steps, (0, FOREVER), (1, FOREVER)], cuts=range(0, 200, 17))
    assert sum(table.evicted for table in short.operator.tables)
    assert short.budget.used == 0


def naive_interval(node: Join, steps: Sequence[Step]) -> list[Row]:
    """Every row with every other that came before it and is not past its interval, all kept."""
    marks = [-FOREVER, -FOREVER]
    kept: tuple[list[tuple[Row, int]], ...] = ([], [])
    found: list[Row] = []
    joined: set[tuple[int, int]] = set()
    every: list[tuple[int, Row]] = []
    outer = {"INNER": "", "LEFT": "l", "RIGHT": "r", "FULL": "lr"}[node.kind]
    reach = (node.upper, -node.lower)
    for port, step in steps:
        mark = min(marks)
        if isinstance(step, int):
            marks[port] = max(marks[port], step)
            continue
        every.append((port, step))
        for other, end in kept[1 - port]:
            left, right = (step, other) if port == 0 else (other, step)
            equal = end > mark and step[2] is not None and step[2] == other[2]
            holds = node.when is None or (None not in (left[3], right[3]) and left[3] < right[3])
            if equal and holds and node.lower <= right[1] - left[1] <= node.upper:
                found.append((max(left[0], right[0]), *left[1:], *right[1:]))
                joined |= {(port, step[0]), (1 - port, other[0])}
        if step[1] + reach[port] > mark:
            kept[port].append((step, step[1] + reach[port]))
    for port, row in every:
        if "lr"[port] in outer and (port, row[0]) not in joined:
            nothing = (None, None, None)
            found.append((row[0], *row[1:], *nothing) if port == 0 else (row[0], *nothing, *row[1:]))
    return found


ROW = st.tuples(
    st.sampled_from("lr"), st.integers(0, 40).map(lambda n: n / 2), st.sampled_from(["a", "b", None]),
    st.one_of(st.none(), st.integers(0, 5)),
)  # fmt: skip
KINDS = st.sampled_from(["INNER", "LEFT", "RIGHT", "FULL"])
CUTS = st.sets(st.integers(0, 120), max_size=4)


@given(KINDS, st.integers(-10, 10), st.integers(-2, 12), st.sampled_from([None, LESS]), st.lists(ROW, max_size=30),
       st.integers(0, 8), CUTS)  # fmt: skip
def test_interval_join_is_every_pair(
    kind: str, lower: int, wide: int, when: Expression | None, rows: list[Any], delay: int, cuts: set[int]
) -> None:
    """Any interval, kind and condition over rows out of order, late, tied, with NULL keys, over any crashes."""
    node = interval(kind, lower, lower + wide, when)
    steps = both(*rows, delay=delay)
    found, driven = run(node, steps)
    assert sorted(found, key=repr) == sorted(naive_interval(node, steps), key=repr)
    assert run(node, steps, cuts)[0] == found
    assert driven.budget.used == 0


# --- window joins

WINDOWS = (Named("window_start", TIME), Named("window_end", TIME), Named("window_time", TIME))


TUMBLE = Grid("TUMBLE", 10 * SECOND)


def windows(kind: str, when: Expression | None = None, grid: Grid = TUMBLE) -> Join:
    inputs = [Assign((*side.columns, *WINDOWS), 6, side, grid) for side in (LEFT, RIGHT)]
    columns = inputs[0].columns if kind in {"SEMI", "ANTI"} else (*inputs[0].columns, *inputs[1].columns)
    return Join(columns, 6, *inputs, kind, (2,), (2,), when, windows=((4, 5), (4, 5)))


def windowed(steps: Sequence[Step]) -> list[Step]:
    """Rows with their window of 10 s."""
    found: list[Step] = []
    for port, step in steps:
        if isinstance(step, tuple):
            start = step[1] // (10 * SECOND) * 10 * SECOND
            step = (*step, start, start + 10 * SECOND, start + 10 * SECOND - MILLISECOND)
        found.append((port, step))
    return found


def test_window_join_is_given_when_the_window_ends() -> None:
    """At its end less a millisecond; a row that comes then is late."""
    node = windows("INNER")
    steps = windowed(both(("l", 1, "a", 1), ("r", 9, "a", 2), ("r", 9.998, "b", 3), end=False))
    found, driven = run(node, steps)
    assert found == []
    driven.run([(0, at(9.999)), (1, at(9.999))])
    assert [(row[3], row[9]) for row in found] == [(1, 2)]
    driven.run(windowed([(0, (9, at(5), "a", 9))]))
    assert driven.operator.late == 1


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("INNER", [(1, 2)]),
        ("LEFT", [(1, 2), (4, None), (6, None)]),
        ("RIGHT", [(1, 2), (None, 5), (None, 7)]),
        ("FULL", [(1, 2), (4, None), (None, 5), (6, None), (None, 7)]),
        ("SEMI", [1]),
        ("ANTI", [4, 6]),
    ],
)
def test_kinds_of_window_join(kind: str, expected: list[Any]) -> None:
    """Partners of the same window and key; NULL has none."""
    rows: list[Any] = [("l", 1, "a", 1), ("r", 2, "a", 2), ("l", 3, "b", 4), ("r", 11, "b", 5)]
    rows += [("l", 12, None, 6), ("r", 13, None, 7)]
    found, driven = run(windows(kind), windowed(both(*rows, delay=9)))
    alone = kind in {"SEMI", "ANTI"}
    assert sorted([row[3] if alone else (row[3], row[9]) for row in found], key=repr) == sorted(expected, key=repr)
    assert driven.budget.used == 0


def test_the_next_watermark_that_matters() -> None:
    """Of regular windows that of the next window's end, of sessions any."""
    regular = Operator(windows("INNER"), Budget())
    assert isinstance(regular, WindowJoin)
    assert regular.boundary(at(3)) == at(9.999)
    assert regular.boundary(at(9.999)) == at(19.999)
    assert regular.boundary(at(9.998)) == at(9.999)
    sessions = Operator(windows("INNER", grid=Grid("SESSION", SECOND)), Budget())
    assert sessions.boundary(at(3)) == at(3) + 1
    assert isinstance(Operator(interval("INNER", 0, 1), Budget()), IntervalJoin)


def naive_windows(node: Join, steps: Sequence[Step]) -> list[Row]:
    marks, every = [-FOREVER, -FOREVER], ([], [])  # type: tuple[Any, Any]
    for port, step in steps:
        if isinstance(step, int):
            marks[port] = max(marks[port], step)
        elif step[5] - MILLISECOND > min(marks):
            every[port].append(step)
    found, joined = [], set()
    for left in every[0]:
        partners = [
            right for right in every[1]
            if left[4] == right[4] and left[2] is not None and left[2] == right[2]
            and (node.when is None or (None not in (left[3], right[3]) and left[3] < right[3]))
        ]  # fmt: skip
        joined |= {right[0] for right in partners}
        if node.kind in {"SEMI", "ANTI"}:
            found += [left] if bool(partners) == (node.kind == "SEMI") else []
            continue
        found += [(max(left[0], right[0]), *left[1:], *right[1:]) for right in partners]
        if not partners and node.kind in {"LEFT", "FULL"}:
            found.append((*left, *[None] * 6))
    if node.kind in {"RIGHT", "FULL"}:
        found += [(right[0], *[None] * 6, *right[1:]) for right in every[1] if right[0] not in joined]
    return found


@given(st.sampled_from(["INNER", "LEFT", "RIGHT", "FULL", "SEMI", "ANTI"]), st.booleans(), st.lists(ROW, max_size=30),
       st.integers(0, 15), CUTS)  # fmt: skip
def test_window_join_is_every_pair(kind: str, less: bool, rows: list[Any], delay: int, cuts: set[int]) -> None:
    """Any kind and condition over rows out of order, late, with NULL keys, over any crashes."""
    when = Call("<", (Column(3, BIGINT), Column(9, BIGINT)), BOOLEAN) if less else None
    node, steps = windows(kind, when), windowed(both(*rows, delay=delay))
    found, driven = run(node, steps)
    assert sorted(found, key=repr) == sorted(naive_windows(node, steps), key=repr)
    assert run(node, steps, cuts)[0] == found
    assert driven.budget.used == 0


def test_one_input_at_a_time() -> None:
    """The watermark is the lesser of both inputs': one that stands still keeps all open."""
    found, _ = run(interval("LEFT", 0, 5), [*stream([(1, at(1), "a", 1), (2, at(99), "b", 2)], port=0)])
    assert found == []
