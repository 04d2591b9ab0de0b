"""The words of each kind of finding, from its columns."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from spark_jobs.report.reasons import of_anomaly, of_contribution, of_noise, of_risk
from tests.spark_jobs.found import AT, anomaly, noise

FACTS: dict[str, Any] = {"agents": None, "reporting": None, "sites": None, "rule_title": None}
FACTS |= {"observed": 0.0, "fed": 0, "starved": 0}
SILENT = "no match for 3 h where 48 are usual"
HEARD = "sent heartbeats in half of these hours or more"
NEW: dict[str, Any] = {"kind": "new_rule", "rule_id": "r1", "rule_title": "Shell"}
ENTITY = {"kind": "new_entity", "entity_kind": "user", "entity_value": "anna"}
USUAL: dict[str, Any] = {"new_tactic": False, "turn": 1, "tactic": "", "level": "high", "criticality": None}
USUAL |= {"confidence": 1.0, "rarity": 1.0, "surprise": 1.0, "breadth": 1.0, "new_place": False}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kind": "burst", "observed": 480.0, "median": 12.0}, "up to 480 matches an hour where 12.0 are usual"),
        ({"kind": "burst", "observed": 1.0, "median": 0.25}, "up to 1 match an hour where 0.3 are usual"),
        ({"agents": 0, "reporting": 0}, f"{SILENT}; 0 of 0 agents {HEARD}"),
        ({"agents": 1, "reporting": 0}, f"{SILENT}; 0 of 1 agent {HEARD}: they or the way from them are down"),
        ({"agents": 2, "reporting": 1}, f"{SILENT}; 1 of 2 agents {HEARD}: they run, and what they read is silent"),
        (
            {"agents": 2, "reporting": 2, "starved": 2},
            f"{SILENT}; 2 of 2 agents {HEARD}: they run, and their inputs took in nothing",
        ),
        (
            {"agents": 2, "reporting": 2, "fed": 1, "starved": 1, "observed": 2.0},
            f"2 matches for 3 h where 48 are usual; 2 of 2 agents {HEARD}: 1 took in events, and no rule matched",
        ),
        ({**NEW, "site": "", "sites": 1}, "the fleet's first alerts of Shell, at 1 site"),
        ({**NEW, "sites": 1, "rule_title": None}, "the site's first alerts of r1"),
        ({**NEW, "sites": 3}, "the site's first alerts of Shell, and those of 2 others"),
        ({**ENTITY, "sites": 1}, "user anna is new here"),
        ({**ENTITY, "sites": 3}, "user anna is new at 3 sites"),
    ],
)
def test_an_anomaly(changes: dict[str, Any], words: str) -> None:
    """A burst, a silence, a rule or an entity that is new; numbers are rounded up from the half."""
    span = {"started_at": AT, "ended_at": AT + timedelta(hours=3), "median": 47.5}
    assert of_anomaly({**anomaly(1), **FACTS, **span, **changes}) == words


def test_a_loud_rule() -> None:
    """The entity is named where there is one."""
    loud = "105 matches, 99 % of all; 95 % suppressed; at 1 site, 2 hosts"
    assert of_noise(noise("a")) == f"{loud}; 60 % of the alerts name ip 203.0.113.0"
    assert of_noise(noise("a", top_kind=None, top_value=None, top_share=0.0)) == loud


def test_a_risk() -> None:
    """The threshold is the entity's own where twice what is usual for it is above the fixed one."""
    row = {"score": 393.5, "threshold": 100.0, "usual": 49.9, "rules": 17, "tactics": 10, "days": 1, "recent": True}
    assert of_risk({**row, "usual": 24.9}) == "394 points, 100 needed; 17 rules, 10 tactics, 1 day; a critical alert"
    own = {**row, "threshold": 140.0, "usual": 70.0, "rules": 1, "tactics": 1, "days": 2, "recent": False}
    assert of_risk(own) == "394 points, 140 needed by its own past; 1 rule, 1 tactic, 2 days"


def test_a_contribution() -> None:
    """What is not usual about it, and of a host that an attack was only tried there."""
    assert of_contribution("user", {**USUAL, "new_tactic": True, "confidence": 2 / 3}) == (
        "first of its tactic, rule confidence 67 %"
    )
    assert of_contribution("user", {**USUAL, "turn": 2}) == "day 2 of this rule"
    part = {**USUAL, "tactic": "initial-access", "rarity": 0.5, "breadth": 1.1, "criticality": 5}
    rest = "rarity 50 %, breadth 110 %, criticality 5"
    assert of_contribution("host", part) == f"first of this rule, an attempt, {rest}"
    assert of_contribution("host", {**part, "level": "critical"}) == f"first of this rule, {rest}"
    assert of_contribution("user", {**part, "criticality": 9}) == "first of this rule, rarity 50 %, breadth 110 %"
