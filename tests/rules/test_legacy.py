"""Sigma 1's aggregations: the rule is refused, and the correlation to write instead is valid Sigma 2."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from sigma.collection import SigmaCollection

from vedette.api import compile_rules
from vedette.plan.ir import Refusal

RULE = """title: Many Things
logsource: {{product: linux}}
detection:
    selection: {{f: a}}
    other: {{f: b}}
    timeframe: 5m
    condition: {}
level: high
"""


def refused(condition: str) -> Refusal:
    plan = compile_rules(text=RULE.format(condition))
    assert not plan.rules
    (refusal,) = plan.refused
    assert "pipe syntax" in refusal.reason
    assert (refusal.line, refusal.column) == (7, 5)
    return refusal


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        ("count() > 5", {"type": "event_count", "condition": {"gt": 5}}),
        ("count() by src_ip >= 5", {"type": "event_count", "group-by": ["src_ip"], "condition": {"gte": 5}}),
        (
            "count(user) by src_ip, host < 3",
            {"type": "value_count", "group-by": ["src_ip", "host"], "condition": {"lt": 3, "field": "user"}},
        ),
        (
            "sum(bytes) by host > 1.5",
            {"type": "value_sum", "group-by": ["host"], "condition": {"gt": 1.5, "field": "bytes"}},
        ),
        ("avg(bytes) == 2", {"type": "value_avg", "condition": {"eq": 2, "field": "bytes"}}),
    ],
)
def test_counts(aggregation: str, expected: dict[str, Any]) -> None:
    """The hint is the rule with a name, and a correlation of it with the same window; pySigma takes it."""
    documents = list(yaml.safe_load_all(refused(f"selection | {aggregation}").hint))
    base, correlation = documents
    assert base["detection"] == {"selection": {"f": "a"}, "other": {"f": "b"}, "condition": "selection"}
    assert correlation["correlation"] == {"rules": ["many_things"], "timespan": "5m", **expected}
    assert correlation["level"] == "high"
    assert len(SigmaCollection.from_dicts(documents).rules) == 2


def test_near() -> None:
    """``near`` becomes a temporal correlation of one rule per selection."""
    documents = list(yaml.safe_load_all(refused("selection | near other").hint))
    assert [document.get("name") for document in documents] == ["many_things_selection", "many_things_other", None]
    assert documents[2]["correlation"] == {
        "type": "temporal",
        "rules": ["many_things_selection", "many_things_other"],
        "timespan": "5m",
    }
    assert len(SigmaCollection.from_dicts(documents).rules) == 3


def test_what_has_no_correlation() -> None:
    """Least and greatest values have none, and nonsense has no hint; all are refused."""
    assert "no correlation" in refused("selection | max(bytes) > 5").hint
    assert refused("selection | whatever").hint == ""
    assert refused("[selection, 'selection | count() > 5']").hint == ""
