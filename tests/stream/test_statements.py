"""Statements as evaluation sees them: rows as alerts' texts, and time that passes without rows."""

from __future__ import annotations

import math
import tracemalloc
from dataclasses import replace
from decimal import Decimal
from typing import Any

import orjson
import pytest

from tests.differences import walk
from tests.rules.sql.plans import read
from vedette.decode.decoder import record
from vedette.plan.grid import Grid
from vedette.plan.query import (
    SECOND,
    Aggregate,
    Calc,
    Call,
    Column,
    Field,
    Literal,
    Named,
    Scan,
    Statement,
    Type,
    Windowed,
)
from vedette.stream.aggregates import slices
from vedette.stream.reader import Event
from vedette.stream.statements import Selected, Statements, render
from vedette.stream.values.numbers import single

TEXT, TIME = Type("STRING"), Type("TIMESTAMP_LTZ", 3)
NOON = 1_795_176_000_000_000


def selected(*columns: tuple[str, Type, Any], offset: int = 7) -> Selected:
    named = tuple(Named(name, of) for name, of, _ in columns)
    scan = Scan(named, 0, "t", "r", ())
    root = Calc(named, 0, scan, tuple(Column(i, one.type) for i, one in enumerate(named, 1)))
    made = Statement("s", "S", "low", (), root, "d", "a.sql", 1)
    texts = tuple((i, one.name, render(one.type)) for i, one in made.shown)
    return Selected(made, (offset, *(value for _, _, value in columns)), texts)


@walk(
    ("value", "of", "expected"),
    [
        ("x", TEXT, "x"),
        (True, Type("BOOLEAN"), "true"),
        (5, Type("INT"), "5"),
        (1.5, Type("DOUBLE"), "1.5"),
        (Decimal("1.50"), Type("DECIMAL", 4, 2), "1.50"),
        (b"\x01\xff", Type("BYTES"), "01ff"),
        (NOON, TIME, "2026-11-20T12:00:00.000Z"),
        (NOON, Type("TIMESTAMP", 3), "2026-11-20T12:00:00.000"),
        (31, Type("DATE"), "1970-02-01"),
        (253_402_300_800_000_000, TIME, "10000-01-01T00:00:00.000Z"),
        (-(1 << 63), Type("TIMESTAMP", 3), "-290308-12-21T19:59:05.224"),
        (10_000_000, Type("DATE"), "29349-01-26"),
        (1500, Type("TIME", 3), "00:00:01.500"),
        (single(0.1), Type("FLOAT"), "0.1"),
        (single(-16777216.0), Type("FLOAT"), "-16777216.0"),
        (single(1e-45), Type("FLOAT"), "1e-45"),
        (math.nan, Type("FLOAT"), "nan"),
        ((single(2.3), None), Type("ARRAY", args=(Type("FLOAT"),)), "2.3, "),
        (0.1, Type("DOUBLE"), "0.1"),
        (Decimal("0E-8"), Type("DECIMAL", 9, 8), "0.00000000"),
        ((1, None, 2), Type("ARRAY", args=(Type("INT"),)), "1, , 2"),
        ({"a": 1, "b": None}, Type("MAP", args=(TEXT, Type("INT"))), "a=1, b="),
        ((1, "b"), Type("ROW", args=(("x", Type("INT")), ("y", TEXT))), "x=1, y=b"),
    ],
)  # fmt: skip
def test_a_value_as_a_text(value: Any, of: Type, expected: str) -> None:
    """Of every type that a column can have."""
    assert render(of)(value) == expected


def test_what_an_alert_is_made_of() -> None:
    """Columns are fields but those that go before the statement's own words; a window and a count are known by name."""
    one = selected(
        ("level", TEXT, "high"), ("Title", TEXT, "T"), ("src", TEXT, "a"), ("gone", TEXT, None),
        ("count", Type("BIGINT"), 3), ("window_start", TIME, NOON), ("window_end", TIME, NOON + 60_000_000),
    )  # fmt: skip
    assert (one.offset, one.head("level"), one.head("title"), one.head("tags"), one.times) == (7, "high", "T", "", 3)
    assert one.window == (NOON, NOON + 59_999_999)
    assert one.fields == {
        "src": "a", "count": "3", "window_start": "2026-11-20T12:00:00.000Z", "window_end": "2026-11-20T12:01:00.000Z",
    }  # fmt: skip
    plain = selected(("src", TEXT, "a"))
    assert (plain.window, plain.times, plain.head("level"), plain.key) == (None, 1, "", b"")


def counted() -> Statement:
    """Rows a device in ten seconds, with a watermark five seconds behind."""
    columns = (Named("ts", TIME), Named("device", TEXT))
    delay = Literal(5 * SECOND, Type("INTERVAL_SECOND"))
    mark = Call("-", (Column(1, TIME), delay), TIME)
    scan = Scan(columns, 1, "t", "r", (Field("ts"), Field("device")), mark)
    rows = Calc(columns, 1, scan, (Column(1, TIME), Column(2, TEXT)))
    given = (Named("device", TEXT), Named("n", Type("BIGINT")), *(Named(name, TIME) for name in "set"))
    count = Aggregate("COUNT", (), Type("BIGINT"))
    windows = Windowed(given, 5, rows, Grid("TUMBLE", 10 * SECOND), (2,), (count,))
    return Statement("s", "S", "low", (), windows, "d", "a.sql", 1)


