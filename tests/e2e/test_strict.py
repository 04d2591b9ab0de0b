"""A rule set in strict isolation: it makes the alerts that it makes merged, and what fails there touches no other."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bench import traffic
from bench.send import tcp
from tests.e2e.agent import RULES, Agent, assert_as_scanned
from tests.e2e.test_rules import Stream, mark, rule
from tests.e2e.test_rulesets import SQL, THRICE, alerts, sets
from tests.e2e.tuned import tuned
from tests.waits import until
from vedette.runtime.agent.control import ask

pytestmark = pytest.mark.peer


def configured(agent: Agent, site: Path, isolation: str = "strict", more: str = "", last: str = "") -> None:
    agent.configure(
        f'[[input]]\nname = "in"\ntype = "syslog"\ntcp = "127.0.0.1:{agent.port}"\n{more}'
        f'[[ruleset]]\nname = "site"\npaths = ["{site}"]\nisolation = "{isolation}"\n{last}'
    )


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A rule, a correlation over it, and a statement."""
    path = rule(tmp_path / "site", "site", 3)
    path.write_text(path.read_text() + THRICE.format(word="site", number=4, of=3) + "generate: true\n")
    (tmp_path / "site" / "site.sql").write_text(SQL)
    return tmp_path / "site"


@pytest.fixture
def agent(tmp_path: Path, site: Path) -> Iterator[Agent]:
    made = Agent(tmp_path / "a", rules=rule(tmp_path / "own", "own", 1).parent)
    configured(made, site)
    yield made
    made.kill()


def process(agent: Agent, name: str = "site") -> dict[str, Any]:
    found: dict[str, Any] = sets(agent)[name]["process"]
    return found


def running(agent: Agent, name: str = "site") -> dict[str, Any]:
    found: dict[str, Any] = until("the set's process", lambda: (row := process(agent, name))["running"] and row)
    return found


def evaluated(agent: Agent, name: str = "site", input: str = "in") -> dict[str, Any]:
    """The set's account, once it has evaluated all."""

    def check() -> dict[str, Any] | None:
        status = agent.status()
        assert status["identity_broken"] == []
        row = next(one for one in status["rulesets"] if one["name"] == name)
        return None if row["lag_events"] or status["lag_events"] else row["process"]["inputs"].get(input)

    found: dict[str, Any] = until("the set to catch up", check)
    return found


def judged(agent: Agent) -> int:
    count: int = process(agent)["inputs"].get("in", {"judged": 0})["judged"]
    return count


@pytest.mark.long
def test_strict_set(agent: Agent) -> None:
    """Its detections, correlations and statements make alerts, credited to it, beside those of the others; its account
    adds up, and it shows what it costs."""
    agent.up()
    assert running(agent)["pid"] != agent.process.pid
    with Stream(agent.port):
        for word in ("own", "site", "site", "sql", "site"):
            mark(agent, word)
    until("all alerts", lambda: len(alerts(agent)) == 6)
    found = sorted(alerts(agent))
    assert [bundle for _, bundle in found].count("site") == 5, found
    assert ("Three of site", "site") in found
    account = evaluated(agent)
    assert account["stored"] == account["judged"] > 0
    row = sets(agent)["site"]
    assert row["isolation"] == "strict"
    assert row["alerts"] == 5
    assert row["us_per_event"] > 0
    assert row["process"]["private_bytes"] > 0
    for _ in range(100):
        mark(agent, "none")
    agent.settled()
    assert agent.stop() == 0  # what it has evaluated is committed, though nothing of it is an alert
    assert not agent.said("stop_unfinished")
    agent.up()
    inputs = process(agent)["inputs"]["in"]
    assert inputs["stored"] == inputs["judged"] == account["stored"] + 100


@pytest.mark.long
def test_questions(agent: Agent) -> None:
    """What the agent answers about its rules has those of a strict set, too, each with its set; and explains them."""
    agent.up()
    running(agent)
    rows = {row["title"]: row for row in ask(agent.data / "control.sock", "rules")}
    assert {row["ruleset"] for row in rows.values()} == {"default", "site"}
    thrice = rows["Three of site"]
    assert (thrice["ruleset"], thrice["kind"], thrice["state"]) == ("site", "correlation", "active")
    counted = next(row for row in rows.values() if row["ruleset"] == "site" and row["kind"] == "rule")
    own = next(row for row in rows.values() if row["ruleset"] == "default")

    def explained(rule_id: str) -> list[str]:
        return [line["text"] for line in ask(agent.data / "control.sock", "explain", rule=rule_id)]

    assert explained(counted["rule_id"])[1] == "  rule set site, in strict isolation"
    assert any("predicate" in line for line in explained(counted["rule_id"]))
    assert not any("strict" in line for line in explained(own["rule_id"]))


@pytest.mark.long
def test_busiest(agent: Agent) -> None:
    """What ``vedette top`` shows has rules of a strict set beside the others, by cost and by alerts, over the death of
    its process."""
    agent.up()
    running(agent)
    lines = b"".join(f"<13>Nov 20 10:00:00 web1 app: marker-{word}\n".encode() for word in ("own", "site", "sql"))
    tcp(("127.0.0.1", agent.port), lines * 200)
    until("all alerts", lambda: len(alerts(agent)) >= 600)
    os.kill(running(agent)["pid"], signal.SIGKILL)
    until("its death", lambda: process(agent)["deaths"] == 1)
    running(agent)
    tcp(("127.0.0.1", agent.port), b"<13>Nov 20 10:00:00 web1 app: marker-site\n" * 100)
    evaluated(agent)

    def busiest() -> Any:
        found = ask(agent.data / "control.sock", "busiest", most=10)
        return found if {row["ruleset"] for row in found["cost"]} == {"default", "site"} else None

    found = until("both sets", busiest)
    counted = {(row["title"], row["ruleset"]): row["alerts"] for row in found["alerts"]}
    assert counted["Marker own", "default"] == 200
    assert counted["Marker site", "site"] == 300
    assert counted["SQL of the site", "site"] == 200
    assert found["alerts"][0]["title"] == "Marker site"
    assert sum(row["share"] for row in found["cost"]) == pytest.approx(1, abs=0.01)
    assert [row["alerts"] for row in found["cost"] if row["title"] == "Marker site"] == [300]


