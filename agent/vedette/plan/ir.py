"""The intermediate form: what a rule means, free of Sigma's syntax and of how it is evaluated.

A rule is a boolean expression over **predicates**; a predicate is one (field, operator, value) test. The meaning of
each operator, for a decoded field value ``v``:

* a list matches when one of its elements does; an object matches nothing but ``EXISTS``;
* string operators compare ``text(v)``: a string as it is, a number as Python prints it, a boolean as ``true`` or
  ``false``; null has no text. Unless ``cased``, both sides are folded by Unicode *simple* case folding (``fold``);
* ``GLOB`` is matched against the whole text, ``*`` any run of characters (newlines too), ``?`` one character;
* ``REGEX`` is searched in the text; its flags are a subset of ``ims``; character classes are ASCII's;
* ``NUMBER`` is equality by value with a number, or by text with a string; ``LT`` … ``GTE`` compare numbers and
  strings that are written as numbers;
* ``NULL`` holds when the field is absent or null; ``EXISTS`` when it is present, null or not;
* ``FIELD_*`` compare two fields of the same event as texts;
* ``LOOKUP`` holds when the text is a key of an index of a lookup, as the index's kind compares (``docs/lookups.md``);
  an address also when its IPv4 form is one, whatever white space stands around it and whatever its scope;
* ``TIME_PART`` is equality of a number with the minute, hour, day, week (ISO 8601), month or year of the time that the
  text is written as, taken as it is written, whatever its zone; a number is seconds (or milli-, micro-, nanoseconds)
  since 1970 in UTC (``plan/timepart.py``).

A predicate whose field is ``KEYWORDS`` tests every keyword text of the event (``Record.keywords``); ``EXACT`` does
not occur there, because a Sigma keyword is searched in the text.

Sigma specification 2.1, "Sigma Rules" and "Sigma Modifiers".
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple

from vedette.decode.values import ABSENT
from vedette.model.event import LogSource

KEYWORDS = ""
"""The field of a keyword search."""
LEVELS = ("informational", "low", "medium", "high", "critical")


class Op(StrEnum):
    EXACT = "exact"
    PREFIX = "prefix"
    SUFFIX = "suffix"
    CONTAINS = "contains"
    GLOB = "glob"
    REGEX = "regex"
    CIDR = "cidr"
    NUMBER = "number"
    LT = "lt"
    LTE = "lte"
    GT = "gt"
    GTE = "gte"
    NULL = "null"
    EXISTS = "exists"
    FIELD_EXACT = "field_exact"
    FIELD_PREFIX = "field_prefix"
    FIELD_SUFFIX = "field_suffix"
    FIELD_CONTAINS = "field_contains"
    TIME_PART = "time_part"
    LOOKUP = "lookup"


FIELD_OPS = frozenset({Op.FIELD_EXACT, Op.FIELD_PREFIX, Op.FIELD_SUFFIX, Op.FIELD_CONTAINS})
"""Operators whose answer depends on two fields, so not on one value alone."""


class Predicate(NamedTuple):
    """One test, shared by all rules that use it.

    ``value``: the text, folded unless ``cased``; for ``GLOB`` a tuple of texts and ``STAR``/``ANY``; the pattern of a
    regex; the network of ``CIDR``; a number; the other field of ``FIELD_*``; for ``TIME_PART`` a number;
    the name of a lookup. ``option``: the regex's flags; the unit of ``TIME_PART``; the lookup's index.
    """

    field: str
    op: Op
    value: str | int | float | tuple[str, ...] | None = None
    cased: bool = False
    option: str = ""


STAR, ANY = "\x00*", "\x00?"
"""Wildcards in the value of a ``GLOB``: any run of characters; exactly one."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """True when predicate number ``predicate`` of the plan holds."""

    predicate: int


@dataclass(frozen=True, slots=True)
class And:
    args: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Or:
    args: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Not:
    arg: Expr


Expr = Leaf | And | Or | Not

TRUE = And(())
"""Holds for every event."""


MAX_SPAN = 366 * 86400 * 1_000_000
"""Of a suppression, and of a correlation's window: microseconds."""


class Suppress(NamedTuple):
    """Alerts of one rule with the same values of ``by`` are folded into the first for ``seconds``."""

    by: tuple[str, ...]
    seconds: float

    def to_row(self) -> list[Any]:
        return [list(self.by), self.seconds]


def suppress_of(row: Any) -> Suppress | None:
    """The inverse of ``Suppress.to_row``; raises ValueError or TypeError."""
    if row is None:
        return None
    by, seconds = row
    if not all(isinstance(name, str) for name in by) or not 0 < float(seconds) <= MAX_SPAN / 1e6:
        raise ValueError("not a suppression")
    return Suppress(tuple(by), float(seconds))


@dataclass(frozen=True, slots=True)
class Rule:
    """One detection; ``digest`` covers its meaning (expression, predicates, log source), not its texts."""

    id: str
    title: str
    level: str
    tags: tuple[str, ...]
    logsource: LogSource
    fields: tuple[str, ...]
    """The fields the author wants shown in an alert."""
    expr: Expr
    digest: str
    path: str
    line: int
    suppress: Suppress | None = None

    noun: ClassVar[str] = "rule"


