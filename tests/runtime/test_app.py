"""The agent's start, stop and signals: the real process."""

from __future__ import annotations

import shutil
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import traffic
from bench.send import tcp
from tests.broker import own_port
from tests.e2e.agent import Agent, vedette
from tests.waits import until

pytestmark = pytest.mark.peer

RULE = """\
title: Marker
id: 6a1f0000-0000-4000-8000-000000000001
logsource: {product: linux}
detection:
    keywords: ['marker']
    condition: keywords
level: low
"""
SYSLOG = '[[input]]\nname = "in"\ntype = "syslog"\ntcp = "127.0.0.1:{port}"\n'
MARKER = b"<13>Nov 20 10:00:00 web1 app: marker\n"

IDLE = """title: Of No Input
name: of_no_input
id: 6a1f0000-0000-4000-8000-0000000000f1
logsource: {product: linux, service: nosuch}
detection: {s: {user: nobody}, condition: s}
---
title: Of Rules of No Input
id: 6a1f0000-0000-4000-8000-0000000000f2
correlation: {type: event_count, rules: [of_no_input], timespan: 5m, condition: {gte: 5}}
"""
"""A rule whose log source no input has, and a correlation that needs it."""


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    """An agent with a syslog input over TCP and one rule; not started."""
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "marker.yml").write_text(RULE)
    made = Agent(tmp_path / "a", rules=tmp_path / "rules")
    made.configure(SYSLOG.format(port=made.port))
    yield made
    made.kill()


def send(agent: Agent, data: bytes = MARKER) -> None:
    tcp(("127.0.0.1", agent.port), data)


def test_what_is_loaded_is_logged(agent: Agent, tmp_path: Path) -> None:
    """The log's line about the rules has the figures of the status: correlations, and what no input reaches. What does
    not compile is not OK."""
    (tmp_path / "rules" / "idle.yml").write_text(IDLE)
    (tmp_path / "rules" / "bad.yml").write_text("title: Bad\n")
    agent.up()
    status = agent.status()
    (loaded,), told = agent.said("rules_loaded"), status["rules"]
    assert (loaded["running"], loaded["correlations"], loaded["dead"], loaded["always"]) == (2, 1, 3, 0)
    assert (told["running"], told["correlations"], told["dead_count"], told["always_candidates"]) == (2, 1, 3, 0)
    assert [*told["waiting"].values()] == [2]
    (problem,) = status["problems"]
    assert problem.startswith(f"1 rules of rule set default do not run: {tmp_path}/rules/bad.yml:1:1: ")


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)])
def test_a_stop_in_order(agent: Agent, number: signal.Signals) -> None:
    """What was received when the signal came is stored, judged and landed at the end; exit code 0; nothing is left to
    do at the next start, which goes on counting."""
    agent.up()
    assert [agent.said(name) != [] for name in ("rules_loaded", "listening", "agent_started")] == [True, True, True]
    data = b"".join(traffic.blocks(31, 20_000)) + MARKER
    with socket.create_connection(("127.0.0.1", agent.port)) as connection:
        connection.sendall(data + b"unfinished")
        until("the first events", lambda: agent.input()["received"])
        agent.signal(number)
        assert agent.ended() == 0
    assert [line["event"] for line in (agent.said("agent_stopping") + agent.said("agent_stopped"))] == [
        "agent_stopping",
        "agent_stopped",
    ]
    stored = agent.stored()
    assert [event.raw for event in stored] == [*data.splitlines(), b"unfinished"]
    assert [alert["rule_title"] for alert in agent.alerts()] == ["Marker"]
    assert not agent.data.joinpath("control.sock").exists()

    agent.up()
    counts = agent.status()["inputs"]["in"]
    assert counts["received"] == counts["stored"] == counts["judged"] == len(stored)
    send(agent)
    status = agent.settled(len(stored) + 1)
    assert (status["alerts"]["made"], status["seq_high"]) == (2, 2)


