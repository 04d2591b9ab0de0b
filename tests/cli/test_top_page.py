"""The page of ``vedette top`` from two answers of an agent."""

from __future__ import annotations

import copy
from typing import Any

from tests.differences import walk
from vedette.cli.top_page import SECTION_MOST, Look, page

SECOND = 1_000_000


def status(at: int, events: int, *, started: int = 0, cpu: float = 0.0) -> dict[str, Any]:
    budget = {"used": 50 << 20, "max": 1 << 30, "unit": "bytes", "reached": False, "action": "the cache is off"}
    names = [f"in{i}" for i in range(12)]
    counts = {
        "received": events,
        "stored": events,
        "judged": events,
        "bytes_in": events * 100,
        "dropped": {},
        "lost": {},
    }
    return {
        "version": "1", "agent_id": "a", "site": "s", "fleet": "", "state": "running",
        "time": at, "started_at": started,
        "lag_events": 7, "lag_seconds": 0.5, "backlog": {"in0": 7},
        "inputs": {name: copy.deepcopy(counts) for name in names},
        "totals": {"candidates": events, "bytes_sent": 10},
        "alerts": {"made": events // 10, "in_outbox": 3, "outbox_bytes": 10, "outbox_max_bytes": 1 << 20, "lost": 0},
        "budgets": {"memory": budget}, "process": {"cpu_seconds": cpu}, "uplink": {"type": "none"},
        "rules": {"statements": 2}, "problems": [],
        "correlation_state": {
            "bytes": 1 << 10, "max_bytes": 1 << 20,
            "correlations": [{"title": "many", "groups": 9, "fired": 2}, {"title": "more", "groups": 10, "fired": 1}],
        },
        "statement_state": {"bytes": 5, "max_bytes": 10, "evicted": 0},
    }  # fmt: skip


def look(at: int, events: int, alerts: int = 12, **more: Any) -> Look:
    rules = [
        {"rule_id": f"r{i}", "title": f"rule {i}\x1b[2J", "ruleset": "default", "alerts": events // 10 - i}
        for i in range(SECTION_MOST)
    ]
    cost = [one | {"share": 0.5, "us_per_event": 0.25} for one in rules]
    lines = [f"alert {i}" for i in range(alerts)]
    return Look(status(at, events, **more), {"cost": cost, "alerts": rules}, lines)


def test_rates() -> None:
    """What came between the two looks, by the second, and over all inputs; shares of what was evaluated."""
    lines = page(look(SECOND, 1000), look(3 * SECOND, 3000, cpu=1.0))
    assert lines[1].startswith("events   12,000/s evaluated, lag 7 events, 0.5 s; candidates 8.33%; CPU 50%")
    assert lines[2].startswith("alerts   100/s made, 300 in all; outbox 3")
    assert next(line for line in lines if line.startswith("in0")).split() == [
        "in0", "1,000/s", "1,000/s", "97.7", "KiB/s", "7", "0",
    ]  # fmt: skip
    assert next(line for line in lines if line.startswith("rule 0") and line.endswith("/s")).split()[-2:] == [
        "300",
        "100/s",
    ]
    assert next(i for i, line in enumerate(lines) if line.startswith("more")) < next(
        i for i, line in enumerate(lines) if line.startswith("many")
    )
    assert lines[-SECTION_MOST] == "alert 11"
    assert not any("\x1b" in line for line in lines)


def test_no_rate_over_a_restart() -> None:
    """Counters that began anew, and a first look, give none; a rule that was not among the first gives none either."""
    for lines in (
        page(look(SECOND, 1000), look(3 * SECOND, 10, started=2 * SECOND)),
        page(look(SECOND, 1000), look(SECOND, 1000)),
    ):
        assert lines[1].startswith("events   - evaluated")
        assert "/s" not in "".join(lines)
    before = look(SECOND, 1000)
    before.busiest["alerts"].clear()  # type: ignore[attr-defined]  # a list here
    shown = page(before, look(3 * SECOND, 3000))
    assert next(line for line in shown if line.startswith("rule 9") and line.endswith("-"))


def test_rule_sets() -> None:
    """Where rules are of several sets each row says of which; a rule of one id in two sets is two."""
    before, now = look(SECOND, 1000), look(3 * SECOND, 3000)
    assert not any("rule set" in line for line in page(before, now))
    for one, alerts in ((before, 5), (now, 25)):
        one.busiest["alerts"][1].update(rule_id="r0", ruleset="site\x1b", alerts=alerts)  # type: ignore[attr-defined]
    shown = [line.split() for line in page(before, now)]
    assert ["rules", "by", "alerts", "alerts", "made", "rule", "set"] in shown
    rated = [line for line in shown if line[:1] == ["rule"] and line[-2].endswith("/s")]
    assert [line[1:2] + line[-3:] for line in rated[:2]] == [
        [r"0\x1b[2J", "300", "100/s", "default"], [r"1\x1b[2J", "25", "10/s", r"site\x1b"],
    ]  # fmt: skip


@walk("rows", range(4, 90))
def test_any_number_of_rows(rows: int) -> None:
    """No more lines than there are; all sections have some as long as there is room, and all of it is used."""
    whole = page(look(SECOND, 1000), look(3 * SECOND, 3000))
    lines = page(look(SECOND, 1000), look(3 * SECOND, 3000), rows)
    assert len(lines) <= rows
    assert lines[:4] == whole[:4]
    if rows >= len(whole):
        assert lines == whole
    elif rows >= 24:
        assert sum(not line for line in lines) == 5
        assert len(lines) == rows


def test_problems_are_said() -> None:
    now = look(3 * SECOND, 3000)
    status: Any = now.status
    status["problems"] = ["bad\x07", "sink hook: refused"]
    status["budgets"]["memory"]["reached"] = True
    lines = page(look(SECOND, 1000), now)[4:7]
    assert [line.split("  ")[0] for line in lines] == ["NOT OK", "NOT OK", "BUDGET"]
    assert "bad\\x07" in lines[0]
