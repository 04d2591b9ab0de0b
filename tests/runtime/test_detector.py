"""A detector in another program: fed in any pieces, saved and restored anywhere, it finds what scan finds."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from bench import traffic
from tests.rawlog.samples import NOW
from tests.runtime.test_hunt import AUDIT
from vedette import Detection, Detector, compile_rules
from vedette.decode.decoder import record
from vedette.engine.match import Engine
from vedette.plan.plan import Plan
from vedette.rules import build
from vedette.runtime.offline.detector import Detected
from vedette.runtime.offline.evaluation import evaluate
from vedette.runtime.offline.scan import chunk_of
from vedette.runtime.offline.timeline import Timeline

ROOT = Path(__file__).parents[2]
SECOND = 1_000_000
OVER_TIME = """title: failed
id: 2d2d2d2d-0000-4000-8000-000000000001
logsource: {product: linux, service: sshd}
detection: {s: {message|startswith: Failed}, condition: s}
---
title: accepted
id: 2d2d2d2d-0000-4000-8000-000000000002
logsource: {product: linux, service: sshd}
detection: {s: {message|startswith: Accepted}, condition: s}
---
title: many
id: 2d2d2d2d-0000-4000-8000-000000000003
correlation:
  type: event_count
  rules: [2d2d2d2d-0000-4000-8000-000000000001]
  group-by: [hostname]
  timespan: 10s
  condition: {gte: 3}
  generate: true
---
title: few
id: 2d2d2d2d-0000-4000-8000-000000000004
correlation:
  type: event_count
  rules: [2d2d2d2d-0000-4000-8000-000000000001]
  group-by: [hostname]
  timespan: 5s
  condition: {lt: 2}
  generate: true
---
title: then
id: 2d2d2d2d-0000-4000-8000-000000000005
correlation:
  type: temporal_ordered
  rules: [2d2d2d2d-0000-4000-8000-000000000001, 2d2d2d2d-0000-4000-8000-000000000002]
  group-by: [hostname]
  timespan: 20s
  generate: true
"""


@pytest.fixture(scope="module")
def plan() -> Plan:
    """The starter rules, correlations and statements; correlations of each way to decide; a rule on audit records."""
    rules = build.load([ROOT / "rules" / "sigma", ROOT / "rules" / "sql"], [], [ROOT / "rules" / "lookups"])
    build.add(rules, OVER_TIME + "---\n" + AUDIT)
    made = build.from_rules(rules)
    assert made.correlations
    assert made.statements
    return made


def lines(seed: int, count: int) -> list[bytes]:
    """In order of time: syslog and audit events, whose records lie apart, and logins at three hosts, spelled in two
    ways."""
    rng, rate = random.Random(seed), 20
    found = traffic.lines(seed, count, attack_rate=0.05, start=NOW, per_second=rate, kind="syslog")
    placed = list[tuple[float, bytes]]()
    for line in found:
        when = record(line, "auto", received_at=NOW).event_time
        placed.append((0 if when is None else (when - NOW) / SECOND, line))
    for i in range(count // rate):
        at, host = NOW // SECOND + i, rng.choice(("web1", "WEB1", "db1"))
        what = rng.choice(("Failed password for root", "Accepted key for root", "Closed"))
        placed.append((i, b'type=EXECVE msg=audit(%d.5:%d): a0="sh" a1="payload"' % (at, i)))
        placed.append((i + 2, b'type=PATH msg=audit(%d.5:%d): name="/tmp/hidden/x"' % (at, i)))
        placed.append((i, f"<38>1 {rfc3339(at)} {host} sshd 7 - - {what}".encode()))
    return [line for _, line in sorted(placed, key=itemgetter(0))]


def rfc3339(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).isoformat()


def scanned(plan: Plan, events: Iterable[bytes]) -> Counter[str]:
    engine, timeline, rows = Engine(plan, route=False), Timeline(plan), list[dict[str, Any]]()
    for found in evaluate(engine, chunk_of(events, "auto", NOW), silent=True):
        timeline.add(found, "")
        if found.rule.id not in plan.silent:
            rows.append(found.to_row(""))
    return counted([*rows, *(one.to_row() for one in timeline.correlate())])


def counted(rows: Iterable[dict[str, Any]]) -> Counter[str]:
    return Counter(json.dumps(row, sort_keys=True) for row in rows)


def rows(detected: Iterable[Detected]) -> list[dict[str, Any]]:
    return [one.to_row("") if isinstance(one, Detection) else one.to_row() for one in detected]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_what_scan_finds(plan: Plan, seed: int) -> None:
    """In one piece, event by event, and in pieces of any length with a new detector for each, of the state of the one
    before."""
    events, rng = lines(seed, 600), random.Random(seed)
    wanted = scanned(plan, events)
    assert len({json.loads(row)["rule_id"] for row in wanted}) > 8
    for most in (len(events), 1, 200):
        detector, found, at = Detector(plan, live=False), list[Detected](), 0
        while at < len(events):
            size = min(most, len(events)) if most != 200 else rng.randrange(1, most)
            found += detector.feed(events[at : at + size], received_at=NOW)
            at += size
            if most == 200:
                detector = Detector(detector.engine, live=False, state=detector.save())
        found += detector.finish()
        assert detector.failures() == []
        assert counted(rows(found)) == wanted


def test_live() -> None:
    """By receipts: a window ends when time has passed, though no event comes; the event's number is its ``line``."""
    detector = Detector(compile_rules(text=OVER_TIME), lateness=2)
    assert [row["rule_title"] for row in rows(detector.feed([_failed(0)], received_at=NOW))] == ["failed"]
    found = list[Detected]()
    for second in range(1, 20):
        found += detector.advance(NOW + second * SECOND)
    assert [(row["rule_title"], row["line"], row["fields"]["hostname"]) for row in rows(found)] == [("few", 1, "Web1")]
    for second in range(20, 23):
        found = detector.feed([_failed(second)], received_at=NOW + second * SECOND)
    assert [(row["rule_title"], row["line"]) for row in rows(found)] == [("failed", 4), ("many", 4)]


