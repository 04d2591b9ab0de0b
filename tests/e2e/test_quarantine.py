"""A pattern that takes too long, in the running agent: events set aside, the rule in quarantine, all of it told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.send import tcp
from tests.e2e.agent import Agent, vedette
from tests.waits import until

pytestmark = [pytest.mark.peer, pytest.mark.long]

SLOW = """title: Slow
id: 6a1f0000-0000-4000-8000-000000000001
logsource: {product: linux}
detection: {s: {message|re: 'x(?=a)(a|aa)+$'}, condition: s}
---
title: Quick
id: 6a1f0000-0000-4000-8000-000000000002
logsource: {product: linux}
detection: {s: {message|contains: marker}, condition: s}
"""
LINE = b"<13>Nov 20 10:00:00 web1 app: marker x" + b"a" * 60 + b"!\n"


def test_a_rule_goes_into_quarantine(tmp_path: Path) -> None:
    """After QUARANTINE_AFTER events it is asked no more; these events are on disk with their place in the raw log;
    status and log name the rule, also after a kill; the other rule matches every event. A changed rule is asked
    again."""
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "slow.yml").write_text(SLOW)
    agent = Agent(tmp_path / "agent", rules=rules)
    agent.config.write_text(
        agent.config.read_text() + f'[[input]]\ntype = "syslog"\nname = "in"\ntcp = "127.0.0.1:{agent.port}"\n'
    )
    agent.up()
    try:
        tcp(("127.0.0.1", agent.port), LINE * 20)
        status = agent.settled(20)
        (told,) = status["rules"]["quarantined"]
        assert (told["title"], told["undecided"], told["skipped"]) == ("Slow", 10, 10)
        assert status["totals"]["undecided"] == 10
        assert status["rules"]["dead_letters"]["events"] == 10
        assert {alert["rule_title"] for alert in agent.alerts()} == {"Quick"}
        assert len(agent.alerts()) == 20
        rows = [json.loads(line) for line in (agent.data / "quarantine" / "events.ndjson").read_text().splitlines()]
        stored = {event.offset: event.raw for event in agent.stored()}
        assert [stored[row["offset"]].decode() for row in rows] == [row["raw"].rstrip("\n") for row in rows]
        assert agent.said("rule_quarantined")[0]["title"] == "Slow"
        shown = vedette("status", "-c", agent.config, code=None).stdout
        assert f"quarantined: Slow ({told['rule_id']}): undecided on 10 events, skipped 10" in shown
        agent.kill()
        agent.up()
        (again,) = agent.status()["rules"]["quarantined"]
        assert (again["title"], again["events"], again["reason"]) == ("Slow", 10, told["reason"])
        tcp(("127.0.0.1", agent.port), LINE * 5)
        (again,) = agent.settled(25)["rules"]["quarantined"]
        assert again["skipped"] == 5
        assert agent.status()["totals"]["undecided"] == 10
        (rules / "slow.yml").write_text(SLOW.replace("(a|aa)+$", "(a|ab)+$"))  # another meaning: asked again
        until("the change", lambda: agent.status()["totals"].get("replans"))
        assert agent.status()["rules"]["quarantined"] == []
    finally:
        agent.stop()
