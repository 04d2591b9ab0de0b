"""Cases that other Sigma engines' tests hold, with what they expect: where those agree, so do we.

``docs/sigma-differences.md`` explains every case that differs; this file holds the same list.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.differential.material import cases
from vedette.api import compile_rules
from vedette.decode.decoder import from_mapping
from vedette.engine.match import Engine

DIFFERENT = {
    ("det-0094", 0): "disputed",
    ("det-0116", 0): "disputed",
    ("det-0134", 2): "disputed",
    ("det-0140", 0): "disputed",
    ("det-0108", 0): "single-source",
    ("det-0109", 0): "single-source",
}
"""Case and step to its status; why, is told in docs/sigma-differences.md."""

PLACEHOLDERS = {"Admins_Workstations": ["OtherAdminMachine", "AdminMachine"]}
"""What the cases det-0166 to det-0168 give their engine beside the rule."""


def matches(rule: str, events: list[Any], tmp_path: Path) -> list[bool]:
    """Whether any rule of the text matches, per event; log sources are ignored."""
    for name, values in PLACEHOLDERS.items():
        (tmp_path / f"{name}.txt").write_text("\n".join(values))
    engine = Engine(compile_rules(text=rule, lookups=[tmp_path]), route=False)
    return [bool(engine.true(from_mapping(event) if isinstance(event, dict) else event)) for event in events]


def test_triples(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every case on which engines agree comes out as they say; every other difference is in the table."""
    agreed: Counter[str] = Counter()
    different: dict[tuple[str, int], str] = {}
    for case in cases("sigma_triples.json"):
        rule = case["rules_yaml"] if "title:" in case["rules_yaml"] else case["rules_yaml_std"]
        if "logsource:\n        detection" in rule or "logsource:\n    detection" in rule:
            rule = rule.replace("logsource:\n", "logsource: {category: test}\n", 1)
        for number, step in enumerate(case["steps"]):
            (matched,) = matches(rule, [step["event"]], tmp_path)
            if matched == step["match"]:
                agreed[step["status"]] += 1
            else:
                different[case["id"], number] = step["status"]
    with capsys.disabled():
        counts = Counter(different.values())
        print(f"\nsigma_triples: agreed {dict(agreed)}, differing {dict(counts)}")  # noqa: T201
    assert different == DIFFERENT


def test_regression(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """SigmaHQ's own rules match SigmaHQ's own events, exactly where an independent engine says so."""
    agreed, different = 0, []
    for case in cases("sigma_regression.json"):
        found = [i for i, hit in enumerate(matches(case["rule_yaml"], case["events"], tmp_path)) if hit]
        if found == case["sqlite_hits"] and case["expected_match_count"] in (None, len(found)):
            agreed += 1
        else:
            different.append((case["case"].rpartition("/")[2], found == case["sqlite_hits"]))
    with capsys.disabled():
        print(f"\nsigma_regression: agreed {agreed}, differing {len(different)}")  # noqa: T201
    assert different == [("file_event_win_cred_dump_tools_dropped_files", True)]