def fed(statements: Statements, second: int) -> None:
    read = record(orjson.dumps({"ts": NOON // SECOND + second, "device": "a"}), "json")
    statements.feed(statements.read("r", Event(read, second, input="in", host=lambda: None, time=lambda: None)))


def test_time_goes_on_where_nothing_comes() -> None:
    """A minute after the last row, the watermark goes on with the receipts, so the last window ends; a row that comes
    in time stops that, and so does another clock."""
    one = Statements([counted()])
    one.advance(1)
    fed(one, 9)  # the watermark is at 4 s
    for second in range(1, 66):
        one.advance(1 + second * SECOND)
    assert list(one.take()) == []
    one.advance(1 + 66 * SECOND)
    assert [row.row[1:3] for row in one.take()] == [("a", 1)]
    fed(one, 29)
    one.advance(1 + 67 * SECOND)
    one.advance(1 + 400 * SECOND)  # the agent was down: nobody was silent
    one.advance(5)
    assert list(one.take()) == []
    assert [row.row[1:3] for row in one.finish()] == [("a", 1)]


def test_state_comes_back() -> None:
    """Rows counted before a restart count after it; equal statements of another plan take them over."""
    one = Statements([counted()])
    fed(one, 1)
    assert list(one.take()) == []
    saved = one.delta()
    assert one.delta() == b""
    again = Statements([counted()])
    again.restore(saved)
    again.resume()
    fed(again, 2)
    list(again.take())
    changed = replace(counted(), digest="other")
    other = Statements([changed])
    assert other.adopt(again) == ["s"]
    assert [row.row[1:3] for row in other.finish()] == [("a", 2)]
    assert other.status()["statements"][0]["rows"] == 1


@pytest.mark.parametrize("wrong", [Call("NOPE", (), TEXT), Call("UPPER", (), TEXT)])
def test_what_cannot_run_is_named(wrong: Call) -> None:
    """A damaged plan: the statement by its title, whatever else is there."""
    scan = Scan((Named("a", TEXT),), 0, "t", "r", (Field("a"),))
    root = Calc((Named("a", TEXT),), 0, scan, (wrong,))
    bad = Statement("b", "Bad one", "low", (), root, "d", "a.sql", 1)
    with pytest.raises(ValueError, match="'Bad one' cannot run"):
        Statements([counted(), bad])


FORGOTTEN = {
    "tumble": "SELECT a, COUNT(*) AS n, MAX(a) AS m FROM events GROUP BY a, TUMBLE(event_time, INTERVAL '1' HOUR)",
    "session": "SELECT a, COUNT(*) AS n FROM events GROUP BY a, SESSION(event_time, INTERVAL '1' HOUR)",
    "over": "SELECT a, COUNT(*) OVER (PARTITION BY a ORDER BY event_time RANGE BETWEEN INTERVAL '1' HOUR PRECEDING"
    " AND CURRENT ROW) AS n FROM events",
    "first": "SELECT a FROM (SELECT a, ROW_NUMBER() OVER (PARTITION BY a ORDER BY event_time) AS n FROM events)"
    " WHERE n = 1",
    "top": "SELECT a, n FROM (SELECT a, ROW_NUMBER() OVER (PARTITION BY a, window_start, window_end ORDER BY `raw`)"
    " AS n FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(event_time), INTERVAL '1' HOUR))) WHERE n <= 2",
    "join": "SELECT x.a FROM events x JOIN events y ON x.a = y.a AND y.event_time BETWEEN"
    " x.event_time + INTERVAL '1' SECOND AND x.event_time + INTERVAL '1' HOUR",
}


@pytest.mark.parametrize("kind", FORGOTTEN)
def test_what_gave_way_takes_no_memory(kind: str) -> None:
    """Large keys, ever new ones, while time hardly passes: timers do not hold what the budget let go."""
    rules = read(FORGOTTEN[kind])
    assert not rules.refused
    statements = Statements(rules.statements, max_bytes=256 << 10)
    tracemalloc.start()
    try:
        for number in range(2000):
            event = record(orjson.dumps({"a": f"{number}" + "x" * 4000}), "json", received_at=NOON)
            one = Event(event, number, input="in", host=lambda: None, time=lambda at=NOON + 100 * number: at)
            for rule in statements.network.scans:
                statements.feed(statements.read(rule, one))
            if number % 50 == 0:
                list(statements.take())
                statements.delta()
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert statements.status()["evicted"] > 1000
    assert used < 3 << 20


def test_a_slice_without_the_places_of_what_gave_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same rows and the same counts as with them, also for keys that come again."""
    counted = "SELECT a, COUNT(*) AS n, MAX(b) AS m FROM events GROUP BY a, TUMBLE(event_time, INTERVAL '1' HOUR)"
    rules = read(counted)
    found = []
    for most in (0, 1 << 30):
        monkeypatch.setattr(slices, "MAX_GONE", most)
        statements = Statements(rules.statements, max_bytes=8 << 10)
        again = Statements(rules.statements, max_bytes=8 << 10)
        for number in range(1000):
            fields = {"a": str(number * number % 101 + number // 10), "b": str(number)}
            event = record(orjson.dumps(fields), "json", received_at=NOON)
            one = Event(event, number, input="in", host=lambda: None, time=lambda at=NOON + 100 * number: at)
            for rule in statements.network.scans:
                statements.feed(statements.read(rule, one))
            if number % 7 == 0 or number == 999:
                list(statements.take())
                again.restore(statements.delta())
        evicted = statements.status()["evicted"]
        again.resume()
        rows = [one.row for one in statements.finish()]
        assert evicted > 100
        assert rows
        assert sorted(map(repr, rows)) == sorted(repr(one.row) for one in again.finish())
        found.append((evicted, rows))
    assert found[0] == found[1]
