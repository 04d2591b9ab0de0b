"""No event kills an agent for ever: what its lives end at is left out and accounted for, all else is evaluated."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bench.send import tcp
from tests.e2e.agent import Agent, assert_as_scanned, chance
from tests.e2e.test_rules import rule
from tests.e2e.test_rulesets import THRICE
from tests.e2e.test_watchdog import INTERVAL, Supervisor
from tests.waits import pauses, until
from vedette.runtime.agent.deaths import AFTER, AFTER_BESIDE
from vedette.runtime.pipeline.blackbox import BlackBox, Stage

pytestmark = pytest.mark.peer

DECODER = """
import os, re, signal

class Deadly:
    fields = {"gate": "verbatim"}

    def read(self, message):
        if "bad" in message:
            os.kill(os.getpid(), signal.SIGKILL)
        if "slow" in message:
            re.match("(a|aa)+$", "a" * 90 + "!")  # holds the interpreter
        return {"gate": message.split()[0]}
"""
DEADLY = """
import os, signal, sys
if sys.argv[1] == "rule":
    os.environ["VEDETTE_KERNEL"] = "off"  # which decides this rule by itself
from vedette.cli.main import main
from vedette.engine.match import Engine
from vedette.runtime.alerts.alerts import AlertBuilder
from vedette.state.correlate import Correlator
from vedette.state.state import State
from vedette.stream.operators.windowed import Windowed

def crash():
    os.kill(os.getpid(), signal.SIGSEGV)

true, candidates, of, count = Engine.true, Engine.candidates, AlertBuilder.of, Correlator._count
gathered, push = Engine.gathered, Windowed.push
advance, restore = State.advance, State.restore

def does_true(self, event, rules, logsource):
    for number in rules:
        if self.plan.rules[number].title == "Deadly" and b"bad" in event.raw:
            crash()
    return true(self, event, rules, logsource)

def does_scan(scan):
    def does(self, frame, *given):
        if b"bad" in frame.chunk.data:
            crash()
        return scan(self, frame, *given)
    return does

def does_of(self, events):
    if any(b"bad" in frame.chunk.data[match.start:match.end] for frame, matches in events for match in matches):
        crash()
    return of(self, events)

def does_count(self, item, *given):
    if self.groups.table:  # at its second match
        crash()
    return count(self, item, *given)

def does_push(self, port, rows):
    if any("bad" in str(row) for row in rows):
        crash()
    return push(self, port, rows)

def does_advance(self, received_at):
    if self.correlator.groups.table:
        crash()
    return advance(self, received_at)

def does_restore(self, parts):
    restore(self, parts)
    if self.correlator.groups.table:
        crash()

match sys.argv.pop(1):
    case "rule":
        Engine.true = does_true
    case "prefilter":
        Engine.candidates, Engine.gathered = does_scan(candidates), does_scan(gathered)
    case "alerts":
        AlertBuilder.of = does_of
    case "correlation":
        Correlator._count = does_count
    case "statement":
        Windowed.push = does_push
    case "time":
        State.advance = does_advance
    case "restore":
        State.restore = does_restore
