"""Desired against actual, where heartbeats say anything."""

from __future__ import annotations

import random
from typing import Any

from tests.fleet.kit import DONE, desired, group, rolled, target
from vedette.fleet.documents import Change
from vedette.region import compare

ONE = target("bundles/1", b"one")
DOCUMENT = desired(
    1,
    group(
        "everyone",
        bundles={"default": Change("c1", ONE)},
        config=Change("c2", target("config/1", b"x")),
        lookups={"staff": Change("c3", target("lookups/1", b"y"))},
        release=Change("c4", target("releases/1", b"z")),
    ),
)
GOOD: dict[str, Any] = {
    "desired_serial": 1, "rollout_serial": 1, "labels": {"id": "a"}, "problems": [], "waits": ["release"],
    "bundles": {"default": {"sha256": ONE.sha256}}, "lookups": {"staff": {"sha256": "1"}}, "release": {"id": "r"},
    "config": {"overlay": "", "confirmed": True},
}  # fmt: skip


def test_a_hostile_heartbeat_hides_no_other_agent() -> None:
    """Whatever one agent reports of itself, every agent has its row."""
    rng = random.Random(7)
    values: list[Any] = [None, 0, 1.5, "x", [], [1], {}, {"default": 1}, {"staff": []}, True, [[]], {"sha256": {}}]
    for _ in range(500):
        actual = {**GOOD, **{rng.choice([*GOOD]): rng.choice(values) for _ in range(3)}}
        beats: dict[str, Any] = {"bad": {"actual": actual, "state": rng.choice(values)}, "good": {"actual": GOOD}}
        found = compare.rows(DOCUMENT, rolled(1, c1=DONE), beats)
        assert {row.agent_id for row in found} == {"bad", "good"}
        assert {*compare.members(DOCUMENT, beats)} == {"everyone"}
