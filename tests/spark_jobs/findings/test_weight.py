"""Which campaign stands first, what is none, and what a campaign tells: values in, values out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.common.attack import TACTICS
from spark_jobs.common.entities import LEVELS
from spark_jobs.findings import weight
from spark_jobs.findings.merging import groups


def way(**changes: Any) -> weight.Way:
    """An account at four sites, under rules of two tactics at each."""
    return {
        "entities": [{"kind": "user", "value": "anna"}],
        "level": "high", "stage": "execution", "tactics": ["initial-access", "execution"], "evidence": 80.0,
        "forward": 1, "deep": 4, "at_once": 4, "in_hour": 1, "cells": 8,
        "sites": [f"north/{name}" for name in "abcd"], "rules": ["r0", "r1", "r2", "r3"], "steps": [],
        "severe": ["initial-access"], "reached": ["initial-access"], **changes,
        "story": [{"tactic": name} for name in changes.get("first", changes.get("tactics", ["execution"]))],
    }  # fmt: skip


ways = st.fixed_dictionaries({
    "level": st.sampled_from(LEVELS),
    "stage": st.sampled_from([None, *TACTICS]),
    "evidence": st.floats(50, 100),
    "deep": st.integers(0, 5),
})  # fmt: skip


@given(ways, ways)
def test_no_breadth_outweighs_the_level_nor_the_stage_within_it(changes: dict[str, Any], other: dict[str, Any]) -> None:
    """The level decides; at the same level and evidence the stage does."""
    first, second = (weight.weighed(way(**each)) for each in (changes, other))
    assert 0 < first["score"] <= 100
    if LEVELS.index(first["level"]) > LEVELS.index(second["level"]):
        assert first["score"] > second["score"]
    later = weight.weighed(way(**{**changes, "stage": "impact"}))
    assert later["score"] >= first["score"]


def test_each_doubt_leaves_less() -> None:
    """What is against it adds up, in the confidence and in the score."""
    doubts: list[dict[str, Any]] = [{}, {"deep": 0}, {"deep": 0, "forward": 0}, {"deep": 0, "forward": 0, "cells": 16}]
    rows = [weight.weighed(way(**changes)) for changes in doubts]
    assert [len(row["against"]) for row in rows] == [0, 1, 2, 3]
    assert [row["confidence"] for row in rows] == [0.8, 0.68, 0.58, 0.49]
    scores = [row["score"] for row in rows]
    assert scores == sorted({*scores}, reverse=True)


SITES = [f"north/s{n}" for n in range(20)]
SCANNER: dict[str, Any] = {
    "entities": [{"kind": "ip", "value": "x"}], "tactics": ["reconnaissance", "initial-access", "discovery"],
    "sites": SITES,
}  # fmt: skip
PROGRAM: dict[str, Any] = {
    "entities": [{"kind": "hash", "value": "x"}, {"kind": "user", "value": "y"}], "level": "medium", "severe": [],
    "sites": SITES, "rules": ["r"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("what", "changes"),
    [
        ("", {}),
        ("", {"level": "medium"}),
        ("low level only", {"level": "low"}),
        ("scan", {"tactics": ["reconnaissance"], "level": "high"}),
        ("", {"tactics": ["reconnaissance"], "level": "critical"}),
        ("", {"entities": [{"kind": "ip", "value": "x"}], "tactics": ["reconnaissance", "resource-development"],
              "level": "critical", "sites": SITES}),
        ("scan", {"entities": [{"kind": "ip", "value": "x"}], "tactics": ["initial-access"], "sites": SITES[:8]}),
        ("", {"entities": [{"kind": "ip", "value": "x"}], "tactics": ["initial-access"], "sites": SITES[:7]}),
        ("", {"entities": [{"kind": "ip", "value": "x"}], "tactics": ["initial-access"]}),
        ("", {"entities": [{"kind": "ip", "value": "x"}], "tactics": ["initial-access"], "sites": SITES,
              "level": "critical"}),
        ("scan", {"entities": [{"kind": "ip", "value": "x"}, {"kind": "user_agent", "value": "y"}], "level": "medium",
                  "tactics": ["reconnaissance", "credential-access"]}),
        ("", {"entities": [{"kind": "ip", "value": "x"}, {"kind": "user", "value": "y"}], "level": "medium",
              "tactics": ["reconnaissance", "credential-access"]}),
        ("roll-out", {"entities": [{"kind": "user_agent", "value": "Browser/131"}], "level": "medium", "rules": ["r"],
                      "cells": 4}),
        ("", {"entities": [{"kind": "hash", "value": "worm"}], "rules": ["r"], "cells": 4}),
        # A port scan is a discovery, too; what came after a try is none.
        ("scan", {**SCANNER, "first": ["reconnaissance", "initial-access"]}),
        ("", {**SCANNER, "severe": ["initial-access", "credential-access"]}),
        ("", {**SCANNER, "first": ["reconnaissance", "lateral-movement"]}),
        ("", {**SCANNER, "sites": SITES[:7]}),
        # A login as root is initial access, and more than a try.
        ("", {**SCANNER, "reached": ["initial-access", "persistence"]}),
        # A program runs as somebody; what an account does besides is no roll-out.
        ("roll-out", {**PROGRAM, "cells": 20}),
        ("", {**PROGRAM, "cells": 10, "rules": ["r0", "r1"]}),
        ("", {**PROGRAM, "cells": 9, "sites": SITES[:9]}),
        ("", {**PROGRAM, "level": "high", "cells": 20}),
        ("", {**PROGRAM, "cells": 20, "tactics": ["command-and-control", "exfiltration"]}),
        # An account that does the same at all sites within a day may patch them, or encrypt them.
        ("", {"sites": SITES, "cells": 80, "at_once": 20}),
    ],
)  # fmt: skip
def test_decoys_are_named(what: str, changes: dict[str, Any]) -> None:
    """Scans and tries from outside, roll-outs, low levels; what is severe, or has an account in it, may be an
    attack."""
    assert weight.decoy(way(**changes)) == what


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from("abcdefgh"))))
def test_what_is_joined_by_any_way_is_one_group(pairs: list[tuple[str, str]]) -> None:
    """Against the naive closure: the smallest name that is reached."""
    joined = groups(pairs)
    for name in joined:
        reached, size = {name}, 0
        while size != len(reached):
            size = len(reached)
            reached |= {y for x, y in pairs if x in reached} | {x for x, y in pairs if y in reached}
        assert joined[name] == min(reached)


def test_what_is_held_back_in_words() -> None:
    """The most first; and by the reason of a row what it is."""
    held = {"scan": 41, "exercise": 1, "roll-out": 2, "shared": 2, "scanner": 1, "low level only": 1}
    assert weight.held_back(held) == (
        "41 scans, 2 roll-outs, 2 shared addresses, 1 exercise, 1 low-level run, 1 own scanner"
    )
    row = weight.withheld(way(), "scan")
    assert (row["score"], weight.held_as(row["reason"]), weight.held_as(weight.weighed(way())["reason"])) == (
        0,
        "scan",
        "",
    )
