"""Rules that kill, hang or bloat the process of a strict set: their own event pays, then the rule, and no other set."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.send import tcp
from tests.e2e.agent import Agent
from tests.e2e.test_rules import mark, rule
from tests.e2e.test_rulesets import THRICE
from tests.e2e.test_strict import configured, evaluated, process, running
from tests.waits import until
from vedette.runtime.strict.supervisor import CONDEMNED_AFTER, EVENTLESS_DEATHS
from vedette.runtime.strict.watched import DEADLY_EVENTS

pytestmark = [pytest.mark.peer, pytest.mark.long]

PROGRAM = """
import sys
from vedette.system import child
from vedette.cli.main import main

sys.path.insert(0, sys.argv.pop(1))
honest = child.command
def command(module, *arguments, **named):
    return honest("deadly_worker" if module.endswith("strict.worker") else module, *arguments, **named)
child.command = command
main()
"""
"""The agent, with a process of strict sets in which a part is deadly."""
WORKER = """
import os, signal, sys, time
from vedette.engine.match import Engine
from vedette.runtime.alerts.alerts import AlertBuilder
from vedette.runtime.alerts.rows import RowBuilder
from vedette.runtime.strict import worker
from vedette.state.correlate import Correlator
from vedette.state.state import State
from vedette.stream.operators.windowed import Windowed

def crash():
    os.kill(os.getpid(), signal.SIGSEGV)
def kill():
    os.kill(os.getpid(), signal.SIGKILL)
def spin():
    while True:
        pass
def bloat():
    kept = []
    while True:
        kept.append(bytearray(1 << 20))
        time.sleep(0.0005)
deadly, true, passes, take = {how}, Engine.true, AlertBuilder._passes, RowBuilder.take
advance, of_batch = State.advance, RowBuilder.of_batch

def is_true(self, event, rules, logsource):
    for number in rules:
        if self.plan.rules[number].title == "Deadly" and b"bad" in event.raw:
            deadly()
    return true(self, event, rules, logsource)

def does_pass(self, rule, event, group, *more):
    if "worse" in event.record.text:
        deadly()
    return passes(self, rule, event, group, *more)

def does_take(self, frame, batch):
    if any(b"worst" in frame.chunk.data[start:end] for start, end in batch.spans):
        deadly()
    return take(self, frame, batch)

def does_of_batch(self, frame, batch):
    if any(b"worst" in frame.chunk.data[start:end] for start, end in batch.spans):
        deadly()
    return of_batch(self, frame, batch)

def does_advance(self, received_at):
    if self.correlator.groups.table:
        deadly()
    return advance(self, received_at)

count, update = Correlator._count, Windowed.push

def does_count(self, item, *given):
    of_it = (key for key in self.groups.table if self.groups.node(key) is item.node)
    if "Three" in item.node.c.title and any(of_it):  # at its second match
        deadly()
    return count(self, item, *given)

def does_update(self, port, rows):
    if any("worst" in str(row) for row in rows):
        deadly()
    return update(self, port, rows)

if {operators}:
    Correlator._count, Windowed.push = does_count, does_update
    passes, take = (lambda *given: True), RowBuilder.take
    does_take, does_of_batch = take, of_batch
Engine.true, AlertBuilder._passes, RowBuilder.take = is_true, does_pass, does_take
RowBuilder.of_batch = does_of_batch
if {time}:
    State.advance = does_advance
sys.exit(worker.main())
"""
TIME = "time"
"""In the name of a test where time is deadly to who remembers anything."""
OPERATORS = "operators"
"""The same of one where a correlation and a statement's window are."""
WINDOW = """\
-- title: Window
-- id: 6a1f0000-0000-4000-8000-000000000088
INSERT INTO alerts SELECT b, COUNT(*) AS n, window_end
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(event_time), INTERVAL '1' MINUTE))
WHERE a = 'row' GROUP BY b, window_start, window_end;
"""
ROWS = "-- title: Rows\nINSERT INTO alerts SELECT a, b FROM events WHERE a = 'row';\n"
CALM = THRICE.format(word="calm", number=7, of=6).replace("Three of", "Two of").replace("gte: 3", "gte: 2")
BOUNDS = 'max_memory = "128MiB"\nmax_seconds = "3s"\n'


