"""Declared formats in a plan: prefilter and kernel never miss what evaluating every event finds, whatever the table."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette import evaluate
from vedette.decode.declared import declared
from vedette.engine.match import Engine
from vedette.plan.merge import merge
from vedette.plan.plan import Plan, names_of
from vedette.rules import build
from vedette.runtime.offline.evaluation import evaluate as evaluate_chunks
from vedette.runtime.offline.scan import chunk_of

NAMES = ("alpha", "src_ip", "user", "SourceImage", "source.ip", "w.x", "status")
VALUES = ("admin", "10.0.0.1", "GATE3", "müller", "deny", "D", "7", "a-b", 'q"t', "C:\\x")

words = st.sampled_from(VALUES)
names = st.sampled_from(NAMES)


@st.composite
def tables(draw: Any) -> dict[str, Any]:
    """A table, and how it reads ``one``, ``two``: groups, pairs or members."""
    kind = draw(st.sampled_from(["regex", "key_value", "json"]))
    table: dict[str, Any] = {"name": "drawn", "rename": dict(zip(("one", "two"), draw(st.permutations(NAMES))))}  # noqa: B905
    if kind == "regex":
        table["regex"] = r"E (?P<one>[^|]+)\|(?P<two>[^|]*)"
        table["starts"] = draw(st.sampled_from(["E ", []]))
    elif kind == "key_value":
        table["key_value"] = {"pairs": "|"}
    else:
        table["json"] = True
    renamed = [*table["rename"].values()]
    if kind != "json" and draw(st.booleans()):
        table["map"] = {draw(st.sampled_from(renamed)): {"D": "deny", "7": "admin"}}
    if draw(st.booleans()):
        table["set"] = {draw(st.sampled_from([one for one in NAMES if one not in renamed])): draw(words)}
    table["header"] = draw(st.sampled_from(["syslog", "none"]))
    return table


def text_of(table: dict[str, Any], first: str, second: str) -> str:
    if "regex" in table:
        return f"E {first}|{second}"
    if "key_value" in table:
        return f"one={first}|two={second}"
    return json.dumps({"one": first, "two": second}, ensure_ascii=len(first) % 2 == 0)


@st.composite
def plans(draw: Any) -> tuple[dict[str, Any], Plan, list[str]]:
    table = draw(tables())
    documents = []
    for number in range(draw(st.integers(1, 4))):
        field, value = draw(names), json.dumps(draw(words), ensure_ascii=False)
        how = draw(st.sampled_from(["", "|contains", "|startswith", "|endswith", "|exists", "|fieldref"]))
        value = "true" if how == "|exists" else draw(names) if how == "|fieldref" else value
        condition = draw(st.sampled_from(["one", "not one"]))
        documents.append(
            f"title: R{number}\nid: 6a1f0000-0000-4000-8000-00000000000{number}\nlogsource: {{product: p}}\n"
            f"detection:\n  one:\n    '{field}{how}': {value}\n  condition: {condition}\n"
        )
    rules = build.read("---\n".join(documents))
    rules.formats["drawn"] = declared(table)
    lines = [text_of(table, draw(words), draw(words)) for _ in range(draw(st.integers(1, 6)))]
    lines += [f"<13>Feb  1 10:00:00 host app: {line}" for line in lines[:2]]
    return table, build.from_rules(rules), [*lines, "user=admin 10.0.0.1", '{"user": "GATE3"}']


@given(plans())
def test_nothing_is_missed(drawn: tuple[dict[str, Any], Plan, list[str]]) -> None:
    """With prefilter, with prefilter and kernel, and without either: the same matches."""
    _, plan, lines = drawn
    assert not plan.refused
    again = Plan.from_bytes(plan.to_bytes())
    assert again.fitted() is again
    found = [
        [(one.rule.id, one.line, one.fields) for one in evaluate(engine, lines, format="rules:drawn")]
        for engine in (Engine(plan, route=False, prefilter=False), Engine(again, route=False, kernel=False),
                       Engine(again, route=False))
    ]  # fmt: skip
    assert found[0] == found[1] == found[2]


RULE = """title: R
id: 6a1f0000-0000-4000-8000-000000000001
logsource: {product: p}
detection: {one: {gate: GATE3}, condition: one}
"""
FORMAT = {"name": "f", "regex": r"(?P<gate>GATE\d+)", "logsource": {"product": "p"}}


def plan_of(*formats: dict[str, Any], rule: str = RULE) -> Plan:
    rules = build.read(rule)
    rules.formats.update((one["name"], declared(one)) for one in formats)
    return build.from_rules(rules)


def test_merged_sets() -> None:
    """The rules of one set meet the events of another set's format: their literals hold for these, too."""
    alone, other = plan_of(), plan_of(FORMAT, rule=RULE.replace("001", "002").replace("GATE3", "GATE4"))
    made = merge({"a": alone, "b": other}).plan
    assert [one.name for one in made.formats] == ["f"]
    assert made.names == names_of(made.predicates, made.formats)
    found = evaluate(Engine(made), ["GATE3 x", "GATE4"], format="rules:f")
    assert [(one.rule.id[-1], one.line) for one in found] == [("1", 1), ("2", 2)]
    assert merge({"a": other, "b": other}).plan.formats == other.formats


def test_sets_that_differ() -> None:
    """Two formats of one name do not merge, and the reason names set and format."""
    with pytest.raises(ValueError, match="the rule set b cannot be merged: its format f differs"):
        merge({"a": plan_of(FORMAT), "b": plan_of({**FORMAT, "starts": "G"})})


def test_its_log_source() -> None:
    """Events belong to what the format says, so that rules are routed by it."""
    engine = Engine(plan_of(FORMAT))
    assert [one.line for one in evaluate(engine, ["x", "GATE3"], format="rules:f")] == [2]
    assert [*evaluate(engine, ["x", "GATE3"])] == []


def test_a_format_that_is_not_there() -> None:
    """Events whose format no rule set has any more are read as ``auto`` reads them."""
    engine = Engine(plan_of(), route=False)
    assert [one.line for one in evaluate_chunks(engine, chunk_of(["gate=GATE3", "GATE3"], "rules:gone", 0))] == [1]
    with pytest.raises(KeyError, match="rules:gone"):
        evaluate(engine, [], format="rules:gone")


def test_a_format_is_part_of_the_meaning() -> None:
    """A plan with another table is another plan, and a damaged one is none."""
    one, other = plan_of(FORMAT), plan_of({**FORMAT, "set": {"a": "b"}})
    assert len({one.digest, other.digest, plan_of().digest}) == 3
    assert Plan.from_bytes(one.to_bytes()).digest == one.digest
    with pytest.raises(ValueError, match="not a plan that this version can run: name: expects"):
        Plan.from_bytes(one.to_bytes().replace(b'"name": "f"', b'"name": "F"'))