def test_a_stop_without_the_region(agent: Agent) -> None:
    """With a broker that is away the agent stops all the same, and the alerts wait for the next life."""
    agent.configure(
        SYSLOG.format(port=agent.port) + f'[broker]\nurl = "mqtt://127.0.0.1:{own_port()}"\n[uplink]\ntype = "mqtt"\n'
    )
    agent.up()
    send(agent)
    until("the alert", lambda: agent.status()["alerts"]["in_outbox"] == 1)
    assert agent.stop() == 0
    agent.up()
    assert agent.status()["alerts"] == {**agent.status()["alerts"], "made": 1, "in_outbox": 1, "receipted": 0}


def test_sighup_without_a_folder(tmp_path: Path) -> None:
    """An agent that runs a bundle, or waits for one, goes on at a SIGHUP."""
    agent = Agent(tmp_path / "a", rules=None)
    agent.configure(SYSLOG.format(port=agent.port))
    agent.up()
    try:
        agent.signal(signal.SIGHUP)
        send(agent)
        agent.settled(1)
        assert agent.status()["rules"]["running"] == 0
    finally:
        agent.kill()


def test_one_agent_for_a_data_folder(agent: Agent, tmp_path: Path) -> None:
    """A second one with the same folder is refused with the reason, and the first goes on, its control socket too."""
    agent.up()
    other = agent.config.read_text().replace(str(agent.port), str(own_port()))
    config = tmp_path / "other.toml"
    config.write_text(other)
    said = vedette("run", "-c", config, code=2).stderr
    assert "another agent runs with this data_dir" in said
    assert str(agent.data) in said
    send(agent)
    agent.settled(1)


def test_a_data_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """A file in the place of the data folder: exit code 2 and its path."""
    agent = Agent(tmp_path / "a")
    agent.data.write_text("")
    agent.start()
    assert agent.ended() == 2
    assert str(agent.data) in agent.text()
    assert "Traceback" not in agent.text()


def test_a_fleet_file_that_is_bad_or_missing(agent: Agent, tmp_path: Path) -> None:
    """The agent runs without its fleet, says so, and follows it once the file is there and a reload asks for it;
    `vedette check` says it before. A damaged audit record is a problem in the status, and ends nobody; where the
    requests' folder is none, the agent runs without its fleet, too."""
    # Over 3 s: commands make keys and documents, and an agent starts.
    vedette(
        "fleet", "init", "plants", "--trust", tmp_path / "trust", "--keys", tmp_path / "keys", "--root-key", "alice",
        "--root-key", "bob", "--targets-key", "carol", "--targets-key", "dave",
    )  # fmt: skip
    root = tmp_path / "root.json"
    agent.configure(SYSLOG.format(port=agent.port) + f'[fleet]\nroot = "{root}"\n')
    for data in (None, b"{}", b"no JSON"):
        if data is not None:
            root.write_bytes(data)
        assert "fleet.root: " in vedette("check", "-c", agent.config, code=1).stderr
        agent.start()
        agent.ready()
        assert "fleet.root: " in agent.status()["config"]["error"]
        send(agent)
        until("the event", lambda: agent.input()["judged"])
        agent.kill()
    agent.start()
    agent.ready()
    root.write_bytes((tmp_path / "trust/tuf/1.root.json").read_bytes())
    vedette("check", "-c", agent.config)
    agent.process.send_signal(signal.SIGHUP)
    until("the fleet", lambda: "actual" in agent.status())
    (agent.data / "fleet/audit.jsonl").write_bytes(b"no record\n")
    assert any(problem.startswith("audit: ") for problem in agent.status()["actual"]["problems"])
    assert agent.alive()
    agent.kill()
    shutil.rmtree(agent.data / "fleet/requests")
    (agent.data / "fleet/requests").write_bytes(b"no folder")
    agent.start()
    agent.ready()
    assert "fleet.root: " in agent.status()["config"]["error"]
