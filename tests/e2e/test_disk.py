"""The real agent on disks that are full, fail, are slow or become read-only: it stays up, says so, and loses nothing
that it can keep."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import paho.mqtt.publish
import pytest
from paho.mqtt.client import MQTTv5

from bench import traffic
from bench.send import tcp
from tests.broker import Broker, running
from tests.e2e.agent import Agent, assert_as_scanned, few, not_back, say
from tests.e2e.faults import Ext4, Faults, tmpfs
from tests.waits import until
from vedette.store.store import Store

pytestmark = pytest.mark.peer

INPUTS = """
[[input]]
name = "in"
type = "syslog"
tcp = "127.0.0.1:{port}"
udp = "127.0.0.1:{port}"
[[input]]
name = "file"
type = "file"
paths = ["{file}"]
format = "syslog"
logsource = {{ product = "linux" }}
{more}
"""
ATTACK = b"<38>Nov 20 10:00:00 web1 sshd[7]: Failed password for root from 203.0.113.9 port 22 ssh2"


def publish(broker: Broker, topic: str, payload: bytes) -> None:
    paho.mqtt.publish.single(topic, payload, qos=1, hostname="127.0.0.1", port=broker.port, protocol=MQTTv5)


def configured(folder: Path, data: Path, more: str = "", **constants: object) -> Agent:
    """An agent whose data lie in ``data``, whose alerts land elsewhere."""
    agent = Agent(folder, rules=few(folder / "rules"), **constants)
    agent.data = data / "data"
    landing = agent.landing = folder / "landing"
    (folder / "tailed").touch()
    uplink = f'[uplink]\ntype = "directory"\npath = "{landing}"\n'
    agent.configure(INPUTS.format(port=agent.port, file=folder / "tailed", more=more) + uplink)
    return agent


def lines(seed: int, count: int) -> bytes:
    return b"".join(traffic.blocks(seed, count, attack_rate=0.01))


def noise(count: int) -> bytes:
    """Attacks that do not compress."""
    return b"".join(ATTACK + b" " + os.urandom(400).hex().encode() + b"\n" for _ in range(count))


def degraded(agent: Agent) -> dict[str, Any]:
    """The status once it is degraded."""
    found: dict[str, Any] = until(
        "trouble", lambda: (one := agent.status())["state"] == "degraded" and agent.alive() and one
    )
    assert found["identity_broken"] == []
    return found


def well(agent: Agent) -> None:
    until("the end of the trouble", lambda: agent.alive() and agent.status()["state"] == "running")


def committed(data: Path) -> int:
    """Events that the committed account has received."""
    with Store.open(data / "store", readonly=True) as store:
        counters = store.load().counters
    return int(counters["inputs"].get("in", {"received": 0})["received"]) if counters else 0


def tried_twice(agent: Agent) -> None:
    """Until two more tries of what the agent wants of the disk have failed."""
    before = agent.status()["disk"]["failures"]
    until("two more failures", lambda: agent.alive() and agent.status()["disk"]["failures"] >= before + 2)


def udp(port: int, *datagrams: bytes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for data in datagrams:
            sock.sendto(data, ("127.0.0.1", port))


def test_a_full_disk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file system that is full: TCP and files wait, datagrams are dropped and counted, the agent is up, degraded and
    answers; when there is room, everything that could wait is stored, and the alerts are those of ``scan``."""
    # Over 3 s: the agent tries a full disk again after pauses that grow.
    with tmpfs(tmp_path / "disk", "40m") as disk:
        agent = configured(tmp_path / "a", disk)
        agent.up()
        peer = ("127.0.0.1", agent.port)
        try:
            first = lines(1, 2000)
            assert tcp(peer, first).complete
            agent.settled(2000)
            filler = disk / "filler"
            with filler.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
                list(iter(lambda: file.write(bytes(4096)), 0))
            second = noise(300)
            assert tcp(peer, second).complete
            status = degraded(agent)
            assert "raw log" in status["disk"]["failing"]
            before = agent.input()["dropped"].get("disk_full", 0)
            udp(agent.port, *[ATTACK] * 50)
            until("the datagrams", lambda: agent.input()["dropped"].get("disk_full", 0) == before + 50)
            third = b"".join(b"<13>Nov 20 10:00:00 web1 app: line %d\n" % number for number in range(500))
            with (agent.folder / "tailed").open("ab") as file:
                file.write(third)
            tried_twice(agent)
            assert agent.input("file")["stored"] == 0
            assert agent.status()["identity_broken"] == []
            filler.unlink()
            well(agent)
            agent.settled(2300)
            agent.settled(500, "file")
            assert agent.stop() == 0
        finally:
            agent.kill()
        assert [event.raw for event in agent.stored()] == (first + second).splitlines()
        assert [event.raw for event in agent.stored("file")] == third.splitlines()
        parts = {one["part"] for one in agent.said("disk_failing")}
        assert "raw log" in parts <= {"raw log", "store", "sync", "retention"}
        assert {one["part"] for one in agent.said("disk_recovered")} == parts
        found = assert_as_scanned(agent)
        say(capsys, f"full disk: {found} alerts as scan; told: {sorted(parts)}")


