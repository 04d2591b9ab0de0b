"""What a status says twice, for the tests of its metrics."""

from __future__ import annotations

TWICE = {
    "alerts.made": "totals.alerts_made",
    "alerts.receipted": "totals.alerts_receipted",
    "rules.quarantined.[rule_id].undecided": "rules.quarantined.[rule_id].events",
}
"""Numbers that a status gives a second time, and the path of the metric."""