class Refusal(NamedTuple):
    """A rule that does not run, and why. ``column`` counts from 1, 0 is unknown; ``hint``: lines to write instead."""

    path: str
    line: int
    rule_id: str
    title: str
    reason: str
    column: int = 0
    hint: str = ""

    def __str__(self) -> str:
        name = f" ({self.title})" if self.title else ""
        column = f":{self.column}" if self.column else ""
        return f"{self.path}:{self.line}{column}: {self.reason}{name}"


def tests(expr: Expr) -> Iterator[int]:
    """The numbers of all predicates in ``expr``, left to right."""
    stack = [expr]
    while stack:
        node = stack.pop()
        if isinstance(node, Leaf):
            yield node.predicate
        else:
            stack.extend((node.arg,) if isinstance(node, Not) else reversed(node.args))


def dump(expr: Expr) -> Any:
    """``expr`` as nested lists for msgpack; ``load`` is its inverse."""
    if isinstance(expr, Leaf):
        return expr.predicate
    if isinstance(expr, Not):
        return ["not", dump(expr.arg)]
    return ["and" if isinstance(expr, And) else "or", *map(dump, expr.args)]


MAX_DEPTH = 120
"""Nesting of an expression; the compiler refuses rules well below it."""


def load(data: Any, depth: int = 0) -> Expr:
    """Raises ValueError when ``data`` is not the form that ``dump`` writes, or is nested beyond ``MAX_DEPTH``."""
    if type(data) is int:
        return Leaf(data)
    if depth > MAX_DEPTH:
        raise ValueError(f"not an expression: nested deeper than {MAX_DEPTH}")
    if type(data) is list and data:
        kind, args = data[0], tuple([Leaf(x) if type(x) is int else load(x, depth + 1) for x in data[1:]])
        if kind == "or" and args:
            return Or(args)
        if kind == "and":
            return And(args)
        if kind == "not" and len(args) == 1:
            return Not(args[0])
    raise ValueError(f"not an expression: {data!r:.80}")


@functools.cache
def folding() -> dict[int, str]:
    """Unicode simple case folding (CaseFolding.txt, status C and S) for every character that it changes.

    Python gives full folding and lower-casing; the simple mapping is the full one where that is one character, else
    the lower-case one where that is one character. U+1E944 is past the last cased script.
    """
    table = {}
    for code in range(0x80, 0x1E944):
        char = chr(code)
        folded = char.casefold()
        if len(folded) != 1:
            folded = char.lower()
        if folded != char and len(folded) == 1:
            table[code] = folded
    return table


def fold(text: str) -> str:
    """``text`` under Unicode simple case folding; as long as ``text``, character by character."""
    if text.isascii():
        return text.lower()
    if _LEAVES_LATIN not in text:
        try:
            return text.encode("latin-1").translate(_LATIN_FOLDING).decode("latin-1")
        except UnicodeEncodeError:
            pass
    lower = text.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")  # ASCII alone
    return _FOREIGN.sub(_fold_foreign, lower)


def _fold_foreign(match: re.Match[str]) -> str:
    return match[0].translate(folding())


_FOREIGN = re.compile(r"[^\x00-\x7f]+")
_LEAVES_LATIN = "\xb5"
"""The one character of Latin-1 that folds to one outside it."""
_LATIN_FOLDING = bytes(
    ord(lower) if len(lower := chr(code).lower()) == 1 and ord(lower) < 256 else code for code in range(256)
)


def variants(char: str) -> list[str]:
    """Every character that folds to what ``char`` folds to, in order; ASCII among them."""
    folded = fold(char)
    characters = {folded, *(chr(code) for code in _unfolding().get(folded, ()))}
    return sorted(characters | ({folded.upper()} if folded.isascii() else set()))


@functools.cache
def _unfolding() -> dict[str, list[int]]:
    """Return what ``folding`` changes, by what it gives under ``fold``."""
    table: dict[str, list[int]] = {}
    for code in folding():
        table.setdefault(fold(chr(code)), []).append(code)
    return table


def text(value: object) -> str | None:
    """The text of one scalar field value; None when it has none."""
    if type(value) is str:
        return value
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    return None


def leaves(value: Any) -> list[Any]:
    """The values in a list, however deep lists are nested in it; of any other value itself alone."""
    if type(value) is not list:
        return [value]
    flat = []
    stack = [value]  # not recursion: an event may nest a thousand lists
    while stack:
        item = stack.pop()
        if type(item) is list:
            stack.extend(reversed(item))
        else:
            flat.append(item)
    return flat


def as_shown(value: object) -> str | None:
    """A field's value as people are shown it: a list's texts joined by ``, ``; None when it has no text."""
    if isinstance(value, list):
        return ", ".join(filter(None, map(text, leaves(value)))) or None
    return text(value)


def scalar(value: Any) -> Any:
    """A field's value as one text or number; a list's texts joined; None for none."""
    if value is ABSENT or value is None or isinstance(value, dict):
        return None
    if isinstance(value, list):
        scalars = [item for item in leaves(value) if item is not None and not isinstance(item, dict)]
        return scalars[0] if len(scalars) == 1 else as_shown(scalars)
    return value
