"""Syslog over TCP into the real agent, against ``vedette scan`` on the same lines."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench import traffic
from bench.send import Sent, tcp
from tests.e2e.agent import KILLS, Agent, assert_as_scanned, by_line, chance, few, reborn, say, scan, split

MIXED = 50_000
LINES = 1_000 * KILLS
SYSLOG = '[[input]]\nname = "in"\ntype = "syslog"\ntcp = "127.0.0.1:{port}"\n'
ROUND = 0.5
"""Seconds that a slice of the stream takes when a kill is to come in the middle of it."""


@pytest.mark.long
@pytest.mark.peer
def test_mixed_lines(tmp_path: Path) -> None:
    """Mixed lines at once: received = stored = judged, and the alerts are those of ``scan``, by rule and line."""
    lines = tmp_path / "lines"
    lines.write_bytes(b"".join(traffic.blocks(11, MIXED, attack_rate=0.004)))
    agent = Agent(tmp_path / "a")
    agent.configure(SYSLOG.format(port=agent.port))
    agent.up()
    try:
        assert tcp(("127.0.0.1", agent.port), lines.read_bytes()).lines == MIXED
        status = agent.settled(MIXED)
        counts = status["inputs"]["in"]
        assert (counts["received"], counts["stored"], counts["judged"]) == (MIXED, MIXED, MIXED)
        assert counts["bytes_in"] == lines.stat().st_size
        assert not counts["dropped"]
        assert not counts["lost"]
    finally:
        agent.kill()
    stored = agent.stored()
    assert b"".join(event.raw + b"\n" for event in stored) == lines.read_bytes()
    alerts = agent.alerts()
    assert by_line(alerts, stored) == scan(lines)
    assert len(alerts) == status["alerts"]["made"] > MIXED // 400
    assert {alert["raw"] for alert in alerts} <= {event.raw.decode() for event in stored}


def test_killed_in_the_middle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Killed at random and started again: alerts equal ``scan`` over what the raw log holds, which is of each stretch
    of the stream a beginning; what the sender handed over beyond that is transport loss, and is printed."""
    # Over 3 s: three lives of an agent and more, and a stream that goes on for a second and a half.
    rng = chance()
    parts = split(b"".join(traffic.blocks(12, LINES, attack_rate=0.05)), KILLS + 1)
    agent = Agent(tmp_path / "a", rules=few(tmp_path / "rules"), segment_bytes=64 << 10)
    agent.configure(SYSLOG.format(port=agent.port))
    agent.up()
    handed = stored = end = 0
    try:
        with ThreadPoolExecutor(1) as sender:
            for i, part in enumerate(parts):
                lines = part.splitlines()
                work = sender.submit(_send, agent.port, part, len(lines) / ROUND)
                if i < KILLS:
                    agent.midway(work, stored + rng.randrange(len(lines)))
                    agent.kill()
                else:
                    agent.settled(stored + len(lines))
                sent = work.result()
                events = agent.stored(since=end)
                end = events[-1].end if events else end
                kept = [event.raw for event in events]
                assert kept == lines[: len(kept)]
                assert sent.complete or i < KILLS
                handed, stored = handed + sent.lines, stored + len(kept)
                if i < KILLS:
                    reborn(agent, rng)
                    agent.ready()
        status = agent.settled(stored)
        counts = status["inputs"]["in"]
        assert (counts["received"], counts["stored"], counts["judged"]) == (stored, stored, stored)
    finally:
        agent.kill()
    found = assert_as_scanned(agent)
    assert found == status["alerts"]["made"] == status["alerts"]["receipted"]
    say(
        capsys,
        f"tcp, {KILLS} kills: {handed} of {LINES} lines handed over, {stored} stored,"
        f" transport loss {handed - stored}; {found} alerts as scan",
    )


def _send(port: int, data: bytes, rate: float) -> Sent:
    """A sender that takes a dead agent as it is."""
    try:
        return tcp(("127.0.0.1", port), data, rate=rate)
    except OSError as error:
        return Sent(complete=False, cut=str(error))
