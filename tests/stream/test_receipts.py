"""PROCTIME() is the time of receipt: windows over it go on with the receipts, and no row is late."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from tests.rules.sql.plans import read
from vedette import Detector, compile_rules
from vedette.decode.decoder import record
from vedette.engine.match import Engine
from vedette.model.times import MAX_SKEW
from vedette.plan.query import SECOND
from vedette.rules.build import from_rules
from vedette.runtime.offline.evaluation import evaluate
from vedette.runtime.offline.scan import chunk_of
from vedette.runtime.offline.timeline import Timeline
from vedette.stream.reader import Event
from vedette.stream.statements import Statements

NOON = 1_795_780_800_000_000
TABLE = """CREATE TABLE t (host STRING, ts TIMESTAMP(3), p AS PROCTIME(), WATERMARK FOR ts AS ts) WITH ('connector' = 'vedette');
CREATE TABLE owners (host STRING, owner STRING) WITH ('connector' = 'vedette', 'lookup' = 'owners');
"""  # noqa: E501
TUMBLED = """SELECT host, COUNT(*) AS n, window_end FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(p), INTERVAL '10' SECOND))
    GROUP BY host, window_start, window_end"""
LEGACY = """SELECT host, COUNT(*) AS n, TUMBLE_END(p, INTERVAL '10' SECOND) AS window_end FROM t
    GROUP BY host, TUMBLE(p, INTERVAL '10' SECOND)"""
BELOW = f"WITH t AS (SELECT host, PROCTIME() AS p FROM events) {TUMBLED}"


class Agent:
    """Statements, and the receipts that they are told of."""

    def __init__(self, sql: str) -> None:
        rules = read(f"{TABLE}INSERT INTO alerts {sql};")
        assert not rules.refused, rules.refused
        self.statements = Statements(rules.statements)
        self.rule = rules.statements[0].scans[0].rule
        self.offset = 0
        self.now = NOON

    def pass_by(self, second: float) -> None:
        now = NOON + round(second * SECOND)
        self.now = max(self.now, now)
        self.statements.advance(1 + self.now - NOON)

    def feed(self, second: float, host: str = "a", input: str = "in") -> None:
        """An event received at ``second``, which says that it happened long ago."""
        self.pass_by(second)
        self.offset += 1
        event = record(
            orjson.dumps({"host": host, "ts": "2026-01-01T00:00:00Z"}),
            "json",
            received_at=NOON + round(second * SECOND),
        )
        self.statements.add(
            self.rule, Event(event, self.offset, input=input, host=lambda: host, time=lambda: NOON - MAX_SKEW)
        )

    def rows(self) -> list[Any]:
        return [(row.row[1], row.row[2], (row.row[3] - NOON) // SECOND) for row in self.statements.take()]


@pytest.mark.parametrize(
    "sql", [TUMBLED, LEGACY, BELOW], ids=["window function", "group window", "PROCTIME() in SELECT"]
)
def test_a_window_ends_with_the_receipts(sql: str) -> None:
    """Of others, too, and at once: no event of the table has to come, and no quiet host holds it back."""
    agent = Agent(sql)
    agent.feed(1)
    agent.feed(2, "b", "other")
    agent.feed(9.999)
    agent.pass_by(9.9995)
    assert agent.rows() == []
    agent.pass_by(10)
    assert sorted(agent.rows()) == [("a", 2, 10), ("b", 1, 10)]
    for second in range(11, 20):
        agent.feed(second)
    agent.feed(20)
    assert agent.rows() == [("a", 9, 20)]


def test_no_row_is_late() -> None:
    """Rows of one moment, and those after the agent's clock was set back, are of the window that is open."""
    agent = Agent(TUMBLED)
    for _ in range(3):
        agent.feed(9.999)
    agent.feed(12)
    assert agent.rows() == [("a", 3, 10)]
    agent.feed(3)
    agent.pass_by(20)
    assert agent.rows() == [("a", 2, 20)]
    (counts,) = agent.statements.status()["statements"]
    assert counts["late"] == 0


def test_after_a_restart() -> None:
    """The state says how far the receipts were."""
    first, second = Agent(TUMBLED), Agent(TUMBLED)
    first.feed(1)
    first.feed(12)
    assert first.rows() == [("a", 1, 10)]
    second.statements.restore(first.statements.delta())
    second.statements.resume()
    second.feed(3)
    second.pass_by(20)
    assert second.rows() == [("a", 2, 20)]


