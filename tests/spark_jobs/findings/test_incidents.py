"""``spark_jobs.findings.incidents``: one line for all that belongs to an attack."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from spark_jobs.findings.incidents import leaders

DAY = datetime(2026, 11, 20, 12, tzinfo=UTC)


def risk(kind: str, name: str, *parts: tuple[str, str, float], over: bool = True) -> dict[str, Any]:
    """A risk with contributions ``RULE``, ``SITE``, points."""
    of = [{"rule_id": rule, "time": DAY, "sites": [site], "points": points} for rule, site, points in parts]
    score = sum(points for _, _, points in parts)
    return {"risk_id": name, "kind": kind, "score": score, "threshold": 50.0, "over": over, "contributions": of}


def test_hosts_and_sites_belong_to_who_acts() -> None:
    """Though a host has more points; and whom it adds has a part in what joins later."""
    rows = [
        risk("site", "plant", ("tool", "plant", 60), ("noise", "plant", 5)),
        risk("host", "web1", ("dump", "plant", 60), ("tool", "plant", 40)),
        risk("user", "kim", ("dump", "plant", 80)),
    ]
    assert leaders(rows) == {"kim": "kim", "web1": "kim", "plant": "kim"}


def test_two_attacks_stay_two() -> None:
    """The same rule elsewhere, or on another day, is another one; so is what shares less than half of its points."""
    later = risk("user", "later", ("dump", "plant", 70))
    later["contributions"][0]["time"] = DAY.replace(day=22)
    rows = [
        risk("user", "kim", ("dump", "plant", 80)),
        risk("user", "lee", ("dump", "mill", 75)),
        later,
        risk("host", "db1", ("dump", "plant", 20), ("drop", "plant", 45)),
    ]
    assert leaders(rows) == {"kim": "kim", "lee": "lee", "later": "later", "db1": "db1"}


def test_a_host_belongs_to_who_struck_it() -> None:
    """Though most of what followed there names nobody; a site, where more than this goes on, does not."""
    rest = ("shell", "plant", 90.0), ("dump", "plant", 80.0)
    rows = [
        risk("ip", "from", ("upload", "plant", 60)),
        risk("host", "web1", ("upload", "plant", 50), *rest),
        risk("site", "plant", ("upload", "plant", 50), ("drop", "plant", 150), *rest),
    ]
    assert leaders(rows) == {"from": "from", "web1": "from", "plant": "from"}
    rows[2]["contributions"][1]["points"] = 400.0
    assert leaders(rows)["plant"] == "plant"


def test_below_the_threshold_nobody_leads() -> None:
    """Nor does it hide one that is over by a critical alert without points."""
    rows = [risk("user", "kim", ("dump", "plant", 30), over=False), risk("user", "hall", ("dump", "plant", 0))]
    assert leaders([*rows, risk("host", "alone", ("drop", "plant", 0))]) == {"hall": "hall", "alone": "alone"}
