"""Predicates on values, literal in and out: what each operator means, in small and in large groups."""

from __future__ import annotations

import time
from typing import Any
from unittest import mock

import pytest

from tests import reference
from tests.differences import walk
from tests.engine.test_property import rule
from vedette.decode.decoder import Record, from_mapping, record
from vedette.engine import evaluate, group
from vedette.engine.evaluate import Evaluator
from vedette.engine.group import SCAN_FROM, compare_fields
from vedette.engine.match import Engine
from vedette.model.event import address
from vedette.plan.database import refused
from vedette.plan.ir import ANY, KEYWORDS, MAX_DEPTH, STAR, And, Expr, Leaf, Not, Op, Or, Predicate, fold
from vedette.plan.patterns import fallback, search
from vedette.plan.plan import Plan


def plan_of(predicates: list[Predicate], *exprs: Expr) -> Plan:
    rules = tuple(rule(i, expr) for i, expr in enumerate(exprs or [Leaf(i) for i in range(len(predicates))]))
    return Plan(tuple(predicates), rules, (None,) * len(rules))


def true(predicates: list[Predicate], event: Record, *exprs: Expr) -> list[int]:
    """The numbers of the rules that hold, by groups of every kind and by the reference."""
    plan = plan_of(predicates, *exprs)
    expected = reference.matches(plan, event)
    for scan_from in (1, SCAN_FROM, 1000):
        with mock.patch.object(group, "SCAN_FROM", scan_from):
            assert Engine(plan, route=False).true(event) == expected
    return expected


def holds(predicate: Predicate, value: Any) -> bool:
    """The truth of a predicate on field ``f``, alone and among others of its group."""
    event = from_mapping({"f": value})
    crowd = [Predicate("f", Op.CONTAINS, f"other{i}", i % 2 == 0) for i in range(SCAN_FROM * 2)]
    alone = bool(true([predicate], event))
    assert (0 in true([predicate, *crowd], event)) == alone
    return alone


def text(op: Op, value: Any, option: str = "", *, cased: bool = False) -> Predicate:
    return Predicate("f", op, value, cased, option)


