"""SIGHUP on the real agent: what can change changes, what cannot is said, what is broken changes nothing."""

from __future__ import annotations

import signal
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.send import mqtt, tcp
from tests.broker import own_port, running
from tests.e2e.agent import Agent
from tests.waits import DEADLINE, until

pytestmark = pytest.mark.peer

RULE = """title: {title}
id: 6a1f0000-0000-4000-8000-00000000000{number}
logsource: {{product: linux}}
detection: {{keywords: ['{word}'], condition: keywords}}
level: low
"""


def line(text: str) -> bytes:
    return f"<13>Nov 20 10:00:00 web1 app: {text}\n".encode()


class Reloading:
    """An agent whose configuration is written anew and read again."""

    def __init__(self, folder: Path) -> None:
        self.rules = folder / "rules"
        self.rules.mkdir()
        (self.rules / "marker.yml").write_text(RULE.format(title="Marker", number=1, word="marker"))
        self.agent = Agent(folder / "a", rules=self.rules)
        self.other = own_port()
        self.agent.configure(self.tcp("in", self.agent.port))
        self.agent.up()

    @staticmethod
    def tcp(name: str, port: int, more: str = "") -> str:
        return f'[[input]]\nname = "{name}"\ntype = "syslog"\ntcp = "127.0.0.1:{port}"\n{more}'

    def reload(self) -> dict[str, Any]:
        """SIGHUP, and the configuration's part of the status once the agent has come to a verdict."""
        seen = len(self.agent.said("agent_reloaded")) + len(self.agent.said("config_refused"))
        self.agent.signal(signal.SIGHUP)
        until(
            "the verdict",
            lambda: (
                self.agent.alive()
                and len(self.agent.said("agent_reloaded")) + len(self.agent.said("config_refused")) > seen
            ),
        )
        config: dict[str, Any] = self.agent.status()["config"]
        return config

    def configure(self, settings: str) -> dict[str, Any]:
        self.agent.configure(settings)
        return self.reload()


@pytest.fixture
def it(tmp_path: Path) -> Iterator[Reloading]:
    made = Reloading(tmp_path)
    yield made
    made.agent.kill()


def refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return True
    return False


def test_inputs_come_change_and_go(it: Reloading, tmp_path: Path) -> None:
    """A new input is opened, a changed one goes on under its new settings, one that is gone is closed; nothing stored
    is lost, and a file goes on where it was."""
    agent, file = it.agent, tmp_path / "app.log"
    file.write_bytes(line("one marker") * 500)
    tail = f'[[input]]\nname = "file"\ntype = "file"\npaths = ["{file}"]\nformat = "syslog"\n'
    tail += 'logsource = {product = "linux"}\n'
    assert it.configure(it.tcp("in", agent.port) + it.tcp("new", it.other) + tail) == {
        "error": None,
        "needs_restart": [],
        "reloads": 1,
    }
    assert agent.said("agent_reloaded")[-1]["changed"] == ["input new", "input file"]
    tcp(("127.0.0.1", it.other), line("two marker"))
    until("the file", lambda: agent.input("file")["stored"] == 500)
    moved = own_port()
    it.configure(it.tcp("new", moved) + tail + 'timezone = "UTC"\n')
    assert agent.said("agent_reloaded")[-1]["changed"] == ["input in", "input new", "input file"]
    assert refused(agent.port)
    assert refused(it.other)
    with file.open("ab") as log:
        log.write(line("three marker"))
    tcp(("127.0.0.1", moved), line("four marker"))
    until("all of it", lambda: agent.input("file")["stored"] == 501 and agent.input("new")["stored"] == 2)
    status = agent.settled()
    assert status["alerts"]["made"] == 503
    assert agent.stop() == 0
    assert len(agent.alerts()) == 503


@pytest.mark.long
def test_what_needs_a_restart_is_said(it: Reloading) -> None:
    """Settings that are read at start only stay as they were, are named in log and status, and the rest of the same
    file is in force."""
    agent = it.agent
    agent.configure(it.tcp("in", agent.port) + it.tcp("new", it.other) + '[raw_log]\nmax_bytes = "3GiB"\n')
    agent.config.write_text(agent.config.read_text().replace('site = "s1"', 'site = "elsewhere"'))
    assert it.reload()["needs_restart"] == ["agent.site", "raw_log.max_bytes"]
    assert agent.said("config_needs_restart")[-1]["settings"] == ["agent.site", "raw_log.max_bytes"]
    status = agent.status()
    assert (status["site"], status["raw_log"]["max_bytes"]) == ("s1", 10 << 30)
    assert not refused(it.other)
    agent.config.write_text(agent.config.read_text().replace('site = "elsewhere"', 'site = "s1"'))
    assert it.reload()["needs_restart"] == ["raw_log.max_bytes"]
    agent.stop()
    agent.up()
    status = agent.status()
    assert (status["config"]["needs_restart"], status["raw_log"]["max_bytes"]) == ([], 3 << 30)


