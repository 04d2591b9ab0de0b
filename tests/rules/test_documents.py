"""Rule files as documents: YAML 1.2's scalars, collections, and the places of what is wrong."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.differences import walk
from vedette.plan.ir import Op, Predicate
from vedette.rules import build
from vedette.rules.ruleset import RuleSet
from vedette.rules.sigma.documents import RuleLoader
from vedette.rules.sigma.head import DESCRIPTIVE

RULE = "title: {0}\nlogsource: {{product: linux}}\ndetection: {{s: {{f: {0}}}, condition: s}}\n"


def compiled(text: str) -> RuleSet:
    rules = build.read(text, "rule.yml")
    return rules


@walk(
    ("text", "value"),
    [
        *((word, word) for word in ("yes", "no", "on", "off", "Yes", "NO", "y", "n", "1:30", "12:30:45", "1_000")),
        *(("2025-01-01", "2025-01-01"), ("2025-01-01T00:00:00Z", "2025-01-01T00:00:00Z"), ("0b11", "0b11")),
        *(("true", True), ("True", True), ("FALSE", False), ("null", None), ("~", None), ("", None), ("Null", None)),
        *(("010", 10), ("-5", -5), ("+5", 5), ("0o17", 15), ("0x1F", 31), ("1e5", 1e5), (".5", 0.5), ("5.", 5.0)),
        *((".inf", float("inf")), ("-.INF", float("-inf")), ("=", "="), ("'5'", "5"), ("!!str 5", "5")),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text: str, value: object) -> None:
    """The core schema of YAML 1.2.2 decides what a plain scalar is."""
    loaded: Any = yaml.load(f"a: {text}\n", Loader=RuleLoader)["a"]
    assert loaded == value
    assert type(loaded) is type(value)


@pytest.mark.parametrize(
    ("item", "tests"),
    [
        ("f: 010", {(Op.NUMBER, 10), (Op.EXACT, "010")}),
        ("f: [0x1F, 5]", {(Op.NUMBER, 31), (Op.EXACT, "0x1f"), (Op.NUMBER, 5)}),
        ("f|neq: 1.50", {(Op.NUMBER, 1.5), (Op.EXACT, "1.50")}),
        ("f|contains: [12e5, x]", {(Op.CONTAINS, "12e5"), (Op.CONTAINS, "x")}),
        ("f|contains|all: [-.0, 08]", {(Op.CONTAINS, "-.0"), (Op.CONTAINS, "08")}),
        ("f|gt: 0x10", {(Op.GT, 16)}),
        ("f|day: 08", {(Op.TIME_PART, 8)}),
        ("f: [5, -5, 0, 5.0, 0.25]", {(Op.NUMBER, 5), (Op.NUMBER, -5), (Op.NUMBER, 0), (Op.NUMBER, 0.25)}),
    ],
)
def test_numbers_keep_what_is_written(item: str, tests: set[tuple[Op, object]]) -> None:
    """A number that is not written as it is printed is also the text that stands there; to text modifiers it is one."""
    rules = compiled(f"title: t\nlogsource: {{product: x}}\ndetection: {{s: {{{item}}}, condition: s}}\n")
    assert not rules.refused
    assert {(p.op, p.value) for p in rules.predicates} == tests


@pytest.mark.parametrize("search", ["007", "[007]", "{'|all': [007, 007]}"])
def test_a_keyword_is_what_is_written(search: str) -> None:
    """A number among keywords is searched as it is written."""
    rules = compiled(f"title: t\nlogsource: {{product: x}}\ndetection: {{s: {search}, condition: s}}\n")
    assert rules.predicates == [Predicate("", Op.CONTAINS, "007")]


def test_whole_numbers_are_not_rounded() -> None:
    """All of 64 bits is exact; more is refused."""
    texts = (RULE.format("t").replace("f: t", f"f: {number}") for number in (2**53 + 1, 2**64 - 1, 2**64))
    rules = compiled("---\n".join(texts))
    assert [p.value for p in rules.predicates] == [2**53 + 1, 2**64 - 1]
    assert "too large" in rules.refused[0].reason


@pytest.mark.parametrize("search", ["&s [*s, x]", "&s {a: *s}", "&s [[[*s]]]"])
def test_an_alias_of_itself_is_refused(search: str) -> None:
    """A search that holds itself stops its own rule only."""
    rules = compiled(
        f"title: t\nlogsource: {{product: x}}\ndetection:\n  s: {search}\n  condition: s\n---\n" + RULE.format("c")
    )
    assert "Recursive" in rules.refused[0].reason
    assert len(rules.rules) == 1


def test_no_merge_keys() -> None:
    """``<<`` is not YAML 1.2's: refused, not silently a field of that name; anchors and aliases are fine."""
    text = "title: t\nlogsource: {product: x}\ndetection:\n  a: &a {f: 1}\n  b: {<<: *a, g: 2}\n  condition: b\n"
    assert "no merge keys" in compiled(text).refused[0].reason
    assert compiled(text.replace("{<<: *a, g: 2}", "*a")).rules