@pytest.mark.long
def test_killed_while_the_disk_is_full(tmp_path: Path) -> None:
    """What was received and waits in memory for a full disk dies with the process, and is told as dropped at the next
    start: the account adds up, and no counter that was shown is lower after the kill, ``dropped`` neither."""
    with tmpfs(tmp_path / "disk", "40m") as disk:
        agent = configured(tmp_path / "a", disk)
        agent.up()
        peer = ("127.0.0.1", agent.port)
        try:
            assert tcp(peer, lines(1, 2000)).complete
            agent.settled(2000)
            with (disk / "filler").open("wb", buffering=0) as file, suppress(OSError):
                while True:
                    file.write(bytes(4096))
            for dropped in (50, 75):
                assert tcp(peer, noise(100)).complete
                until("events that wait", lambda: degraded(agent)["disk"]["held_events"])
                udp(agent.port, *[ATTACK] * (dropped - agent.input()["dropped"].get("disk_full", 0)))
                until("the datagrams", lambda n=dropped: agent.input()["dropped"].get("disk_full", 0) == n)
                before = agent.status()
                agent.kill()
                agent.up()
                after = agent.status()
                not_back(before, after)
                lost = before["disk"]["held_events"]
                assert after["inputs"]["in"]["dropped"]["unwritten"] >= lost
                assert after["inputs"]["in"]["received"] == before["inputs"]["in"]["received"]
                assert after["identity_broken"] == []
                assert not agent.said("identity_broken")
            (disk / "filler").unlink()
            well(agent)
            agent.settled()
            assert not agent.said("identity_broken", all=True)
        finally:
            agent.kill()
        assert_as_scanned(agent)


@pytest.mark.long
def test_a_disk_smaller_than_the_budget(tmp_path: Path) -> None:
    """On a disk that is smaller than ``max_bytes`` the oldest judged segments give way, and the agent goes on."""
    with tmpfs(tmp_path / "disk", "12m") as disk:
        agent = configured(tmp_path / "a", disk, segment_bytes=1 << 20)
        agent.up()
        try:
            for batch in range(1, 15):
                data = b"".join(os.urandom(900).replace(b"\n", b"n").replace(b"\0", b"0") + b"\n" for _ in range(1200))
                assert tcp(("127.0.0.1", agent.port), data + ATTACK + b"\n").complete
                agent.settled(1201 * batch)
            assert any(one["reason"] == "the disk is full" for one in agent.said("segment_deleted"))
            assert not agent.input()["lost"]
            well(agent)
        finally:
            agent.kill()
        assert len(agent.alerts()) == 14
        assert agent.stored()[-1].raw == ATTACK


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with running(tmp_path / "broker") as found:
        yield found


@pytest.fixture
def faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broker: Broker) -> Faults:
    return Faults(tmp_path, monkeypatch)  # after the broker: that one's disk is well


