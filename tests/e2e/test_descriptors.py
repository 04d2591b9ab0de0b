"""File descriptors run short: connections that say nothing, a limit that is low, and none left at all."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import traffic
from bench.send import tcp
from tests.broker import Broker
from tests.e2e.agent import Agent, by_line, scan, up
from tests.waits import DEADLINE, until

FILES = 20


def limited(agent: Agent, soft: int, hard: int) -> Agent:
    """Started under this RLIMIT_NOFILE."""
    program = f"import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard})); "
    program += "os.execv(sys.executable, [sys.executable, '-m', 'vedette', *sys.argv[1:]])"
    agent.program = (sys.executable, "-c", program)
    return agent


def tailing(folder: Path, *, more: str = "", **constants: object) -> tuple[Agent, list[Path]]:
    """An agent with a TCP input and one of FILES files, with default settings."""
    logs = [folder / f"app{i}.log" for i in range(FILES)]
    for path in logs:
        path.write_bytes(b"")
    agent = Agent(folder / "a", **constants)
    paths = ", ".join(f'"{path}"' for path in logs)
    agent.configure(
        f'[[input]]\nname = "in"\ntype = "syslog"\ntcp = "127.0.0.1:{agent.port}"\n'
        f'[[input]]\nname = "file"\ntype = "file"\nformat = "syslog"\nlogsource = {{ product = "linux" }}\n'
        f"paths = [{paths}]\n{more}"
    )
    return agent, logs


@contextlib.contextmanager
def silent(port: int, connections: int, addresses: int) -> Iterator[list[socket.socket]]:
    """Connections that say nothing, as many as the kernel takes, of so many addresses."""
    peers: list[socket.socket] = []
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        for i in range(connections):
            source = f"127.0.1.{1 + i % addresses}"
            with contextlib.suppress(ConnectionError):
                peers.append(socket.create_connection(("127.0.0.1", port), DEADLINE, source_address=(source, 0)))
        yield peers
    finally:
        for peer in peers:
            peer.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def send(port: int, lines: int, source: str) -> None:
    """Lines by a connection of its own, which is admitted: it is not reset."""
    with socket.create_connection(("127.0.0.1", port), DEADLINE, source_address=(source, 0)) as peer:
        peer.sendall(b"".join(b"<13>honest %d\n" % i for i in range(lines)))
        peer.shutdown(socket.SHUT_WR)
        peer.settimeout(DEADLINE)
        assert peer.recv(1) == b""  # all is read


@pytest.mark.long
@pytest.mark.peer
@pytest.mark.parametrize(("soft", "hard"), [(1024, 1024), (256, 4096), (256, 256)])
def test_silent_connections_take_nobodys_descriptors(tmp_path: Path, soft: int, hard: int) -> None:
    """A thousand connections that say nothing, of 12 addresses: the agent lives, files are read and rotated, whoever
    sends something gets in, and it stops in order."""
    agent, logs = tailing(tmp_path)
    with up(limited(agent, soft, hard)):
        with silent(agent.port, 1000, 12):
            until("the files to be open", lambda: len(agent.said("file_opened")) == FILES)
            for number, path in enumerate(logs):
                with path.open("ab") as file:
                    file.write(b"<13>one\n")
                if number % 4 == 0:
                    path.rename(path.with_suffix(".log.1"))
                    path.write_bytes(b"<13>two\n")
            send(agent.port, 10, "127.0.2.1")
            until("the files", lambda: agent.alive() and agent.input("file")["stored"] == FILES + FILES // 4)
            status = agent.settled(10, "in")
            budget = status["budgets"]["descriptors"]
            assert budget["max"] == hard
            assert budget["used"] < hard
            rotated = agent.said("file_rotated")
            assert len(rotated) == FILES // 4
            assert all(entry["now"] for entry in rotated)
            few = agent.said("descriptors_few")
            assert bool(few) == (hard < 1000 + 200)
        assert agent.stop() == 0


@pytest.mark.long
@pytest.mark.peer
def test_silent_connections_lock_nobody_out(tmp_path: Path) -> None:
    """1,100 connections that say nothing, of 20 addresses: whoever sends something gets in at once, also from one of
    these addresses; those that had sent something stay."""
    agent, _ = tailing(tmp_path)
    with up(agent):
        with socket.create_connection(("127.0.0.1", agent.port), DEADLINE, source_address=("127.0.1.1", 0)) as known:
            known.sendall(b"<13>known\n")
            agent.settled(1)
            with silent(agent.port, 1100, 20):
                for address in ("127.0.2.1", "127.0.2.2", "127.0.1.1", "127.0.1.20"):
                    send(agent.port, 5, address)
                known.sendall(b"<13>known still\n")
                status = agent.settled(22)
                assert status["totals"]["connections_evicted"] >= 100
                assert len(agent.said("connection_evicted")) < 50
        assert agent.stop() == 0


class Short:
    """Takes the agent's descriptors away, again and again, by its limit: no more than are open at that moment."""

    def __init__(self, pid: int) -> None:
        self.pid, self.hard = pid, resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]
        self.times = 0

    def take(self, spare: int = 0) -> None:
        open_now = len(os.listdir(f"/proc/{self.pid}/fd"))
        resource.prlimit(self.pid, resource.RLIMIT_NOFILE, (open_now + spare, self.hard))
        self.times += 1

    def give(self) -> None:
        resource.prlimit(self.pid, resource.RLIMIT_NOFILE, (self.hard, self.hard))