@walk(
    ("predicate", "matching", "others"),
    [
        (text(Op.EXACT, "abc"), ["abc", "ABC", ["x", "aBc"], [["abc"]]], ["abcd", "", None, {"f": "abc"}, [], "abc "]),
        (text(Op.EXACT, ""), ["", ["", "x"]], ["x", None, [], {}]),
        (text(Op.EXACT, "Abc", cased=True), ["Abc"], ["abc", "ABC"]),
        (text(Op.EXACT, "1"), ["1", 1], [1.0, "1.0", True]),
        (text(Op.EXACT, "1.0"), ["1.0", 1.0], [1, "1"]),
        (text(Op.EXACT, "true"), ["true", "TRUE", True], [1, False]),
        (text(Op.PREFIX, "ab"), ["ab", "ABc"], ["cab", "a", None]),
        (text(Op.SUFFIX, "ab"), ["ab", "cAB"], ["abc", "ab\n", "b"]),
        (text(Op.CONTAINS, "a\nb"), ["xA\nBx"], ["ab"]),
        (text(Op.CONTAINS, "stra\u00dfe"), ["STRA\u1e9eE"], ["STRASSE"]),
        (text(Op.CONTAINS, "ask"), ["a\u017f\u212a", "ASK"], ["a\u0161k"]),
        (text(Op.CONTAINS, "ask", cased=True), ["tasks"], ["ASK", "a\u017fk"]),
        (text(Op.CONTAINS, "\u03c3"), ["\u03c2", "\u03a3"], ["s"]),
        (text(Op.CONTAINS, "i"), ["I"], ["\u0130", "\u0131"]),
        (text(Op.PREFIX, "\0"), ["\0x"], ["x\0", ""]),
        (text(Op.GLOB, ("a", ANY, "c")), ["abc", "A\u00e9C", "a\nc", "a\U0001f600c"], ["ac", "abbc", "xabc", "abcx"]),
        (text(Op.GLOB, ("a", STAR, "c")), ["ac", "a\n\nc", "ABC"], ["acx", "xac"]),
        (text(Op.GLOB, (STAR, "a", STAR, "c", STAR)), ["xaxcx", "ac"], ["ca"]),
        (text(Op.GLOB, (STAR,)), ["", "x", 5, False], [None, {}, []]),
        (text(Op.GLOB, (ANY,)), ["x", "\n", 5], ["", "xx"]),
        (text(Op.GLOB, (ANY, STAR)), ["x", "xx"], [""]),
        (text(Op.GLOB, (STAR, ANY)), ["x", "xx"], [""]),
        (text(Op.GLOB, ("\0", "*")), ["\0*"], ["\0x", "\0"]),
        (text(Op.GLOB, ("A", ANY), cased=True), ["Ab"], ["ab"]),
        (text(Op.REGEX, "a.c", cased=True), ["xabcx", "a\u00e9c"], ["ABC", "a\nc", None]),
        (text(Op.REGEX, "a.c", "s", cased=True), ["a\nc"], ["ac"]),
        (text(Op.REGEX, "a.c", "i", cased=True), ["ABC"], ["a\nc"]),
        (text(Op.REGEX, "^b$", "m", cased=True), ["a\nb\nc", "b\n"], ["ab"]),
        (text(Op.REGEX, "^b$", cased=True), ["b", "b\n"], ["a\nb", "b\n\n"]),
        (text(Op.REGEX, "^$", cased=True), [""], ["x"]),
        (text(Op.REGEX, "a^", "m", cased=True), [], ["a\n", "a\nb"]),
        (text(Op.REGEX, "\n^$", "m", cased=True), ["a\n\nb"], ["a\n"]),
        (text(Op.REGEX, r"\d\w\s", cased=True), ["5a "], ["\u0665a ", "5\u00e9 ", "5a\u2003"]),
        (text(Op.REGEX, "ask", "i", cased=True), ["A\u017f\u212a"], ["as"]),
        (text(Op.REGEX, r"\bask\b", cased=True), ["to ask!", "\u00e9ask"], ["tasks"]),
        (text(Op.REGEX, r"\x41\\z", cased=True), ["A\\z"], ["A", "A\\Z"]),
        (text(Op.REGEX, "", cased=True), ["", "x"], [None]),
        (
            text(Op.CIDR, "10.0.0.0/8"),
            ["10.1.2.3", " 10.1.2.3 ", "::ffff:10.1.2.3"],
            ["11.0.0.1", "x", "10.1.2.3/32", 10],
        ),
        (text(Op.CIDR, "::/0"), ["::1", "fe80::1%eth0", "[::1]"], ["10.1.2.3", "::ffff:10.1.2.3", ""]),
        (text(Op.CIDR, "::ffff:0:0/96"), ["::ffff:10.1.2.3", "10.1.2.3"], ["::1"]),
        (text(Op.NUMBER, 5), [5, 5.0, "5", [1, 5]], ["5.0", "05", True, 51, "x", None]),
        (text(Op.NUMBER, 1), [1], [True, "true"]),
        (text(Op.NUMBER, 0.5), [0.5, "0.5"], ["0.50", 5]),
        (text(Op.NUMBER, 10**20), [1e20, "100000000000000000000"], ["1e20"]),
        (text(Op.LT, 5), [4, 4.9, "4", "-1e3", "4.9"], [5, "x", "", None, True, "4x", " 4"]),
        (text(Op.LTE, 5), [5, 5.0, "5.0"], [5.1, 6]),
        (text(Op.GT, 5), [6, "6", 1e300, "1" * 400], [5, "5", ".6", "6.", "0x10", "Infinity"]),
        (text(Op.GTE, 5.5), [5.5, 6], [5, "5.49"]),
        (text(Op.NULL, None), [None], ["", 0, [], {}, [None]]),
        (text(Op.EXISTS, None), [None, "", 0, [], {}], []),
    ],
)
def test_a_predicate_on_values(predicate: Predicate, matching: list[Any], others: list[Any]) -> None:
    """The meaning that ``plan/ir.py`` states, alike in a group that scans and in one that does not."""
    assert [value for value in matching if not holds(predicate, value)] == []
    assert [value for value in others if holds(predicate, value)] == []


def test_absent_fields() -> None:
    """Null is absent or null; nothing else holds for a field that is not there; its negation does."""
    event = from_mapping({"g": 1})
    predicates = [text(Op.NULL, None), text(Op.EXISTS, None), text(Op.EXACT, ""), text(Op.GLOB, (STAR,))]
    assert true(predicates, event) == [0]
    assert true(predicates, event, *(Not(Leaf(i)) for i in range(4))) == [1, 2, 3]