def test_global_goes_into_what_follows() -> None:
    """A global document stands in every later rule, over what that says, until a reset."""
    rules = compiled(
        "action: global\ntags: [attack.t1000]\nlogsource: {product: windows}\ndetection: {condition: s}\n"
        "---\ntitle: a\ndetection: {s: {f: a}}\n---\ntitle: b\nlogsource: {service: x}\ndetection: {s: {f: b}}\n"
        "---\naction: reset\n---\n" + RULE.format("c")
    )
    assert not rules.refused
    assert [(rule.title, "/".join(rule.logsource), rule.tags) for rule in rules.rules] == [
        ("a", "windows//", ("attack.t1000",)),
        ("b", "windows//x", ("attack.t1000",)),
        ("c", "linux//", ()),
    ]
    assert [rule.line for rule in rules.rules] == [6, 9, 15]


def test_repeat_goes_over_what_was_before() -> None:
    """A repeat is the rule before it with other parts; without an id of its own it gets a stable one."""
    first = "title: a\nid: 929a690e-bef0-4204-a928-ef5e620d6fcc\nlogsource: {product: x}\n"
    text = first + "detection: {s: {f: a, g: b}, condition: s}\n---\naction: repeat\ntitle: c\ndetection: {s: {f: d}}\n"
    rules, again = compiled(text), compiled(text)
    assert not rules.refused
    assert [rule.title for rule in rules.rules] == ["a", "c"]
    assert Predicate("f", Op.EXACT, "d") in rules.predicates
    assert rules.rules[0].id == "929a690e-bef0-4204-a928-ef5e620d6fcc" != rules.rules[1].id
    assert [rule.id for rule in again.rules] == [rule.id for rule in rules.rules]


def test_collections_keep_places() -> None:
    """What is wrong with a part is told where that part was written, be it in the global document."""
    shared = "action: global\ndetection:\n  s:\n    f|bogus: 1\n  condition: s\n---\n"
    rules = compiled(shared + "title: a\nlogsource: {product: x}\n---\ntitle: b\nlogsource: {product: y}\n")
    assert [(refusal.title, refusal.line, refusal.column) for refusal in rules.refused] == [("a", 4, 5), ("b", 4, 5)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("action: include\ntitle: t\n", "'include'"),
        ("action: [a]\n", "action"),
        ("action: repeat\ntitle: t\n", "'repeat'"),
        ("action: global\ntitle: t\ntitle: u\n---\nlogsource: {product: x}\n", "Duplicate key"),
    ],
)
def test_collections_that_make_no_sense(text: str, says: str) -> None:
    """An unknown action, a repeat of nothing and a key given twice are refused."""
    rules = compiled(text)
    assert not rules.rules
    assert says in rules.refused[0].reason


def test_documents_that_share_no_collection() -> None:
    """Without an action every document is its own; an id that two of them write is refused the second time."""
    document = RULE.format("a") + "id: 929a690e-bef0-4204-a928-ef5e620d6fcc\n"
    rules = compiled(f"{document}---\n{document}")
    assert len(rules.rules) == len(rules.refused) == 1


def test_a_refusal_has_line_and_column() -> None:
    """Both count from 1 and stand in its text."""
    (refusal,) = compiled(
        "title: t\nlogsource: {product: x}\ndetection:\n  s: {f: a, g|no: b}\n  condition: s\n"
    ).refused
    assert (refusal.line, refusal.column) == (4, 13)
    assert str(refusal).startswith("rule.yml:4:13: Unknown modifier")


@walk("name", sorted(DESCRIPTIVE))
def test_descriptions_never_stop_a_rule(name: str) -> None:
    """A mistake in an attribute for people is for lint; the rule runs."""
    assert compiled(RULE.format("a") + f"{name}: {{x: [5]}}\n").rules


def test_unsupported_rules_do_not_run() -> None:
    """A rule whose author calls it unsupported is refused; a deprecated one runs."""
    rules = compiled(RULE.format("a") + "status: unsupported\n---\n" + RULE.format("b") + "status: deprecated\n")
    assert [rule.title for rule in rules.rules] == ["b"]
    assert "unsupported" in rules.refused[0].reason
    assert rules.refused[0].line == 4
