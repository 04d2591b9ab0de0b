"""The status as it goes to the region."""

from __future__ import annotations

import orjson

from vedette.delivery.envelope import MAX_MESSAGE, status_row
from vedette.runtime.status import HEARTBEAT_BYTES, heartbeat


def test_a_heartbeat_is_bounded() -> None:
    """A status that is longer than the region reads leaves out what it lists by rule, and nothing else."""
    assert HEARTBEAT_BYTES == MAX_MESSAGE
    status = {
        "agent_id": "a1",
        "seq_high": 7,
        "rules": {"running": 9_000, "dead": ["x"], "undecided": {"r": 1}, "quarantined": []},
        "rulesets": [{"name": "site", "dead": ["x"], "renamed": {"a": "a@site"}}],
        "correlation_state": {"groups": 3, "correlations": []},
        "statement_state": {"bytes": 5, "statements": []},
    }
    assert heartbeat(status) == orjson.dumps(status)
    status["correlation_state"] = {"groups": 3, "correlations": [{"title": "t" * 300}] * 9_000}
    status["statement_state"] = {"bytes": 5, "statements": [{"title": "t"}]}
    row = status_row(heartbeat(status), fleet="f1", agent_id="a1", received_at=0, collector_id="c", topic="t")
    sent = orjson.loads(row["payload"])
    assert (row["seq_high"], sent["rules"]["running"], sent["correlation_state"]) == (
        7,
        9_000,
        {"groups": 3, "correlations": []},
    )
    assert sent["rulesets"] == [{"name": "site", "dead": [], "renamed": {}}]
    assert sent["statement_state"] == {"bytes": 5, "statements": []}
