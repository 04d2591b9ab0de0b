"""The soak's short form, and that its verdict can fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.soak import Figures, Soak, slope, verdict
from tests.e2e.agent import say

GOOD = Figures(
    seconds=60.0,
    sent={"tcp": 9, "udp": 9, "file": 9, "mqtt": 9},
    stored={"tcp": 9, "udp": 8, "file": 9, "mqtt": 10},
    alerts={"made": 3, "receipted": 3},
    landed=3,
    pushes=2,
    bundle="rules-3",
    rss_mb=(60.0, 61.0, 65.0),
    rss_rise_mb=1.0,
    statements={"bytes": 90, "max_bytes": 100, "evicted": 0, "failed": 0},
    statements_rows=3,
    statements_peak=100,
    descriptors=(19, 20, 25),
)


@pytest.mark.peer
@pytest.mark.long
def test_twenty_seconds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All inputs, an outage of the broker, rotations and pushes for twenty seconds: all is as promised."""
    figures = Soak(tmp_path, rate=100, push_every=6.0, away=(8.0, 1.0)).run(20)
    assert verdict(figures) == []
    assert figures.outages >= 1
    assert figures.pushes >= 1
    assert figures.rotations >= 1
    assert min(figures.stored.values()) > 200
    say(capsys, f"soak: stored {figures.stored}, {figures.rss_mb} MiB, {figures.descriptors} descriptors")


def test_a_straight_line() -> None:
    """The slope is that of the line, with noise about it and without, and 0 of what is no line."""
    assert slope([(x, 3.0 + 2.0 * x) for x in range(10)]) == pytest.approx(2.0)
    assert slope([(x, 5.0 + (-1) ** x) for x in range(1000)]) == pytest.approx(0.0, abs=1e-4)
    assert slope([]) == slope([(1.0, 2.0)]) == slope([(1.0, 2.0), (1.0, 3.0)]) == 0.0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"broken": ["in: received 3, stored 2"]}, "does not add up"),
        ({"stored": {**GOOD.stored, "tcp": 8}}, "tcp: 9 lines sent, 8 stored"),
        ({"stored": {**GOOD.stored, "file": 10}}, "file: 9 lines sent, 10 stored"),
        ({"stored": {**GOOD.stored, "mqtt": 8}}, "mqtt: 9 messages acknowledged, 8 stored"),
        ({"landed": 2}, "2 in the landing"),
        ({"alerts": {"made": 0, "receipted": 0}, "landed": 0}, "no alert"),
        ({"rss_rise_mb": 9.0}, "memory rises"),
        ({"seconds": 3600.0, "rss_rise_mb": 2.1, "statements": {**GOOD.statements, "evicted": 1}}, "memory rises"),
        ({"descriptors": (19, 28, 30)}, "descriptors"),
        ({"statements_peak": 101}, "100 are the bound"),
        ({"statements_rows": 0}, "no row"),
        ({"statements": {**GOOD.statements, "failed": 2}}, "failed on 2 rows"),
        ({"seconds": 300.0}, "did not reach its bound"),
        ({"bundle": "rules-2"}, "rules-2 runs"),
    ],
)
def test_each_promise_can_fail(change: dict[str, Any], said: str) -> None:
    """A run in which one thing is wrong is told so, by that thing; one in which nothing is, is not."""
    assert verdict(GOOD) == []
    (reason,) = verdict(replace(GOOD, **change))
    assert said in reason