main()
"""
"""The agent, with a part that is deadly."""
WINDOW = """\
-- title: Window
-- id: 6a1f0000-0000-4000-8000-000000000088
INSERT INTO alerts SELECT hostname, MAX(message) AS last, window_end
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(event_time), INTERVAL '1' MINUTE))
WHERE message LIKE '%marker-site%' GROUP BY hostname, window_start, window_end;
"""
LIFE = 2000
"""Events of a life, of which the last tenth match."""
GATE = """---
title: Gate
id: 6a1f0000-0000-4000-8000-000000000077
logsource: {product: linux}
detection: {s: {gate: marker-site}, condition: s}
"""


def syslog(agent: Agent, more: str = "") -> str:
    return f'[[input]]\nname = "in"\ntype = "syslog"\ntcp = "127.0.0.1:{agent.port}"\n{more}'


def lines(*texts: str) -> bytes:
    return b"".join(f"<13>Nov 20 10:00:00 web1 app: marker-site {text}\n".encode() for text in texts)


def lives(agent: Agent, stored: int) -> tuple[dict[str, Any], int]:
    """Start it after each death until it has evaluated all; the status then, and how often it died."""
    deaths = 0
    for pause in pauses():
        if not agent.running():
            deaths += 1
            agent.start()
        elif agent.said("agent_started"):
            with suppress(OSError, ValueError):  # it has died meanwhile
                status = agent.status()
                counts = status["inputs"].get("in", {"stored": 0})
                if counts["stored"] >= stored and not status["backlog"] and not status["alerts"]["in_outbox"]:
                    assert status["identity_broken"] == []
                    return status, deaths
        time.sleep(pause)
    raise AssertionError(f"it does not get past its events:\n{agent.text()[-4000:]}")


def letters(agent: Agent) -> list[dict[str, Any]]:
    """Dead letters, each event once: one may stand there again after a kill."""
    file = agent.data / "quarantine" / "events.ndjson"
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return [*{row["offset"]: row for row in rows}.values()]


@pytest.fixture
def plugged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Agent:
    """An agent with a decoder plugin that kills and hangs it; not started."""
    info = tmp_path / "site" / "deadly-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: deadly\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[vedette.decoders]\ndeadly = deadly:Deadly\n")
    (tmp_path / "site" / "deadly.py").write_text(DECODER)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")]))
    path = rule(tmp_path / "rules", "site", 3)
    path.write_text(path.read_text() + GATE)
    agent = Agent(tmp_path / "a", rules=path.parent)
    agent.configure(syslog(agent, 'format = "deadly"\n[plugins]\nallow = ["deadly"]\n'))
    return agent


def test_a_plugin_that_kills_its_agent(plugged: Agent) -> None:
    """The one quick test of the promise; it takes the lives that it takes. A decoder plugin that ends the agent at one
    event is in quarantine then, by its version; alerts are those of ``scan`` without it, and the event is kept."""
    agent = plugged
    agent.up()
    try:
        tcp(("127.0.0.1", agent.port), lines("bad", "one", "two"))
        until("the first death", lambda: not agent.running())
        status, deaths = lives(agent, 3)
        assert deaths == 1 + AFTER
        (plugin,) = status["plugins"]
        assert (plugin["plugin"], plugin["quarantined"]) == ("deadly:deadly", True)
        assert plugin["error"] == f"the agent died {AFTER} times at the event at offset {agent.stored()[0].offset}"
        assert [(row["offset"], "deadly:deadly 1.0" in row["reason"]) for row in letters(agent)] == [(0, True)]
        assert_as_scanned(agent)
        assert [row["deaths"] for row in agent.said("agent_died", all=True)] == [0, 1, 2, AFTER]
    finally:
        agent.kill()


@pytest.mark.long
def test_a_plugin_that_hangs(plugged: Agent, tmp_path: Path) -> None:
    """One that holds the interpreter until the watchdog ends the agent is in quarantine, too, and in the next life;
    another version is loaded, and this one when a reload has released it."""
    agent, supervisor = plugged, Supervisor(tmp_path / "notify")
    agent.environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": str(int(INTERVAL * 3e6))}
    agent.up()
    box = BlackBox.open(agent.data / "under-way")
    try:
        tcp(("127.0.0.1", agent.port), lines("slow", "one", "two"))
        for _ in range(1 + AFTER):
            until("an evaluation", lambda: box.read().stage is not Stage.OTHER)
            until("no ping", lambda: "WATCHDOG=1" not in supervisor.hear(10 * INTERVAL))
            agent.signal(signal.SIGABRT)
            assert agent.ended() == -signal.SIGABRT
            agent.start()
            until("its report", lambda: agent.said("agent_died"))
        status = agent.ready().settled(3)
        assert [row["quarantined"] for row in status["plugins"]] == [True]
        assert_as_scanned(agent)
        assert agent.stop() == 0
        agent.up()
        assert [row["quarantined"] for row in agent.status()["plugins"]] == [True]
        assert agent.stop() == 0
        metadata = tmp_path / "site" / "deadly-1.0.dist-info" / "METADATA"
        metadata.write_text(metadata.read_text().replace("Version: 1.0", "Version: 1.1"))
        agent.up()
        assert [row["quarantined"] for row in agent.status()["plugins"]] == [False]
        tcp(("127.0.0.1", agent.port), lines("three"))
        agent.settled(4)
        assert Counter(row["rule_title"] for row in agent.alerts()) == {"Marker site": 4, "Gate": 1}
        assert agent.stop() == 0
        metadata.write_text(metadata.read_text().replace("Version: 1.1", "Version: 1.0"))
        agent.up()
        assert [row["quarantined"] for row in agent.status()["plugins"]] == [True]
        agent.signal(signal.SIGHUP)
        until("the release", lambda: agent.said("quarantine_released"))
        assert agent.stop() == 0
        assert [row["quarantined"] for row in agent.up().status()["plugins"]] == [False]
    finally:
        agent.kill()
        box.close()
        supervisor.socket.close()


@pytest.fixture
def deadly(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Agent]:
    """An agent in which the named part is deadly; not started."""
    path = rule(tmp_path / "rules", "site", 3)
    text = path.read_text()
    other = text.replace("000000000003", "000000000005").replace("'marker-site'", "'marker-site '")
    path.write_text(text + "---\n" + other.replace("title: Marker site", "title: Deadly"))
    if request.param in ("correlation", "time", "restore"):
        path.write_text(path.read_text() + THRICE.format(word="site", number=4, of=3) + "generate: true\n")
    if request.param == "statement":
        (tmp_path / "rules" / "window.sql").write_text(WINDOW)
    agent = Agent(tmp_path / "a", rules=path.parent)
    agent.program = (sys.executable, "-c", DEADLY, request.param)
    agent.configure(syslog(agent))
    yield agent
    agent.kill()


@pytest.mark.long
@pytest.mark.parametrize("deadly", ["rule", "prefilter", "alerts", "correlation", "statement"], indirect=True)
def test_a_deadly_part(deadly: Agent, request: pytest.FixtureRequest) -> None:
    """A rule, correlation or statement is in quarantine by name, in the next life, too; an event at which no part was
    at work is left out. All else is evaluated on every event, and what was left out is kept."""
    what = request.node.callspec.params["deadly"]
    deadly.up()
    tcp(("127.0.0.1", deadly.port), lines("zero", "bad", "one", "two", "three"))
    until("the first death", lambda: not deadly.running())
    status, deaths = lives(deadly, 5)
    stored = deadly.stored()
    assert deaths == 1 + AFTER
    part = {"rule": ["Deadly"], "correlation": ["Three of site"], "statement": ["Window"]}.get(what, [])
    assert [row["title"] for row in status["rules"]["quarantined"]] == part
    assert [row["offset"] for row in letters(deadly)] == [stored[1].offset], letters(deadly)
    assert status["totals"]["poisoned" if what != "rule" else "undecided"] >= 1
    alerts = Counter(row["rule_title"] for row in deadly.alerts())
    assert alerts["Marker site"] == (4 if what in ("prefilter", "alerts") else 5)
    if what == "rule":
        assert alerts["Deadly"] <= 1  # of what came before the first death
    else:
        assert alerts["Deadly"] == alerts["Marker site"]
    deadly.stop()
    status = deadly.up().status()
    assert [row["title"] for row in status["rules"]["quarantined"]] == part
    tcp(("127.0.0.1", deadly.port), lines("four"))
    deadly.settled(6)
    if what == "rule":
        path = deadly.rules / "site.yml"
        path.write_text(path.read_text().replace("'marker-site '", "'marker-site  '"))
        until("the changed rule", lambda: not deadly.status()["rules"]["quarantined"])


@pytest.mark.long
@pytest.mark.parametrize("deadly", ["time", "restore"], indirect=True)
def test_a_deadly_state(deadly: Agent) -> None:
    """An agent that dies again and again as time passes, or as it restores what it remembers, starts without; every
    event is evaluated, and nothing is in quarantine."""
    deadly.up()
    tcp(("127.0.0.1", deadly.port), lines("zero"))
    if deadly.program[-1] == "restore":
        until("its alert", lambda: deadly.alerts())
        deadly.kill()
    until("the first death", lambda: not deadly.running())
    deaths = 0
    for pause in pauses():
        if not deadly.running():
            deaths += 1
            deadly.start()
        if deadly.said("state_lost"):
            break
        time.sleep(pause)
    assert deadly.said("state_lost"), deadly.text(all=True)[-4000:]
    assert deaths == (AFTER_BESIDE + 1 if deadly.program[-1] == "restore" else AFTER)  # by its own, but for the first
    status = deadly.ready().settled(1)
    assert (status["rules"]["quarantined"], letters(deadly)) == ([], [])
    assert Counter(row["rule_title"] for row in deadly.alerts()) == {"Marker site": 1, "Deadly": 1}


@pytest.mark.long
def test_killed_from_outside(tmp_path: Path) -> None:
    """Thirty lives that are killed at random moments, most of them while events are evaluated: nothing is in
    quarantine, no event is left out, and alerts are those of ``scan``."""
    rng = chance()
    path = rule(tmp_path / "rules", "site", 3)
    path.write_text(path.read_text() + THRICE.format(word="site", number=4, of=3) + "generate: true\n")
    agent = Agent(tmp_path / "a", rules=path.parent)
    agent.configure(syslog(agent))
    agent.up()
    sent = 0
    try:
        for _ in range(30):
            texts = lines(*(str(sent + n) for n in range(LIFE)))
            tcp(("127.0.0.1", agent.port), texts.replace(b"marker", b"noise", 9 * LIFE // 10))
            sent += LIFE
            time.sleep(rng.uniform(0.0, 0.3))
            agent.kill()
            agent.up()
        status = agent.settled()
        assert (status["rules"]["quarantined_count"], status["totals"].get("poisoned", 0)) == (0, 0)
        assert not letters(agent)
        assert_as_scanned(agent)
    finally:
        agent.kill()
    deaths = agent.said("agent_died", all=True)
    assert deaths, "no kill met an evaluation"
    assert max(row["deaths"] for row in deaths) < AFTER
