"""Operators in a network give the same rows, in the same order, however many rows go in at once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.deep import examples
from tests.stream.walk import BIGINT, STRING, TIME, calc, scan, statement
from vedette.plan.grid import Grid
from vedette.plan.pattern import AGGREGATE, ANY, FIRST, LAST
from vedette.plan.query import (
    ALL_ROWS,
    SECOND,
    Aggregate,
    Assign,
    Call,
    Column,
    Grouped,
    Join,
    Literal,
    Match,
    Named,
    Node,
    Over,
    Row,
    Top,
    Type,
    Variable,
    Windowed,
)
from vedette.stream.keyed import Budget
from vedette.stream.network.network import Network

COLUMNS = (("ts", TIME), ("host", STRING), ("n", BIGINT))
BOOLEAN = Type("BOOLEAN")


def rows_of(n: int) -> Node:
    """Those whose n leaves ``n`` when divided by 2."""
    half = Call("%", (Column(3, BIGINT), Literal(2, BIGINT)), BIGINT)
    return calc(scan(COLUMNS, delay=3 * SECOND), Call("=", (half, Literal(n, BIGINT)), BOOLEAN))


def joined(kind: str, lower: int, upper: int) -> Node:
    left, right = rows_of(0), rows_of(1)
    columns = (*left.columns, *right.columns)
    return Join(columns, 1, left, right, kind, (2,), (2,), None, lower * SECOND, upper * SECOND)


def twice() -> Node:
    """A join of a join."""
    first = joined("LEFT", 0, 5)
    return Join(
        (*first.columns, *rows_of(1).columns), 1, first, rows_of(1), "LEFT", (2,), (2,), None, -2 * SECOND, 4 * SECOND
    )


def matched(within: int, skip: str, input: Node | None = None) -> Node:
    every = calc(scan(COLUMNS, delay=3 * SECOND)) if input is None else input
    more = Call(">", (Column(3, BIGINT), Literal(4, BIGINT)), BOOLEAN)
    measures = (
        Call(FIRST, (Column(3, BIGINT),), BIGINT, (ANY, 0)), Call(LAST, (Column(3, BIGINT),), BIGINT, ("B", 0)),
        Call(AGGREGATE, (), BIGINT, (ANY, "COUNT")),
    )  # fmt: skip
    columns = (Named("host", STRING), *(Named(f"m{i}", BIGINT) for i in range(3)))
    pattern = (Variable("A", 1, None, greedy=False), Variable("B", 1, 1))
    return Match(columns, 0, every, (2,), pattern, (("B", more),), measures, skip, within=within * SECOND)


EVERY = calc(scan(COLUMNS, delay=3 * SECOND))
WINDOW = tuple(Named(f"window_{name}", TIME) for name in ("start", "end", "time"))
COUNTED = (Aggregate("COUNT", (), BIGINT), Aggregate("SUM", (Column(3, BIGINT),), BIGINT))
COUNTS = (Named("c", BIGINT), Named("s", BIGINT))


def session(gap: float, grouped: bool) -> Node:
    grid = Grid("SESSION", round(gap * SECOND))
    if not grouped:
        return Assign((*EVERY.columns, *WINDOW), 6, EVERY, grid, (2,))
    return Windowed((EVERY.columns[1], *COUNTS, *WINDOW), 6, EVERY, grid, (2,), COUNTED)


def over(rows: int | None, range: int | None) -> Node:
    return Over((*EVERY.columns, *COUNTS), 1, EVERY, (2,), COUNTED, rows, range)


def top(grid: Grid | None, descending: bool = False) -> Node:
    if grid is None:
        return Top(EVERY.columns, 1, EVERY, (2,), ((1, False, False),), 1, 1, ranked=False)
    windows = Assign((*EVERY.columns, *WINDOW), 6, EVERY, grid)
    return Top(windows.columns, 6, windows, (4, 5, 2), ((3, descending, False),), 1, 2, (4, 5), ranked=False)


def grouped(grid: Grid) -> Node:
    windows = Assign((*EVERY.columns, *WINDOW), 6, EVERY, grid)
    return Grouped((EVERY.columns[1], *WINDOW[:2], *COUNTS), 0, windows, (2, 4, 5), COUNTED, (4, 5))


def twice_session() -> Node:
    """Sessions of what a join gives, whose watermark is behind its table's."""
    pairs = joined("FULL", 0, 5)
    grid = Grid("SESSION", 3 * SECOND)
    return Windowed((pairs.columns[1], *COUNTS, *WINDOW), 6, pairs, grid, (2,), COUNTED)


HOP, TUMBLE = Grid("HOP", 10 * SECOND, 5 * SECOND), Grid("TUMBLE", 4 * SECOND)
NODES = {
    "session": session(2, True), "short session": session(0.5, True), "rows of a session": session(3, False),
    "over two rows": over(1, None), "over a range": over(None, 4 * SECOND), "over no range": over(None, 0),
    "over all": over(None, None), "over all rows": over(ALL_ROWS, None),
    "first": top(None), "top of a hop": top(HOP, True), "top": top(TUMBLE),
    "group": grouped(TUMBLE), "group of a hop": grouped(HOP), "session of a join": twice_session(),
    "inner": joined("INNER", -2, 6), "left": joined("LEFT", 0, 5), "right": joined("RIGHT", -4, -1),
    "full": joined("FULL", -3, 3), "left before": joined("LEFT", -8, -2), "twice": twice(),
    "match": matched(0, "NEXT"), "match within": matched(6, "PAST"),
    "match of a join": matched(9, "PAST", joined("FULL", 0, 4)),
}  # fmt: skip
ROW = st.tuples(st.integers(0, 40).map(lambda n: n / 2), st.sampled_from(["a", "b"]), st.integers(0, 9))


@pytest.mark.parametrize("name", NODES)
@given(st.lists(ROW, max_size=40), st.sets(st.integers(0, 40)))
@examples(40)
def test_runs(name: str, drawn: list[Any], flushed: set[int]) -> None:
    """Rows one by one, all at once, or with the state written and read anywhere: late ones are late in all of these."""
    root = NODES[name]
    rows: list[Row] = [(i, round(second * SECOND), host, n) for i, (second, host, n) in enumerate(drawn)]

    def run(cuts: set[int]) -> tuple[list[Row], int]:
        network = Network([statement("s", root)], Budget())
        found = []
        for number, row in enumerate(rows):
            if number in cuts:
                found += network.flush()
            network.feed("r", row)
        found += network.finish()
        return [row for _, row in found], network.counts()["s"].late

    assert run(set(range(40))) == run(set()) == run(flushed)
