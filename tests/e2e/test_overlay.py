"""An overlay that is in force when a release comes which no longer takes all of it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.e2e.agent import Agent, few, landed, vedette
from tests.waits import until
from vedette.fleet.overlay import Applied

pytestmark = pytest.mark.peer

OVERLAY = """
[log]
level = "debug"
[raw_log]
max_age = "1d"
[[input]]
type = "syslog"
name = "more"
tcp = "127.0.0.1:9"
[[sink]]
type = "webhook"
name = "hook"
url = "http://127.0.0.1:9/"
[[input]]
name = "elsewhere"
max_rate = 5
"""


def test_an_input_that_is_closed(tmp_path: Path) -> None:
    """The one quick test of the promise. An input and a sink that an earlier release took are not opened: the first
    line of the status names them, and so does the heartbeat; what the host locks, or does not have by this name, is no
    fault. ``fleet plan`` refuses the overlay by the same names."""
    vedette(
        "fleet", "init", "f1", "--trust", tmp_path / "trust", "--keys", tmp_path / "keys", "--root-key", "alice",
        "--root-key", "bob", "--targets-key", "carol", "--targets-key", "dave",
    )  # fmt: skip
    agent = Agent(tmp_path / "a", rules=few(tmp_path / "rules"))
    agent.configure(
        f'[[input]]\ntype = "syslog"\nname = "in"\ntcp = "127.0.0.1:{agent.port}"\n[uplink]\nheartbeat = "1s"\n'
        f'[fleet]\nroot = "{tmp_path}/trust/tuf/1.root.json"\nlocked = ["raw_log.max_age"]\n'
    )
    applied = Applied.open(agent.data / "fleet")
    applied.begin(hashlib.sha256(OVERLAY.encode()).hexdigest(), OVERLAY.encode())
    applied.confirm()
    agent.up()
    try:
        said = "fleet: overlay: not in force here, only the host's own file may say it: input more, sink hook"
        assert agent.status()["problems"] == [said]
        assert vedette("status", "-c", agent.config, code=1).stdout.startswith(f"NOT OK: {said}\n")
        beat = until("a heartbeat", lambda: landed(agent.landing, "status"))[-1]
        assert "input more, sink hook" in str(beat)
    finally:
        agent.kill()
    overlay = tmp_path / "overlay.toml"
    overlay.write_text(OVERLAY)
    toml = tmp_path / "fleet.toml"
    toml.write_text('[[group]]\nname = "all"\nmatch = "all"\nconfig = "overlay.toml"\n')
    refused = vedette("fleet", "plan", toml, "--trust", tmp_path / "trust", code=None)
    assert refused.returncode
    assert "input more.tcp, sink hook.url: no overlay changes this" in refused.stdout + refused.stderr
