"""The installed agent at work: its own Python, the starter bundle, real ``logger``."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.install.conftest import RULE_ID, Place, call

pytestmark = [pytest.mark.install, pytest.mark.door]


def free_port() -> int:
    """A port that is free for TCP and UDP on loopback."""
    while True:
        with (
            socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tcp,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        ):
            tcp.bind(("127.0.0.1", 0))
            port = int(tcp.getsockname()[1])
            try:
                udp.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def wait_for(condition: Callable[[], bool], said: Callable[[], str], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, said()
        time.sleep(0.1)


@pytest.fixture
def port(release: Path, place: Place) -> int:
    """An installation whose syslog input listens on this port and reads no file of the host."""
    assert place.install(release).code == 0
    port = free_port()
    text = place.config.read_text()
    place.config.write_text(
        text.replace("127.0.0.1:514", f"127.0.0.1:{port}").replace('"/var/log/', f'"{place.folder}/')
    )
    return port


@pytest.fixture
def agent(place: Place, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """The running agent, up when its status answers."""
    log = place.folder / "agent.log"
    with log.open("wb") as file:
        process = subprocess.Popen([place.vedette, "run", "-c", place.config], stderr=file, stdout=file)
    try:
        wait_for(lambda: call(place.vedette, "status", "-c", place.config).code == 0, log.read_text)
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("transport", ["--tcp", "--udp"])
def test_a_line_becomes_an_alert(place: Place, port: int, agent: subprocess.Popen[bytes], transport: str) -> None:
    """As installed, with the configuration and the rules of the zip: `logger` in, an alert out, a clean stop."""
    for message in ("nothing to see", "here is an install-test-marker"):
        done = call("logger", "--server", "127.0.0.1", "--port", str(port), transport, "--tag", "demo", message)
        assert done.code == 0, done.text

    def alerts() -> str:
        return call(place.vedette, "alerts", "-c", place.config, "--json").text

    wait_for(lambda: RULE_ID in alerts(), lambda: alerts() + (place.folder / "agent.log").read_text())
    assert alerts().count(RULE_ID) >= 1
    assert "install-test-marker" in alerts()
    assert "nothing to see" not in alerts()
    found = call(place.vedette, "logs", "search", "-c", place.config, "nothing to see")
    assert "nothing to see" in found.text
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(20) == 0, (place.folder / "agent.log").read_text()
