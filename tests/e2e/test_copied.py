"""Two hosts made from one image: real agents on copies of one data folder, a real broker, a landing that dedupes by id.

The second host's alerts all land beside the first one's; what was under way when the copy was made is neither lost nor
doubled; what was stored before stays readable, and what a file input had read is not read again.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.send import tcp
from tests.broker import Broker, running
from tests.e2e.agent import Agent, few, landed, up, vedette
from tests.e2e.test_landing import Landing
from tests.waits import until
from vedette.rawlog.segment import segments

pytestmark = pytest.mark.peer

SETTINGS = """\
[[input]]
name = "in"
type = "syslog"
tcp = "127.0.0.1:{port}"
[[input]]
name = "files"
type = "file"
paths = ["{tailed}"]
[broker]
url = "{url}"
[uplink]
type = "mqtt"
heartbeat = "1s"
resend_after = "1s"
"""
STRICT = """\
title: Own
id: 6a1f0000-0000-4000-8000-000000000001
logsource: {product: linux}
detection: {keywords: ['Failed password'], condition: keywords}
level: low
"""
LINE = "<86>Nov 21 02:41:14 web9 sshd[7]: Failed password for root from 203.0.113.{} port 22 ssh2\n"


class Addresses(Landing):
    def raws(self) -> list[str]:
        """The address in each alert, deduped by alert id as the region does."""
        rows = {row["alert_id"]: row["raw"] for row in landed(self.folder)}
        return sorted(raw.split(" from ")[1].split()[0].rpartition(".")[2] for raw in rows.values())


class Site:
    """Hosts of one agent id, side by side, and the landing that hears them."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        self.folder, self.broker = folder, broker
        self.landing = Addresses(folder / "landing", broker)
        self.tailed = folder / "tailed.log"
        self.tailed.write_text("")
        self.more = ""
        """Settings of every host."""

    def host(self, name: str) -> Agent:
        agent = Agent(self.folder / name, rules=few(self.folder / "rules"))
        agent.configure(SETTINGS.format(port=agent.port, url=self.broker.url, tailed=self.tailed) + self.more)
        return agent

    def copy(self, agent: Agent, name: str) -> Agent:
        """Another host, on what ``cp -a`` makes of this one's data folder."""
        other = self.host(name)
        subprocess.run(["cp", "-a", agent.data, other.data], check=True)
        return other


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with running(tmp_path / "broker") as broker:
        site = Site(tmp_path, broker)
        site.landing.start()
        try:
            until("the landing", lambda: "broker_connected" in site.landing.text())
            yield site
        finally:
            site.landing.kill()


def send(agent: Agent, *numbers: int) -> None:
    tcp(
        ("127.0.0.1", agent.port),
        b"".join(LINE.format(number).encode() for number in numbers),
    )


def waiting(agent: Agent) -> int:
    """Alerts in its outbox."""
    count: int = agent.status()["alerts"]["in_outbox"]
    return count


@contextmanager
def alone(agent: Agent) -> Iterator[Agent]:
    with up(agent):
        yield agent


def test_two_hosts_of_one_image(site: Site) -> None:
    """The image is of an agent that was stopped: the second host begins a log of its own, says and counts it, and its
    alerts land beside those of the first; what was stored before can be searched."""
    # Over 3 s: three lives of an agent, and the landing.
    first = site.host("first")
    with alone(first):
        send(first, 1, 2)
        site.tailed.write_text(LINE.format(3))
        first.settled(2)
        until("the file's alert", lambda: site.landing.raws() == ["1", "2", "3"])
        assert first.stop() == 0
    second = site.copy(first, "second")
    with alone(first):
        send(first, 11, 12)
        first.settled(4)
        assert not first.said("copy_noticed")
        assert first.stop() == 0
    with alone(second):
        (noticed,) = second.said("copy_noticed")
        assert noticed["reason"] == "its files are others than this agent wrote"
        send(second, 21, 22)
        status = second.settled(4)
        assert (status["totals"]["copies_noticed"], status["inputs"]["in"]["lost"]) == (1, {})
        assert second.stop() == 0
    until("all alerts", lambda: len(site.landing.raws()) >= 7)
    assert site.landing.raws() == ["1", "11", "12", "2", "21", "22", "3"]
    of_copy = {row["raw_ref"]["log_id"]: row for row in landed(site.landing.folder)}
    assert of_copy.keys() == {part.log_id for agent in (first, second) for part in segments(agent.data / "raw")}
    assert len(of_copy) == 2
    found = vedette("logs", "search", "Failed password", "-c", second.config).stdout
    assert {number for number in range(30) if f".{number} " in found} == {1, 2, 3, 21, 22}
    with alone(second):  # it is noticed once
        assert not second.said("copy_noticed")
        assert second.status()["totals"]["copies_noticed"] == 1


@pytest.mark.long
def test_a_copy_of_a_host_that_was_killed(site: Site) -> None:
    """Alerts that wait in the outbox, and events that wait to be evaluated, also by a strict rule set, are in the copy,
    too: both hosts send them and each lands once; the copy is killed while it evaluates them and begins again."""
    (site.folder / "own").mkdir()
    (site.folder / "own" / "own.yml").write_text(STRICT)
    site.more = f'[[ruleset]]\nname = "own"\nisolation = "strict"\npaths = ["{site.folder / "own"}"]\n'
    first = site.host("first")
    with alone(first):
        send(first, 1)
        until("both alerts", lambda: site.landing.raws() == ["1", "1"] and not waiting(first))
        site.broker.kill()  # from here on alerts wait
        send(first, 2, 3)
        until("both to be evaluated", lambda: waiting(first) == 4)
        send(first, 4, 5)
        until("both to be stored", lambda: first.input()["stored"] == 5)
        first.kill()
    second, third = site.copy(first, "second"), site.copy(first, "third")
    second.start()
    until("the copy to be noticed", lambda: second.said("copy_noticed"))
    second.kill()
    site.broker.start()
    with alone(second):
        assert second.said("copy_noticed")
        send(second, 21)
        until("its alerts", lambda: len(site.landing.raws()) == 12 and not waiting(second))
        assert second.stop() == 0
    with alone(first):
        send(first, 11)
        until("its alerts", lambda: len(site.landing.raws()) == 14 and not waiting(first))
        assert first.stop() == 0
    with alone(third):
        send(third, 31)
        all_of_them = sorted(2 * ["1", "11", "2", "21", "3", "31", "4", "5"])
        until("all alerts", lambda: len(site.landing.raws()) >= len(all_of_them))
        status = third.settled(6)
        assert (status["inputs"]["in"]["lost"], status["alerts"]["lost"]) == ({}, 0)
        (own,) = [row for row in status["rulesets"] if row["name"] == "own"]
        assert own["process"]["inputs"]["in"]["lost"] == {}
    assert site.landing.raws() == all_of_them
