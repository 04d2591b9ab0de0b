"""Declared formats in the real agent: they come and change with the rules, also in a bundle, and outlive a kill."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from tests.e2e.agent import Agent, vedette
from tests.waits import until
from vedette.region.steer import vitals
from vedette.runtime.agent.heartbeat import heartbeat

FORMAT = """name = "gate"
starts = "GATE"
regex = '(?P<gate>GATE\\d+) (?P<way>IN|OUT)'
logsource = {product = "acme"}
[[examples]]
message = "GATE3 IN"
fields = {gate = "GATE3", way = "IN"}
"""
RULE = """title: Out of gate three
id: 6a1f0000-0000-4000-8000-000000000087
logsource: {product: acme}
detection: {one: {gate: GATE3, way: OUT}, condition: one}
level: high
"""


def rules_in(folder: Path) -> Path:
    (folder / "formats").mkdir(parents=True)
    (folder / "gate.yml").write_text(RULE)
    (folder / "formats" / "gate.toml").write_text(FORMAT)
    return folder


@pytest.mark.long
def test_an_agent(tmp_path: Path) -> None:
    """Events are read by the format; it changes without a restart; without it they are read as ``auto`` reads them."""
    rules, log = rules_in(tmp_path / "rules"), tmp_path / "in.log"
    log.write_text("GATE3 IN\nGATE3 OUT\n")
    agent = Agent(
        tmp_path / "a",
        f'[[input]]\ntype = "file"\nname = "in"\npaths = ["{log}"]\nformat = "rules:gate"\n',
        rules=rules,
    ).up()
    try:
        agent.settled(2)
        assert [one["raw"] for one in agent.alerts()] == ["GATE3 OUT"]
        assert agent.status()["rules"]["formats"] == [
            {"name": "gate", "missing": False, "overruns": 0, "quarantined": False}
        ]
        agent.kill()
        agent.up()
        before = agent.status()["plan_digest"]
        (rules / "formats" / "gate.toml").write_text(FORMAT.replace("IN|OUT", "\\w+") + "[map.way]\nRAUS = 'OUT'\n")
        until("the other format", lambda: agent.status()["plan_digest"] != before)
        changed = agent.status()["plan_digest"]
        with log.open("a") as file:
            file.write("GATE3 RAUS\n")
        agent.settled(3)
        assert [one["raw"] for one in agent.alerts()] == ["GATE3 OUT", "GATE3 RAUS"]
        slow = FORMAT.replace("(?P<gate>GATE\\d+) (?P<way>IN|OUT)", "(?P<gate>GATE(?:1|11)+)(?P<way>[xy])\\d")
        (rules / "formats" / "gate.toml").write_text(slow)
        until("the slow format", lambda: agent.status()["plan_digest"] not in (before, changed))
        with log.open("a") as file:
            file.write("".join(f"GATE{'1' * 60}x! GATE3 OUT {number}\n" for number in range(12)))
        agent.settled(15)
        (shown,) = agent.status()["rules"]["formats"]
        assert (shown["overruns"], shown["quarantined"]) == (10, True)
        until("the log", lambda: agent.said("format_quarantined"))
        figures = vitals.read(orjson.loads(heartbeat(agent.status())))  # a roll-out's gate sees it
        assert figures is not None
        assert figures.quarantined == 1
        (rules / "formats" / "gate.toml").unlink()
        until("the format to be missing", lambda: agent.status()["rules"]["formats"] and
              agent.status()["rules"]["formats"][0]["missing"])  # fmt: skip
        with log.open("a") as file:
            file.write("GATE3 OUT\n")
        agent.settled(16)
        assert len(agent.alerts()) == 2
    finally:
        agent.stop()


CORRELATION = (
    RULE
    + """---
title: Twice out of gate three
id: 6a1f0000-0000-4000-8000-000000000088
correlation:
  type: event_count
  rules: [6a1f0000-0000-4000-8000-000000000087]
  group-by: [gate]
  timespan: 1h
  condition: {gte: 2}
level: high
"""
)


@pytest.mark.long
def test_a_correlation(tmp_path: Path) -> None:
    """Its events are read again from the raw log, by the format: their fields are in the alert."""
    rules, log = rules_in(tmp_path / "rules"), tmp_path / "in.log"
    (rules / "gate.yml").write_text(CORRELATION)
    log.write_text("GATE3 OUT\n")
    agent = Agent(
        tmp_path / "a",
        f'[[input]]\ntype = "file"\nname = "in"\npaths = ["{log}"]\nformat = "rules:gate"\n',
        rules=rules,
    ).up()
    try:
        agent.settled(1)
        agent.kill()  # the first event is in no frame that is held
        agent.up()
        with log.open("a") as file:
            file.write("GATE3 OUT\n")
        agent.settled(2)
        (alert,) = agent.alerts()
        assert (alert["rule_title"], alert["count"], len(alert["contributing"])) == ("Twice out of gate three", 2, 2)
        assert not agent.said("event_poisoned")
    finally:
        agent.stop()


@pytest.mark.long
def test_a_bundle(tmp_path: Path) -> None:
    """It carries its formats."""
    rules, made, key = rules_in(tmp_path / "rules"), tmp_path / "x.vbundle", tmp_path / "key.pem"
    vedette("bundle", "keygen", key)
    public = vedette("bundle", "public", key).stdout.strip()
    vedette("bundle", "build", rules, "-o", made, "--name", "x", "--version", "1")
    vedette("bundle", "sign", made, "--key", key)
    (tmp_path / "in.log").write_text("GATE3 IN\nGATE3 OUT\n")
    done = vedette(
        "scan", "--rules", made, "--trusted-key", public, "--format", "rules:gate", tmp_path / "in.log", code=None
    )
    assert (done.stdout.count("\n"), '"line":2' in done.stdout.replace(" ", "")) == (1, True), done.stderr