def _failed(second: int) -> str:
    return f"<38>1 {rfc3339(NOW // SECOND + second)} Web1 sshd 7 - - Failed password for root"


def test_events_of_every_shape() -> None:
    """Mappings, texts and bytes; without a time correlations leave them out when receipts count for nothing."""
    text = OVER_TIME.replace("{product: linux, service: sshd}", "{category: app}")
    detector = Detector(compile_rules(text=text), live=False)
    found = detector.feed([{"message": "Failed", "hostname": "a"}, "Failed", b"Failed"])
    assert [row["line"] for row in rows(found)] == [1, 2, 3]
    assert detector.timeless == 3


def test_an_event_loop() -> None:
    """``feed_async`` and ``advance_async`` give what the others give; calls at once wait for each other."""

    async def calls() -> list[list[Detected]]:
        detector = Detector(compile_rules(text=OVER_TIME))
        feeds = (detector.feed_async([_failed(second)], received_at=NOW + second * SECOND) for second in range(3))
        return [*await asyncio.gather(*feeds), await detector.advance_async(NOW + 4 * SECOND)]

    found = asyncio.run(calls())
    assert [[row["rule_title"] for row in rows(one)] for one in found] == [
        ["failed"],
        ["failed"],
        ["failed", "many"],
        [],
    ]


def test_a_state_that_cannot_be_used() -> None:
    plan = compile_rules(text=OVER_TIME)
    saved = Detector(plan).save()
    for data, why in (
        (b"x", "cannot be used"),
        (saved[:-1], "cannot be used"),
        (b"\x91\x02", "cannot be used"),
    ):
        with pytest.raises(ValueError, match=why):
            Detector(plan, state=data)
    with pytest.raises(ValueError, match="live=True"):
        Detector(plan, live=False, state=saved)


def test_changed_rules() -> None:
    """A correlation that has changed begins empty, others go on."""
    first = Detector(compile_rules(text=OVER_TIME))
    first.feed([_failed(0), _failed(1)], received_at=NOW)
    changed = OVER_TIME.replace("condition: {lt: 2}", "condition: {lt: 3}")
    second = Detector(compile_rules(text=changed), state=first.save())
    found = second.feed([_failed(2)], received_at=NOW + 2 * SECOND)
    assert [row["rule_title"] for row in rows(found)] == ["failed", "many"]
