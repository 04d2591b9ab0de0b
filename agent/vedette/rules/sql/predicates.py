"""Necessary conditions in the rules' own terms, which the engine looks for: each holds whenever its WHERE is true.

The engine's predicates, prefilter and kernel then select a statement's events as they do for Sigma rules, and equal
tests are one. The WHERE itself stays as it is, above: a predicate here may hold for more events, never for fewer. So it
speaks of decoded fields as ``stream/reader.py`` makes values of them: a number in a column of whole numbers is cut, one
of DECIMAL rounded; a list is NULL there, and matches here when an element does.

What a join asks a lookup for by a column of the scan is a predicate, too (``in_lookup``), where each row that has no
partner is dropped: INNER and SEMI.

``true(c)`` holds whenever ``c`` is true, ``false(c)`` whenever it is false; None says nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from vedette.plan.ir import ANY, STAR, TRUE, And, Expr, Leaf, Not, Op, Or, Predicate
from vedette.plan.plan import lacking
from vedette.plan.query import Calc, Call, Column, Expression, Literal, LookupJoin, Node, Scan, Type, Union
from vedette.rules.ruleset import RuleSet

_TEXT = ("CHAR", "VARCHAR", "STRING")
_WHOLE = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_NUMBERS = (*_WHOLE, "FLOAT", "DOUBLE", "DECIMAL")
_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
MAX_NESTING = 30
"""AND, OR and NOT within each other; what is deeper says nothing."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A lookup that an event's row must find a partner in, by a ``key`` over the columns of a node."""

    key: Column
    lookup: str
    index: str


