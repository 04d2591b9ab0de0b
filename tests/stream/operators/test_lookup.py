"""Joins with lookups, against opened lookups of every kind of key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.lookup.tables import lookup_of
from tests.stream.operators.steps import Driven, at
from tests.stream.walk import BIGINT, BOOLEAN, STRING, TIME, scan, statement
from vedette.lookup.table import Lookup
from vedette.plan.query import Calc, Call, Column, Expression, Literal, LookupJoin, Named, Row
from vedette.stream.keyed import Budget
from vedette.stream.network.network import Network
from vedette.stream.operators.lookup import LookupJoin as Operator

SCAN = scan((("ts", TIME), ("host", STRING), ("n", BIGINT)))
ROWS: list[Row] = [(0, at(1), "a", 1), (1, at(2), "b", 2), (2, at(3), "c", 3), (3, at(4), None, 4)]


def node(kind: str, *wanted: str, index: str = "host", key: Expression | None = None, **more: Any) -> LookupJoin:
    columns = (*SCAN.columns, *(Named(one, STRING) for one in wanted)) if kind in {"INNER", "LEFT"} else SCAN.columns
    return LookupJoin(columns, 1, SCAN, "assets", index, key or Column(2, STRING), wanted, kind, **more)


def run(one: LookupJoin, lookup: Lookup | None, rows: list[Row] = ROWS) -> tuple[list[Row], Driven]:
    driven = Driven(lambda budget: Operator(one, budget))
    driven.operator.use({} if lookup is None else {"assets": lookup})
    driven.operator.push(0, rows)
    return driven.sink.rows, driven


def assets(tmp_path: Path) -> Lookup:
    return lookup_of(tmp_path / "assets", "host owner limit:int", "host", [("a", "ann", 5), ("b", None, 0)])


@pytest.mark.parametrize(
    ("kind", "wanted", "expected"),
    [
        ("INNER", ("owner",), [(1, "ann"), (2, None)]),
        ("LEFT", ("owner",), [(1, "ann"), (2, None), (3, None), (4, None)]),
        ("INNER", ("limit", "host"), [(1, 5, "a"), (2, 0, "b")]),
        ("SEMI", (), [(1,), (2,)]),
        ("ANTI", (), [(3,), (4,)]),
    ],
)
def test_kinds(tmp_path: Path, kind: str, wanted: tuple[str, ...], expected: list[tuple[Any, ...]]) -> None:
    """The columns asked for, in their order, behind the row; NULL is in no lookup."""
    found, _ = run(node(kind, *wanted), assets(tmp_path))
    assert [row[3:] for row in found] == expected


def test_when(tmp_path: Path) -> None:
    """A condition on row and lookup decides which rows of the lookup are partners."""
    below = Call("<", (Column(3, BIGINT), Column(4, BIGINT)), BOOLEAN)
    assert [row[3:] for row in run(node("LEFT", "limit", when=below), assets(tmp_path))[0]] == [
        (1, 5), (2, None), (3, None), (4, None),
    ]  # fmt: skip
    assert [row[3] for row in run(node("SEMI", "limit", when=below), assets(tmp_path))[0]] == [1]
    assert [row[3] for row in run(node("ANTI", "limit", when=below), assets(tmp_path))[0]] == [2, 3, 4]


def test_several_rows_and_best_rows(tmp_path: Path) -> None:
    """Of equal keys all rows join; of networks the narrowest."""
    twice = lookup_of(tmp_path / "twice", "host owner", "host", [("a", "ann"), ("a", "bob")], duplicates="keep")
    assert sorted(row[3:] for row in run(node("INNER", "owner"), twice)[0]) == [(1, "ann"), (1, "bob")]
    nets = lookup_of(tmp_path / "nets", "net name", "net:cidr", [("10.0.0.0/8", "wide"), ("10.1.0.0/16", "narrow")])
    asked = [(0, at(1), "10.1.2.3", 1), (1, at(1), "10.2.2.3", 2), (2, at(1), "no address", 3)]
    assert [row[3:] for row in run(node("LEFT", "name", index="net"), nets, asked)[0]] == [
        (1, "narrow"), (2, "wide"), (3, None),
    ]  # fmt: skip


def test_validity(tmp_path: Path) -> None:
    """As of a row's time: the row of the lookup that holds then."""
    rows = [("a", "old", at(0), at(2)), ("a", "new", at(2), None)]
    lookup = lookup_of(tmp_path / "v", "host owner since:time until:time", "host", rows, valid=("since", "until"))
    asked: list[Row] = [(0, at(1), "a", 1), (1, at(2), "a", 2), (2, at(-1), "a", 3)]
    assert [row[3:] for row in run(node("LEFT", "owner", at=1), lookup, asked)[0]] == [
        (1, "old"),
        (2, "new"),
        (3, None),
    ]
    assert [row[3] for row in run(node("SEMI", at=1), lookup, asked)[0]] == [1, 2]


def test_a_row_without_the_time(tmp_path: Path) -> None:
    """Whether a version of the lookup held for it nobody knows: it is dropped and counted, and only where rows have
    times of validity."""
    rows = [("a", "old", at(0), at(2)), ("b", "new", at(2), None)]
    timed = lookup_of(tmp_path / "v", "host owner since:time until:time", "host", rows, valid=("since", "until"))
    asked: list[Row] = [(0, None, "a", 1), (1, at(3), "b", 2), (2, None, "c", 3)]
    for kind, expected in (("LEFT", [2]), ("INNER", [2]), ("SEMI", [2]), ("ANTI", [])):
        wanted = ("owner",) if kind in ("LEFT", "INNER") else ()
        found, driven = run(node(kind, *wanted, at=1), timed, asked)
        assert ([row[3] for row in found], driven.operator.failed) == (expected, 2)
        found, driven = run(node(kind, *wanted, at=1), assets(tmp_path), asked)
        assert driven.operator.failed == 0


def test_a_lookup_that_is_not_there() -> None:
    """Its rows are dropped and counted, under LEFT and ANTI as well; and it may come later."""
    for kind in ("INNER", "LEFT", "SEMI", "ANTI"):
        found, driven = run(node(kind), None)
        assert (found, driven.operator.failed) == ([], 4)


def test_what_a_lookup_lacks(tmp_path: Path) -> None:
    """A column or an index that it does not have is a KeyError when it comes, not when it is asked."""
    with pytest.raises(KeyError):
        run(node("INNER", "colour"), assets(tmp_path), [])
    with pytest.raises(KeyError):
        run(node("INNER", index="colour"), assets(tmp_path), [])


def test_a_key_that_fails(tmp_path: Path) -> None:
    """A row whose key has no value is dropped and counted."""
    key = Call("%", (Literal(1, BIGINT), Call("-", (Column(3, BIGINT), Literal(2, BIGINT)), BIGINT)), BIGINT)
    found, driven = run(node("ANTI", key=key), assets(tmp_path))
    assert ([row[3] for row in found], driven.operator.failed) == ([1, 3, 4], 1)


def test_swapped_under_a_network(tmp_path: Path) -> None:
    """Rows before a new version see the old one, rows after it the new one; it has no state."""
    one = node("INNER", "owner")
    exprs = tuple(Column(i, named.type) for i, named in enumerate(one.columns, 1))
    network = Network([statement("s", Calc(one.columns, 1, one, exprs))], Budget())
    network.use({"assets": assets(tmp_path)})
    network.feed("r", ROWS[0])
    network.use({"assets": lookup_of(tmp_path / "new", "host owner", "host", [("a", "eve")])})
    network.feed("r", ROWS[0])
    assert [row[4] for _, row in network.flush()] == ["ann", "eve"]