@pytest.fixture
def agent(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Agent]:
    path = rule(tmp_path / "site", "site", 3)
    deadly = path.read_text().replace("000000000003", "000000000005").replace("'marker-site'", "'marker-site '")
    (tmp_path / "site" / "deadly.yml").write_text(deadly.replace("title: Marker site", "title: Deadly"))
    (tmp_path / "deadly_worker.py").write_text(WORKER.format(how=request.param, time=TIME in request.node.name,
                                                              operators=OPERATORS in request.node.name))  # fmt: skip
    made = Agent(tmp_path / "a", rules=rule(tmp_path / "own", "own", 1).parent)
    made.program = (sys.executable, "-c", PROGRAM, str(tmp_path))
    configured(made, tmp_path / "site", last=BOUNDS)
    yield made
    made.kill()


def titles(agent: Agent) -> list[str]:
    return [row["rule_title"] for row in agent.alerts()]


def line(text: str) -> bytes:
    return f"<13>Nov 20 10:00:00 web1 app: marker-site {text}\n".encode()


@pytest.mark.parametrize("agent", ["kill", "spin", "bloat"], indirect=True)
def test_a_deadly_rule(agent: Agent) -> None:
    """It is left out of the events of which a process died at it, then it is in quarantine; every other rule of the set
    is evaluated on all events, its account adds up, and meanwhile the other set's alerts come."""
    agent.up()
    running(agent)
    events = DEADLY_EVENTS + 4
    tcp(("127.0.0.1", agent.port), b"".join(line(f"bad {n}") for n in range(events)) + line("good"))
    for count in range(1, 9):
        mark(agent, "own")
        until("an alert of the other set", lambda count=count: titles(agent).count("Marker own") == count)
    until("the set's alerts", lambda: titles(agent).count("Marker site") == events + 1)
    assert process(agent)["deaths"] == DEADLY_EVENTS + 1, agent.text()[-3000:]
    quarantined = process(agent)["quarantined"]
    assert [(row["title"], row["events"]) for row in quarantined] == [("Deadly", DEADLY_EVENTS)]
    letters = (agent.data / "quarantine" / "site" / "events.ndjson").read_text().splitlines()
    assert {json.loads(row)["rule_title"] for row in letters} == {"Deadly"}
    assert evaluated(agent)["judged"] == events + 1 + 8
    assert agent.stop() == 0


@pytest.mark.parametrize("agent", ["kill"], indirect=True)
def test_deadly_alerts(agent: Agent) -> None:
    """An event at whose alerts processes die is poisoned and kept; those before and after it make theirs."""
    agent.up()
    running(agent)
    tcp(("127.0.0.1", agent.port), line("one") + line("worse") + line("two"))
    mark(agent, "own")
    until("the alerts", lambda: len(titles(agent)) == 5)
    assert process(agent)["deaths"] == 2
    letters = (agent.data / "quarantine" / "site" / "events.ndjson").read_text().splitlines()
    assert ["worse" in json.loads(row)["raw"] for row in letters] == [True]
    evaluated(agent)


@pytest.mark.parametrize("agent", ["kill"], indirect=True)
def test_deadly_statements(agent: Agent, tmp_path: Path) -> None:
    """Of events whose rows the kernel makes, many together, some are deadly so: after one death each is evaluated by
    itself, and gives its row."""
    (tmp_path / "site" / "site.sql").write_text(ROWS)
    file = tmp_path / "rows.json"
    configured(
        agent, tmp_path / "site", last=BOUNDS,
        more=f'[[input]]\nname = "file"\ntype = "file"\npaths = ["{file}"]\nformat = "json"\n',
    )  # fmt: skip
    agent.up()
    running(agent)
    texts = ("one", "two", "worst", "three", "four", "five", "worst of all", "six", "seven", "eight", "nine")
    whole = tmp_path / "whole"
    whole.write_text("".join(json.dumps({"a": "row", "b": text}) + "\n" for text in texts))
    whole.replace(file)
    until("the alerts", lambda: len(titles(agent)) == len(texts))
    assert evaluated(agent, input="file")["judged"] == len(texts)
    assert titles(agent) == ["Rows"] * len(texts)
    assert process(agent)["deaths"] == 1
    assert not (agent.data / "quarantine" / "site").exists()


