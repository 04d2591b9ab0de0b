"""Correlations in the real agent: over kills, a change of rules, and beside forged lines."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.agent import KILLS, Agent, chance, reborn, vedette
from tests.waits import until

RULES = """
title: Failed login
name: failed
logsource: {product: door}
detection:
  selection: {ev: fail}
  condition: selection
---
title: Opened
name: opened
logsource: {product: door}
detection:
  selection: {ev: open}
  condition: selection
---
title: Many failed logins
id: 6f0d1c6e-8d0b-4c7e-8a53-6b6c7d0c1a01
name: many
correlation:
  type: event_count
  rules: [failed]
  group-by: [src]
  timespan: 1m
  condition: {gte: 3}
  generate: false
---
title: Opened after failures
id: 6f0d1c6e-8d0b-4c7e-8a53-6b6c7d0c1a02
correlation:
  type: temporal_ordered
  rules: [many, opened]
  group-by: [src]
  timespan: 2m
  generate: true
---
title: Different doors
id: 6f0d1c6e-8d0b-4c7e-8a53-6b6c7d0c1a03
correlation:
  type: value_count
  rules: [failed]
  group-by: [src]
  timespan: 1m
  condition: {gte: 2, lte: 3, field: door}
"""
WINDOWS = """
---
title: Minute with few failures
correlation:
  type: event_count
  rules: [failed]
  group-by: [src]
  window: tumbling
  timespan: 1m
  condition: {lt: 3}
---
title: Third failure in a minute
correlation:
  type: event_count
  rules: [failed]
  group-by: [src]
  window: tumbling
  timespan: 1m
  condition: {gte: 3}
---
title: Series of failures at few doors
correlation:
  type: value_count
  rules: [failed]
  group-by: [src]
  window: session
  gap: 20s
  timespan: 2m
  condition: {lte: 2, field: door}
---
title: Series of failures
correlation:
  type: event_count
  rules: [failed]
  group-by: [src]
  window: session
  gap: 20s
  timespan: 2m
  condition: {gte: 4}
"""
START = 1_790_000_000
LINES = 500
"""Before each kill, and after the last."""


def line(second: float, ev: str, src: str, door: int = 0) -> bytes:
    time = datetime.fromtimestamp(START + second, UTC).isoformat()
    return json.dumps({"@timestamp": time, "host": "h", "ev": ev, "src": src, "door": door}).encode() + b"\n"


class Door:
    """An agent on one JSON file."""

    def __init__(
        self, folder: Path, more: str = "", rules: str = RULES, name: str = "door.yml", lookup: Path | None = None,
        **constants: object,
    ) -> None:  # fmt: skip
        self.folder, self.file, self.rules, self._name = folder, folder / "door.json", folder / "rules", name
        self.rules.mkdir()
        self.write(rules)
        self.file.touch()
        settings = (
            f'[[input]]\nname = "in"\ntype = "file"\npaths = ["{self.file}"]\nformat = "json"\n'
            f'logsource = {{ product = "door" }}\n{more}'
        )
        self.agent = Agent(
            folder / "a", settings, rules=self.rules, lookup=lookup, rules_poll=0.2, files_poll=0.02, **constants
        )

    def write(self, rules: str) -> None:
        partial = self.folder / "rules.new"
        partial.write_text(rules)
        partial.replace(self.rules / self._name)

    def add(self, *lines: bytes) -> None:
        with self.file.open("ab") as file:
            file.write(b"".join(lines))

    def settled(self) -> dict[str, Any]:
        return self.agent.settled(self.file.read_bytes().count(b"\n"))

    def fired(self) -> list[tuple[str, int]]:
        """Title and line (from 1) of every correlation's alert."""
        offsets = {event.offset: i for i, event in enumerate(self.agent.stored(), 1)}
        rows = [row for row in self.agent.alerts() if row["kind"] == "correlation"]
        return sorted((row["rule_title"], offsets[row["raw_ref"]["offset"]]) for row in rows)

    def scanned(self) -> list[dict[str, Any]]:
        """The alerts that ``scan`` makes of the file."""
        done = vedette("scan", "--rules", self.rules, "--format", "json", self.file).stdout
        return [json.loads(row) for row in done.splitlines()]


