"""The heartbeat of a real agent with the starter rules: small, and what the region reads of it as in the status."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from bench import traffic
from bench.send import tcp
from tests.e2e.agent import Agent, landed, say
from vedette.region.steer import vitals

pytestmark = [pytest.mark.peer, pytest.mark.long]

LINES = 5_000
MAX_BYTES = 5_000


def test_a_heartbeat_is_small(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An agent under attack sends less than ``MAX_BYTES``, and all that gates and tables read; its own status names
    each correlation and each dead rule."""
    agent = Agent(tmp_path / "a")
    agent.configure(
        f'[[input]]\nname = "in"\ntype = "syslog"\ntcp = "127.0.0.1:{agent.port}"\n[uplink]\nheartbeat = "1h"\n'
    )
    agent.up()
    try:
        tcp(("127.0.0.1", agent.port), b"".join(traffic.blocks(51, LINES, attack_rate=0.05)))
        whole = agent.settled(LINES)
    finally:
        agent.stop()
    payload = max(landed(agent.landing, "status"), key=lambda row: row["received_at"])["payload"]
    beat, state, rules = orjson.loads(payload), whole["correlation_state"], whole["rules"]
    assert rules["alerts"]
    assert len(payload.encode()) <= MAX_BYTES < 15_000 < len(orjson.dumps(whole))
    assert len(state["correlations"]) == rules["correlations"] > 50
    active = [one for one in state["correlations"] if one["groups"] or one["fired"]]
    assert (
        len(active) == beat["correlation_state"]["correlations_count"] > len(beat["correlation_state"]["correlations"])
    )
    assert len(rules["dead"]) == beat["rules"]["dead_count"] == rules["dead_count"] > 0
    for name in ("inputs", "alerts", "seq_high", "lag_seconds", "identity_broken"):
        assert beat[name] == whole[name], name
    assert beat["rules"]["alerts"] == rules["alerts"]
    now, then = vitals.read(beat), vitals.read(whole)
    assert now is not None
    assert then is not None
    figures = ("started", "events", "crashes", "quarantined", "undecided", "poisoned", "lost", "alerts", "rest")
    assert [getattr(now, name) for name in figures] == [getattr(then, name) for name in figures]
    say(capsys, f"heartbeat: {len(payload)} bytes of a status of {len(orjson.dumps(whole))}")
