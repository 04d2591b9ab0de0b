"""The status for people, from what a running agent says of itself."""

from __future__ import annotations

from typing import Any

from vedette.cli.status_page import status_lines

STATE = {"groups": 0, "bytes": 0, "max_bytes": 1, "evicted": 0, "jumps": 0, "folded": 0, "started_empty": []}
RULES = {
    "running": 1, "correlations": 0, "statements": 0, "origin": "/rules", "always_candidates": 0, "error": None,
    "dead_count": 0, "dead": [], "waiting": {}, "quarantined": [], "formats": [], "undecided": {},
    "dead_letters": {"folder": "/quarantine"},
}  # fmt: skip


def status(**rules: Any) -> dict[str, Any]:
    """A quiet agent with one rule; ``rules``: what is otherwise with them."""
    return {
        "problems": [], "started_at": 1_763_672_400_000_000, "last_event": None, "last_alert": None, "version": "1",
        "agent_id": "a", "site": "s", "fleet": "f", "plan_digest": "0" * 64, "rules": {**RULES, **rules},
        "rulesets": [], "config": {"error": None, "needs_restart": []}, "backlog": {}, "totals": {}, "inputs": {},
        "lookups": {"in_use": [], "incoming": [], "refused": []}, "input_states": [],
        "alerts": {"made": 0, "receipted": 0, "in_outbox": 0, "lost": 0},
        "raw_log": {"bytes": 0, "max_bytes": 1, "full": False, "damaged": 0},
        "correlation_state": {**STATE, "correlations": [], "audit": {}}, "statement_state": {},
        "cache": {"failure": "", "on": False}, "kernel": {"why_not": ""}, "budgets": {},
        "disk": {"failing": {}, "store_rebuilt": None}, "lag_events": 0, "lag_seconds": 0.0, "uplink": {"type": "none"},
        "sinks": [], "row_sinks": [], "plugins": [], "identity_broken": [],
    }  # fmt: skip


def test_a_quiet_agent() -> None:
    """The verdict comes first, the account last."""
    lines = status_lines(status())
    assert lines[0] == "OK"
    assert lines[-1] == "account  adds up"


def test_bytes_before_and_after_compression() -> None:
    """Both are shown once something was saved."""
    sent = {**status(), "totals": {"bytes_sent": 1_000, "bytes_saved": 9_000}}
    (line,) = (line for line in status_lines(sent) if line.startswith("bytes"))
    assert line.startswith("bytes    in 0, sent 1,000 (10,000 before compression); raw log 0")


def test_formats_of_rules() -> None:
    """A format that is slow, in quarantine or missing has a line, and the rest of the page is as without it."""
    formats = [
        {"name": name, "missing": name == "none", "overruns": overruns, "quarantined": overruns == 10}
        for name, overruns in (("good", 0), ("slow", 1), ("bad", 10), ("none", 0))
    ]
    lines = status_lines(status(formats=formats))
    assert [line for line in lines if line not in status_lines(status())] == [
        "         format slow slow: 1 messages took too long",
        "         format bad QUARANTINED: 10 messages took too long",
        "         no rule set has the format none: its inputs' events are read as auto",
    ]


def test_an_input_that_is_behind() -> None:
    """It works, and its line is followed by how far behind it is."""
    behind = {**status(), "input_states": [{"name": "logs", "state": "works", "reason": "behind: 5 bytes of 1 files"}]}
    lines = status_lines(behind)
    assert [line for line in lines if line not in status_lines(status())][1:] == [
        "         works: behind: 5 bytes of 1 files"
    ]
