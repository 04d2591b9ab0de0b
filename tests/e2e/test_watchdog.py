"""The watchdog's view of the real agent: a socket such as systemd gives, and an agent that hangs in two ways."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.send import tcp
from tests.e2e.agent import Agent
from tests.waits import until

pytestmark = [pytest.mark.peer, pytest.mark.long]

INTERVAL = 0.3
SLOW_DISK = """
import os, pathlib, sys, time
from vedette.cli.main import main
hang, fsync = pathlib.Path(sys.argv.pop(1)), os.fsync
def slow(descriptor):
    while hang.exists():
        time.sleep(0.05)
    fsync(descriptor)
os.fsync = slow
main()
"""
"""The agent on a disk that does not answer while a file is there: every fsync of the raw log waits."""


class Supervisor:
    """The other end of NOTIFY_SOCKET."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.said: list[str] = []

    def hear(self, seconds: float) -> list[str]:
        """What is said in the next ``seconds``."""
        new: list[str] = []
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.socket.settimeout(left)
            try:
                new.append(self.socket.recv(8192).decode())
            except TimeoutError:
                break
        self.said += new
        return new

    def drop(self) -> None:
        """Forget what was said until now."""
        self.socket.setblocking(False)
        try:
            while True:
                self.said.append(self.socket.recv(8192).decode())
        except BlockingIOError:
            pass


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[tuple[Agent, Supervisor]]:
    """An agent that is told to ping every ``INTERVAL`` seconds; not started."""
    supervisor = Supervisor(tmp_path / "notify")
    agent = Agent(tmp_path / "a")
    agent.configure(f'[[input]]\nname = "in"\ntype = "syslog"\ntcp = "127.0.0.1:{agent.port}"\n')
    agent.environment = {
        "NOTIFY_SOCKET": str(tmp_path / "notify"),
        "WATCHDOG_USEC": str(int(INTERVAL * 3e6)),
    }
    yield agent, supervisor
    agent.kill()
    supervisor.socket.close()


def pinged(supervisor: Supervisor, times: int = 2) -> None:
    """Until so many pings have come from now on."""
    supervisor.drop()
    heard: list[str] = []
    until(f"{times} pings", lambda: heard.extend(supervisor.hear(INTERVAL)) or heard.count("WATCHDOG=1") >= times)


def silent(supervisor: Supervisor) -> None:
    """Until no ping comes for ten times as long as between two of them."""
    until("the pings to end", lambda: "WATCHDOG=1" not in supervisor.hear(10 * INTERVAL))


def test_a_life(watched: tuple[Agent, Supervisor]) -> None:
    """Ready when the inputs are open, pings all the time, reloading and ready again, stopping at the end."""
    agent, supervisor = watched
    agent.start()
    until("READY", lambda: any(one.startswith("READY=1") for one in supervisor.hear(0.2)))
    socket.create_connection(("127.0.0.1", agent.port)).close()  # ready means that it can be reached
    pinged(supervisor, 4)
    agent.signal(signal.SIGHUP)
    said = until("a reload", lambda: [one for one in supervisor.hear(0.5) if "STATUS=reloaded" in one])
    assert said[0].startswith("READY=1")
    assert any(one.startswith("RELOADING=1\nMONOTONIC_USEC=") for one in supervisor.said)
    assert agent.stop() == 0
    supervisor.drop()
    assert any(one.startswith("STOPPING=1") for one in supervisor.said)
    assert any("events evaluated" in one for one in supervisor.said)


def test_a_writer_that_hangs(watched: tuple[Agent, Supervisor], tmp_path: Path) -> None:
    """While the disk does not answer the loop still does, and yet no ping goes out; afterwards they come again."""
    agent, supervisor = watched
    hang = tmp_path / "hang"
    agent.program = (sys.executable, "-c", SLOW_DISK, str(hang))
    agent.up()
    pinged(supervisor)
    hang.touch()
    tcp(("127.0.0.1", agent.port), b"<13>Nov 20 10:00:00 web1 app: to be synced\n")
    until("the event", lambda: agent.input()["stored"] == 1)
    silent(supervisor)
    assert agent.status()["raw_log"]["durable"] < agent.status()["raw_log"]["end"]  # the loop answers
    hang.unlink()
    pinged(supervisor)


def test_a_loop_that_hangs(watched: tuple[Agent, Supervisor]) -> None:
    """The agent's log goes to a pipe that nobody reads and that is full: the next line holds the event loop, and no
    ping goes out; once somebody reads, they come again."""
    agent, supervisor = watched
    out, log = os.pipe()
    agent.stderr = log
    agent.start()
    until("READY", lambda: any(one.startswith("READY=1") for one in supervisor.hear(0.2)))
    pinged(supervisor)
    flags = fcntl.fcntl(log, fcntl.F_GETFL)
    fcntl.fcntl(log, fcntl.F_SETFL, flags | os.O_NONBLOCK)
    try:
        while True:
            os.write(log, b"x" * 4096)
    except BlockingIOError:
        pass
    fcntl.fcntl(log, fcntl.F_SETFL, flags)
    agent.signal(signal.SIGHUP)  # has something to say
    silent(supervisor)
    assert agent.running()
    while len(os.read(out, 1 << 20)) == 1 << 20:
        pass
    pinged(supervisor)
    agent.kill()
    os.close(out)
    os.close(log)


def test_sigabrt_says_where(watched: tuple[Agent, Supervisor]) -> None:
    """What systemd does to a hung agent leaves the stacks of its threads in the log."""
    agent, _ = watched
    agent.up()
    agent.signal(signal.SIGABRT)
    assert agent.ended() == -signal.SIGABRT
    assert "Fatal Python error: Aborted" in agent.text()
    assert "asyncio" in agent.text()
