"""Statements as values: equal meaning is equal, and all of it survives packing."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import msgpack
import pytest

from tests.differences import walk
from vedette.model.event import LogSource
from vedette.plan.grid import Grid
from vedette.plan.ir import TRUE, Rule, Suppress
from vedette.plan.plan import Plan, build
from vedette.plan.query import (
    Aggregate,
    Calc,
    Call,
    Column,
    Expression,
    Field,
    Literal,
    Named,
    Scan,
    Statement,
    Type,
    Windowed,
    dump,
    nodes,
)
from vedette.plan.stored import load, statements

TEXT, INT, TIME = Type("STRING"), Type("INT"), Type("TIMESTAMP_LTZ", 3)
SCAN = Scan(
    (Named("t", TIME), Named("host", TEXT), Named("n", INT)), 1, "events", "scan-1",
    (Field("event_time", True), Field("host", True), Field("n")), Column(1, TIME),
)  # fmt: skip


def statement(limit: object = 5) -> Statement:
    condition: Expression = Call("<", (Column(3, INT), Literal(limit, INT)), Type("BOOLEAN"))
    rows = Calc(SCAN.columns, 1, SCAN, (Column(1, TIME), Column(2, TEXT), Column(3, INT)), condition)
    counted = Windowed(
        (Named("host", TEXT), Named("c", INT)),
        0,
        rows,
        Grid("TUMBLE", 60_000_000),
        (2,),
        (Aggregate("COUNT", (), INT),),
    )
    return Statement("s", "Many", "high", ("attack.t1",), counted, "d", "a.sql", 1, (("host", "host"),),
                     Suppress(("host",), 60.0))  # fmt: skip


def test_equal_meaning_has_one_fingerprint() -> None:
    """Two statements of the same operators share them all; another literal shares what is below it."""
    one, same, other = (nodes(statement(limit).root) for limit in (5, 5, 6))
    assert [node.fingerprint for node in one] == [node.fingerprint for node in same]
    assert [a.fingerprint == b.fingerprint for a, b in zip(one, other, strict=True)] == [True, False, False]


@pytest.mark.parametrize("value", [5, 2.5, "x", None, True, b"\0", Decimal("1.20"), (1, (2, "a"))])
def test_statements_survive_packing(value: object) -> None:
    """Whatever a literal is, the statement comes back equal."""
    one = statement(value)
    assert load(msgpack.unpackb(msgpack.packb(dump(one)))) == one


def test_a_plan_carries_statements() -> None:
    """With the rules that select their events; those make no alerts. Without such a rule it is no plan."""
    rule = Rule("scan-1", "rows of events", "informational", (), LogSource(), (), TRUE, "r", "a.sql", 1)
    plan = build([rule], [], statements=[statement()])
    again = Plan.from_bytes(plan.to_bytes())
    assert (again.statements, again.digest) == (plan.statements, plan.digest)
    assert again.silent == {"scan-1"}
    assert replace(plan, statements=()).digest != plan.digest
    with pytest.raises(ValueError, match="do not fit together"):
        Plan.from_bytes(build([], [], statements=[statement()]).to_bytes())


TYPE = ["Type", "INT", 0, 0, [""]]


@walk(
    "data",
    [
        ["Scan"],
        ["Unknown", 1],
        [1, 2],
        [[]],
        ["Type", ["Nothing"]],
        ["Type", 5, 0, 0, [""]],
        ["Decimal", "x"],
        ["Decimal"],
        ["Column", "1", TYPE],
        ["Column", True, TYPE],
        ["Column", 1, ["Grid", "HOP", 1, 1, 0]],
        ["Literal", {"a": 1}, TYPE],
        ["Literal", ["", {"a": 1}], TYPE],
        ["Call", "=", ["", 5], TYPE, [""]],
        ["Union", [""], 0, ["", 5]],
    ],
)
def test_what_is_no_query_is_refused(data: object) -> None:
    """With a ValueError."""
    with pytest.raises(ValueError, match="not a query"):
        load(data)


def widened(value: object, number: int, count: list[int]) -> object:
    """``value`` with its ``number``th column index beyond all columns."""
    if isinstance(value, list):
        if value[:1] == ["Column"]:
            count[0] += 1
            return ["Column", 99, value[2]] if count[0] == number else value
        return [widened(one, number, count) for one in value]
    return value


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
def test_a_column_that_is_not_there_is_no_plan(number: int) -> None:
    """It is found when the plan is loaded, not at the first row."""
    good = dump((statement(),))
    assert statements(good)
    bad = widened(good, number, [0])
    assert bad != good
    with pytest.raises(ValueError, match="has no column 99"):
        statements(bad)


@pytest.mark.parametrize(
    "grid",
    [
        Grid("HOP", 86_400_000_000, 1_000),
        Grid("HOP", 60_000_000, -1_000),
        Grid("CUMULATE", 60_000_000),
        Grid("TUMBLE", 0),
    ],
)
def test_windows_that_no_agent_could_give_are_no_plan(grid: Grid) -> None:
    """Of a row in more than ``MAX_PARTS`` of them, or of lengths that are none, evaluation would not come to an end."""
    (one,) = statements(dump((statement(),)))
    assert isinstance(one.root, Windowed)
    with pytest.raises(ValueError, match="no window is Grid"):
        statements(dump((replace(one, root=replace(one.root, grid=grid)),)))


def test_keys_and_times_are_columns_too() -> None:
    (one,) = statements(dump((statement(),)))
    root = one.root
    assert isinstance(root, Windowed)
    for bad in (replace(root, keys=(4,)), replace(root, time=3), replace(root, keys=(-1,))):
        with pytest.raises(ValueError, match="Windowed has no column"):
            statements(dump((replace(one, root=bad),)))
