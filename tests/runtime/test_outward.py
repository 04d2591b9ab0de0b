"""What an agent that redacts tells others of its failures."""

from __future__ import annotations

import pytest

from vedette.runtime.agent.outward import answer, withheld

SECRET = "4111 1111 1111 1111"


@pytest.mark.parametrize(
    ("reason", "left"),
    [
        ("a pattern took longer than 0.05 s", "a pattern took longer than 0.05 s"),
        (f"ValueError: {SECRET}", "ValueError: [redacted]"),
        (f"its evaluation raised KeyError: '{SECRET}: x'", "its evaluation raised KeyError: [redacted]"),
        (f"own.py:3: ValueError: {SECRET}", "[redacted]"),
        (f"{SECRET}: is no number", "[redacted]"),
    ],
)
def test_withheld(reason: str, left: str) -> None:
    """The kind of an error stays, and what the agent says itself."""
    assert withheld(reason) == left


def test_answers() -> None:
    """Reasons of rules in quarantine and faults of plugins, in each answer that has them; all else is as it was."""
    aside = {"rule_id": "r", "reason": f"ValueError: {SECRET}"}
    status = {"rules": {"running": 3, "quarantined": [aside]}, "plugins": [{"error": SECRET}, {"error": None}], "a": 1}
    left = {**aside, "reason": "ValueError: [redacted]"}
    assert answer("status", status) == {
        "rules": {"running": 3, "quarantined": [left]}, "plugins": [{"error": "[redacted]"}, {"error": None}], "a": 1,
    }  # fmt: skip
    rows = [{**aside, "state": "quarantined"}, {"state": "refused", "reason": "bad.yml:3: no title"}]
    assert answer("rules", rows) == [{**left, "state": "quarantined"}, rows[1]]
    lines = [{"text": "Rule: a"}, {"text": f"  quarantined: ValueError: {SECRET}"}]
    assert answer("explain", lines) == [lines[0], {"text": "  quarantined: ValueError: [redacted]"}]
    assert answer("disk", {"x": 1}) == {"x": 1}
