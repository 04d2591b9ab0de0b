"""Rows that may lack something since state gave way: they say so, until nothing can lack any more."""

from __future__ import annotations

from typing import Any

import orjson

from tests.decode.test_decoder import record
from tests.differences import walk
from tests.rules.sql.plans import read
from vedette.stream.reader import Event
from vedette.stream.statements import Statements

HEAD = """
CREATE TABLE t (ts TIMESTAMP(3), a STRING, WATERMARK FOR ts AS ts) WITH ('connector' = 'vedette');
CREATE TABLE u (ts TIMESTAMP(3), b STRING, WATERMARK FOR ts AS ts) WITH ('connector' = 'vedette');
"""
COUNTED = """SELECT a, COUNT(*) AS n, window_start, window_end, window_time AS `at` FROM TABLE({}) GROUP BY a,
    window_start, window_end, window_time"""
TUMBLE = COUNTED.format("TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)")
MINUTE = 60
STATEMENTS: dict[str, tuple[str, int | None]] = {
    "tumble": (TUMBLE, 10),
    "hop": (COUNTED.format("HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '30' SECOND)"), 30),
    "cumulate": (COUNTED.format("CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '30' SECOND)"), 30),
    "session": (COUNTED.format("SESSION(TABLE t PARTITION BY a, DESCRIPTOR(ts), INTERVAL '4' SECOND)"), 8),
    "over range": (
        "SELECT a, COUNT(*) OVER (PARTITION BY a ORDER BY ts RANGE BETWEEN INTERVAL '20' SECOND PRECEDING"
        " AND CURRENT ROW) AS n FROM t", 20),
    "over rows": (
        "SELECT a, COUNT(*) OVER (PARTITION BY a ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS n FROM t",
        None),
    "interval join": (
        "SELECT t.a FROM t JOIN u ON t.a = u.b AND u.ts BETWEEN t.ts - INTERVAL '20' SECOND AND t.ts", 20),
    "a join of windows": (
        f"SELECT l.a FROM ({TUMBLE}) AS l JOIN u ON l.a = u.b"
        " AND u.ts BETWEEN l.`at` - INTERVAL '20' SECOND AND l.`at`", 30),
    "the first of each": (
        "SELECT a FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY a ORDER BY ts) AS r FROM t) WHERE r = 1", None),
    "a pattern": (
        "SELECT a FROM t MATCH_RECOGNIZE (PARTITION BY a ORDER BY ts MEASURES LAST(X.a) AS b PATTERN (X Y) WITHIN"
        " INTERVAL '20' SECOND DEFINE Y AS Y.a = X.a)", 20),
}  # fmt: skip
"""By name the statement, and how many seconds after the loss its rows may lack something; None: for good."""


class Fed:
    def __init__(self, sql: str, max_bytes: int) -> None:
        rules = read(f"{HEAD}INSERT INTO alerts {sql};")
        assert not rules.refused, rules.refused
        self.statements, self.max_bytes = rules.statements, max_bytes
        self.running = Statements(self.statements, max_bytes=max_bytes)
        self.offset = 0

    def feed(self, second: float, key: str) -> None:
        at = f"2026-11-20 12:{int(second) // 60:02}:{second % 60:06.3f}"
        event: Any = record(orjson.dumps({"ts": at, "a": key, "b": key}), "json")
        one = Event(event, self.offset, input="in", host=lambda: None, time=lambda: None)
        self.offset += 1
        for rule in self.running.network.scans:
            self.running.add(rule, one)

    def rows(self) -> list[bool]:
        """Of each whether it may lack something."""
        return [self.running.incomplete(one) for one in self.running.take()]

    def alone(self, first: float) -> list[bool]:
        """Of the rows of one key in an otherwise silent minute."""
        found = list[bool]()
        for number in range(12):
            self.feed(first + 5 * number, f"k{first}")
            found += self.rows()
        return found


@walk("name", STATEMENTS)
def test_rows_say_so(name: str) -> None:
    """Rows lack nothing until state gives way; then they may, also after a restart, until what it was of is over."""
    sql, seconds = STATEMENTS[name]
    one = Fed(sql, 30_000)
    before = one.alone(0)
    assert before
    assert not any(before)
    for number in range(400):
        one.feed(MINUTE + number / 100, f"key-{number}")
    one.rows()
    assert one.running.status()["evicted"] > 0
    again = Statements(one.statements, max_bytes=one.max_bytes)
    again.restore(one.running.delta())
    again.resume()
    one.running = again
    during = one.alone(MINUTE + 5)
    assert during[0], during
    after = one.alone(MINUTE + 10 + (seconds or 0) + 60)
    assert any(after) is (seconds is None), (name, after)


def test_no_delta_of_nothing_lost() -> None:
    """State that has not lost anything is written as before."""
    one = Fed(TUMBLE, 1 << 26)
    one.alone(0)
    assert b"lacking" not in one.running.delta()
