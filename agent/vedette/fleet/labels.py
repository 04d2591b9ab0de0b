"""Label expressions: which agents a group means, as in ``site in (vienna, linz) and os = debian``.

    expression  = conjunction { "or" conjunction }
    conjunction = negation { "and" negation }
    negation    = "not" negation | "(" expression ")" | "all" | test
    test        = name ("=" | "!=") value | name ["not"] "in" "(" value { "," value } ")"

Names and values are bare (letters, digits, ``. _ - / :``) or quoted (``"New York"``); words count in any case, values
exactly. A label that an agent does not have equals no value: ``os != debian`` holds for it. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from vedette.system.foreign import table, texts

MAX_LENGTH = 4096
"""Characters of an expression."""
MAX_DEPTH = 32
"""Nested parentheses and negations."""
_TOKEN = re.compile(r'\s*(?:(?P<op>!=|[=(),])|"(?P<quoted>[^"\n]{0,256})"|(?P<word>[A-Za-z0-9._/:-]{1,256}))')
_WORDS = ("and", "or", "not", "in", "all")


@dataclass(frozen=True, slots=True)
class Test:
    """The label ``name`` has one of ``values``."""

    __test__ = False  # for pytest
    name: str
    values: frozenset[str]

    def matches(self, labels: Mapping[str, str]) -> bool:
        return labels.get(self.name) in self.values


@dataclass(frozen=True, slots=True)
class Not:
    part: Expression

    def matches(self, labels: Mapping[str, str]) -> bool:
        return not self.part.matches(labels)


@dataclass(frozen=True, slots=True)
class All:
    """Every one of ``parts``; without parts: every agent."""

    parts: tuple[Expression, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(part.matches(labels) for part in self.parts)


@dataclass(frozen=True, slots=True)
class Any:
    parts: tuple[Expression, ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        return any(part.matches(labels) for part in self.parts)


Expression = Test | Not | All | Any


def labels_of(heartbeat: Mapping[str, object]) -> dict[str, str]:
    """Those of an agent, as its heartbeat has them, which may say anything; empty: none."""
    return texts(table(heartbeat.get("actual")).get("labels"))


def possible(expression: Expression, labels: Mapping[str, str]) -> tuple[bool, bool]:
    """Whether it may hold, and whether it may not, for an agent of which only these labels are known."""
    if isinstance(expression, Test):
        if expression.name not in labels:
            return True, True
        holds = expression.matches(labels)
        return holds, not holds
    if isinstance(expression, Not):
        holds, fails = possible(expression.part, labels)
        return fails, holds
    parts = [possible(part, labels) for part in expression.parts]
    if isinstance(expression, All):
        return all(holds for holds, _ in parts), any(fails for _, fails in parts)
    return any(holds for holds, _ in parts), all(fails for _, fails in parts)


class _Token(NamedTuple):
    kind: str
    """"op", "word", "value" (quoted) or "end"."""
    text: str
    at: int


def parse(text: str) -> Expression:
    """Raises ValueError, which says where and what was expected."""
    return _Parser(text).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        if len(text) > MAX_LENGTH:
            raise ValueError(f"{len(text)} characters, at most {MAX_LENGTH}")
        self._text, self._depth = text, 0
        self._tokens = [*self._split()]
        self._next = 0

    def _split(self) -> list[_Token]:
        tokens, at, end = [], 0, len(self._text.rstrip())
        while at < end:
            match = _TOKEN.match(self._text, at)
            if match is None:
                at = end - len(self._text[at:end].lstrip())
                raise ValueError(f"at character {at + 1}: {self._text[at : at + 20].strip()!r} is not understood")
            kind = match.lastgroup or ""
            tokens.append(_Token("value" if kind == "quoted" else kind, match[kind], match.start(kind)))
            at = match.end()
        return [*tokens, _Token("end", "", len(self._text))]

    def whole(self) -> Expression:
        expression = self._any()
        if self._peek().kind != "end":
            raise self._unexpected("'and', 'or' or the end")
        return expression

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self, *wanted: str) -> bool:
        """Whether one of these words or signs comes next; it is then read."""
        token = self._peek()
        if token.kind in ("op", "word") and token.text.lower() in wanted:
            self._next += 1
            return True
        return False

    def _any(self) -> Expression:
        parts = [self._all()]
        while self._take("or"):
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else Any(tuple(parts))

    def _all(self) -> Expression:
        parts = [self._negation()]
        while self._take("and"):
            parts.append(self._negation())
        return parts[0] if len(parts) == 1 else All(tuple(parts))

    def _negation(self) -> Expression:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ValueError(f"nested deeper than {MAX_DEPTH}")
        try:
            if self._take("not"):
                return Not(self._negation())
            if self._take("("):
                expression = self._any()
                self._expect(")")
                return expression
            if self._take("all"):
                return All()
            return self._test()
        finally:
            self._depth -= 1

    def _test(self) -> Expression:
        name = self._name("a label")
        if self._take("="):
            return Test(name, frozenset((self._name("a value"),)))
        if self._take("!="):
            return Not(Test(name, frozenset((self._name("a value"),))))
        negated = self._take("not")
        if not self._take("in"):
            raise self._unexpected("'in'" if negated else "'=', '!=', 'in' or 'not in'")
        self._expect("(")
        values = [self._name("a value")]
        while self._take(","):
            values.append(self._name("a value"))
        self._expect(")")
        test = Test(name, frozenset(values))
        return Not(test) if negated else test

    def _name(self, what: str) -> str:
        token = self._peek()
        if token.kind not in ("word", "value") or (token.kind == "word" and token.text.lower() in _WORDS):
            raise self._unexpected(what)
        self._next += 1
        return token.text

    def _expect(self, sign: str) -> None:
        if not self._take(sign):
            raise self._unexpected(repr(sign))

    def _unexpected(self, wanted: str) -> ValueError:
        token = self._peek()
        shown = "the end" if token.kind == "end" else repr(token.text)
        return ValueError(f"at character {token.at + 1}: expects {wanted}, not {shown}")
