"""Windows by slices give what every window gives that is computed from all of its rows, shared, apart and restored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.deep import examples
from tests.stream import naive
from tests.stream.walk import BIGINT, DOUBLE, STRING, TIME, calc, scan, seconds, statement
from vedette.plan.grid import Grid
from vedette.plan.query import SECOND, Aggregate, Call, Column, Named, Row, Statement, Type, Windowed
from vedette.stream.aggregates.slices import grouping_id
from vedette.stream.keyed import Budget, pack, unpack
from vedette.stream.network.network import Network

COLUMNS = (("ts", TIME), ("host", STRING), ("n", BIGINT), ("d", DOUBLE))
TABLE = calc(scan(COLUMNS))
HOST, N, D = Column(2, STRING), Column(3, BIGINT), Column(4, DOUBLE)

BIG = Call(">", (D, N), Type("BOOLEAN"))
AGGREGATES = [
    Aggregate("COUNT", (), BIGINT),
    Aggregate("COUNT", (N,), BIGINT),
    Aggregate("COUNT", (HOST,), BIGINT, distinct=True),
    Aggregate("SUM", (N,), BIGINT),
    Aggregate("SUM", (D,), DOUBLE),
    Aggregate("SUM", (N,), BIGINT, distinct=True),
    Aggregate("AVG", (N,), BIGINT),
    Aggregate("AVG", (D,), DOUBLE, when=BIG),
    Aggregate("MIN", (D,), DOUBLE),
    Aggregate("MAX", (HOST,), STRING),
    Aggregate("STDDEV_POP", (D,), DOUBLE),
    Aggregate("VAR_SAMP", (N,), BIGINT),
    Aggregate("STDDEV_SAMP", (N,), BIGINT),
    Aggregate("VAR_POP", (D,), DOUBLE),
    Aggregate("PERCENTILE", (D,), DOUBLE, options=(0.9,)),
]
ORDERED = [
    Aggregate("FIRST_VALUE", (N,), BIGINT),
    Aggregate("LAST_VALUE", (N,), BIGINT),
    Aggregate("LISTAGG", (HOST,), STRING, options=("|",)),
    Aggregate("LISTAGG", (HOST,), STRING, distinct=True),
    Aggregate("ARRAY_AGG", (N,), Type("ARRAY", args=(BIGINT,))),
    Aggregate("COLLECT", (HOST,), Type("MAP", args=(STRING, BIGINT))),
]

GRIDS = [
    Grid("TUMBLE", 10 * SECOND), Grid("TUMBLE", 60 * SECOND), Grid("TUMBLE", 30 * SECOND, 0, 7 * SECOND),
    Grid("TUMBLE", 15 * SECOND), Grid("HOP", 30 * SECOND, 10 * SECOND),
    Grid("HOP", 60 * SECOND, 20 * SECOND, -5 * SECOND),
    Grid("HOP", 25 * SECOND, 10 * SECOND), Grid("HOP", 10 * SECOND, 15 * SECOND),
    Grid("CUMULATE", 60 * SECOND, 10 * SECOND), Grid("CUMULATE", 40 * SECOND, 20 * SECOND, 10 * SECOND),
]  # fmt: skip


def windowed(
    grid: Grid, aggregates: Sequence[Aggregate], keys: tuple[int, ...] = (2,), sets: tuple[tuple[int, ...], ...] = ()
) -> Windowed:
    columns = (
        *(Named(*COLUMNS[key - 1]) for key in keys),
        *(Named(f"a{i}", one.type) for i, one in enumerate(aggregates)),
        *(Named(name, TIME) for name in ("window_start", "window_end", "window_time")),
        *((Named("grouping_id", BIGINT),) if sets else ()),
    )
    return Windowed(columns, len(keys) + len(aggregates) + 3, TABLE, grid, keys, tuple(aggregates), sets)


NUMBERS = st.none() | st.integers(-5, 5) | st.sampled_from([(1 << 63) - 1, -(1 << 63)])
FLOATS = (
    st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0.1, 0.2, 1e300, -1e300, 1e-300])
)
EVENTS = st.lists(
    st.tuples(
        st.integers(0, 120) | st.integers(0, 900), st.sampled_from(["a", "b", "c", None]), NUMBERS, FLOATS
    ), max_size=30,
)  # fmt: skip


def stream(events: Sequence[tuple[int, Any, Any, Any]]) -> list[tuple[Row, int]]:
    """Rows in their order, each with the watermark behind it, 5 s before its time."""
    return [((i, seconds(time), *rest), seconds(time - 5)) for i, (time, *rest) in enumerate(events)]


def run(statements: Sequence[Statement], rows: Sequence[tuple[Row, int]], stops: Sequence[int] = ()) -> Any:
    """Rows by statement, by firing, and late rows; at each of ``stops`` what was saved goes on in a new network."""
    one = Network(statements, Budget())
    found: list[Any] = []
    saved = []
    for i, (row, _) in enumerate(rows):
        one.feed("r", row)
        if i in stops:
            found += one.flush()
            saved.append(unpack(pack(one.delta())))
            one = Network(statements, Budget())
            for delta in saved:
                one.restore(delta)
            one.resume()
    found += one.finish()
    counts = one.counts()
    return {each.id: ([row for at, row in found if at is each], counts[each.id].late) for each in statements}


def by_firing(rows: Sequence[Row], at: int) -> list[list[Row]]:
    """Rows with the same window next to each other, in an order of their own."""
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[at : at + 2], []).append(row)
    return [naive.ordered(group) for group in groups.values()]


def check(nodes: Sequence[Windowed], events: Sequence[Any], stops: Sequence[int]) -> None:
    rows = stream(events)
    statements = [statement(str(i), node) for i, node in enumerate(nodes)]
    together = run(statements, rows)
    for one in statements:
        node: Any = one.root
        found, late = naive.windowed(node, rows)
        given, counted = together[one.id]
        start = 1 + len(node.keys) + len(node.aggregates)
        assert sorted(map(repr, by_firing(given, start))) == sorted(map(repr, found)), node.grid
        ends = [row[start + 1] for row in given]
        assert ends == sorted(ends)
        assert counted == late
        assert run([one], rows)[one.id][1] == late
        assert sorted(map(repr, run([one], rows)[one.id][0])) == sorted(map(repr, given))
    if stops:
        assert run(statements, rows, stops) == together


@given(
    st.lists(st.sampled_from(GRIDS), min_size=1, max_size=4),
    st.lists(st.sampled_from(AGGREGATES), min_size=1, max_size=4),
    EVENTS, st.lists(st.integers(0, 30), max_size=3),
)  # fmt: skip
@examples(75)
def test_windows_give_what_all_of_their_rows_give(
    grids: list[Grid], aggregates: list[Aggregate], events: list[Any], stops: list[int]
) -> None:
    """Any statements together, each apart, and with state that is saved and taken up at any point."""
    check([windowed(grid, aggregates[: i + 1]) for i, grid in enumerate(grids)], events, stops)


@given(st.lists(st.sampled_from(ORDERED), min_size=1, max_size=6), EVENTS, st.lists(st.integers(0, 30), max_size=3))
@examples(30)
def test_aggregates_by_arrival_share_no_finer_slices(
    aggregates: list[Aggregate], events: list[Any], stops: list[int]
) -> None:
    check([windowed(grid, aggregates) for grid in GRIDS[:2]], events, stops)


@pytest.mark.parametrize("grid", [GRIDS[0], GRIDS[4], GRIDS[8]], ids=lambda grid: grid.kind)
@given(events=EVENTS, stops=st.lists(st.integers(0, 30), max_size=2))
@examples(15)
def test_grouping_sets_have_a_group_for_each_of_their_sets(grid: Grid, events: list[Any], stops: list[int]) -> None:
    check([windowed(grid, AGGREGATES[:3], (2, 3), ((0, 1), (1,), ()))], events, stops)
    check([windowed(grid, AGGREGATES[:3], ())], events, stops)


def test_grouping_id_has_a_bit_for_each_key_that_is_rolled_up() -> None:
    assert [grouping_id(2, kept) for kept in ((0, 1), (0,), (1,), ())] == [0, 1, 2, 3]


@given(
    st.lists(st.tuples(st.sampled_from(GRIDS), st.sampled_from(AGGREGATES)), min_size=1, max_size=4),
    st.lists(st.tuples(st.sampled_from(GRIDS), st.sampled_from(AGGREGATES)), max_size=4),
    st.lists(st.tuples(st.sampled_from(GRIDS), st.sampled_from(AGGREGATES)), max_size=4),
    EVENTS, st.integers(0, 30), st.integers(0, 30), st.booleans(),
)  # fmt: skip
@examples(75)
def test_a_hot_update_changes_nothing_for_statements_that_stay(
    staying: list[Any], before: list[Any], after: list[Any], events: list[Any], at: int, again: int, saved: bool
) -> None:
    """Whatever shared slices with them before, and does now; the deltas of both are enough to go on from."""

    def statements(*groups: list[Any]) -> list[Statement]:
        return [statement(str(one), windowed(one[0], one[1:])) for group in groups for one in dict.fromkeys(group)]

    rows = stream(events)
    stay = {one.id for one in statements(staying)}
    undisturbed = run(statements(staying), rows)
    found: list[Any] = []
    one = Network(list({one.id: one for one in statements(staying, before)}.values()), Budget())
    deltas = []
    for i, (row, _) in enumerate(rows):
        one.feed("r", row)
        if i == at:
            found += one.flush()
            deltas.append(unpack(pack(one.delta())))
            new = Network(list({one.id: one for one in statements(after, staying)}.values()), Budget())
            if saved:
                for delta in deltas:
                    new.restore(delta)
                new.resume()
                new.touch()
            else:
                new.adopt(one)
            one = new
        if i == again > at:
            found += one.flush()
            deltas.append(unpack(pack(one.delta())))
            one = Network(one.statements, Budget())
            for delta in deltas:
                one.restore(delta)
            one.resume()
    found += one.finish()
    for each, (given_, _late) in undisturbed.items():
        assert each in stay
        assert sorted(repr(row) for at, row in found if at.id == each) == sorted(map(repr, given_))


def test_a_node_that_is_new_gives_no_row_for_windows_that_it_has_not_seen() -> None:
    kept, new = windowed(GRIDS[0], AGGREGATES[:1]), windowed(GRIDS[0], AGGREGATES[3:4])
    one = Network([statement("kept", kept)], Budget())
    one.feed("r", (1, seconds(1), "a", 1, None))
    one.flush()
    other = Network([statement("kept", kept), statement("new", new)], Budget())
    other.adopt(one)
    other.feed("r", (2, seconds(2), "a", 1, None))
    other.feed("r", (3, seconds(12), "a", 1, None))
    rows = other.finish()
    assert [(found.id, row[2:4]) for found, row in rows] == [
        ("kept", (2, 0)), ("kept", (1, 10 * SECOND)), ("new", (1, 10 * SECOND)),
    ]  # fmt: skip


def test_groups_give_way_to_the_budget_and_are_counted() -> None:
    one = Network([statement("a", windowed(GRIDS[0], AGGREGATES[:1]))], Budget(4000))
    for i in range(100):
        one.feed("r", (i, seconds(1), f"host{i}", 1, None))
    one.flush()
    counts = one.counts()["a"]
    assert counts.bytes <= 4000
    assert counts.evicted >= 60
    rows = one.finish()
    assert len(rows) == 100 - counts.evicted
    assert rows[-1][1][1] == "host99"