@dataclass(frozen=True, slots=True)
class Conditions:
    """``leaf``: of a predicate the expression; ``scan``: whose columns conditions are over."""

    leaf: Callable[[Predicate], Leaf]
    scan: Scan

    def true(self, c: Expression, depth: int = 0) -> Expr | None:
        if depth > MAX_NESTING or not isinstance(c, Call):
            return self._flag(c, "true") if isinstance(c, Column) else None
        match c.name:
            case "AND":
                return _and([self.true(operand, depth + 1) for operand in c.args])
            case "OR":
                return _or([self.true(operand, depth + 1) for operand in c.args])
            case "NOT":
                return self.false(c.args[0], depth + 1)
            case "IS TRUE":
                return self.true(c.args[0], depth + 1)
            case "IS FALSE":
                return self.false(c.args[0], depth + 1)
            case "IS NOT NULL":
                return self._there(c.args[0])
            case "IN":
                return _or([self._compared("=", c.args[0], item) for item in c.args[1:]])
            case "BETWEEN":
                low, high = (
                    self._compared(name, c.args[0], bound) for name, bound in ((">=", c.args[1]), ("<=", c.args[2]))
                )
                return _and([low, high])
            case "LIKE":
                return self._like(c.args)
            case "IS NOT DISTINCT FROM" if any(isinstance(side, Literal) and side.value is not None for side in c.args):
                return self._compared("=", *c.args)
            case "=" | "<>" | "<" | "<=" | ">" | ">=":
                return self._compared(c.name, *c.args)
        return None

    def false(self, c: Expression, depth: int = 0) -> Expr | None:
        if depth > MAX_NESTING or not isinstance(c, Call):
            return self._flag(c, "false") if isinstance(c, Column) else None
        match c.name:
            case "AND":
                return _or([self.false(operand, depth + 1) for operand in c.args])
            case "OR":
                return _and([self.false(operand, depth + 1) for operand in c.args])
            case "NOT":
                return self.true(c.args[0], depth + 1)
            case "IS NULL":
                return self._there(c.args[0])
            case "IN":
                return _and([self._compared("<>", c.args[0], item) for item in c.args[1:]])
            case "BETWEEN":
                return _or([self._compared("<", c.args[0], c.args[1]), self._compared(">", c.args[0], c.args[2])])
            case "LIKE":
                return self._there(c.args[0])
            case "=" | "<>" | "<" | "<=" | ">" | ">=":
                return self._compared(_OPPOSITE[c.name], *c.args)
        return None

    # --- one test

    def _field(self, value: Expression) -> str | None:
        """The decoded field that a column is."""
        if not isinstance(value, Column):
            return None
        source = self.scan.sources[value.index - 1]
        return None if source.metadata else source.path

    def _test(self, field: str, op: Op, value: Any = None, cased: bool = False) -> Leaf:
        return self.leaf(Predicate(field, op, value, cased))

    def _there(self, value: Expression) -> Expr | None:
        field = self._field(value)
        return None if field is None else Not(self._test(field, Op.NULL))

    def _flag(self, column: Column, text: str) -> Expr | None:
        field = self._field(column)
        return None if field is None or column.type.name != "BOOLEAN" else self._test(field, Op.EXACT, text)

    def _compared(self, name: str, first: Expression, second: Expression) -> Expr | None:
        if isinstance(first, Literal):
            name, first, second = _MIRRORED[name], second, first
        if not isinstance(second, Literal):
            return _and([self._there(first), self._there(second)])
        value = second.value
        if value is None:
            return None
        if (
            isinstance(first, Call)
            and first.name == "LOWER"
            and name == "="
            and isinstance(value, str)
            and value.isascii()
        ):
            field = self._field(first.args[0]) if first.args[0].type.name in _TEXT else None
            return None if field is None else self._test(field, Op.EXACT, value.lower())
        field = self._field(first)
        if field is None:
            return None
        kind = first.type
        if kind.name in _TEXT and isinstance(value, str):
            if name == "=":
                return self._test(field, Op.EXACT, value, True)
            if name == "<>":
                return And((Not(self._test(field, Op.NULL)), Not(self._test(field, Op.EXACT, value, True))))
        elif kind.name in _NUMBERS and name != "<>" and (test := self._number(field, name, kind, value)) is not None:
            return test
        return Not(self._test(field, Op.NULL))

    def in_lookup(self, asked: Asked, kind: str) -> Expr | None:
        """Holds whenever a row's value is a key of a lookup's index of ``kind``."""
        field = self._field(asked.key)
        of = asked.key.type.name
        if field is None:
            return None
        test = self.leaf(Predicate(field, Op.LOOKUP, asked.lookup, option=asked.index))
        if of in _TEXT:
            return test
        if of in _WHOLE and kind in ("number", "range"):
            return Or((test, self._test(field, Op.CONTAINS, "."), self._test(field, Op.CONTAINS, "e")))  # cut
        return Not(self._test(field, Op.NULL))

    def _number(self, field: str, name: str, kind: Type, value: Any) -> Expr | None:
        if type(value) not in (int, float, Decimal) or not math.isfinite(value) or abs(value) > 1e300:
            return None
        tests: list[Expr | None] = []
        if kind.name in _WHOLE and type(value) is int:
            low = value + 1 if name == ">" else value
            high = value - 1 if name == "<" else value
            if name in ("=", ">", ">="):  # what is cut to at least ``low``
                tests.append(self._test(field, Op.GTE, low) if low > 0 else self._test(field, Op.GT, low - 1))
            if name in ("=", "<", "<="):
                tests.append(self._test(field, Op.LTE, high) if high < 0 else self._test(field, Op.LT, high + 1))
            return _and(tests)
        number = float(value)
        slack = abs(number) * (1e-6 if kind.name == "FLOAT" else 1e-9)
        slack += 1.0 if kind.name in _WHOLE else 10.0**-kind.scale if kind.name == "DECIMAL" else 5e-324
        if kind.name == "FLOAT":
            slack += 1e-44
        if name in ("=", ">", ">="):
            tests.append(self._test(field, Op.GTE, number - slack))
        if name in ("=", "<", "<="):
            tests.append(self._test(field, Op.LTE, number + slack))
        return _and(tests)

    def _like(self, args: Sequence[Expression]) -> Expr | None:
        value, pattern, *escape = args
        if value.type.name not in _TEXT or not isinstance(pattern, Literal) or not isinstance(pattern.value, str):
            return None
        lowered = value.args[0] if isinstance(value, Call) and value.name == "LOWER" else None
        lower = lowered is not None
        field = self._field(value if lowered is None else lowered)
        sign = escape[0] if escape else Literal(None, value.type)
        if field is None or not isinstance(sign, Literal):
            return None
        parts = like_parts(pattern.value, sign.value)
        if parts is None:
            return None
        texts = [part for part in parts if part not in (STAR, ANY)]
        if lower and not all(text.isascii() for text in texts):
            return None
        cased = not lower
        if lower:
            parts = [part if part in (STAR, ANY) else part.lower() for part in parts]
        match parts:
            case []:
                return self._test(field, Op.EXACT, "", cased)
            case [text] if text not in (STAR, ANY):
                return self._test(field, Op.EXACT, text, cased)
            case ["\x00*"]:
                return Not(self._test(field, Op.NULL))
            case [text, "\x00*"] if text not in (STAR, ANY):
                return self._test(field, Op.PREFIX, text, cased)
            case ["\x00*", text] if text not in (STAR, ANY):
                return self._test(field, Op.SUFFIX, text, cased)
            case ["\x00*", text, "\x00*"] if text not in (STAR, ANY):
                return self._test(field, Op.CONTAINS, text, cased)
        if lower or ANY in parts:  # a character may be written by several code units; folding changes lengths
            longest = max(texts, key=len, default="")
            return self._test(field, Op.CONTAINS, longest, cased) if longest else Not(self._test(field, Op.NULL))
        return self._test(field, Op.GLOB, tuple(parts), cased)


