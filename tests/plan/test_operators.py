"""Every row of the table of operators: what it takes, how it reads, what both evaluators make of it."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from tests import reference
from tests.differences import walk
from tests.lookup.tables import reference_lookups
from vedette.decode.decoder import record
from vedette.engine.evaluate import Evaluator
from vedette.model.event import LogSource
from vedette.plan.ir import ANY, STAR, Leaf, Op, Predicate, Rule
from vedette.plan.literals import clauses_of
from vedette.plan.operators import OPERATORS, Value, as_number, check, described
from vedette.plan.plan import Plan, build

CASES: dict[Op, tuple[Predicate, str, object, object]] = {
    Op.EXACT: (Predicate("f", Op.EXACT, "abc"), "f is 'abc'", "ABC", "abcd"),
    Op.PREFIX: (Predicate("f", Op.PREFIX, "abc"), "f begins with 'abc'", "Abcd", "xabc"),
    Op.SUFFIX: (Predicate("f", Op.SUFFIX, "Abc", True), "f ends with 'Abc' (case-sensitive)", "xAbc", "xabc"),
    Op.CONTAINS: (Predicate("", Op.CONTAINS, "abc"), "any text contains 'abc'", "xABCx", "ab"),
    Op.GLOB: (Predicate("f", Op.GLOB, ("abc", STAR, "d", ANY)), "f is like 'abc*d?'", "abc..de", "abc..d"),
    Op.REGEX: (Predicate("f", Op.REGEX, "abcd+$", True, "i"), "f matches /abcd+$/i", "xABCDD", "abcde"),
    Op.CIDR: (Predicate("f", Op.CIDR, "10.0.0.0/8"), "f is in 10.0.0.0/8", "10.1.2.3", "11.1.2.3"),
    Op.NUMBER: (Predicate("f", Op.NUMBER, 555), "f is the number 555", 555.0, "555.0"),
    Op.LT: (Predicate("f", Op.LT, 5), "f < 5", "4.5", 5),
    Op.LTE: (Predicate("f", Op.LTE, 5), "f <= 5", 5, 5.5),
    Op.GT: (Predicate("f", Op.GT, 5), "f > 5", "6", "x"),
    Op.GTE: (Predicate("f", Op.GTE, 5), "f >= 5", 5, 4),
    Op.LOOKUP: (Predicate("f", Op.LOOKUP, "users", False, "name"), "f is in name of the lookup users",
                "\u00c9VA", "Anna2"),
    Op.NULL: (Predicate("f", Op.NULL), "f is null or absent", None, ""),
    Op.EXISTS: (Predicate("g", Op.EXISTS), "g is present", 1, ...),
    Op.FIELD_EXACT: (Predicate("f", Op.FIELD_EXACT, "g"), "f equals the field g", "GG", "g"),
    Op.FIELD_PREFIX: (Predicate("f", Op.FIELD_PREFIX, "g"), "f begins with the field g", "ggx", "xgg"),
    Op.FIELD_SUFFIX: (Predicate("f", Op.FIELD_SUFFIX, "g"), "f ends with the field g", "xgg", "ggx"),
    Op.FIELD_CONTAINS: (Predicate("f", Op.FIELD_CONTAINS, "g"), "f contains the field g", "xggx", "x"),
    Op.TIME_PART: (Predicate("f", Op.TIME_PART, 5, False, "hour"), "f has the hour 5", "2026-01-02 05:00", "5"),
}  # fmt: skip
"""By operator a predicate, how it reads, a value of ``f`` for which it holds, and one for which it does not; the field
``g`` is ``gg`` beside the first, and beside the second unless that is ``...``."""

BAD = {
    Value.NOTHING: "",
    Value.TEXT: 5,
    Value.PARTS: "abc",
    Value.REGEX: 5,
    Value.NUMBER: "5",
    Value.NETWORK: "10.0.0.1/8",
    Value.FIELD: None,
    Value.TABLE: None,
}


def plan_of(p: Predicate) -> Plan:
    rule = Rule("id", "t", "low", (), LogSource(), (), Leaf(0), "digest", "rule.yml", 1)
    return build([rule], [p]).with_lookups(reference_lookups())


def test_every_operator_has_a_row_and_a_case() -> None:
    """A new operator is shown here, or this fails."""
    assert set(OPERATORS) == set(CASES) == set(Op)


@walk("op", list(Op))
def test_the_engine_and_the_naive_evaluator(op: Op) -> None:
    """Both say the same of a value that fits and of one that does not; the prefilter's literals are in the former."""
    p, _, good, bad = CASES[op]
    evaluator = Evaluator(plan_of(p))
    for value, expected in ((good, True), (bad, False)):
        fields = {} if value is ... else {"f": value, "g": "gg"}
        raw = orjson.dumps(fields)
        event = record(raw, "json")
        assert evaluator.holds(0, event) is expected
        assert reference.holds(p, event) is expected
        if expected:
            assert all(any(one in raw.lower() for one in clause) for clause in clauses_of(p))
    own = [clause for clause in clauses_of(p._replace(field="")) if op is not Op.EXISTS]
    assert bool(own) is OPERATORS[op].literal


@walk("op", list(Op))
def test_words_and_values(op: Op) -> None:
    """A predicate reads as a sentence, survives a plan's bytes, and a value of another kind is refused there."""
    p, words, _, _ = CASES[op]
    assert described(p) == words
    plan = plan_of(p)
    assert Plan.from_bytes(plan.to_bytes()) == plan
    wrong = p._replace(value=BAD[OPERATORS[op].value])
    with pytest.raises(ValueError, match=r"is no value for|host bits"):
        check(wrong)
    with pytest.raises(ValueError, match="not a plan"):
        Plan.from_bytes(replace(plan, predicates=(wrong,)).to_bytes())


@walk(
    ("value", "number"),
    [
        ("5", 5),
        ("-5", -5),
        ("5.50", 5.5),
        ("1e3", 1000.0),
        ("1E-2", 0.01),
        ("007", 7),
        ("9007199254740993", 9007199254740993),
        ("1" * 400, float("inf")),
        ("1e999999999", float("inf")),
        ("", None),
        ("5 ", None),
        (".5", None),
        ("5.", None),
        ("+5", None),
        ("0x5", None),
        ("inf", None),
        ("nan", None),
        ("\u0665", None),
        ("1_000", None),
    ],
)
def test_as_number(value: str, number: float | None) -> None:
    """What a text is written as, exactly for whole numbers."""
    assert as_number(value) == number