def test_killed_in_the_middle(tmp_path: Path) -> None:
    """Killed at random while events come in the order of their times: the alerts equal ``scan`` over the file, of
    windows that slide, tumble, and are sessions."""
    # Over 3 s: three lives of an agent and more, with ``scan`` over the same lines.
    rng = chance()
    door, second = Door(tmp_path, rules=RULES + WINDOWS), 0.0
    door.agent.up()
    try:
        for kill in range(KILLS + 1):
            lines = []
            for _ in range(LINES):
                second += rng.choice([0.5, 1, 2])
                ev = rng.choice(["fail", "fail", "fail", "open"])
                lines.append(line(second, ev, f"10.0.0.{rng.randrange(12)}", rng.randrange(4)))
            door.add(*lines)
            if kill < KILLS:
                until("some to be judged", lambda: door.agent.alive() and door.agent.input()["judged"])
                door.agent.kill()
                reborn(door.agent, rng)
                door.agent.ready()
        ahead = [second + 20 * step for step in range(1, 20)]  # every window but those of the last line ends by lines
        door.add(*(line(later, "open", f"last-{later}") for later in ahead), line(ahead[-1], "fail", "y"))
        rows, last = door.scanned(), len(door.file.read_bytes().splitlines()) - 1
        every = sorted((row["rule_title"], row["line"]) for row in rows if row["kind"] == "correlation")
        due, least = {one for one in every if one[1] < last}, sum(row["line"] < last for row in rows)
        until("the end", lambda: door.settled()["alerts"]["made"] >= least and not due - {*door.fired()})
    finally:
        door.agent.kill()
    scanned, fired = [one for one in every if one[1] < last], door.fired()
    known = set(scanned)
    assert [one for one in fired if one in known] == scanned
    assert set(fired) <= set(every)
    assert len(scanned) > 50
    assert len({title for title, _ in scanned}) == 7


@pytest.mark.long
def test_a_forged_line(tmp_path: Path) -> None:
    """One line far ahead, within what is clamped, or far behind, under a host's name: the host's failed logins that
    follow are correlated all the same, over a kill too; the line's alert is flagged, and the status counts it."""
    now = datetime.now(UTC).timestamp() - START
    door = Door(tmp_path, rules=RULES.replace("generate: false", "generate: true"))
    agent = door.agent.up()
    try:
        door.add(line(now, "fail", "a"), line(now + 290, "fail", "forged"), line(now - 86_400, "fail", "forged"))
        door.settled()
        agent.kill()
        agent.up()
        door.add(line(now + 1, "fail", "a"))
        door.settled()
        door.add(line(now + 2, "fail", "a"), line(now + 3, "open", "a"))
        until("the alerts", lambda: door.fired() == [("Many failed logins", 5), ("Opened after failures", 6)])
        status, rows = door.settled() and agent.status(), agent.alerts()
    finally:
        agent.kill()
    assert status["correlation_state"]["jumps"] == 2
    flagged = [row for row in rows if "time_jump" in row["flags"]]
    assert {json.loads(row["raw"])["src"] for row in flagged} == {"forged"}
    assert len(flagged) == 2


@pytest.mark.long
def test_a_change_of_rules(tmp_path: Path) -> None:
    """Windows outlive a change of other rules; a changed correlation starts empty and the status says so."""
    door = Door(tmp_path, rules=RULES.replace("generate: true", "generate: false"))
    agent = door.agent.up()
    try:
        door.add(line(0, "fail", "a"), line(1, "fail", "a"))
        door.settled()
        before = agent.status()["plan_digest"]
        door.write(RULES.replace("gte: 2, lte: 3", "gte: 2, lte: 4"))
        until("the new rules", lambda: agent.status()["plan_digest"] != before)
        changed = agent.status()["correlation_state"]["started_empty"]
        agent.stop()
        agent.up()
        assert agent.status()["correlation_state"]["groups"] == 1
        door.add(line(2, "fail", "a"), line(3, "open", "a"))
        door.settled()
        until("the alerts", lambda: door.fired() == [("Many failed logins", 3), ("Opened after failures", 4)])
    finally:
        agent.kill()
    assert [one[-2:] for one in changed] == ["03"]