@pytest.mark.long
@pytest.mark.peer
def test_no_descriptor_is_left(tmp_path: Path) -> None:
    """With none left, for seconds at a time, while files rotate, segments are begun and compacted, senders connect,
    alerts are made, the configuration is reloaded, the broker goes and comes, and the status is asked: the agent lives,
    nothing of the files is lost or doubled, the account adds up; with descriptors all is as before."""
    lines = b"".join(traffic.blocks(5, 12_000, attack_rate=0.02)).splitlines(keepends=True)
    broker = Broker(tmp_path / "broker")
    broker.start()
    agent, logs = tailing(
        tmp_path,
        segment_bytes=64 << 10,
        more=f'[raw_log]\nmax_bytes = "64MiB"\n[broker]\nurl = "{broker.url}"\n'
        f'[[input]]\nname = "mqtt"\ntype = "mqtt"\ntopics = ["plant/#"]\n'
        f'[metrics]\nlisten = "127.0.0.1:{(metrics := Agent(tmp_path / "b").port)}"\n',
    )
    try:
        agent.up()
        until("the files", lambda: len(agent.said("file_opened")) == FILES)
        assert agent.process is not None
        short = Short(agent.process.pid)
        stop = threading.Event()

        def senders() -> None:
            while not stop.is_set():
                with contextlib.suppress(OSError):
                    tcp(("127.0.0.1", agent.port), b"<13>honest\n" * 20)
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", metrics), 1) as peer:
                    peer.settimeout(0.2)
                    peer.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
                    peer.recv(100)
                stop.wait(0.05)

        thread = threading.Thread(target=senders)
        thread.start()
        try:
            for turn in range(30):
                short.take(spare=turn % 3)
                for number, path in enumerate(logs):
                    part = lines[(turn * FILES + number) * 20 :][:20]
                    with path.open("ab") as file:
                        file.writelines(part)
                    if (turn + number) % 7 == 0:
                        path.rename(path.with_suffix(f".log.{turn}"))
                        path.touch()
                if turn % 5 == 0:
                    agent.signal(signal.SIGHUP)
                if turn % 6 == 2:
                    broker.stop()
                time.sleep(0.6)
                if turn % 6 == 2:
                    broker.start()
                agent.alive()
                short.give()
                if turn % 3 == 0:
                    assert agent.status()["identity_broken"] == []
        finally:
            stop.set()
            thread.join()
            short.give()
        status = agent.settled(len(lines), "file")
        assert status["identity_broken"] == []
        assert status["totals"].get("identity_alarms", 0) == 0
        assert status["disk"]["failing"] == {}
        assert not any(entry["now"] is None for entry in agent.said("file_rotated"))
        until("the broker", lambda: agent.said("broker_connected"))
        until("the reload", lambda: agent.status()["config"]["error"] is None)
        until("the rules", lambda: agent.status()["rules"]["error"] is None)
        before = agent.input("in")["stored"]
        send(agent.port, 10, "127.0.2.1")
        agent.settled(before + 10)
        stored = agent.stored("file")
        assert sorted(event.raw + b"\n" for event in stored) == sorted(lines)
        file = tmp_path / "stored.log"
        file.write_bytes(b"".join(event.raw + b"\n" for event in stored))
        correlations = {
            one["rule_id"] for one in agent.status()["correlation_state"]["correlations"]
        }  # hang on what was late
        found = by_line((one for one in agent.alerts() if one["kind"] == "detection"), stored)
        assert found.total() > 100
        assert found == Counter({one: n for one, n in scan(file).items() if one[0] not in correlations})
        assert agent.stop() == 0
    finally:
        agent.kill()
        broker.kill()