def test_what_reads_no_more_than_it_asks_for() -> None:
    """The watermark of receipts needs no event, so a WHERE selects what is read, as without a window."""
    rules = read(f"{TABLE}SELECT window_end FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(p), INTERVAL '1' MINUTE))"
                 " WHERE host = 'a' GROUP BY window_start, window_end")  # fmt: skip
    (scan,) = rules.statements[0].scans
    assert [predicate.value for predicate in rules.predicates] == ["a"]
    assert scan.columns[scan.time - 1].type.name == "TIMESTAMP_LTZ"


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT host FROM t WHERE PROCTIME() > ts", "it stands in SELECT"),
        ("SELECT a.host FROM t a JOIN t b ON a.host = b.host AND a.p BETWEEN b.ts AND b.ts", "a time of receipt"),
        (LEGACY.replace("TUMBLE_END", "TUMBLE_ROWTIME"), "TUMBLE_ROWTIME is of another time than its window"),
        (LEGACY.replace("(p,", "(ts,").replace("TUMBLE_END", "TUMBLE_PROCTIME"), "TUMBLE_PROCTIME is of another time"),
        (f"SELECT COUNT(*) OVER (ORDER BY q) AS c FROM (SELECT PROCTIME() AS q FROM ({TUMBLED}))", "over one table"),
        ("SELECT COUNT(*) OVER (ORDER BY p) AS c, COUNT(*) OVER (ORDER BY ts) AS d FROM t", "beside OVER by another"),
    ],
)  # fmt: skip
def test_refused(sql: str, reason: str) -> None:
    """Where a row has no time of receipt, or two clocks would count."""
    (refusal,) = read(f"{TABLE}{sql}").refused
    assert reason in refusal.reason


def test_what_is_read_again_was_received_when_it_happened() -> None:
    """``scan`` and a replay know no receipts: an event's own time stands for it, in any order of the lines."""
    plan = from_rules(read(f"INSERT INTO alerts {BELOW};"))
    lines = [b'{"timestamp": "2026-11-20T12:00:%02dZ", "host": "a"}' % second for second in (11, 2, 1, 15)]
    timeline, detector = Timeline(plan), Detector(plan, live=False)
    for found in evaluate(Engine(plan, route=False), chunk_of(lines, "auto", NOON), silent=True):
        timeline.add(found, "")
    scanned = [found.to_row()["fields"] for found in timeline.correlate()]
    assert [(row["n"], row["window_end"][17:19]) for row in scanned] == [("2", "10"), ("2", "20")]
    replayed = [found.to_row()["fields"] for found in [*detector.feed(sorted(lines)), *detector.finish()]]
    assert replayed == scanned


TWICE = """
title: failed
id: 5b7e1c1a-6d0e-4f43-9a4f-0c8f5a1d2e01
name: failed
logsource: {category: test}
detection: {selection: {action: fail}, condition: selection}
---
title: failed twice
id: 5b7e1c1a-6d0e-4f43-9a4f-0c8f5a1d2e02
correlation: {type: event_count, rules: [failed], group-by: [host], timespan: 1m, condition: {gte: 2}}
level: high
"""


def test_an_event_that_says_no_time_happened_when_it_was_received() -> None:
    """Where the receipts are known: to a hunt and a backtest, as they were to the agent; ``scan`` leaves it out."""
    plan = compile_rules(text=TWICE)
    fired = {}
    for received in (True, False):
        timeline = Timeline(plan, received=received)
        for minutes in (0, 10):
            lines = [b'{"action": "fail", "host": "%d"}' % (minutes + host) for host in (0, 0, 1)]
            chunks = chunk_of(lines, "auto", NOON + minutes * 60_000_000)
            for found in evaluate(Engine(plan, route=False), chunks, silent=True):
                timeline.add(found, f"{minutes}")
        fired[received] = (
            [(found.file, found.firing.event.time) for found in timeline.correlate()],
            [*timeline.unused()],
        )
    assert fired[True] == ([("0", NOON), ("10", NOON + 600_000_000)], [])
    assert fired[False] == ([], ["6 matches, because the event holds no time"])
