"""The installed agent at work: its own Python, the starter bundle, real ``logger``."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.broker import own_port
from tests.install.conftest import RULE_ID, Place, call
from tests.waits import DEADLINE, until

pytestmark = [pytest.mark.install, pytest.mark.peer]


@pytest.fixture
def port(ready: Place) -> int:
    """An installation whose syslog input listens on this port and reads no file of the host."""
    port = own_port()
    text = ready.config.read_text()
    ready.config.write_text(
        text.replace("127.0.0.1:514", f"127.0.0.1:{port}").replace('"/var/log/', f'"{ready.folder}/')
    )
    return port


@contextmanager
def running(ready: Place) -> Iterator[subprocess.Popen[bytes]]:
    """The running agent, up when its status answers."""
    log = ready.folder / "agent.log"
    with log.open("wb") as file:
        process = subprocess.Popen([ready.vedette, "run", "-c", ready.config], stderr=file, stdout=file)
    try:
        until("the agent to answer", lambda: call(ready.vedette, "status", "-c", ready.config).code == 0)
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def agent(ready: Place, port: int) -> Iterator[subprocess.Popen[bytes]]:
    with running(ready) as process:
        yield process


@pytest.mark.parametrize("transport", ["--tcp", "--udp"])
def test_a_line_becomes_an_alert(ready: Place, port: int, agent: subprocess.Popen[bytes], transport: str) -> None:
    """As installed, with the configuration and the rules of the zip: `logger` in, an alert out, a clean stop."""
    for message in ("nothing to see", "here is an install-test-marker"):
        done = call("logger", "--server", "127.0.0.1", "--port", str(port), transport, "--tag", "demo", message)
        assert done.code == 0, done.text

    def alerts() -> str:
        return call(ready.vedette, "alerts", "-c", ready.config, "--json").text

    until("the alert", lambda: RULE_ID in alerts())
    assert "install-test-marker" in alerts()
    assert "nothing to see" not in alerts()
    searched = call(ready.vedette, "logs", "search", "-c", ready.config, "nothing to see")
    assert "nothing to see" in searched.text
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(DEADLINE) == 0, (ready.folder / "agent.log").read_text()


def test_every_module_that_it_starts_as_a_child_is_found(ready: Place) -> None:
    """What checks the store, tries a bundle and chooses literals anew runs in processes of their own, which find the
    packages of the release as the agent does: each gets as far as to refuse what it is given."""
    release = ready.vedette.resolve().parents[1]
    code = (
        f"import subprocess, sys; sys.path.append({str(release / 'packages')!r}); from vedette.system import child; "
        "command = child.command(*sys.argv[1:]); "
        "done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True); "
        "sys.exit(f'{done.returncode} {done.stdout} {done.stderr}')"
    )
    python = release / "runtime" / "bin" / "vedetted"

    def said(*command: str) -> str:
        return call(python, "-I", "-c", code, *command).text

    absent = str(ready.folder / "absent")
    refused = said("vedette.rules.retune", absent, absent)
    assert refused.startswith("2 "), refused
    assert "No such file" in refused
    assert said("vedette.store.check", absent).startswith("1 ready")
    assert said("vedette.runtime.rulesets.validate").startswith("2 ")


def test_killed_it_goes_on_with_its_store(ready: Place, port: int) -> None:
    """Killed and started again, it finds its store in order: what was receipted and counted is known as before."""

    def status() -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(call(ready.vedette, "status", "-c", ready.config, "--json").text)
        return answer

    with running(ready):
        assert call("logger", "--server", "127.0.0.1", "--port", str(port), "--tcp", "install-test-marker").code == 0
        until("the receipt", lambda: status()["alerts"]["receipted"] == 1)
    with running(ready):
        reported = status()
        assert reported["disk"]["store_rebuilt"] is None
        assert (reported["alerts"]["made"], reported["alerts"]["receipted"]) == (1, 1)
