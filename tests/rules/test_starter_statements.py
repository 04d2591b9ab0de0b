"""The starter rules in SQL: they compile, say what they are, and give on their events what their tests say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from vedette.engine.match import Engine
from vedette.plan.plan import Plan
from vedette.plan.query import Assign, Join, Match, Over, Top, Windowed, nodes
from vedette.rules.authoring.cases import load, sequences
from vedette.rules.build import build
from vedette.rules.selftest import check

FOLDER = Path(__file__).parents[2] / "rules/sql"


@pytest.fixture(scope="module")
def plan() -> Plan:
    return build([FOLDER])


def test_set(plan: Plan) -> None:
    """At least 15 statements with windows of each kind, joins, patterns, OVER and a ranking; ids and titles are unique
    and every file says title, id, level, tags and what it is about."""
    assert [str(refused) for refused in plan.refused] == []
    assert len(plan.statements) >= 15
    for names in ({one.id for one in plan.statements}, {one.title for one in plan.statements}):
        assert len(names) == len(plan.statements)
    every = [node for one in plan.statements for node in nodes(one.root)]
    grids = {node.grid.kind for node in every if isinstance(node, Windowed | Assign)}
    assert grids == {"TUMBLE", "HOP", "SESSION", "CUMULATE"}
    assert {Join, Match, Over, Top} <= {type(node) for node in every}
    for path in FOLDER.rglob("*.sql"):
        head = re.findall(r"^-- (\w+): \S", path.read_text("utf-8"), re.MULTILINE)
        assert head == ["title", "id", "level", "tags", "description"], path
    for one in plan.statements:
        assert one.tags
        assert all(tag.startswith("attack.") for tag in one.tags)


def test_events(plan: Plan) -> None:
    """Each has at least three sequences, one on which it gives rows and one on which it gives none; all come out."""
    cases, mistakes = load(plan)
    timed, more = sequences(plan)
    assert mistakes + more == []
    for one in plan.statements:
        expected = [case.expect for case in timed if case.rule_id == one.id]
        assert len(expected) >= 3, one.title
        assert min(expected) == 0 < max(expected) or "logout" in one.path, one.title
    assert [str(failure) for failure in check(Engine(plan), [*cases, *timed])] == []
