"""Random and real events under random and real rules: the engine against pySigma's SQLite backend.

What is drawn keeps within what that backend can say (``docs/sigma-differences.md`` tells why): ASCII, no lists,
nulls and booleans in events, whole numbers of one width under comparisons, times in UTC, no wildcards in keywords and
in what is compared by case.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

import hypothesis.strategies as st
import pytest
import yaml
from hypothesis import given, note

from tests.deep import examples
from tests.differential.material import cases, oracle
from vedette.api import compile_rules
from vedette.decode.decoder import from_mapping
from vedette.engine.match import Engine
from vedette.plan import ir
from vedette.plan.plan import Plan
from vedette.plan.timepart import UNITS

FIELDS = ("alpha", "beta", "gamma.delta", "field name")
NETWORKS = ("10.0.0.0/8", "10.0.0.1/32", "0.0.0.0/1", "192.168.1.64/26", "172.16.0.0/12")
ADDRESSES = ("10.0.0.1", "10.255.0.3", "11.0.0.1", "192.168.1.77", "192.168.1.63", "172.31.5.4", "200.0.0.1")
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
    kind = draw(st.integers(0, 13))
    match kind:
        case 0 | 1 | 2:
            modifier = draw(st.sampled_from(["", "|contains", "|startswith", "|endswith"]))
            modifier += draw(st.sampled_from(["", "", "|neq"]))
            return name + modifier, draw(st.one_of(texts, st.lists(texts, min_size=1, max_size=3)))
        case 3:
            wild = st.lists(st.one_of(plain, st.sampled_from(["*", "?", r"\*", r"\?", "\\"])), min_size=1, max_size=4)
            return name, "".join(draw(wild))
        case 4:
            modifier = draw(
                st.sampled_from(["|contains|all", "|all|contains", "|all", "|startswith|all", "|contains|all|neq"])
            )
            return name + modifier, draw(st.lists(texts, min_size=2, max_size=3))
        case 5:
            modifier = draw(st.sampled_from(["|re", "|re|i", "|re|s", "|re|i|m", "|re|neq", "|re|contains"]))
            return name + modifier, draw(st.sampled_from(["^a.*b", "[0-9]+", "a|b$", r"\.e", "^$", "(ab|c){2}"]))
        case 6:
            return name + draw(st.sampled_from(["|cased", "|contains|cased", "|startswith|cased"])), draw(plain)
        case 7:
            modifier = draw(st.sampled_from(["", "|lt", "|lte", "|gt", "|gte"])) + draw(st.sampled_from(["", "|neq"]))
            number = st.integers(10, 99)
            return "number" + modifier, draw(st.one_of(number, st.lists(number, min_size=1, max_size=2)))
        case 8:
            unit = draw(st.sampled_from(["minute", "hour", "day", "month", "year"]))
            modifier = draw(st.sampled_from(["", "|neq"]))
            return f"time|{unit}{modifier}", draw(
                st.integers(*UNITS[unit]) if unit != "year" else st.integers(2000, 2030)
            )
        case 9:
            return "address|cidr" + draw(st.sampled_from(["", "|neq"])), draw(st.sampled_from(NETWORKS))
        case 10:
            return draw(st.sampled_from((*FIELDS, "number", "nowhere"))) + "|exists", draw(st.booleans())
        case 11:
            return name + draw(st.sampled_from(["|fieldref", "|fieldref|neq"])), draw(st.sampled_from(FIELDS))
        case 12:
            return name, draw(st.sampled_from([None, "", "*", "?*", [None, "abc"], 5, [5, "a"]]))
        case _:
            modifier = draw(
                st.sampled_from(
                    ["|base64", "|base64offset|contains", "|wide|base64offset|contains", "|utf16|base64", "|windash"]
                )
            )
            long_enough = plain.filter(lambda text: len(text) > 1)  # of one character base64offset is refused
            return name + modifier, draw(st.one_of(long_enough, st.just("-abc")))


@st.composite
def condition(draw: st.DrawFn, names: list[str], depth: int = 0) -> str:
    inner = condition(names, depth + 1) if depth < 3 else st.sampled_from(names)
    match draw(st.integers(0, 7)):
        case 0:
            return f"{draw(inner)} and {draw(inner)}"
        case 1:
            return f"{draw(inner)} or {draw(inner)}"
        case 2:
            return f"not {draw(st.sampled_from(names))}"
        case 3:
            return f"not ({draw(inner)})"
        case 4:
            return f"({draw(inner)})"
        case 5:
            pattern = st.sampled_from(["them", "sel*", "*e*", *(f"{name[:1]}*" for name in names)])
            pattern = pattern.filter(lambda p: any(fnmatchcase(name, p.replace("them", "*")) for name in names))
            return draw(st.sampled_from(["1 of ", "all of "])) + draw(pattern)
    return draw(st.sampled_from(names))


@st.composite
def rule(draw: st.DrawFn) -> dict[str, Any]:
    block = st.lists(item(), min_size=1, max_size=3).map(dict)
    words = st.lists(plain, min_size=1, max_size=2)
    search = st.one_of(block, block, st.lists(block, min_size=1, max_size=2), words, words.map(lambda w: {"|all": w}))
    names = draw(st.lists(st.sampled_from(["sel", "sel_b", "filter", "other"]), min_size=1, max_size=3, unique=True))
    hidden = {"_unused": draw(block)} if draw(st.booleans()) else {}
    detection = {**{name: draw(search) for name in names}, **hidden}
    conditions = draw(st.one_of(condition(names), st.lists(condition(names), min_size=2, max_size=2)))
    return {"title": "t", "logsource": {"category": "test"}, "detection": {**detection, "condition": conditions}}


@st.composite
def event(draw: st.DrawFn) -> dict[str, Any]:
    """Any field may be absent; values often hold what rules ask for."""
    value = st.one_of(texts, texts.map(str.swapcase), st.tuples(texts, texts).map("".join))
    encoded = st.sampled_from(["YWJj", "xhYmN", "LWFiYw==", "//5hAGIAYwA=", "–abc", "/abc"])
    value = st.one_of(value, value, encoded, st.integers(-5, 50))
    drawn = {
        "alpha": value,
        "beta": value,
        "gamma": st.fixed_dictionaries({}, optional={"delta": value}),
        "field name": value,
        "number": st.one_of(st.integers(10, 99), st.integers(10, 99).map(str)),
        "time": times,
        "address": st.sampled_from(ADDRESSES),
    }
    return draw(st.fixed_dictionaries({}, optional=drawn))


def ours(plan: Plan, events: list[dict[str, Any]]) -> set[int]:
    engine = Engine(plan, route=False)
    found = {i for i, one in enumerate(events) if engine.true(from_mapping(one))}
    assert not engine.tally.undecided
    return found


@examples(45)
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


@examples(35)
@given(st.lists(plain, min_size=1, max_size=3), st.lists(event(), min_size=1, max_size=6))
def test_keywords(words: list[str], events: list[dict[str, Any]]) -> None:
    """Plain keywords are found in the same events."""
    judge = oracle()
    text = yaml.safe_dump(
        {"title": "t", "logsource": {"category": "test"}, "detection": {"keywords": words, "condition": "keywords"}}
    )
    assert ours(compile_rules(text=text), events) == judge.match(text, events)


@examples(35)
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
