"""One event, rule or correlation that makes a part of the real agent raise: it pays, the others are judged."""

from __future__ import annotations

import json
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.send import tcp
from tests.e2e.agent import Agent, landed, vedette
from tests.waits import until

pytestmark = pytest.mark.peer

RAISES = """
import sys
from vedette.runtime.alerts import alerts, events
from vedette.cli.main import main
from vedette.engine.prefilter import Prefilter
from vedette.decode.decoder import Record
from vedette.delivery import envelope
from vedette.state.correlate import Correlator

def raising(owner, name, poisonous):
    honest = getattr(owner, name)
    def wrapped(*given, **named):
        if poisonous(*given):
            raise RecursionError("made to raise by a test")
        return honest(*given, **named)
    setattr(owner, name, wrapped)

stage = sys.argv.pop(1)
if stage == "prefilter":
    for name in "candidates", "named":  # without the kernel, and with it
        raising(Prefilter, name, lambda self, chunk, *more: b"poison" in chunk.data)
elif stage == "decoder":
    raising(Record, "keywords", lambda self: b"poison" in self.raw)
elif stage == "entities":
    raising(events, "entities", lambda fields, host: "poison" in str(fields))
elif stage == "suppression":
    raising(alerts.AlertBuilder, "_passes", lambda self, rule, event, group: "poison" in event.record.text)
elif stage == "envelope":
    raising(envelope, "encode", lambda alert: "poison" in alert.raw)
elif stage == "correlation":
    raising(Correlator, "_add", lambda self, item, *more: item.node.c.title == "Fragile")
    raising(Correlator, "_count", lambda self, item, *more: item.node.c.title == "Fragile")
elif stage == "decision":
    raising(Correlator, "_decide", lambda self, key, until: self.groups.node(key).c.title == "Fragile")
main()
"""
"""The agent with one part that raises: on events that hold the word, or for one correlation."""

RULES = """title: Marker
name: marker
id: 6a1f0000-0000-4000-8000-000000000001
logsource: {product: linux}
detection: {keywords: ['marker'], other: {hostname: nobody}, condition: keywords and not other}
level: low
---
title: Sturdy
id: 6a1f0000-0000-4000-8000-000000000002
correlation:
    type: event_count
    rules: [marker]
    group-by: [hostname]
    timespan: 1m
    condition: {gte: 3}
    generate: true
level: low
"""
FRAGILE = RULES.partition("---\n")[2].replace("Sturdy", "Fragile").replace("002", "003").replace("1m", "2m")
"""Of another meaning: quarantine goes by that."""
GOOD, BAD = 60, 20


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "rules.yml").write_text(RULES)
    made = Agent(tmp_path / "a", rules=rules)
    made.configure(f'[[input]]\nname = "in"\ntype = "syslog"\ntcp = "127.0.0.1:{made.port}"\n')
    yield made
    made.kill()


def line(text: str, host: str = "web1") -> bytes:
    return f"<13>Nov 20 10:00:00 {host} app: marker {text}\n".encode()


def mixed() -> bytes:
    """Good events, and bad ones among them, each on a host of its own."""
    lines = [line(f"good {i}", f"host{i // 3}") for i in range(GOOD)]
    for i in range(BAD):
        lines.insert(i * 4 + 1, line("poison", f"bad{i}"))
    return b"".join(lines)