def test_child_killed(agent: Agent) -> None:
    """Its process is killed while lines flow: the next goes on at the cursor, nothing is missing and nothing double,
    and what correlations remember is there."""
    # Over 3 s: the set's process has three lives, with pauses between them.
    agent.up()
    with Stream(agent.port):
        mark(agent, "site")
        for deaths in (1, 2):
            before = judged(
                agent
            )  # processes that die at one cursor, one after the other, would have their state given up
            until("it to go on", lambda before=before: judged(agent) > before)
            mark(agent, "site")
            os.kill(running(agent)["pid"], signal.SIGKILL)
            until("its death", lambda deaths=deaths: process(agent)["deaths"] == deaths)
            mark(agent, "own")
    until("all alerts", lambda: len(alerts(agent)) == 6)
    found = [title for title, _ in alerts(agent)]
    assert found.count("Three of site") == 1, found
    assert process(agent)["deaths"] == 2
    evaluated(agent)


@pytest.mark.long
def test_as_merged(tmp_path: Path) -> None:
    """The starter rules in a strict set make of a stream with attacks what ``scan`` makes of it, over a kill of the
    process and one of the agent."""
    agent = Agent(tmp_path / "a", rules=rule(tmp_path / "own", "own", 1).parent)
    configured(agent, RULES)
    blocks = traffic.blocks(21, 30_000)
    agent.up()
    try:
        running(agent)
        for number, block in enumerate(blocks):
            tcp(("127.0.0.1", agent.port), block)
            if number == 2:
                os.kill(running(agent)["pid"], signal.SIGKILL)
            if number == 5:
                agent.kill()
                agent.up()
        evaluated(agent)
        agent.settled()
        agent.rules = RULES
        assert assert_as_scanned(agent) > 20
    finally:
        agent.kill()


def counted(agent: Agent, alert: tuple[str, str | None], times: int) -> None:
    until(f"{alert} {times} times", lambda: alerts(agent).count(alert) == times)


def reload(agent: Agent) -> None:
    before = len(agent.said("agent_reloaded"))
    agent.signal(signal.SIGHUP)
    until("the reload", lambda: len(agent.said("agent_reloaded")) > before)


@pytest.mark.long
def test_isolation_changes(agent: Agent, site: Path) -> None:
    """A set that becomes strict begins where the others are, with an empty state, and one that is merged again goes on
    with them: each line has one alert throughout, and a correlation counts from the change on."""
    configured(agent, site, "merged")
    agent.up()
    expected = 0
    with Stream(agent.port):
        for isolation in ("merged", "strict", "merged", "strict"):
            if expected:
                configured(agent, site, isolation)
                reload(agent)
            until("the change", lambda isolation=isolation: sets(agent)["site"]["isolation"] == isolation)
            if isolation == "strict":
                running(agent)
            for _ in range(2):
                mark(agent, "site")
                expected += 1
                counted(agent, ("Marker site", "site"), expected)
        mark(agent, "site")
        until("the correlation", lambda: ("Three of site", "site") in alerts(agent))
    assert alerts(agent).count(("Three of site", "site")) == 1
    assert len(agent.said("ruleset_isolated")) == 2
    assert len(agent.said("ruleset_merged")) == 1
    evaluated(agent)
    assert agent.stop() == 0


@pytest.mark.long
def test_overrun(agent: Agent, site: Path) -> None:
    """A strict set that stands still holds the raw log within its max_backlog; beyond that events are lost to it, are
    counted, and to the others nothing happens. It goes on with what is left."""
    agent.program = tuned(segment_bytes=128 << 10)
    configured(agent, site, more='[raw_log]\nmax_bytes = "2MiB"\n', last='max_backlog = "1MiB"\n')
    agent.up()
    pid = running(agent)["pid"]
    os.kill(pid, signal.SIGSTOP)
    noise = Random(1)
    marks = 0

    def lost() -> int:
        return sum(sum(row["lost"].values()) for row in process(agent)["inputs"].values())

    while not lost():
        data = b"".join(
            b"<13>Nov 20 10:00:00 web1 app: %s\n" % noise.randbytes(150).hex().encode() for _ in range(2000)
        )
        tcp(("127.0.0.1", agent.port), data)
        mark(agent, "own")
        marks += 1
        counted(agent, ("Marker own", None), marks)
        assert marks < 60
    assert agent.said("backlog_overrun")
    until("another process", lambda: (row := process(agent))["running"] and row["pid"] != pid)
    mark(agent, "site")
    until("the set's alert", lambda: ("Marker site", "site") in alerts(agent))
    account = evaluated(agent)
    assert account["stored"] == account["judged"] + account["lost"]["overrun"]
    assert agent.status()["inputs"]["in"]["lost"] == {}
    agent.kill()
    agent.up()
    again = evaluated(agent)
    assert again["lost"] == account["lost"]
    assert again["stored"] == again["judged"] + again["lost"]["overrun"]
