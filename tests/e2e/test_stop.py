"""Stopping the real agent while everything comes at once: nothing is lost, and it ends."""

from __future__ import annotations

import signal
import socket
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench import traffic
from bench.send import Sent, mqtt
from tests.broker import Broker, running
from tests.e2e.agent import Agent, assert_as_scanned, few, say, split
from tests.waits import until

pytestmark = pytest.mark.peer

LINES = 3_000
STOPS = 2
PART, PAUSE = 1024, 0.005
"""Bytes of each write, and seconds between two: a stop falls in the middle of a stream."""


class Load:
    """Three senders: lines over TCP, into a file and as MQTT QoS 1 messages."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        self.file = folder / "app.log"
        self.broker = broker
        self.agent = Agent(folder / "a", rules=few(folder / "rules"))
        common = 'format = "syslog"\nlogsource = {product = "linux"}\n'
        self.agent.configure(
            f'[[input]]\nname = "tcp"\ntype = "syslog"\ntcp = "127.0.0.1:{self.agent.port}"\n'
            f'[[input]]\nname = "file"\ntype = "file"\npaths = ["{self.file}"]\n{common}'
            f'[broker]\nurl = "{broker.url}"\n[[input]]\nname = "mqtt"\ntype = "mqtt"\ntopics = ["plant/#"]\n{common}'
        )
        self.sent = 0
        """Lines that TCP's peer has taken into its socket buffer."""

    def tcp(self, data: bytes, pause: float = PAUSE) -> list[bytes]:
        """The lines whose last byte the kernel took before the agent closed."""
        done = 0
        try:
            with socket.create_connection(("127.0.0.1", self.agent.port)) as connection:
                for start in range(0, len(data), PART):
                    connection.sendall(data[start : start + PART])
                    done = min(start + PART, len(data))
                    time.sleep(pause)
        except OSError:
            pass
        return data[:done].split(b"\n")[:-1]

    def write(self, data: bytes) -> None:
        with self.file.open("ab", buffering=0) as file:
            for start in range(0, len(data), PART):
                file.write(data[start : start + PART])
                time.sleep(PAUSE)

    def publish(self, data: bytes) -> Sent:
        return mqtt(("127.0.0.1", self.broker.port), data, topic="plant/log", rate=LINES)


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Load]:
    with running(tmp_path / "broker") as broker:
        made = Load(tmp_path, broker)
        yield made
        made.agent.kill()


def test_sigterm_under_load(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    """Stopped again and again in the middle of three streams: each line of the file is stored once, in order, each
    MQTT message that the broker acknowledged is stored, once or marked as come again, and what TCP delivered is a
    beginning of what was sent; the shortfall is printed. The alerts are those of ``scan`` over the raw log."""
    # Over 3 s: three lives of an agent, and streams of a second each to be stopped in.
    agent = load.agent
    parts = [split(b"".join(traffic.blocks(seed, LINES, attack_rate=0.02)), STOPS) for seed in (41, 42, 43)]
    agent.up()
    until("the subscription", lambda: agent.alive() and "plant/#" in load.broker.log())
    short = 0
    for tcp, file, messages in zip(*parts, strict=True):
        with ThreadPoolExecutor(3) as senders:
            before = {name: agent.input(name)["stored"] for name in ("tcp", "file", "mqtt")}
            sent, written = senders.submit(load.tcp, tcp), senders.submit(load.write, file)
            published = senders.submit(load.publish, messages)
            until("all three", lambda old=before: all(agent.input(name)["stored"] > n for name, n in old.items()))
            assert agent.stop() == 0
            delivered = sent.result()
            written.result()
            assert published.result().complete
        stored = [event.raw for event in agent.stored("tcp")][before["tcp"] :]
        assert tcp.startswith(b"\n".join(stored))  # the last one may be unfinished: it is what was read of it
        short += len(delivered) - min(len(delivered), len(stored))
        agent.up()
    messages = Counter(b"".join(parts[2]).splitlines())
    missing, read = messages, 0
    until("the file", lambda: agent.alive() and agent.input("file")["stored"] >= LINES)

    def all_there() -> bool:
        nonlocal missing, read
        agent.alive()
        events = agent.stored("mqtt", since=read)
        missing = missing - Counter(event.raw for event in events)
        read = events[-1].end if events else read
        return not missing

    try:
        until("the messages", all_there)
    except AssertionError as error:
        raise AssertionError(f"{error}: {missing.total()} missing\n{agent.status()}\n{agent.text()[-3000:]}") from None
    status = agent.settled(name="file", stored=LINES)
    assert status["identity_broken"] == []
    assert agent.stop() == 0
    (told,) = agent.said("agent_stopped")
    assert (told["backlog"], told["in_outbox"]) == (0, 0)
    assert [event.raw for event in agent.stored("file")] == b"".join(parts[1]).splitlines()
    assert sum(assert_as_scanned(agent, name=name) for name in ("tcp", "file", "mqtt")) == status["alerts"]["made"]
    again = Counter(event.raw for event in agent.stored("mqtt")) - messages
    counts = status["inputs"]["mqtt"]
    say(
        capsys,
        f"{STOPS} stops under load: file {LINES} of {LINES} once; mqtt {LINES} of {LINES}, {again.total()} twice"
        f" ({counts['dropped']}); tcp {short} lines taken by the kernel after the last read",
    )


@pytest.mark.long
def test_the_second_signal_hurries(load: Load) -> None:
    """With a deadline of ten minutes and a full outbox, so that judging stands still, the first SIGTERM waits for it
    and the second ends it; what was not judged is judged by the next life, and the account adds up."""
    agent = load.agent
    text = agent.config.read_text().replace("[agent]\n", '[agent]\nstop_within = "10m"\n')
    agent.config.write_text(text + '[uplink]\nmax_bytes = "1MiB"\n')
    stuck = agent.landing / "alerts"
    stuck.parent.mkdir(parents=True)
    stuck.write_bytes(b"")  # a file where the folder should be: alerts cannot leave
    agent.up()
    load.tcp(b"".join(traffic.blocks(44, 60_000, attack_rate=0.2)), pause=0.0)
    until("the outbox to fill up", lambda: agent.status()["alerts"]["outbox_bytes"] > 1 << 20)
    agent.signal(signal.SIGTERM)
    until("it to begin to stop", lambda: agent.alive() and agent.said("agent_stopping"))
    agent.signal(signal.SIGTERM)
    assert agent.ended() == 0
    (told,) = agent.said("agent_stopped")
    assert told["backlog"] > 0 < told["in_outbox"]
    assert {"evaluation"} <= {one["stage"] for one in agent.said("stop_unfinished")}
    stuck.unlink()
    agent.up()
    status = agent.settled(name="tcp")
    assert status["inputs"]["tcp"]["judged"] == status["inputs"]["tcp"]["stored"]
    assert_as_scanned(agent, name="tcp")
