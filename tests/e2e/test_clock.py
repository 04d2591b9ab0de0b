"""The real agent on a host whose clock is set and that stands still for a while (SIGSTOP)."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bench.send import tcp
from tests.e2e.agent import Agent
from tests.e2e.tuned import tuned
from tests.waits import until
from vedette.rawlog import read

pytestmark = [pytest.mark.peer, pytest.mark.long]

RULES = """title: Marker
name: marker
id: 6a1f0000-0000-4000-8000-000000000001
logsource: {product: linux}
detection: {keywords: ['marker'], condition: keywords}
level: low
---
title: Three in a Minute
id: 6a1f0000-0000-4000-8000-000000000002
correlation:
    type: event_count
    rules: [marker]
    group-by: [hostname]
    timespan: 1m
    condition: {gte: 3}
    generate: true
level: medium
"""

SITE = """import os, time

def ahead():
    with open(os.environ["CLOCK"]) as file:
        return int(file.read())

def moved(name, unit):
    real = getattr(time, name)
    setattr(time, name, lambda *clock: real(*clock) + ahead() / unit if unit > 1 else real(*clock) + ahead())

for name in os.environ["CLOCKS"].split():
    moved(name, 1 if name.endswith("_ns") else 10**9)
"""
"""Python's own clocks, whose offset is read at every call. libfaketime now and then gives a thread the true time while
another one reads its file."""
WALL = "time time_ns"
ALL = f"{WALL} monotonic monotonic_ns clock_gettime_ns"


class Host:
    """An agent whose wall clock is what ``set`` says; its monotonic clock is the real one."""

    def __init__(self, folder: Path) -> None:
        self.clock = folder / "clock"
        self.offset = 0.0
        self.set(0)
        rules = folder / "rules"
        rules.mkdir()
        (rules / "marker.yml").write_text(RULES)
        self.agent = Agent(folder / "a", rules=rules)
        self.agent.configure(
            f'[[input]]\nname = "in"\ntype = "syslog"\ntcp = "127.0.0.1:{self.agent.port}"\ntimezone = "UTC"\n'
        )
        (folder / "site").mkdir()
        (folder / "site" / "sitecustomize.py").write_text(SITE)
        self.agent.environment = {
            "PYTHONPATH": os.pathsep.join([str(folder / "site"), os.environ.get("PYTHONPATH", "")]),
            "CLOCK": str(self.clock),
            "CLOCKS": WALL,
        }

    def set(self, offset: float) -> None:
        """The host's clock is ``offset`` seconds ahead of the true time."""
        new = self.clock.with_suffix(".new")
        new.write_text(str(round(offset * 1e9)))
        new.rename(self.clock)
        self.offset = offset

    def now(self) -> float:
        """What the host's clock says."""
        return time.time() + self.offset

    def send(self, text: str, host: str = "web1", at: float | None = None) -> None:
        """An event with the host's time, or with one of its own."""
        stamp = datetime.fromtimestamp(self.now() if at is None else at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        tcp(("127.0.0.1", self.agent.port), f"<13>1 {stamp} {host} app - - - {text}\n".encode())
        self.sent = getattr(self, "sent", 0) + 1
        until("it to be judged", lambda: self.agent.alive() and self.agent.input()["judged"] >= self.sent)

    def received(self) -> list[int]:
        """When each frame of the raw log was received."""
        return [frame.chunk.received_at for frame in read.frames(self.agent.data / "raw")]

    def titles(self) -> Counter[str]:
        return Counter(alert["rule_title"] for alert in self.agent.alerts())


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    made.agent.up()
    yield made
    made.agent.kill()


def test_steps_of_ntp(host: Host) -> None:
    """Forward by an hour, back by a minute: receipts never run backwards and stay within five minutes of the host's
    clock; every event is judged once; three events in a minute of their own time fire the correlation once, whatever
    the clock did between them, and three that are an hour apart do not."""
    began = host.now()
    host.send("marker")
    host.set(3600)
    host.send("marker", at=began + 20)
    host.set(3540)
    host.send("marker", at=began + 40)
    for i in range(3):
        host.send("marker", host=f"far{i}", at=began + i)
        host.send("marker", host="slow", at=host.now() + i * 100)
    assert host.agent.stop() == 0
    received = host.received()
    assert received == sorted(received)
    assert received[-1] / 1e6 - host.now() < 300
    assert [round(one["seconds"]) for one in host.agent.said("clock_stepped")] == [3600, -60]
    assert host.titles() == {"Marker": 9, "Three in a Minute": 1}
    (fired,) = (alert for alert in host.agent.alerts() if alert["kind"] == "correlation")
    assert fired["host"] == "web1"
    assert len(host.agent.stored()) == 9


def test_a_clock_that_was_wrong(host: Host) -> None:
    """A clock a year ahead is set right: receipts follow it back, events are no longer taken for late, and nothing was
    deleted as too old meanwhile, but what was a day old by the agent's own pace."""
    host.agent.stop()
    shutil.rmtree(host.agent.data)
    host.set(-86400 + 280)
    host.agent.configure(
        f'[[input]]\nname = "in"\ntype = "syslog"\ntcp = "127.0.0.1:{host.agent.port}"\ntimezone = "UTC"\n'
        '[raw_log]\nmax_age = "1d"\n'
    )
    host.agent.program = tuned(segment_bytes=4 << 10)
    host.agent.up()
    filler = " ".join(f"{i:x}" for i in range(3000))
    for _ in range(2):
        host.send(filler, host="yesterday")
    host.agent.stop()
    host.set(0)
    host.agent.up()
    for _ in range(3):
        host.send("marker " + filler, host="old")
    host.set(365 * 86400)
    for _ in range(3):
        host.send("marker", host="ahead")
    assert not host.agent.said("segment_deleted")
    host.set(365 * 86400 + 290)  # a step that is small enough to be believed: the first segment is a day old
    until("what is too old to be deleted", lambda: host.agent.said("segment_deleted"))
    assert len(host.agent.stored()) == 7  # of eight
    host.set(0)
    for _ in range(3):
        host.send("marker", host="right")
    status = host.agent.settled(11)
    assert (status["identity_broken"], status["clock"]["steps"]) == ([], 3)
    assert abs(host.received()[-1] / 1e6 - host.now()) < 60
    assert host.titles() == {"Marker": 9, "Three in a Minute": 3}
    assert len(host.agent.stored()) == 10
    assert len(host.agent.said("segment_deleted")) == 1


def test_behind_since_the_clock_was_wrong(host: Host) -> None:
    """Evaluation stands, since the outbox is full, and the clock, a year ahead when the events came, is set right: the
    lag goes on to rise."""
    host.agent.stop()
    host.agent.configure(
        f'[[input]]\nname = "in"\ntype = "syslog"\ntcp = "127.0.0.1:{host.agent.port}"\ntimezone = "UTC"\n'
        '[uplink]\nmax_bytes = "1MiB"\n'
    )
    stuck = host.agent.landing / "alerts"
    stuck.parent.mkdir(parents=True, exist_ok=True)
    stuck.write_bytes(b"")  # a file where the folder should be
    host.set(365 * 86400)
    host.agent.up()
    line = b"<13>1 2026-11-21T02:41:14Z web1 app - - - marker " + b"x" * 8000 + b"\n"
    tcp(("127.0.0.1", host.agent.port), line * 1000)
    until("all to be stored", lambda: host.agent.alive() and host.agent.input()["stored"] == 1000)
    until("evaluation to stand", lambda: host.agent.status()["alerts"]["outbox_bytes"] > 1 << 20)
    host.set(0)
    first = host.agent.status()["lag_seconds"]
    until("the lag to rise", lambda: host.agent.status()["lag_seconds"] > first + 1)
    assert host.agent.status()["lag_events"]


def test_a_restart_after_a_step_back(host: Host) -> None:
    """A clock set back by a minute while the agent was down: receipts go on after the newest one of the log, and alert
    ids, counters and windows with them."""
    host.set(100_000)
    at = host.now()
    host.send("marker", at=at)
    host.send("marker", at=at + 1)
    host.agent.stop()
    newest = host.received()[-1]
    host.set(99_940)
    host.agent.up()
    host.send("marker", at=at + 2)
    status = host.agent.settled(3)
    assert status["inputs"]["in"]["judged"] == 3
    assert host.received()[-1] > newest
    assert host.titles() == {"Marker": 3, "Three in a Minute": 1}


def test_a_stand_still(host: Host) -> None:
    """Stopped for an hour, as a suspended virtual machine is: what came meanwhile is read afterwards, nothing is lost,
    doubled or in another window, and the agent reports no step of a clock."""
    host.agent.stop()
    host.agent.environment["CLOCKS"] = ALL  # all its clocks go on while it stands
    host.agent.up()
    at = host.now()
    host.send("marker", at=at)
    host.agent.signal(signal.SIGSTOP)
    stamp = datetime.fromtimestamp(at + 10, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    tcp(("127.0.0.1", host.agent.port), f"<13>1 {stamp} web1 app - - - marker while it stood\n".encode())
    host.set(3600)
    host.agent.signal(signal.SIGCONT)
    until("what came meanwhile", lambda: host.agent.input()["judged"] == 2)
    host.sent = 2
    host.send("marker", at=at + 20)
    status = host.agent.settled(3)
    assert status["clock"]["steps"] == 0
    assert status["identity_broken"] == []
    assert host.titles() == {"Marker": 3, "Three in a Minute": 1}
