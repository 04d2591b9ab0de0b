"""The agent's start, stop and signals: the real process."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import traffic
from bench.send import tcp
from tests.broker import free_port
from tests.e2e.agent import Agent, until, vedette

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
    """The log's line about the rules has the figures of the status: correlations, and what no input reaches."""
    (tmp_path / "rules" / "idle.yml").write_text(IDLE)
    (tmp_path / "rules" / "bad.yml").write_text("title: Bad\n")
    agent.up()
    (loaded,), told = agent.said("rules_loaded"), agent.status()["rules"]
    assert (loaded["running"], loaded["correlations"], loaded["dead"], loaded["always"]) == (2, 1, 3, 0)
    assert (told["running"], told["correlations"], told["dead_count"], told["always_candidates"]) == (2, 1, 3, 0)
    assert [*told["waiting"].values()] == [2]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
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


def test_a_stop_under_load(agent: Agent) -> None:
    """A sender that never ends does not keep the agent from stopping."""
    agent.up()
    flood = [sys.executable, "-c", FLOOD, str(agent.port)]
    with subprocess.Popen(flood, stderr=subprocess.DEVNULL) as sender:
        until("the flood", lambda: agent.input()["received"] > 10_000)
        began = time.monotonic()
        assert agent.stop() == 0
        assert time.monotonic() - began < 10
        sender.kill()
    agent.up()
    until("the rest to be judged", lambda: not agent.status()["backlog"])
    assert agent.status()["identity_broken"] == []


FLOOD = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
    while True:
        connection.sendall(b"<13>Nov 20 10:00:00 web1 app: noise\\n" * 5000)
"""


def test_a_stop_without_the_region(agent: Agent) -> None:
    """With a broker that is away the stop takes no longer than its deadlines, and the alerts wait for the next life."""
    agent.configure(
        SYSLOG.format(port=agent.port) + f'[broker]\nurl = "mqtt://127.0.0.1:{free_port()}"\n[uplink]\ntype = "mqtt"\n'
    )
    agent.up()
    send(agent)
    until("the alert", lambda: agent.status()["alerts"]["in_outbox"] == 1)
    began = time.monotonic()
    assert agent.stop() == 0
    assert time.monotonic() - began < 10
    agent.up()
    assert agent.status()["alerts"] == {**agent.status()["alerts"], "made": 1, "in_outbox": 1, "receipted": 0}


def test_sighup(agent: Agent, tmp_path: Path) -> None:
    """SIGHUP builds the rules again and ends nothing; many in a row are as good as one."""
    agent.up()
    (tmp_path / "rules" / "second.yml").write_text(RULE.replace("0001", "0002").replace("arker", "irror"))
    for _ in range(20):
        agent.signal(signal.SIGHUP)
    until("two rules", lambda: agent.status()["rules"]["running"] == 2)
    send(agent, MARKER.replace(b"marker", b"marker mirror"))
    agent.settled(1)
    assert sorted(alert["rule_title"] for alert in agent.alerts()) == ["Marker", "Mirror"]


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
    other = agent.config.read_text().replace(str(agent.port), str(free_port()))
    config = tmp_path / "other.toml"
    config.write_text(other)
    said = vedette("run", "-c", config, code=2).stderr
    assert "another agent runs with this data_dir" in said
    assert str(agent.data) in said
    send(agent)
    agent.settled(1)


@pytest.mark.parametrize("what", ["raw log", "store"])
def test_a_disk_that_cannot_be_written(agent: Agent, what: str) -> None:
    """The agent stays up, degraded, and says which file takes nothing, once; when it can be written again all that was
    taken in is stored and judged: no alert is lost, none doubled."""
    agent.up()
    noise = b"".join(os.urandom(500).hex().encode() + b"\n" for _ in range(2000 if what == "raw log" else 1))
    send(agent, noise + MARKER)
    agent.settled(noise.count(b"\n") + 1)
    assert agent.process is not None
    (segment,) = (agent.data / "raw").glob("*.seg*")
    files = {"raw log": segment, "store": agent.data / "store" / "data.mdb"}
    limit = files[what].stat().st_size + (2000 if what == "raw log" else 0)  # the file to meet it is the larger one
    resource.prlimit(agent.process.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    sent = 0
    for _ in range(500):
        send(agent, MARKER + os.urandom(300).hex().encode() + b"\n")
        sent += 1
        time.sleep(0.02)  # a chunk each
        if agent.status()["state"] == "degraded":
            break
    status = agent.status()
    assert status["identity_broken"] == []
    assert list(status["disk"]["failing"]) == [what]
    told = agent.said("disk_failing")
    assert [one["part"] for one in told] == [what]
    assert str(segment if what == "raw log" else agent.data / "store") in told[0]["reason"]
    resource.prlimit(agent.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    status = agent.settled(noise.count(b"\n") + 1 + 2 * sent)
    until("the end of the trouble", lambda: agent.status()["state"] == "running")
    assert [one["part"] for one in agent.said("disk_recovered")] == [what]
    assert "Traceback" not in agent.text()
    agent.kill()
    agent.up()
    status = agent.settled()
    assert status["raw_log"]["recovery"]["cut_bytes"] == 0
    markers = sum(event.raw == MARKER[:-1] for event in agent.stored())
    assert len(agent.alerts()) == status["alerts"]["made"] == markers == 1 + sent


def test_a_store_that_is_damaged(agent: Agent) -> None:
    """A store that cannot be read is set aside, told, and made again from the raw log: all that was stored is judged
    again, and the alerts have the ids that they had."""
    agent.up()
    send(agent, MARKER)
    agent.settled(1)
    before = {alert["alert_id"] for alert in agent.alerts()}
    assert len(before) == 1
    assert agent.stop() == 0
    (agent.data / "store" / "data.mdb").write_bytes(b"\xff" * 20_000)
    agent.up()
    send(agent, MARKER)
    status = agent.settled(2)
    (told,) = agent.said("store_damaged")
    assert told["folder"] == str(agent.data / "store")
    assert Path(told["set_aside"]).joinpath("data.mdb").read_bytes() == b"\xff" * 20_000
    assert status["disk"]["store_rebuilt"]["set_aside"] == told["set_aside"]
    alerts = agent.alerts()
    assert before < {alert["alert_id"] for alert in alerts}
    assert len(alerts) == 2


def test_a_data_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """A file in the place of the data folder: exit code 2 and its path."""
    agent = Agent(tmp_path / "a")
    agent.data.write_text("")
    agent.start()
    assert agent.ended() == 2
    assert str(agent.data) in agent.text()
    assert "Traceback" not in agent.text()