@pytest.mark.parametrize(
    ("stage", "alerts"),
    [
        ("decoder", None),
        pytest.param("prefilter", None, marks=pytest.mark.long),
        pytest.param("entities", "partial", marks=pytest.mark.long),
        pytest.param("suppression", "whole", marks=pytest.mark.long),
        pytest.param("envelope", None, marks=pytest.mark.long),
    ],
)
def test_an_event_that_raises(agent: Agent, stage: str, alerts: str | None) -> None:
    """Events around it make the alerts they should, also when the agent is killed and judges them again; it is counted
    and kept aside; its own alert leaves without what is unavailable, or not at all. No seq is left out."""
    agent.program = (sys.executable, "-c", RAISES, stage)
    agent.up()
    tcp(("127.0.0.1", agent.port), mixed())
    until("it to be stored", lambda: agent.input()["stored"] == GOOD + BAD)
    agent.kill()
    agent.up()
    status = agent.settled(GOOD + BAD)
    assert status["inputs"]["in"]["judged"] == GOOD + BAD
    # Killed behind the last of them in a frame, the whole of which raises again though none of them is judged again.
    frames = [one for one in agent.said("evaluation_failed") if "candidates at once" in one["what"]]
    assert status["totals"]["poisoned"] == BAD + len(frames)
    assert len(frames) <= (stage == "prefilter")
    found = agent.alerts()
    made = Counter((alert["rule_title"], "poison" in alert["raw"]) for alert in found)
    assert made["Marker", False] == GOOD
    assert made["Sturdy", False] == GOOD // 3
    assert made["Marker", True] == (BAD if alerts else 0)
    flags = {flag for alert in found if "poison" in alert["raw"] for flag in alert["flags"]}
    assert flags == ({"partial"} if alerts == "partial" else set())
    assert sorted(alert["seq"] for alert in deduped_seqs(agent)) == list(range(1, len(found) + 1))
    rows = quarantined(agent)
    if stage != "envelope":  # no event is to blame for that
        assert {row["raw"].rpartition(" ")[2].strip() for row in rows} == {"poison"}
        assert {row["reason"] for row in rows} == {"RecursionError: made to raise by a test"}
        stored = {event.offset: event.raw for event in agent.stored()}
        assert all(stored[row["offset"]].decode() == row["raw"].rstrip("\n") for row in rows)
    assert agent.said("event_poisoned", all=True) or agent.said("evaluation_failed", all=True)


def deduped_seqs(agent: Agent) -> list[dict[str, Any]]:
    """Landed alerts by seq: one that came twice has the same seq."""
    return list({row["seq"]: row for row in landed(agent.landing)}.values())


def quarantined(agent: Agent) -> list[dict[str, Any]]:
    file = agent.data / "quarantine" / "events.ndjson"
    return [json.loads(text) for text in file.read_text().splitlines()] if file.exists() else []


@pytest.mark.long
@pytest.mark.parametrize("stage", ["correlation", "decision"])
def test_a_correlation_that_raises(agent: Agent, stage: str) -> None:
    """After ten times it is in quarantine, named in log and status, also after a kill and under other rules; detections
    and the other correlation make every alert; SIGHUP asks it again."""
    rules = agent.folder.parent / "rules"
    fragile = FRAGILE if stage == "correlation" else FRAGILE.replace("{gte: 3}", "{lt: 3}")
    (rules / "fragile.yml").write_text(fragile)
    agent.config.write_text(agent.config.read_text() + '[state]\nmax_lateness = "1s"\n')
    agent.program = (sys.executable, "-c", RAISES, stage)
    agent.up()
    count = 0
    while not (listed := agent.status()["rules"]["quarantined"]):
        tcp(("127.0.0.1", agent.port), b"".join(line(f"{i}", f"h{count}-{i // 3}") for i in range(30)))
        count += 1
        agent.settled(count * 30)
        assert count < 30
    (told,) = listed
    assert (told["title"], told["kind"], told["events"]) == ("Fragile", "correlation", 10)
    assert agent.said("rule_quarantined")[0]["title"] == "Fragile"
    shown = vedette("status", "-c", agent.config, code=1).stdout
    assert "quarantined: Fragile (6a1f0000-0000-4000-8000-000000000003)" in shown
    until("it to be committed", lambda: agent.settled())
    tcp(("127.0.0.1", agent.port), line("last", "h-last") * 3)
    agent.settled(count * 30 + 3)
    agent.kill()
    agent.program = Agent.program
    agent.up()
    assert [one["title"] for one in agent.status()["rules"]["quarantined"]] == ["Fragile"]
    tcp(("127.0.0.1", agent.port), b"".join(line("more", "h-more") for _ in range(3)))
    agent.settled(count * 30 + 6)
    titles = Counter(alert["rule_title"] for alert in agent.alerts())
    assert titles == {"Marker": count * 30 + 6, "Sturdy": count * 10 + 2}
    (rules / "rules.yml").write_text(RULES.replace("level: low", "level: high"))
    until("other rules", lambda: agent.status()["totals"].get("replans"))
    assert agent.status()["rules"]["quarantined_count"] == 1
    agent.signal(signal.SIGHUP)
    until("its release", lambda: agent.said("quarantine_released"))
    assert agent.status()["rules"]["quarantined"] == []
    if stage == "correlation":
        tcp(("127.0.0.1", agent.port), line("again", "h-again") * 3)
        agent.settled(count * 30 + 9)
        assert Counter(alert["rule_title"] for alert in agent.alerts())["Fragile"] == 1
