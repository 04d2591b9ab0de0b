"""Desired against actual, where heartbeats say anything."""

from __future__ import annotations

import random
from typing import Any

from tests.fleet.kit import DONE, desired, group, rolled, target
from tests.region.anything import spoiled
from vedette.fleet.documents import Change
from vedette.fleet.labels import parse
from vedette.region import compare
from vedette.region.requests import chosen
from vedette.system.foreign import read

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
    for _ in range(500):
        beats: dict[str, Any] = {"good": {"actual": GOOD}}
        try:
            bad = read(spoiled(rng, {"actual": GOOD, "state": "running"}))
        except ValueError:
            bad = {"actual": {"labels": {"role": ["x"]}}}
        beats["bad"] = bad
        found = compare.rows(DOCUMENT, rolled(1, c1=DONE), beats)
        assert {row.agent_id for row in found} == {"bad", "good"}
        assert all(isinstance(reason, str) for row in found for reason in row.reasons)
        assert {*compare.members(DOCUMENT, beats)} == {"everyone"}
        assert chosen(beats, parse("id = a or role = web").matches) in (["good"], ["bad", "good"])
