"""The starter rules: every file is good Sigma, is unique, and stands beside events that it must and must not match.

What the events come to is the matter of ``vedette rules test``, which the last test runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import yaml

collection = pytest.importorskip("sigma.collection")

from sigma.validation import SigmaValidator  # noqa: E402

from tests.differences import walk  # noqa: E402
from vedette.engine.match import Engine  # noqa: E402
from vedette.plan.relation import Kind  # noqa: E402
from vedette.rules.authoring.cases import load as load_cases  # noqa: E402
from vedette.rules.authoring.cases import sequences  # noqa: E402
from vedette.rules.authoring.lint import OFFLINE  # noqa: E402
from vedette.rules.build import build  # noqa: E402
from vedette.rules.selftest import check  # noqa: E402

FOLDER = Path(__file__).parents[2] / "rules" / "sigma"
RULES = sorted(path for path in FOLDER.rglob("*.yml") if not path.name.endswith(".test.yml"))


def documents(path: Path) -> Iterator[dict[str, Any]]:
    for document in yaml.load_all(path.read_text("utf-8"), yaml.CSafeLoader):
        assert isinstance(document, dict)
        yield document


@walk("path", RULES)
def test_rule(path: Path) -> None:
    """The form of each document is complete, and its test file has two events, or sequences, for both answers."""
    assert re.fullmatch(r"[a-z0-9_]{6,66}\.yml", path.name)
    tested: dict[str, list[str]] = {}
    for case in yaml.load(path.with_suffix(".test.yml").read_text("utf-8"), yaml.CSafeLoader):
        (outcome,) = {"match", "no_match", "sequence"} & set(case)
        if outcome == "sequence":
            outcome = "fires" if case["expect"] else "silent"
        tested.setdefault(case.get("rule", outcome in ("match", "no_match")), []).append(outcome)
    found = list(documents(path))
    alone = {kind: sum(kind in one for one in found) == 1 for kind in ("detection", "correlation")}
    for document in found:
        assert UUID(document["id"]).version == 4
        for key in ("title", "status", "description", "author", "date", "tags", "falsepositives", "level"):
            assert document[key], key
        assert all(tag.startswith("attack.") for tag in document["tags"])
        assert any(re.match(r"attack\.t\d", tag) for tag in document["tags"])
        assert document["references"][0].startswith("https://attack.mitre.org/techniques/")
        assert all(link.startswith("https://") for link in document["references"])
        outcomes = tested.get(document["title"], [])
        if "detection" in document:
            assert document["fields"]
            outcomes += tested.get(True, []) if alone["detection"] else []  # type: ignore[call-overload]
            assert min(outcomes.count("match"), outcomes.count("no_match")) >= 2, document["title"]
        elif document["title"] in tested or any(False is key for key in tested):
            outcomes += tested.get(False, [])  # type: ignore[call-overload]
            assert outcomes.count("fires") >= 1, document["title"]
            assert outcomes.count("silent") >= 2, document["title"]


def test_set() -> None:
    """At least 90 rules make alerts, correlations of every kind; ids and titles are unique, tests have their rules."""
    everything = [document for path in RULES for document in documents(path)]
    assert len({d["id"] for d in everything}) == len({d["title"] for d in everything}) == len(everything)
    plan = build([FOLDER])
    assert not plan.refused
    loud = [one for one in (*plan.rules, *plan.correlations) if one.id not in plan.silent]
    assert len(loud) >= 90
    assert len([c for c in plan.correlations if c.id not in plan.silent]) >= 15
    assert {c.kind for c in plan.correlations} == set(Kind)
    assert any(slot.correlation for c in plan.correlations for slot in c.slots)
    assert None not in plan.literals  # no rule is looked at on every event of its log source
    for cases in FOLDER.rglob("*.test.yml"):
        assert cases.with_name(cases.name.replace(".test.yml", ".yml")).exists()


def test_validators() -> None:
    """pySigma reads the rules as one collection, resolves what refers to what, and its validators find nothing."""
    rules = collection.SigmaCollection.load_ruleset([str(path) for path in RULES], collect_errors=True)
    assert not rules.errors
    assert not [rule.errors for rule in rules.rules if rule.errors]
    rules.resolve_rule_references()
    found = SigmaValidator(OFFLINE.values()).validate_rules(iter(rules.rules))
    assert [(type(issue).__name__, [rule.title for rule in issue.rules]) for issue in found] == []


def test_events() -> None:
    """All events and sequences beside the rules come out as they say."""
    plan = build([FOLDER])
    cases, mistakes = load_cases(plan)
    timed, more = sequences(plan)
    assert mistakes + more == []
    assert [str(failure) for failure in check(Engine(plan), [*cases, *timed])] == []
