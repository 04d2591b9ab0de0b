"""Judging that stands still while storing goes on: the lag is shown, and caught up from disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import traffic
from bench.send import tcp
from tests.broker import own_port
from tests.e2e.agent import Agent, assert_as_scanned, say
from tests.e2e.test_account import scrape
from tests.waits import until
from vedette.runtime.pipeline.stored import RECENT_BYTES

pytestmark = [pytest.mark.peer, pytest.mark.long]

LINES = 150_000


def test_lag_is_shown_and_caught_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """While the outbox is full nothing is judged and everything is stored, more than is kept in memory: events and
    seconds of lag rise in status and metrics. When alerts can leave again it is judged from disk, to the last event,
    and the alerts are those of ``scan``."""
    agent = Agent(tmp_path / "a")
    agent.configure(
        f'[[input]]\nname = "in"\ntype = "syslog"\ntcp = "127.0.0.1:{agent.port}"\n'
        f'[uplink]\nmax_bytes = "1MiB"\n[metrics]\nlisten = "127.0.0.1:{own_port()}"\n'
    )
    stuck = agent.landing / "alerts"
    stuck.parent.mkdir(parents=True)
    stuck.write_bytes(b"")  # a file where the folder should be
    agent.up()
    try:
        data = b"".join(traffic.blocks(51, LINES, attack_rate=0.03))
        tcp(("127.0.0.1", agent.port), data)
        until("all to be stored", lambda: agent.alive() and agent.input()["stored"] == LINES)
        until("judging to stand", lambda: agent.status()["alerts"]["outbox_bytes"] > 1 << 20)
        first = agent.status()
        rises = first["lag_seconds"] + 1
        second = until("the lag to rise", lambda: (status := agent.status())["lag_seconds"] > rises and status)
        metrics = scrape(agent)
        assert first["lag_events"] == second["lag_events"] == second["inputs"]["in"]["stored"] - judged(second) > 0
        assert second["raw_log"]["end"] * second["lag_events"] / LINES > RECENT_BYTES
        assert metrics["vedette_lag_events", ()] == second["lag_events"]
        assert metrics["vedette_lag_seconds", ()] >= second["lag_seconds"]
        assert second["identity_broken"] == []
        stuck.unlink()
        status = agent.settled(LINES)
        assert (status["lag_events"], status["lag_seconds"]) == (0, 0.0)
    finally:
        agent.stop()
    found = assert_as_scanned(agent)
    say(
        capsys,
        f"lag: {second['lag_events']} events and {second['lag_seconds']:.1f} s behind, {found} alerts as scan",
    )


def judged(status: dict[str, object]) -> int:
    return int(status["inputs"]["in"]["judged"])  # type: ignore[index]
