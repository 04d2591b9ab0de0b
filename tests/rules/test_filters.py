"""Rule filters: joined by AND to the rules they name, across files, under the rules' own pipelines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.differences import walk
from vedette.api import compile_rules
from vedette.decode.decoder import from_mapping
from vedette.engine.match import Engine
from vedette.rules import build

RULE = """title: {name}
name: {name}
id: {id}
logsource: {{product: {product}, category: process_creation}}
detection:
    selection:
        Image|endswith: {name}
    condition: selection
"""
FILTER = """title: Backups
logsource: {{product: windows}}
filter:
    rules: {rules}
    selection:
        User|startswith: svc_
    condition: {condition}
"""
A = RULE.format(name="a", id="929a690e-bef0-4204-a928-ef5e620d6fcc", product="windows")
B = RULE.format(name="b", id="0e95725d-7320-415d-80f7-004da920fc11", product="linux")


def matched(text: str, **fields: str) -> list[str]:
    engine = Engine(compile_rules(text=text), route=False)
    assert not engine.plan.refused
    return [engine.plan.rules[i].title for i in engine.true(from_mapping(fields))]


@walk("rules", ["any", "[a]", "[929a690e-bef0-4204-a928-ef5e620d6fcc]", "a", "[]"])
@walk("order", [0, 1])
def test_a_filter_is_joined(rules: str, order: int) -> None:
    """By id, by name or to all, before or after the rule; what it does not let through does not match."""
    parts = [A, FILTER.format(rules=rules, condition="not selection")]
    text = "---\n".join(parts if order else parts[::-1])
    assert matched(text, Image="x/a", User="bob") == ["a"]
    assert matched(text, Image="x/a", User="svc_backup") == []


def test_a_condition_without_not_keeps_only_what_it_describes() -> None:
    """The condition is joined as it stands: so is the specification's own example."""
    text = A + "---\n" + FILTER.format(rules="any", condition="selection")
    assert matched(text, Image="x/a", User="svc_backup") == ["a"]
    assert matched(text, Image="x/a", User="bob") == []


def test_only_rules_of_its_log_source() -> None:
    """A rule of another product is not filtered, though ``any`` names all."""
    text = A + "---\n" + B + "---\n" + FILTER.format(rules="any", condition="not selection")
    assert matched(text, Image="x/b", User="svc_backup") == ["b"]


def test_across_files(tmp_path: Path) -> None:
    """A filter in one file works on rules in others; several filters on one rule all count."""
    (tmp_path / "a.yml").write_text(A)
    (tmp_path / "mf_b.yml").write_text(FILTER.format(rules="[a]", condition="not selection"))
    (tmp_path / "mf_c.yml").write_text(FILTER.format(rules="[a]", condition="not 1 of them").replace("svc_", "adm_"))
    engine = Engine(compile_rules(tmp_path), route=False)
    users = ["bob", "svc_x", "adm_x"]
    assert [engine.true(from_mapping({"Image": "a", "User": user})) for user in users] == [[0], [], []]


def test_a_filter_changes_the_meaning_digest() -> None:
    """State and quarantine are bound to a rule's meaning, of which its filters are part."""
    plain, filtered = (
        compile_rules(text=A + more) for more in ("", "---\n" + FILTER.format(rules="any", condition="not selection"))
    )
    assert plain.rules[0].digest != filtered.rules[0].digest


def test_pipelines_map_filters(tmp_path: Path) -> None:
    """A filter's fields are mapped as those of the rule that it is joined to."""
    mapping = tmp_path / "map.yml"
    mapping.write_text(
        "name: m\npriority: 1\ntransformations:\n- {type: field_name_mapping, mapping: {User: user.name, Image: exe},"
        " rule_conditions: [{type: logsource, category: process_creation}]}\n"
    )
    text = A + "---\n" + FILTER.format(rules="any", condition="not selection")
    plan = compile_rules(text=text, pipelines=[mapping])
    assert {p.field for p in plan.predicates} == {"user.name", "exe"}


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        (FILTER.format(rules="[nobody]", condition="not selection"), 1, "'nobody', which is not among the rules"),
        (FILTER.format(rules="any", condition="not nothing"), 7, "nothing"),
        (FILTER.format(rules="any", condition="not selection").replace("startswith", "bogus"), 6, "Unknown modifier"),
        ("title: f\nlogsource: {product: x}\nfilter: {rules: any, s: {a: b}}\n", 3, "condition"),
        ("title: f\nfilter: {rules: any, s: {a: b}, condition: not s}\n", 1, "log source"),
        ("title: f\nlogsource: {product: x}\nfilter: text\n", 3, "dictionary"),
    ],
)
def test_filters_that_cannot_work_are_refused(text: str, line: int, says: str) -> None:
    """By place and reason; the rules run on."""
    plan = compile_rules(text=text + "---\n" + A)
    assert [rule.title for rule in plan.rules] == ["a"]
    (refusal,) = plan.refused
    assert says in refusal.reason
    assert refusal.line == line


def test_of_a_refused_rule_with_the_name_of_another() -> None:
    """It is joined to no rule that only has the name."""
    broken = A.replace("Image|endswith", "Image|bogus").replace("929a690e", "929a690f")
    text = "---\n".join([A, broken, FILTER.format(rules="[a]", condition="not selection")])
    plan = compile_rules(text=text)
    assert "Unknown modifier" in plan.refused[0].reason
    assert "'a', which is refused" in plan.refused[1].reason
    assert Engine(plan, route=False).true(from_mapping({"Image": "x/a", "User": "svc_backup"})) == [0]


def test_finish_may_be_called_again() -> None:
    """Rules that come later get the filters that were there, once; a rule that was missing is no longer."""
    rules = build.read(FILTER.format(rules="[a]", condition="not selection"))
    build.from_rules(rules)
    assert len(rules.refused) == 1
    build.add(rules, A)
    build.from_rules(rules)
    digest = rules.rules[0].digest
    build.from_rules(rules)
    assert not rules.refused
    assert rules.rules[0].digest == digest
