"""Random and real events under random and real rules: the engine against pySigma's SQLite backend.

What is drawn keeps within what that backend can say (``docs/sigma-differences.md`` tells why): ASCII, no lists and
booleans, every field present where something is negated, numbers of one width under comparisons, no wildcards in
keywords and in what is compared by case.
"""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
import yaml
from hypothesis import HealthCheck, given, note, settings

from tests.differential.material import cases, oracle
from vedette.api import compile_rules
from vedette.compiler import ir
from vedette.compiler.plan import Plan
from vedette.engine.match import Engine
from vedette.inputs.decode import from_mapping

FIELDS = ("alpha", "beta", "gamma.delta", "field name")
PLAIN = "abcABC019 .-"
PATHS = "\\/_%'"
WORDS = ("cmd.exe", "C:\\Windows\\a", "50%", "a_b", "-enc x", "it's", "/tmp/a", "abc")

texts = st.one_of(st.sampled_from(WORDS), st.text(PLAIN + PATHS, max_size=8))
plain = st.text("abcABC019", min_size=1, max_size=4)
times = st.datetimes().filter(lambda t: t.year > 1000).map(lambda t: t.strftime("%Y-%m-%dT%H:%M:%SZ"))


@st.composite
def item(draw: st.DrawFn) -> tuple[str, Any]:
    """One detection item."""
    name = draw(st.sampled_from(FIELDS))
    kind = draw(st.integers(0, 9))
    match kind:
        case 0 | 1 | 2:
            modifier = draw(st.sampled_from(["", "|contains", "|startswith", "|endswith", "|neq", "|contains|neq"]))
            return name + modifier, draw(st.one_of(texts, st.lists(texts, min_size=1, max_size=3)))
        case 3:
            wild = st.lists(st.one_of(plain, st.sampled_from(["*", "?", r"\*", r"\?", "\\"])), min_size=1, max_size=4)
            return name, "".join(draw(wild))
        case 4:
            return name + "|contains|all", draw(st.lists(plain, min_size=2, max_size=3))
        case 5:
            return name + draw(st.sampled_from(["|re", "|re|i"])), draw(
                st.sampled_from(["^a.*b", "[0-9]+", "a|b$", r"\.e"])
            )
        case 6:
            return name + draw(st.sampled_from(["|cased", "|contains|cased", "|startswith|cased"])), draw(plain)
        case 7:
            return "number" + draw(st.sampled_from(["", "|lt", "|lte", "|gt", "|gte", "|neq"])), draw(
                st.integers(10, 99)
            )
        case 8:
            unit = draw(st.sampled_from(["minute", "hour", "day", "month", "year"]))
            return f"time|{unit}", draw(st.integers(0, 31) if unit != "year" else st.integers(2000, 2030))
        case _:
            modifier = draw(
                st.sampled_from(["|base64", "|base64offset|contains", "|wide|base64offset|contains", "|windash"])
            )
            return name + modifier, draw(st.one_of(plain, st.just("-abc")))


@st.composite
def rule(draw: st.DrawFn) -> dict[str, Any]:
    block = st.lists(item(), min_size=1, max_size=2).map(dict)
    selections = {name: draw(st.one_of(block, st.lists(block, min_size=1, max_size=2))) for name in ("one", "two")}
    condition = draw(
        st.sampled_from(
            [
                "one",
                "one and two",
                "one or two",
                "one and not two",
                "not one",
                "1 of *",
                "all of them",
                "not (one or two)",
            ]
        )
    )
    if "two" not in condition and "*" not in condition and "them" not in condition:
        del selections["two"]
    return {"title": "t", "logsource": {"category": "test"}, "detection": {**selections, "condition": condition}}


@st.composite
def event(draw: st.DrawFn) -> dict[str, Any]:
    """Every field is there; values often hold what rules ask for."""
    value = st.one_of(texts, texts.map(str.swapcase), st.tuples(texts, texts).map("".join))
    encoded = st.sampled_from(["YWJj", "xhYmN", "LWFiYw==", "–abc", "/abc"])
    value = st.one_of(value, value, encoded)
    return {
        "alpha": draw(value),
        "beta": draw(value),
        "gamma": {"delta": draw(value)},
        "field name": draw(value),
        "number": draw(st.one_of(st.integers(10, 99), st.integers(10, 99).map(str))),
        "time": draw(times),
    }


def ours(plan: Plan, events: list[dict[str, Any]]) -> set[int]:
    engine = Engine(plan, route=False)
    found = {i for i, one in enumerate(events) if engine.true(from_mapping(one))}
    assert not engine.tally.undecided
    return found


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_random_rules_on_random_events(data: st.DataObject) -> None:
    """Whatever pySigma can turn into SQL matches the same events here."""
    judge = oracle()
    document = data.draw(rule())
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    plan = compile_rules(text=text)
    assert not plan.refused
    events = data.draw(st.lists(event(), min_size=1, max_size=6))
    note(text)
    assert ours(plan, events) == judge.match(text, events)


@settings(max_examples=50, deadline=None)
@given(st.lists(plain, min_size=1, max_size=3), st.lists(event(), min_size=1, max_size=6))
def test_keywords(words: list[str], events: list[dict[str, Any]]) -> None:
    """Plain keywords are found in the same events."""
    judge = oracle()
    text = yaml.safe_dump(
        {"title": "t", "logsource": {"category": "test"}, "detection": {"keywords": words, "condition": "keywords"}}
    )
    assert ours(compile_rules(text=text), events) == judge.match(text, events)


@settings(max_examples=50, deadline=None)
@given(plain, st.lists(st.fixed_dictionaries({}, optional={"a": st.one_of(plain, st.none()), "b": plain}), min_size=1))
def test_null_and_absent(value: str, events: list[dict[str, Any]]) -> None:
    """Null is null or absent; a comparison with what is not there does not hold."""
    judge = oracle()
    for body in ({"a": None}, {"a": value}, {"a": "*"}, {"b|exists": True}, {"a": None, "b": value}):
        text = yaml.safe_dump(
            {"title": "t", "logsource": {"category": "test"}, "detection": {"s": body, "condition": "s"}}
        )
        assert ours(compile_rules(text=text), events) == judge.match(text, events), body


def _fields(one: Any, prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in one.items():
        flat.update(_fields(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value})
    return flat


def test_real_rules_on_real_events(capsys: pytest.CaptureFixture[str]) -> None:
    """Every rule of the regression cases on the events of all of them; fields that an event lacks are filled in."""
    judge = oracle()
    known = cases("sigma_regression.json")
    flat = [_fields(one) for case in known for one in case["events"]]
    scalar = [one for one in flat if all(isinstance(v, str | int) and not isinstance(v, bool) for v in one.values())]
    compared, matched, different = 0, 0, []
    for case in known:
        plan = compile_rules(text=case["rule_yaml"])
        asked = {plan.predicates[i].field for i in ir.tests(plan.rules[0].expr)} - {ir.KEYWORDS}
        events = [{**dict.fromkeys(asked, "-"), **one} for one in scalar]
        found, expected = ours(plan, events), judge.match(case["rule_yaml"], events)
        compared, matched = compared + len(events), matched + len(found)
        if found != expected:
            different.append((case["case"], sorted(found ^ expected)))
    with capsys.disabled():
        print(f"\nSQLite: {compared} pairs of rule and event, {matched} matches, {len(different)} rules differ")  # noqa: T201
    assert not different