@pytest.mark.long
def test_a_failed_sync(tmp_path: Path, faults: Faults) -> None:
    """One sync of the raw log fails: counted, told, what was not on disk is written again to a new segment, and it all
    is there after a kill."""
    agent = configured(tmp_path / "a", tmp_path)
    agent.up()
    try:
        data = lines(5, 3000)
        faults.set(f"sync {errno.EIO} .seg")
        assert tcp(("127.0.0.1", agent.port), data).complete
        until("the trouble", lambda: "sync" in degraded(agent)["disk"]["failing"])
        status = agent.status()
        assert status["totals"]["sync_failed"] >= 1
        durable = status["raw_log"]["durable"]
        tried_twice(agent)
        assert agent.status()["raw_log"]["durable"] == durable
        faults.set()
        well(agent)
        agent.settled(3000)
        assert agent.status()["totals"]["rewritten_bytes"] > 0
        assert agent.said("raw_log_rewritten")
    finally:
        agent.kill()
    assert [event.raw for event in agent.stored()] == data.splitlines()
    agent.up()
    try:
        assert agent.settled(3000)["raw_log"]["recovery"]["cut_bytes"] == 0
    finally:
        agent.kill()
    assert_as_scanned(agent)


@pytest.mark.long
def test_nothing_is_acknowledged_before_it_is_on_disk(tmp_path: Path, broker: Broker, faults: Faults) -> None:
    """While syncs fail no MQTT message is acknowledged and no file position is committed; killed then, with what was
    not synced taken away, the agent gets every message and every line again."""
    more = f'[broker]\nurl = "{broker.url}"\n[[input]]\nname = "mqtt"\ntype = "mqtt"\ntopics = ["plant/#"]\n'
    agent = configured(tmp_path / "a", tmp_path, more)
    agent.up()
    try:
        until("the subscription", lambda: agent.alive() and "plant/#" in broker.log())
        publish(broker, "plant/1", b'{"n": 0}')
        agent.settled(1, "mqtt")
        agent.settled()
        (segment,) = (agent.data / "raw").glob("*.seg")
        size = segment.stat().st_size
        faults.set(f"sync {errno.EIO} /raw/", f"sync {errno.EIO} .seg")
        for number in range(1, 6):
            publish(broker, "plant/1", b'{"n": %d}' % number)
        with (agent.folder / "tailed").open("ab") as file:
            file.write(ATTACK + b"\n")
        degraded(agent)
        tried_twice(agent)
    finally:
        agent.kill()
    os.truncate(segment, size)  # what the kernel had not written
    for later in (agent.data / "raw").glob("*.seg"):
        if later != segment:
            later.unlink()
    faults.set()
    agent.up()
    try:
        until(
            "the messages again", lambda: agent.alive() and len(agent.stored("mqtt")) == 6
        )  # counted they are already
        until("the line again", lambda: agent.alive() and agent.stored("file"))
    finally:
        agent.kill()
    assert [event.raw for event in agent.stored("mqtt")] == [b'{"n": %d}' % number for number in range(6)]
    assert [event.raw for event in agent.stored("file")] == [ATTACK]


@pytest.mark.long
@pytest.mark.parametrize(
    ("what", "rules", "part"),
    [
        ("raw log, no space", f"write {errno.ENOSPC} .seg", "raw log"),
        (
            "raw log, I/O error, nothing can be taken back",
            f"write {errno.EIO} .seg|truncate {errno.EIO} .seg",
            "raw log",
        ),
        ("everything read-only", f"all {errno.EROFS} /data/", "raw log"),
        ("store, I/O error", f"write {errno.EIO} data.mdb|sync {errno.EIO} data.mdb", "store"),
        ("store, no space", f"write {errno.ENOSPC} data.mdb", "store"),
        ("store, sync", f"sync {errno.EIO} data.mdb", "store"),
    ],
    ids=lambda value: str(value).replace(" ", "-") if "," in str(value) else "",
)
def test_a_call_that_fails_for_a_while(tmp_path: Path, faults: Faults, what: str, rules: str, part: str) -> None:
    """Whatever call fails on whatever file: degraded, told once with the reason; then all is stored, judged, and each
    alert is there once; also after a kill in the middle of the trouble."""
    agent = configured(tmp_path / "a", tmp_path)
    agent.up()
    peer = ("127.0.0.1", agent.port)
    try:
        data = [lines(seed, 500) for seed in range(3)]
        assert tcp(peer, data[0]).complete
        agent.settled(500)
        faults.set(*rules.split("|"))
        assert tcp(peer, data[1]).complete
        assert part in degraded(agent)["disk"]["failing"], what
        tried_twice(agent)
        assert agent.status()["state"] == "degraded"
        faults.set()
        well(agent)
        assert tcp(peer, data[2]).complete
        agent.settled(1500)
        assert [one["part"] for one in agent.said("disk_failing")].count(part) == 1
        faults.set(*rules.split("|"))
        with socket.create_connection(peer) as connection:
            connection.sendall(ATTACK + b"\n")
            degraded(agent)
    finally:
        agent.kill()
        faults.set()
    stored = [event.raw for event in agent.stored()]
    assert stored[:1500] == b"".join(data).splitlines()
    agent.up()
    try:
        agent.settled(len(stored))
    finally:
        agent.kill()
    assert_as_scanned(agent)