@pytest.mark.parametrize("agent", ["kill"], indirect=True)
def test_deadly_time(agent: Agent, tmp_path: Path) -> None:
    """When processes die of time's passing, the status says so and no event or rule is blamed; after some, the set goes
    on without what it remembered."""
    path = rule(tmp_path / "site", "site", 3)
    path.write_text(path.read_text() + THRICE.format(word="site", number=4, of=3) + "generate: true\n")
    rule(tmp_path / "site", "calm", 6)
    agent.up()
    running(agent)
    mark(agent, "site")
    until("a death", lambda: "while time passed" in (process(agent)["last_death"] or ""))
    until("the loss", lambda: agent.said("state_lost"))
    running(agent)
    mark(agent, "calm")
    until("its alert", lambda: titles(agent) == ["Marker site", "Marker calm"])
    deaths = process(agent)["deaths"]
    assert deaths >= EVENTLESS_DEATHS
    mark(agent, "calm")
    until("all three", lambda: evaluated(agent)["judged"] == 3)
    row = process(agent)
    assert (row["deaths"], row["quarantined"]) == (deaths, [])


@pytest.mark.parametrize("agent", ["crash"], indirect=True)
def test_deadly_operators(agent: Agent, tmp_path: Path) -> None:
    """A correlation and a statement at which processes die again and again are in quarantine by name, over a restart of
    the agent, too; every event is evaluated by all others, and what another correlation remembers is kept."""
    path = rule(tmp_path / "site", "site", 3)
    path.write_text(path.read_text() + THRICE.format(word="site", number=4, of=3) + "generate: true\n")
    calm = rule(tmp_path / "site", "calm", 6)
    calm.write_text(calm.read_text() + CALM + "generate: true\n")
    (tmp_path / "site" / "site.sql").write_text(ROWS + WINDOW)
    file = tmp_path / "rows.json"
    configured(
        agent, tmp_path / "site", last=BOUNDS,
        more=f'[[input]]\nname = "file"\ntype = "file"\npaths = ["{file}"]\nformat = "json"\n',
    )  # fmt: skip
    agent.up()
    running(agent)
    mark(agent, "calm")
    until("its alert", lambda: titles(agent) == ["Marker calm"])
    for _ in range(3):
        mark(agent, "site")
    until("the alerts", lambda: titles(agent).count("Marker site") == 3)
    row = process(agent)
    assert (row["deaths"], [one["title"] for one in row["quarantined"]]) == (CONDEMNED_AFTER, ["Three of site"])
    assert "000000000004" in row["last_death"]
    whole = tmp_path / "whole"
    texts = ("one", "two", "worst", "three", "worst of all")
    whole.write_text("".join(json.dumps({"a": "row", "b": text}) + "\n" for text in texts))
    whole.replace(file)
    until("the rows", lambda: titles(agent).count("Rows") == len(texts))
    row = process(agent)
    assert row["deaths"] == 2 * CONDEMNED_AFTER, agent.text()[-3000:]
    assert {(one["title"], one["kind"], one["events"]) for one in row["quarantined"]} == {
        ("Three of site", "correlation", CONDEMNED_AFTER),
        ("Window", "statement", CONDEMNED_AFTER),
    }
    mark(agent, "calm")
    until("the other correlation", lambda: "Two of calm" in titles(agent))
    evaluated(agent)
    assert not (agent.data / "quarantine" / "site").exists()
    assert agent.stop() == 0
    agent.up()
    running(agent)
    mark(agent, "site")
    until("its alert", lambda: titles(agent).count("Marker site") == 4)
    evaluated(agent)
    assert (process(agent)["deaths"], len(process(agent)["quarantined"])) == (0, 2)