def like_parts(pattern: str, escape: str | None) -> list[str] | None:
    """Texts, ``STAR`` and ``ANY`` of a LIKE pattern; None for a bad escape."""
    parts: list[str] = []
    text = ""
    signs = iter(pattern)
    for sign in signs:
        if escape and sign == escape:
            behind = next(signs, None)
            if behind is None or behind not in ("%", "_", escape):
                return None
            text += behind
        elif sign in "%_":
            if text:
                parts.append(text)
            text = ""
            part = STAR if sign == "%" else ANY
            if part == ANY or not parts or parts[-1] != STAR:
                parts.append(part)
        else:
            text += sign
    return [*parts, text] if text else parts


def _and(operands: Sequence[Expr | None]) -> Expr | None:
    stated = list(dict.fromkeys(operand for operand in operands if operand is not None))
    return And(tuple(stated)) if len(stated) > 1 else stated[0] if stated else None


def _or(operands: Sequence[Expr | None]) -> Expr | None:
    alternatives = list(dict.fromkeys(operands))
    if not alternatives or None in alternatives:
        return None
    return (
        Or(tuple(operand for operand in alternatives if operand is not None))
        if len(alternatives) > 1
        else alternatives[0]
    )


def necessary(rules: RuleSet, scan: Scan, when: Expression | None = None, asked: Sequence[Asked] = ()) -> Expr:
    """The condition that holds for every event for which ``when`` is true and which has its partners in ``asked``.
    Raises Unsupported when the set would be too large."""
    conditions = Conditions(rules.leaf, scan)
    parts: list[Expr | None] = [] if when is None else [conditions.true(when)]
    for question in asked:
        if not lacking(rules.lookups, question.lookup, question.index):  # else the statement is refused
            parts.append(conditions.in_lookup(question, rules.lookups[question.lookup].index(question.index).kind))
    condition = _and(parts)
    return TRUE if condition is None else condition


Name = Callable[[Scan, Expression | None, Sequence[Asked]], str]
"""The rule of a scan, given the condition right above it and what joins ask lookups for by its columns."""


def with_rules(node: Node, name: Name, asked: Sequence[Asked] = ()) -> Node:
    """The nodes with the rule of each Scan. ``asked``: by columns of ``node``."""
    if isinstance(node, Calc):
        exprs = {at: expr for at, expr in enumerate(node.exprs, 1) if isinstance(expr, Column)}
        asked = [replace(question, key=exprs[question.key.index]) for question in asked if question.key.index in exprs]
        if isinstance(node.input, Scan):
            return replace(node, input=replace(node.input, rule=name(node.input, node.when, asked)))
        return replace(node, input=with_rules(node.input, name, asked))
    if isinstance(node, Scan):
        return replace(node, rule=name(node, None, asked))
    if isinstance(node, LookupJoin):
        asked = [question for question in asked if question.key.index <= len(node.input.columns)]
        if node.kind in ("INNER", "SEMI") and isinstance(node.key, Column):
            asked.append(Asked(node.key, node.lookup, node.index))
        return replace(node, input=with_rules(node.input, name, asked))
    if isinstance(node, Union):
        return replace(node, parts=tuple(with_rules(part, name, asked) for part in node.parts))
    changes: dict[str, Any] = {}
    for key in ("input", "left", "right"):
        below = getattr(node, key, None)
        if isinstance(below, Node):
            changes[key] = with_rules(below, name)
    return replace(node, **changes) if changes else node