@pytest.mark.long
def test_a_commit_while_events_wait_for_the_raw_log(tmp_path: Path, faults: Faults) -> None:
    """The raw log takes nothing, the store does: what waits in memory is part of the account that is committed."""
    agent = configured(tmp_path / "a", tmp_path)
    agent.up()
    peer = ("127.0.0.1", agent.port)
    try:
        faults.set(f"write {errno.ENOSPC} .seg")
        assert tcp(peer, lines(1, 300)).complete
        until("events that wait", lambda: degraded(agent)["disk"]["held_events"] == 300)
        before = agent.status()
        until("the commit", lambda: committed(agent.data) == 300)
    finally:
        agent.kill()
        faults.set()
    (agent.data / "shown").unlink()  # what is committed must do
    agent.up()
    try:
        after = agent.status()
        assert after["inputs"]["in"]["dropped"] == {"unwritten": 300}
        assert after["inputs"]["in"]["received"] == before["inputs"]["in"]["received"] == 300
        assert not agent.said("identity_broken")
        assert tcp(peer, lines(2, 100)).complete
        assert agent.settled(100)["inputs"]["in"]["received"] == 400
    finally:
        agent.kill()


@pytest.mark.long
def test_a_slow_disk(tmp_path: Path, faults: Faults) -> None:
    """A disk whose every sync takes 0.4 s: it is no trouble, and nothing is missing."""
    agent = configured(tmp_path / "a", tmp_path)
    faults.set("slow 400 /data/")
    agent.up()
    try:
        data = lines(9, 20_000)
        assert tcp(("127.0.0.1", agent.port), data).complete
        status = agent.settled(20_000)
        assert status["state"] == "running"
    finally:
        agent.kill()
    assert_as_scanned(agent)


@pytest.mark.long
def test_a_file_system_that_becomes_read_only(tmp_path: Path) -> None:
    """The kernel finds an error and takes the file system from under the agent: it stays up, degraded, and says so;
    what was durable is there after the repair."""
    disk = Ext4(tmp_path / "disk")
    try:
        agent = configured(tmp_path / "a", disk.folder)
        agent.up()
        try:
            data = lines(7, 2000)
            assert tcp(("127.0.0.1", agent.port), data).complete
            agent.settled(2000)
            until("the sync", lambda: (log := agent.status()["raw_log"])["durable"] == log["end"])
            disk.fail()
            with socket.create_connection(("127.0.0.1", agent.port)) as connection:
                connection.sendall(ATTACK + b"\n")
                status = degraded(agent)
            assert any("Read-only" in one["reason"] for one in status["disk"]["failing"].values())
            tried_twice(agent)
            assert agent.status()["state"] == "degraded"
        finally:
            agent.kill()
        disk.repair()
        assert [event.raw for event in agent.stored()][:2000] == data.splitlines()
        agent.up()
        try:
            agent.settled(2000)
        finally:
            agent.kill()
        assert_as_scanned(agent)
    finally:
        disk.unmount()
