"""Several rule sets as one plan: each means what it means by itself."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from vedette.engine.match import Engine
from vedette.model.event import Chunk
from vedette.plan.ir import Op, Predicate
from vedette.plan.merge import apart, merge
from vedette.plan.plan import Plan
from vedette.rules.build import empty, from_rules, from_text
from vedette.runtime.alerts.alerts import as_written

RULE = """\
title: {title}
id: 6a1f0000-0000-4000-8000-{number:012}
status: test
logsource:
    product: linux
detection:
    keywords:
        - '{word}'
    condition: keywords
level: low
"""
TWICE = """\
---
title: Twice
id: 6a1f0000-0000-4000-8000-000000000099
correlation:
    type: event_count
    rules:
        - 6a1f0000-0000-4000-8000-000000000001
    group-by:
        - user
    timespan: 5m
    condition:
        gte: 2
"""
SQL = "-- title: {title}\n-- id: {title}\nINSERT INTO alerts SELECT program FROM events WHERE program = 'sshd';\n"
ONE, NINETYNINE = (f"6a1f0000-0000-4000-8000-{number:012}" for number in (1, 99))


def rule(word: str, number: int = 1, title: str = "") -> str:
    return RULE.format(title=title or f"Has {word}", number=number, word=word)


def sql(title: str) -> Plan:
    rules = empty()
    rules.front_ends[".sql"].add(SQL.format(title=title), f"{title}.sql")
    return from_rules(rules)


def rules_by_line(plan: Plan, *lines: bytes) -> list[list[str]]:
    """By line the ids of the rules that match it."""
    engine = Engine(plan, route=False)
    rows = []
    for line in lines:
        matches = engine.evaluate(Chunk("in", "text", 1, line))
        rows.append([plan.rules[match.rule].id for match in matches])
    return rows


def test_each_set_finds_what_it_finds_alone() -> None:
    """The matches of the merged plan are those of its sets; what they have alike runs once, for both."""
    starter = from_text(rule("alpha") + "---\n" + rule("common", 3))
    site = from_text(rule("common", 3) + "---\n" + rule("beta", 2))
    merged = merge({"default": starter, "site": site})
    assert [one.title for one in merged.plan.rules] == ["Has alpha", "Has common", "Has beta"]
    assert [merged.sets[one.id] for one in merged.plan.rules] == [("default",), ("default", "site"), ("site",)]
    lines = b"alpha", b"beta", b"common alpha", b"none"
    alone = [
        sorted({*one, *other})
        for one, other in zip(rules_by_line(starter, *lines), rules_by_line(site, *lines), strict=True)
    ]
    assert [sorted(row) for row in rules_by_line(merged.plan, *lines)] == alone
    assert Plan.from_bytes(merged.plan.to_bytes()) == merged.plan


def test_different_rules_of_one_id_both_run() -> None:
    """The first set's keeps its id, the other's is qualified by its set; so is what refers to it."""
    starter, site = from_text(rule("alpha")), from_text(rule("beta") + TWICE)
    merged = merge({"default": starter, "site": site})
    assert [one.id for one in merged.plan.rules] == [ONE, f"{ONE}@site"]
    assert merged.renamed == {"default": {}, "site": {ONE: f"{ONE}@site"}}
    (twice,) = merged.plan.correlations
    assert twice.id == NINETYNINE
    assert [slot.rule_id for slot in twice.slots] == [f"{ONE}@site"]
    assert rules_by_line(merged.plan, b"alpha", b"beta") == [[ONE], [f"{ONE}@site"]]
    texts = merge({"default": starter, "site": from_text(rule("alpha", title="Another title"))})
    assert [one.title for one in texts.plan.rules] == ["Has alpha", "Another title"]


@pytest.mark.parametrize("order", [("alone", "related"), ("related", "alone")])
def test_a_correlation_of_one_set_silences_no_rule_of_another(order: tuple[str, str]) -> None:
    """A rule that makes alerts in one set makes them in the merged plan, though a correlation of another looks at it;
    one that makes none anywhere makes none there."""
    parts = {"alone": from_text(rule("alpha")), "related": from_text(rule("alpha") + TWICE)}
    merged = merge({name: parts[name] for name in order})
    assert len(merged.plan.rules) == 1
    assert merged.plan.silent == frozenset()
    silent = merge({"related": parts["related"], "other": from_text(rule("beta", 2))}).plan
    assert silent.silent == {ONE}
    assert Plan.from_bytes(silent.to_bytes()).silent == {ONE}
    assert silent.chosen(lambda literal: 0.5).silent == {ONE}


def test_statements_share_what_selects_their_events() -> None:
    """Statements of two sets that read the same events have one rule that selects them, and make their own alerts."""
    merged = merge({"a": sql("first"), "b": sql("second")})
    assert [one.title for one in merged.plan.statements] == ["first", "second"]
    assert len(merged.plan.rules) == 1
    assert merged.plan.silent == merged.plan.scans == {merged.plan.rules[0].id}


def test_lookups_that_differ_are_refused() -> None:
    """Two sets with different lookups of one name do not merge, and the set that does not fit is named."""
    one, same, other = (cast(Any, SimpleNamespace(version=version)) for version in ("1", "1", "2"))
    asks = from_text(rule("alpha"))
    asks = replace(asks, predicates=(*asks.predicates, Predicate("host", Op.LOOKUP, "assets", option="text ip")))
    plans = [replace(asks, lookups={"assets": lookup}) for lookup in (one, same, other)]
    assert merge({"a": plans[0], "b": plans[1]}).plan.lookups == {"assets": one}
    with pytest.raises(ValueError, match="rule set b cannot be merged: its lookup assets differs"):
        merge({"a": plans[0], "b": plans[2]})
    idle = replace(from_text(rule("beta", 2)), lookups={"assets": other})
    assert merge({"a": plans[0], "b": idle}).plan.lookups == {"assets": one}
    assert merge({"b": idle, "a": plans[0]}).plan.lookups == {"assets": one}
    assert merge({"b": idle, "c": from_text(rule("alpha"))}).plan.lookups == {"assets": other}


def test_a_configuration_names_a_rule_by_either_id() -> None:
    """A rule that is called otherwise since another set came is still named by the id that its own set gives it."""
    plan = merge({"default": from_text(rule("alpha")), "site": from_text(rule("beta"))}).plan
    ids = [as_written(one.id, ["default", "site"]) for one in plan.rules]
    assert ids == [{ONE}, {ONE, f"{ONE}@site"}]


def test_apart() -> None:
    """A set that is evaluated by itself keeps its ids but those that are taken; what refers to these goes
    along."""
    first = RULE.format(title="One", number=1, word="one")
    plan = from_text(first + TWICE)
    rule_id, twice = "6a1f0000-0000-4000-8000-000000000001", "6a1f0000-0000-4000-8000-000000000099"
    assert {one.id for one in apart("site", plan, ()).written} == {rule_id, twice}
    renamed = apart("site", plan, [rule_id, "not its own"])
    assert {one.id for one in renamed.written} == {f"{rule_id}@site", twice}
    assert [slot.rule_id for slot in renamed.correlations[0].slots] == [f"{rule_id}@site"]
    assert {*renamed.silent} == {f"{one}@site" for one in plan.silent}
