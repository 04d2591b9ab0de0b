"""Inputs of the real agent that do not work: each says so in status, heartbeat and metrics, with its reason, none keeps
another from its work, and each works once its reason is gone."""

from __future__ import annotations

import json
import socket
import urllib.request
from pathlib import Path

import pytest

from tests.broker import Broker, own_port
from tests.e2e.agent import Agent, few, landed, vedette
from tests.waits import DEADLINE, until

pytestmark = pytest.mark.peer

INPUTS = """
[[input]]
name = "quiet"
type = "syslog"
udp = "127.0.0.1:0"
[[input]]
name = "taken"
type = "http"
tcp = "127.0.0.1:{port}"
[[input]]
name = "broker"
type = "mqtt"
broker = "plant"
topics = ["t"]
[[input]]
name = "file"
type = "file"
paths = ["{folder}/*.log"]
[[input]]
name = "journal"
type = "journal"
directory = "{folder}"
[broker.plant]
url = "{url}"
[metrics]
listen = "127.0.0.1:{metrics}"
[uplink]
type = "directory"
heartbeat = "1s"
"""


def heartbeat(agent: Agent) -> dict[str, str]:
    """The state of each input in the newest heartbeat."""
    beats = landed(agent.landing, "status")
    newest = max(beats, key=lambda row: row["received_at"])["payload"] if beats else '{"input_states": []}'
    return {row["name"]: row["state"] for row in json.loads(newest)["input_states"]}


def scraped(port: int) -> set[str]:
    """The inputs that are failing by the metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=DEADLINE) as answer:
        lines = answer.read().decode().splitlines()
    return {line.split('"')[1] for line in lines if line.startswith("vedette_input_failing{") and line.endswith(" 1.0")}


def test_inputs_that_do_not_work(tmp_path: Path) -> None:
    """A port that is taken, a broker that is not there and a host without journalctl are failing, a pattern without a
    file waits, a quiet input works: in the status, whose exit code is 1, the heartbeat and the metrics. As each reason
    goes its input works, without a restart; then all is OK. Without an agent it is not."""
    # Over 3 s: an agent, a broker, a heartbeat of either state.
    broker, metrics = Broker(tmp_path / "broker"), own_port()
    agent, folder, tools = Agent(tmp_path / "a", rules=few(tmp_path / "rules")), tmp_path / "logs", tmp_path / "tools"
    folder.mkdir()
    tools.mkdir()
    agent.configure(INPUTS.format(port=agent.port, folder=folder, url=broker.url, metrics=metrics))
    agent.environment["PATH"] = str(tools)
    states = {"quiet": "works", "taken": "failing", "broker": "failing", "file": "waiting", "journal": "failing"}

    def now() -> dict[str, str]:
        return {row["name"]: row["state"] for row in agent.status()["input_states"]}

    try:
        with socket.create_server(("127.0.0.1", agent.port)):
            agent.up()
            until("the states", lambda: now() == states)
            shown = vedette("status", "-c", agent.config, code=1).stdout.splitlines()
            assert shown[0].startswith(f"NOT OK: input taken: cannot listen on tcp 127.0.0.1:{agent.port}: Address")
            assert f"; input broker: {broker.url}: " in shown[0]
            assert "; input journal: there is no journalctl" in shown[0]
            assert shown[1].endswith("; last event none since then, last alert none")
            rows = {line.split()[0]: number for number, line in enumerate(shown)}
            assert shown[rows["file"] + 1] == f"         waiting: {folder}/*.log: no file matches yet"
            assert shown[rows["journal"] + 1].startswith("         FAILING: there is no journalctl")
            assert shown[rows["quiet"]].split()[1:] == ["0"] * 5
            until("the heartbeat", lambda: heartbeat(agent) == states)
            assert scraped(metrics) == {"taken", "broker", "journal"}
        broker.start()
        (tools / "journalctl").symlink_to("/usr/bin/journalctl")
        (folder / "a.log").write_text("a line\n")
        until("inputs that work", lambda: {*now().values()} == {"works"} and agent.input("file")["stored"])
        shown = vedette("status", "-c", agent.config).stdout.splitlines()
        assert shown[0] == "OK"
        assert "last event 2" in shown[1]
        until("the heartbeat", lambda: {*heartbeat(agent).values()} == {"works"})
        assert scraped(metrics) == set()
    finally:
        agent.kill()
        broker.kill()
    assert vedette("status", "-c", agent.config, code=1).stdout.startswith("NOT OK: no agent runs: ")