@pytest.mark.parametrize("size", [1, SCAN_FROM - 1, SCAN_FROM, SCAN_FROM + 1, 300])
def test_every_predicate_of_a_group_has_its_own_bit(size: int) -> None:
    """Groups around the size from which they scan, and wider than a machine word."""
    predicates = [Predicate("f", Op.CONTAINS, f"<{i}>", i % 2 == 1) for i in range(size)]
    for i in {0, 1, size // 2, size - 1} & set(range(size)):
        assert true(predicates, from_mapping({"f": f"x<{i}>y"})) == [i]
    assert true(predicates, from_mapping({"f": "<0> <1>"})) == [0, 1][:size]


def test_a_hit_in_the_pad_hides_none_in_the_value() -> None:
    """A pattern that can take white space behind the value is found in it, though the library reports it once only."""
    source = r"\b(systemctl\s+(stop|disable)|service)\s+(--now\s+)?(rsyslog|auditd)\b(\S*$|\S*\s*(stop)?)"
    others = [text(Op.REGEX, f"other{i}") for i in range(SCAN_FROM)]
    predicates = [
        text(Op.REGEX, source),
        text(Op.REGEX, r"auditd\s*"),
        text(Op.GLOB, (STAR, "audit", ANY, STAR)),
        *others,
    ]
    for value in ("COMMAND=/usr/bin/systemctl stop auditd", "systemctl stop auditd stop", "service rsyslog"):
        event = from_mapping({"f": value})
        expected = [i for i, p in enumerate(predicates[:3]) if reference.holds(p, event)]
        assert true(predicates, event, *map(Leaf, range(3))) == expected


def test_fields_compared() -> None:
    """Two fields as folded texts; any pair of a list's elements, however nested; both must be there."""
    predicates = [
        Predicate("a", Op.FIELD_EXACT, "b"),
        Predicate("a", Op.FIELD_PREFIX, "b"),
        Predicate("a", Op.FIELD_SUFFIX, "b"),
        Predicate("a", Op.FIELD_CONTAINS, "b"),
    ]
    assert true(predicates, from_mapping({"a": "User", "b": "uSER"})) == [0, 1, 2, 3]
    assert true(predicates, from_mapping({"a": "abc", "b": "ab"})) == [1, 3]
    assert true(predicates, from_mapping({"a": "abc", "b": "bc"})) == [2, 3]
    assert true(predicates, from_mapping({"a": ["x", [["y"]]], "b": [["y"], 5]})) == [0, 1, 2, 3]
    assert true(predicates, from_mapping({"a": 5, "b": "5"})) == [0, 1, 2, 3]
    assert true(predicates, from_mapping({"a": None, "b": None})) == []
    assert true(predicates, from_mapping({"a": "x"})) == []
    assert true(predicates, from_mapping({"a": {"x": 1}, "b": {"x": 1}})) == []


def test_keywords() -> None:
    """A keyword is searched in the message, or in every scalar of a structured event; never in what the agent adds."""
    search = [Predicate(KEYWORDS, Op.CONTAINS, "evil"), Predicate(KEYWORDS, Op.REGEX, "^e.il$", True)]
    assert true(search, from_mapping({"a": {"b": ["x", "EVIL"]}})) == [0]
    assert true(search, from_mapping({"a": "evil"})) == [0, 1]
    assert true(search, record(b"<38>Nov 20 10:00:00 evil app: fine", "syslog")) == []
    assert true(search, record(b"<38>Nov 20 10:00:00 web1 app: an evil thing", "syslog")) == [0]
    assert true(search, record(b"fine", "mqtt", origin="evil")) == []


def test_expressions_over_groups() -> None:
    """AND, OR and NOT over leaves of one group, of several, and of field comparisons."""
    predicates = [
        text(Op.EXACT, "x"),
        text(Op.CONTAINS, "x"),
        Predicate("g", Op.EXACT, "y"),
        Predicate("f", Op.FIELD_EXACT, "g"),
        text(Op.EXACT, "never"),
    ]
    f, contains, g, same, never = map(Leaf, range(5))
    exprs: list[tuple[Expr, bool]] = [
        (And((f, contains)), True),
        (And((f, contains, g)), True),
        (And((f, never)), False),
        (And((f, same)), False),
        (And((f, Not(same))), True),
        (Or((never, same)), False),
        (Or((never, f)), True),
        (Or((never, g, same)), True),
        (Not(Or((never, And((f, g))))), False),
        (Not(And((never, f))), True),
        (And((Or((never, f)), Or((same, g)))), True),
        (Not(Not(f)), True),
        (And((f, f, f)), True),
        (And((Not(Not(Not(f))),)), False),
    ]
    event = from_mapping({"f": "x", "g": "y"})
    assert true(predicates, event, *(expr for expr, _ in exprs)) == [i for i, (_, truth) in enumerate(exprs) if truth]


def test_the_deepest_and_widest_expressions() -> None:
    """What the compiler lets through can be evaluated: deep in every operator, and wide."""
    predicates = [text(Op.EXACT, "x"), text(Op.EXACT, "never"), Predicate("f", Op.FIELD_EXACT, "g")]
    deep: Expr = Leaf(0)
    for i in range(MAX_DEPTH):
        deep = (Not(deep), And((deep, Leaf(0), Not(Leaf(1)))), Or((Leaf(2), deep)))[i % 3]
    negated = MAX_DEPTH // 3 % 2 == 1
    wide = Or(tuple(And((Leaf(1), Leaf(2))) for _ in range(5000)))
    assert true(predicates, from_mapping({"f": "x"}), deep, Not(wide), wide) == ([1] if negated else [0, 1])


def test_deeply_nested_events_are_judged() -> None:
    """A thousand nested lists: judged and shown, not raised."""
    depth = 1000
    raw = b'{"f": ' + b"[" * depth + b'"evil"' + b"]" * depth + b"}"
    plan = plan_of(
        [text(Op.CONTAINS, "evil"), Predicate("f", Op.FIELD_EXACT, "f"), Predicate(KEYWORDS, Op.CONTAINS, "evil")]
    )
    engine = Engine(plan, route=False)
    event = record(raw, "json")
    assert engine.true(event) == [0, 1, 2]
    assert engine.shown(0, event) == {"f": "evil"}


# --- what Hyperscan does not take

CATASTROPHE = text(Op.REGEX, "(?=a)(a|aa)+$", cased=True)
HARD = "a" * 60 + "!"


def test_the_fallback_decides_what_hyperscan_refuses() -> None:
    """Look-around and back references run on the other engine, with the same meaning of classes and anchors."""
    assert refused([search(CATASTROPHE).pattern]) == {0}
    cases = [
        ("(?<=a)b", "", "ab", "cb"),
        (r"(.)\1", "", "xx", "xy"),
        (r"(?!x)\w$", "", "a\n", "\u00e9"),
        (r"(?!x)^b$", "m", "a\nb", "ab"),
        (r"(?!x)\n^$", "m", "\n\nx", "a\n"),
        (r"(?=a)a\z", "", "a", "a\n"),
        (r"(?=a)a\Z", "", "a\n", "a\n\n"),
        (r"(?=a)a\\z", "", "a\\z", "a"),
        (r"(?=a)a[\\z^]", "m", "a^", "ab"),
        ("(?=a)A", "i", "A", "b"),
    ]
    for source, flags, good, bad in cases:
        predicate = text(Op.REGEX, source, flags, cased=True)
        engine = Engine(plan_of([predicate]), route=False)
        assert engine.evaluator.fallback == [predicate]
        assert engine.true(from_mapping({"f": good})) == [0], source
        assert engine.true(from_mapping({"f": bad})) == [], source
        assert not engine.tally.undecided
    with pytest.raises(ValueError, match="cannot be read"):
        fallback("(", "")


def test_a_timeout_is_counted_for_the_rules_that_hang_on_it() -> None:
    """Undecided is neither a match nor none: it is counted; rules that do not need it are decided."""
    predicates = [CATASTROPHE, text(Op.PREFIX, "aaa"), Predicate("g", Op.EXACT, "y"), text(Op.EXACT, "never")]
    hard, prefix, other, never = map(Leaf, range(4))
    exprs: list[tuple[Expr, str]] = [
        (hard, "undecided"),
        (Not(hard), "undecided"),
        (prefix, "true"),
        (And((prefix, other)), "true"),
        (And((hard, never)), "false"),
        (And((hard, prefix)), "undecided"),
        (Or((hard, prefix)), "true"),
        (Or((hard, never)), "undecided"),
        (Not(And((hard, never))), "true"),
        (And((never, other)), "false"),
        (And((Or((hard, prefix)), Not(never))), "true"),
    ]
    engine = Engine(plan_of(predicates, *(expr for expr, _ in exprs)), route=False)
    event = from_mapping({"f": HARD, "g": "y"})
    began = time.thread_time()
    assert engine.true(event) == [i for i, (_, outcome) in enumerate(exprs) if outcome == "true"]
    assert time.thread_time() - began < 10 * evaluate.TIMEOUT  # one time-out, not one per rule
    undecided = [i for i, (_, outcome) in enumerate(exprs) if outcome == "undecided"]
    assert engine.tally.undecided == dict.fromkeys(undecided, 1)
    assert "longer than" in engine.tally.reasons[0]
    assert engine.true(from_mapping({"f": "aaa", "g": "y"}))[0] == 0
    assert engine.tally.undecided == dict.fromkeys(undecided, 1)


def test_one_timeout_per_event() -> None:
    """A list of values that all take too long costs one time-out; one that matches before it decides."""
    engine = Engine(plan_of([CATASTROPHE]), route=False)
    began = time.thread_time()
    assert engine.true(from_mapping({"f": [HARD] * 100})) == []
    assert time.thread_time() - began < 10 * evaluate.TIMEOUT
    assert engine.tally.undecided == {0: 1}
    assert engine.true(from_mapping({"f": ["aaa", HARD]})) == [0]
    assert engine.tally.undecided == {0: 1}


def test_patterns_are_linear() -> None:
    """Globs and regexes that backtracking engines die of are decided at once."""
    glob = text(Op.GLOB, (STAR, *("a", STAR) * 12, "b"))
    nested = text(Op.REGEX, "(a+)+$", cased=True)
    engine = Engine(plan_of([glob, nested]), route=False)
    began = time.thread_time()
    assert engine.true(from_mapping({"f": "a" * 200_000 + "!"})) == []
    assert time.thread_time() - began < 2
    assert not engine.tally.undecided


def test_databases_give_the_same_groups() -> None:
    """What was compiled, dumped and loaded again answers alike; which patterns were refused is remembered."""
    predicates = [Predicate("f", Op.CONTAINS, f"<{i}>") for i in range(20)]
    predicates += [CATASTROPHE, text(Op.REGEX, "x+y", cased=True)]
    plan = plan_of(predicates)
    first = Evaluator(plan)
    second = Evaluator(plan, first.databases())
    assert second.databases() == first.databases()
    assert second.fallback == first.fallback == [CATASTROPHE]
    for value in ("<3> <19>", "xxy", "aaa", ""):
        event = from_mapping({"f": value})
        answers = [one.among(event, one.prepare(range(22)), pytest.fail) for one in (first, second)]
        assert answers[0] == answers[1]


def test_fold_and_networks_of_odd_texts() -> None:
    """Nothing raises on odd values."""
    odd = ("", " ", "10", "10.0.0", "010.0.0.1", "\u0661\u0660.0.0.1", "%", "[]", "[%]", "10.0.0.1%", ":", "::%%")
    assert [text for text in odd if address(text)] == ["10.0.0.1%", "::%%"]
    assert fold("\ud800") == "\ud800"


def test_very_many_texts_are_compared_at_once() -> None:
    """Two lists of an event may hold a hundred thousand texts each."""
    own, other = (list(map(str, range(first, first + 50_000))) for first in (100_000, 200_000))
    event: dict[str, Any] = {"a": own, "b": [f"{text}x" for text in other]}
    for op, fitting in (
        (Op.FIELD_EXACT, "100007"),
        (Op.FIELD_PREFIX, "1000"),
        (Op.FIELD_SUFFIX, "49999"),
        (Op.FIELD_CONTAINS, "4999"),
    ):
        p = Predicate("a", op, "b")
        assert not compare_fields(p, from_mapping(event))
        for more in (fitting, ""):
            found = compare_fields(p, from_mapping({**event, "b": [*event["b"], more]}))
            assert found == (more == fitting or op is not Op.FIELD_EXACT)