@pytest.mark.long
def test_a_broken_configuration_changes_nothing(it: Reloading) -> None:
    """Every mistake is told with its key, in log and status; inputs and rules go on; a correct file ends it."""
    agent = it.agent
    config = it.configure(it.tcp("in", it.other, 'max_connections = "many"\ncolour = 3\n'))
    mistakes = agent.said("config_refused")[-1]["mistakes"]
    assert [one.partition(": ")[2].partition(":")[0] for one in mistakes] == [
        "input[0].max_connections",
        "input[0].colour",
    ]
    assert all(str(agent.config) in one for one in mistakes)
    assert config["error"] == "\n".join(mistakes)
    assert refused(it.other)
    tcp(("127.0.0.1", agent.port), line("marker"))
    assert agent.settled(1)["alerts"]["made"] == 1
    agent.config.write_text("this is no TOML")
    assert "not valid TOML" in it.reload()["error"]
    agent.config.unlink()
    assert "cannot be read" in it.reload()["error"]
    assert it.configure(it.tcp("in", agent.port))["error"] is None


@pytest.mark.long
def test_a_part_that_does_not_work(it: Reloading, tmp_path: Path) -> None:
    """A port in use, rules that cannot be read: that part stays as it was and is told, the rest is taken."""
    agent = it.agent
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        config = it.configure(it.tcp("in", taken.getsockname()[1]) + it.tcp("new", it.other))
        assert "input 'in': cannot listen" in config["error"]
        assert not refused(it.other)
        tcp(("127.0.0.1", agent.port), line("marker"))
        assert agent.settled(1)["alerts"]["made"] == 1
    it.reload()  # the port is free now
    assert refused(agent.port)
    agent.rules = tmp_path / "nowhere"
    until("the verdict", lambda: it.configure(it.tcp("in", agent.port))["error"] or agent.status()["rules"]["error"])
    tcp(("127.0.0.1", agent.port), line("marker"))
    assert agent.settled(2)["alerts"]["made"] == 2


@pytest.mark.long
def test_rules_suppression_log_and_metrics(it: Reloading, tmp_path: Path) -> None:
    """Another rule folder, suppression, the log's format and the metrics are in force after the reload."""
    agent, port = it.agent, own_port()
    second = tmp_path / "second"
    second.mkdir()
    (second / "mirror.yml").write_text(RULE.format(title="Mirror", number=2, word="mirror"))
    agent.rules = second
    it.configure(it.tcp("in", agent.port) + f'[metrics]\nlisten = "127.0.0.1:{port}"\n[[suppress]]\nfor = "1h"\n')
    status = until("the rules", lambda: (found := agent.status())["rules"]["origin"] == str(second) and found)
    tcp(("127.0.0.1", agent.port), line("marker and mirror") * 5)
    status = agent.settled(5)
    assert (status["alerts"]["made"], status["correlation_state"]["folded"]) == (1, 4)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=DEADLINE) as answer:
        assert b"vedette_folded_alerts 4.0" in answer.read()
    it.configure(it.tcp("in", agent.port))
    assert refused(port)


@pytest.mark.long
def test_another_uplink(it: Reloading, tmp_path: Path) -> None:
    """From a folder to a broker: the alerts made before are receipted once, those made since go to the broker."""
    agent = it.agent
    tcp(("127.0.0.1", agent.port), line("marker"))
    agent.settled(1)
    with running(tmp_path / "broker") as broker:
        it.configure(it.tcp("in", agent.port) + f'[broker]\nurl = "{broker.url}"\n[uplink]\ntype = "mqtt"\n')
        until("the broker", lambda: agent.status()["uplink"].get("connected"))
        tcp(("127.0.0.1", agent.port), line("marker"))
        alerts = until("the alert", lambda: (found := agent.status()["alerts"])["made"] == 2 and found)
        assert (alerts["receipted"], alerts["in_outbox"]) == (1, 1)  # nobody lands it
        it.configure(it.tcp("in", agent.port))
        assert agent.settled(2)["alerts"]["receipted"] == 2
    assert len(agent.alerts()) == 2


def test_topics_that_leave(it: Reloading, tmp_path: Path) -> None:
    """By SIGHUP, and in the life after a kill, one message is one event of the filter that is left, and none of those
    that left: four connections to a broker, so it takes its seconds."""
    agent = it.agent
    with running(tmp_path / "broker") as broker:
        place = ("127.0.0.1", broker.port)

        def wants(*topics: str) -> None:
            settings = f'type = "mqtt"\ntopics = {[*topics]}\nlogsource = {{product = "linux"}}\n'
            it.configure(f'[[input]]\nname = "in"\n{settings}[broker]\nurl = "{broker.url}"\n')
            until("the subscription", lambda: subscribed(topics[-1]))

        def subscribed(topic: str) -> bool:
            return broker.log().rpartition("Received CONNECT")[2].count(f"\t{topic} (QoS 1)") > 0

        wants("plant/#", "plant/+/x")
        wants("plant/#")
        mqtt(place, b"marker 1\n", topic="plant/9/x")
        agent.settled(1)
        agent.kill()
        agent.up()
        until("the subscription", lambda: subscribed("plant/#"))
        mqtt(place, b"marker 2\n", topic="plant/9/x")
        agent.settled(2)
        wants("other/#")
        mqtt(place, b"marker 3\n", topic="plant/9/x")
        mqtt(place, b"marker 4\n", topic="other/x")
        status = agent.settled(3)
        assert (status["inputs"]["in"]["stored"], status["alerts"]["made"]) == (3, 3)
        assert [event.raw[-1:] for event in agent.stored()] == [b"1", b"2", b"4"]
