"""Syslog over TCP into the real agent, against ``vedette scan`` on the same lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import traffic
from bench.send import tcp
from tests.e2e.agent import Agent, by_line, scan

pytestmark = pytest.mark.door

LINES = 200_000

SYSLOG = '[[input]]\nname = "in"\ntype = "syslog"\ntcp = "127.0.0.1:{port}"\n'


def test_200_000_lines(tmp_path: Path) -> None:
    """200,000 mixed lines: received = stored = judged, and the alerts are those of ``scan``, by rule and line."""
    lines = tmp_path / "lines"
    lines.write_bytes(b"".join(traffic.blocks(11, LINES, attack_rate=0.004)))
    agent = Agent(tmp_path / "a")
    agent.configure(SYSLOG.format(port=agent.port))
    agent.up()
    try:
        sent = tcp(("127.0.0.1", agent.port), lines.read_bytes())
        assert sent.lines == LINES
        status = agent.settled(LINES)
        counts = status["inputs"]["in"]
        assert (counts["received"], counts["stored"], counts["judged"]) == (LINES, LINES, LINES)
        assert not counts["dropped"] and not counts["lost"]
        assert counts["bytes_in"] == lines.stat().st_size
    finally:
        agent.kill()
    stored = agent.stored()
    assert b"".join(event.raw + b"\n" for event in stored) == lines.read_bytes()
    alerts = agent.alerts()
    assert by_line(alerts, stored) == scan(lines)
    assert len(alerts) == status["alerts"]["made"] > 500
    assert {alert["raw"] for alert in alerts} <= {event.raw.decode() for event in stored}
