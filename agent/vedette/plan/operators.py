"""The operators of predicates: one row each says all that is known of it outside the engine's fast paths.

To add one: a name in ``ir.Op``, a row here, its meaning in ``tests/reference.py``. ``Operator.test`` is enough for the
engine; only what is looked up, searched for or compared between fields has code of its own in ``engine/group.py``.
"""

from __future__ import annotations

import ipaddress
import operator
from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

from vedette.plan.ir import ANY, KEYWORDS, STAR, Op, Predicate
from vedette.plan.numbers import as_number

Test = Callable[[str, str], object]
"""(text, folded text) -> truth."""


class Value(Enum):
    """The kind of a predicate's ``value``: whether one fits, and how it is shown."""

    NOTHING = "nothing"
    TEXT = "a text"
    PARTS = "texts and wildcards"
    REGEX = "a regular expression"
    NUMBER = "a number"
    NETWORK = "a network"
    FIELD = "the name of another field"
    TABLE = "the name of a lookup"


class Operator(NamedTuple):
    """``words``: how it reads between field and value. ``literal``: an event for which it holds has the value itself
    in its bytes, so that the prefilter may search for it (``plan/literals.py``)."""

    value: Value
    words: str
    literal: bool = False
    test: Callable[[Any, str], Test] | None = None
    """Given value and option, the test of one text, for operators that are neither looked up nor searched for."""


def _compares(compare: Callable[[Any, Any], bool]) -> Callable[[Any, str], Test]:
    def test_of(value: Any, option: str) -> Test:
        return lambda plain, folded: (number := as_number(plain)) is not None and compare(number, value)

    return test_of


def _is_part(value: Any, option: str) -> Test:
    from vedette.plan import timepart  # few rules ask for it

    return lambda plain, folded: timepart.part(plain, option) == value


OPERATORS: dict[Op, Operator] = {
    Op.EXACT: Operator(Value.TEXT, "is", literal=True),
    Op.PREFIX: Operator(Value.TEXT, "begins with", literal=True),
    Op.SUFFIX: Operator(Value.TEXT, "ends with", literal=True),
    Op.CONTAINS: Operator(Value.TEXT, "contains", literal=True),
    Op.GLOB: Operator(Value.PARTS, "is like", literal=True),
    Op.REGEX: Operator(Value.REGEX, "matches", literal=True),
    Op.CIDR: Operator(Value.NETWORK, "is in"),
    Op.NUMBER: Operator(Value.NUMBER, "is the number", literal=True),
    Op.LT: Operator(Value.NUMBER, "<", test=_compares(operator.lt)),
    Op.LTE: Operator(Value.NUMBER, "<=", test=_compares(operator.le)),
    Op.GT: Operator(Value.NUMBER, ">", test=_compares(operator.gt)),
    Op.GTE: Operator(Value.NUMBER, ">=", test=_compares(operator.ge)),
    Op.NULL: Operator(Value.NOTHING, "is null or absent"),
    Op.EXISTS: Operator(Value.NOTHING, "is present"),
    Op.FIELD_EXACT: Operator(Value.FIELD, "equals the field"),
    Op.FIELD_PREFIX: Operator(Value.FIELD, "begins with the field"),
    Op.FIELD_SUFFIX: Operator(Value.FIELD, "ends with the field"),
    Op.FIELD_CONTAINS: Operator(Value.FIELD, "contains the field"),
    Op.LOOKUP: Operator(Value.TABLE, "is in {option} of the lookup"),
    Op.TIME_PART: Operator(Value.NUMBER, "has the {option}", test=_is_part),
}


def check(p: Predicate) -> None:
    """Raises ValueError when the value is not one that the operator takes."""
    value = p.value
    kind = OPERATORS[p.op].value
    if type(value) is str and kind is Value.TEXT:  # nearly all
        return
    match kind:
        case Value.NOTHING:
            fits = value is None
        case Value.NUMBER:
            fits = type(value) in (int, float)
        case Value.PARTS:
            fits = type(value) is tuple and bool(value) and all(type(part) is str for part in value)
        case Value.REGEX:
            fits = type(value) is str and set(p.option) <= set("ims")
        case Value.NETWORK:
            fits = type(value) is str and bool(ipaddress.ip_network(value))
        case Value.TEXT | Value.FIELD:
            fits = type(value) is str
        case Value.TABLE:
            fits = type(value) is str and bool(value) and bool(p.option)
    if not fits:
        raise ValueError(f"{value!r:.80} is no value for {p.op}")


def described(p: Predicate) -> str:
    """A predicate in words: ``CommandLine ends with 'x.exe'``."""
    row = OPERATORS[p.op]
    match row.value:
        case Value.NOTHING:
            value = ""
        case Value.PARTS if isinstance(p.value, tuple):
            value = repr("".join("*" if v == STAR else "?" if v == ANY else v for v in p.value))
        case Value.REGEX:
            value = f"/{p.value}/{p.option}"
        case Value.TEXT:
            value = repr(p.value)
        case _:
            value = str(p.value)
    cased = " (case-sensitive)" if p.cased and row.value is not Value.REGEX else ""
    words = row.words.format(option=p.option)
    return f"{p.field if p.field != KEYWORDS else 'any text'} {words} {value}{cased}".rstrip()
