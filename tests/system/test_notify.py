"""What systemd is told, over real Unix datagram sockets."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from tests.waits import DEADLINE
from vedette.system.notify import Notifier


@pytest.mark.parametrize("abstract", [False, True])
def test_what_is_said_arrives(tmp_path: Path, abstract: bool) -> None:
    """Each state is one datagram at a socket with a path, and at an abstract one; a text stays on its line."""
    name = f"@vedette-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind("\0" + name[1:] if abstract else name)
        heard.settimeout(DEADLINE)
        told = Notifier.from_environment({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "30000000"})
        told.ready("2 inputs\nREADY=0")
        told.reloading()
        told.ping()
        told.stopping()
        said = [heard.recv(4096).decode().split("\n") for _ in range(4)]
        told.close()
    assert said[0] == ["READY=1", "STATUS=2 inputs READY=0"]
    assert said[1][0] == "RELOADING=1"
    assert said[1][1].partition("=")[2].isdigit()
    assert said[2:] == [["WATCHDOG=1"], ["STOPPING=1", "STATUS=stopping"]]
    assert told.interval == 10


def test_nobody_hears(tmp_path: Path) -> None:
    """Without a socket, with one that nobody reads, or with one that is full, nothing raises and nothing waits."""
    for given in ({}, {"NOTIFY_SOCKET": str(tmp_path / "none")}):
        unheard = Notifier.from_environment(given)
        unheard.ping()
        unheard.close()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf:
        deaf.bind(str(tmp_path / "deaf"))
        told = Notifier(str(tmp_path / "deaf"))
        for _ in range(2000):
            told.status("x" * 4000)
        told.close()


@pytest.mark.parametrize(
    ("environment", "interval"),
    [
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": str(os.getpid())}, 20),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "1"}, 0),
        ({"WATCHDOG_USEC": "soon"}, 0),
        ({}, 0),
    ],
)
def test_whether_a_watchdog_waits(environment: dict[str, str], interval: float) -> None:
    """Pings are due when systemd says so, and to this process."""
    assert Notifier.from_environment(environment).interval == interval
