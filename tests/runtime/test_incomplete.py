"""Alerts of state that gave way say that their window may lack events."""

from __future__ import annotations

from pathlib import Path

from tests.life import NOW, Life
from vedette.delivery import envelope
from vedette.engine.match import Engine
from vedette.model.event import Chunk
from vedette.rules import build

SIGMA = """
title: Each
id: 00000000-0000-4000-8000-000000000001
logsource: {category: any}
detection: {selection: {a|re: .}, condition: selection}
---
title: Twice
id: 00000000-0000-4000-8000-000000000002
correlation:
    type: event_count
    rules: [00000000-0000-4000-8000-000000000001]
    group-by: [a]
    timespan: 1m
    condition: {gte: 2}
"""
SQL = """
-- title: Window
INSERT INTO alerts SELECT a, COUNT(*) AS n FROM events WHERE a IS NOT NULL
    GROUP BY a, TUMBLE(event_time, INTERVAL '10' SECOND) HAVING COUNT(*) > 1;
"""


def chunk_of(minute: int, keys: int) -> Chunk:
    """Each key twice, the last ones three times, within three seconds."""
    seconds = [
        *((0, key) for key in range(keys)),
        *((1, key) for key in range(keys)),
        *((2, keys - n) for n in (3, 2, 1)),
    ]
    lines = [f'{{"a": "{key}-{minute}", "ts": "2026-11-21T02:{minute:02}:0{at}Z"}}\n' for at, key in seconds]
    return Chunk("in", "json", NOW, "".join(lines).encode())


def test_alerts_say_so(tmp_path: Path) -> None:
    """Where the bound of the state is reached, alerts of correlations and statements that may lack events have a flag,
    on the wire too, and are counted; alerts of other times do not."""
    rules = build.empty()
    rules.front_ends[".yml"].add(SIGMA, "rule.yml")
    rules.front_ends[".sql"].add(SQL, "rule.sql")
    plan = build.from_rules(rules)
    assert not plan.refused
    life = Life(tmp_path, Engine(plan, route=False), state_bytes=20_000)
    life.give(*(chunk_of(minute, keys) for minute, keys in ((0, 3), (5, 3), (10, 400), (20, 3), (30, 3))))
    found = life.live().alerts()
    flagged = {"Twice": list[str](), "Window": list[str]()}
    clean = {"Twice": list[str](), "Window": list[str]()}
    for one in found:
        (flagged if "incomplete" in one.flags else clean)[one.rule_title].append(one.fields["a"].partition("-")[2])
    assert {*flagged["Window"]} == {"10"}
    assert {*clean["Window"]} == {"0", "5", "20"}
    assert {*clean["Twice"]} >= {"0", "5", "20", "30"}
    assert {*flagged["Twice"]} == {"10"}
    assert life.counters.totals["alerts_incomplete"] == len(flagged["Window"]) + len(flagged["Twice"]) > 0
    assert all(envelope.decode(envelope.encode(one)).flags == one.flags for one in found)
    life.end()
