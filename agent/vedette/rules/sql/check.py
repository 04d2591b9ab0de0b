"""Names and types: an expression of SQL to one of ``plan/query.py``, or what is wrong with it and where.

Only what is listed here is understood; every other form of a tree, and every further word within a known one, is
refused by name. Types are those that ``stream/functions`` infers, so that what is checked is what runs. A **time
attribute** is a column that the table's WATERMARK is of, or that a window gives (window_time); any function loses it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NoReturn, overload

from sqlglot import exp

from vedette.plan.query import PYTHON, SECOND, Aggregate, Call, Column, Expression, Literal, Type
from vedette.rules.sql import nodes
from vedette.stream.aggregates import AGGREGATES
from vedette.stream.functions.library import LIBRARY
from vedette.stream.functions.table import WrongTypes

if TYPE_CHECKING:
    from vedette.rules.sql.own import Own

MAX_DEPTH = 60
"""Functions and operators within each other."""
MAX_TABLES = 50
"""Tables of one FROM."""
MAX_COLUMNS = 1_000
"""Columns of a table or a query."""
BOOLEAN, INT, BIGINT, STRING = Type("BOOLEAN"), Type("INT"), Type("BIGINT"), Type("STRING")
GROWN = 1 << 24
"""Columns from here on are asked of ``events`` for the first time."""
NULL = Literal(None, Type("NULL"))


class Wrong(Exception):
    """What is wrong at ``node``, and what to write instead."""

    def __init__(self, node: Any, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.node, self.reason, self.hint = node, reason, hint


def only(node: Any, *known: str) -> None:
    """Refuse what a node has beside ``known``: words that sqlglot took and nothing here would look at."""
    for key, value in node.args.items():
        if value and key not in known and key not in ("comments",):
            what = key.removesuffix("_").upper().replace("_", " ")
            raise Wrong(value if isinstance(value, exp.Expr) else node, f"{what} is not supported in {named(node)}")


def named(node: Any) -> str:
    """What a form is called in messages."""
    known = {"Select": "a query", "Table": "a table's name", "Anonymous": "a function", "Window": "OVER"}
    name = type(node).__name__
    return known.get(name, re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).upper())


# --- what names mean


@dataclass(frozen=True, slots=True)
class Col:
    """A column of a relation. ``window``: ``start``, ``end`` or ``time`` of the window that it tells."""

    name: str
    type: Type
    rowtime: bool = False
    window: str = ""


@dataclass(slots=True)
class Open:
    """A table whose columns are whatever events have: those that a statement has asked for so far."""

    table: str
    wanted: dict[str, None] = field(default_factory=dict)


@dataclass(slots=True)
class Part:
    """One table of a FROM, by its alias; its columns begin behind ``base``."""

    alias: str
    cols: list[Col]
    base: int
    open: Open | None = None


@dataclass(slots=True)
class Scope:
    """The tables whose columns an expression may name; ``outer``: those of the query around it."""

    parts: list[Part] = field(default_factory=list)
    outer: Scope | None = None
    functions: Mapping[str, Own] = field(default_factory=dict)
    """The user's, by name in capitals."""
    without: str = ""
    """What this is the scope of, where user functions cannot stand."""

    @property
    def width(self) -> int:
        return sum(len(part.cols) for part in self.parts)

    def col(self, index: int) -> Col:
        if index >= GROWN:
            return Col("", STRING)
        for part in self.parts:
            if part.base < index <= part.base + len(part.cols):
                return part.cols[index - part.base - 1]
        raise IndexError(index)

    def find(self, names: Sequence[str], node: Any) -> tuple[Column, int] | None:
        """The column that the dotted ``names`` begin with, and how many of them it takes; None for none here."""
        if len(names) > 1:
            parts = [part for part in self.parts if part.alias == names[0]]
            if len(parts) > 1:
                raise Wrong(node, f"{names[0]} is the name of two tables", "an alias of its own for each")
            if parts:
                return self._in(parts[0], names, 1, node)
        found = [(part, at) for part in self.parts for at, col in enumerate(part.cols, 1) if col.name == names[0]]
        closed = [one for one in found if one[0].open is None]
        found = closed or found
        if len(found) > 1:
            raise Wrong(node, f"{names[0]} is a column of several tables", f"{found[0][0].alias}.{names[0]}")
        if found and (found[0][0].open is None or len(names) == 1):
            part, at = found[0]
            return Column(part.base + at, part.cols[at - 1].type), 1
        opened = [part for part in self.parts if part.open is not None]
        if len(opened) > 1:
            raise Wrong(node, f"{names[0]} may be a field of several tables", f"{opened[0].alias}.{names[0]}")
        return self._in(opened[0], names, 0, node) if opened else None

    def _in(self, part: Part, names: Sequence[str], skip: int, node: Any) -> tuple[Column, int]:
        for at, col in enumerate(part.cols, 1):
            if col.name == names[skip] and (part.open is None or len(names) == skip + 1):
                return Column(part.base + at, col.type), skip + 1
        if part.open is None:
            near = ", ".join(col.name for col in part.cols[:12])
            raise Wrong(node, f"{part.alias} has no column {names[skip]}", f"one of {near}" if near else "")
        path = ".".join(names[skip:])
        for at, col in enumerate(part.cols, 1):
            if col.name == path:
                return Column(part.base + at, col.type), len(names)
        if len(part.open.wanted) >= MAX_COLUMNS:
            raise Wrong(node, f"more than {MAX_COLUMNS} columns")
        part.open.wanted.setdefault(path)  # the query is lowered again, with this column among the table's
        return Column(GROWN + list(part.open.wanted).index(path), STRING), len(names)


@dataclass(frozen=True, slots=True)
class Outer:
    """A column of the query around a subquery."""

    index: int
    type: Type


# --- expressions

_COMPARISONS = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_ARITHMETIC = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}
_RANGES = (exp.In, exp.Like, exp.Between, exp.SimilarTo, exp.Is, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Not)
_CLOCK = frozenset(
    [
        "CURRENT_DATE",
        "CURRENT_TIME",
        "CURRENT_TIMESTAMP",
        "CURRENT_ROW_TIMESTAMP",
        "LOCALTIME",
        "LOCALTIMESTAMP",
        "CURRENT_USER",
        "USER_ID",
        "SESSION_USER",
        "SYSTEM_USER",
        "CURRENT_CATALOG",
        "CURRENT_DATABASE",
    ]
)
_SYNONYMS = {"CHARACTER_LENGTH": "CHAR_LENGTH", "CEILING": "CEIL", "POW": "POWER", "SUBSTR": "SUBSTRING", "MOD": "%"}
_WINDOW_WORDS = ("TUMBLE", "HOP", "SESSION")
Hook = Callable[[Any], Expression | None]


class Checker:
    """Expressions over one scope. ``hook`` is asked first of each node: what aggregates and windows mean."""

    def __init__(self, scope: Scope, hook: Hook | None = None) -> None:
        self.scope, self.hook = scope, hook
        self._depth = 0

    def of(self, node: Any) -> Expression:
        self._depth += 1
        try:
            if self._depth > MAX_DEPTH:
                raise Wrong(node, f"functions and operators nested deeper than {MAX_DEPTH}", "a CREATE VIEW between")
            if self.hook is not None and (given := self.hook(node)) is not None:
                return given
            make = _FORMS.get(type(node))
            if make is None:
                raise Wrong(node, f"{named(node)} is not supported")
            found: Expression = getattr(self, make.__name__)(node)  # a subclass may mean something else by it
            return found
        finally:
            self._depth -= 1

    def all(self, nodes: Sequence[Any]) -> tuple[Expression, ...]:
        return tuple(self.of(node) for node in nodes)

    def condition(self, node: Any) -> Expression:
        found = self.of(node)
        if found.type.name not in ("BOOLEAN", "NULL"):
            raise Wrong(node, f"a condition is BOOLEAN, this is {found.type}")
        return found

    def call(self, node: Any, name: str, args: Sequence[Expression], options: tuple[Any, ...] = ()) -> Expression:
        args = tuple(args)
        try:
            return Call(name, args, LIBRARY.infer(name, args, options), options)
        except WrongTypes as error:
            raise Wrong(node, str(error)) from None

    # names

    def column(self, node: Any) -> Expression:
        only(node, "this", "table", "db", "catalog")
        if isinstance(node.this, exp.Star):
            raise Wrong(node, "* is for SELECT * and COUNT(*)")
        parts = [node.args.get(key) for key in ("catalog", "db", "table", "this")]
        identifiers = [part for part in parts if part is not None]
        return self.path(node, [part.name for part in identifiers], bool(node.this.args.get("quoted")))

    def path(self, node: Any, names: list[str], quoted: bool) -> Expression:
        if len(names) == 1 and not quoted and names[0].upper() in _CLOCK:
            raise Wrong(node, f"{names[0].upper()} would depend on the clock or the session", "event_time")
        outer = self.scope.outer
        of_outer = outer is not None and len(names) > 1 and any(part.alias == names[0] for part in outer.parts)
        if of_outer and any(part.alias == names[0] for part in self.scope.parts):
            of_outer = False
        found = None if of_outer else self.scope.find(names, node)
        if found is None:
            if self.scope.outer is not None and (outside := self.scope.outer.find(names, node)) is not None:
                column, taken = outside
                return self.fields(node, _outer(column), names[taken:])
            known = [col.name for part in self.scope.parts for col in part.cols][:12]
            raise Wrong(node, f"there is no column {'.'.join(names)}", f"one of {', '.join(known)}" if known else "")
        column, taken = found
        return self.fields(node, column, names[taken:])

    def fields(self, node: Any, value: Expression, names: Sequence[str]) -> Expression:
        for name in names:
            if value.type.name != "ROW":
                raise Wrong(node, f"{value.type} has no field {name}")
            value = self.call(node, "FIELD", (value,), (name,))
        return value

    def dot(self, node: Any) -> Expression:
        only(node, "this", "expression")
        names: list[str] = []
        at = node
        while isinstance(at, exp.Dot):
            if not isinstance(at.expression, exp.Identifier):
                raise Wrong(at, "a dot is before a field's name")
            names.append(at.expression.name)
            at = at.this
        names.reverse()
        if isinstance(at, exp.Column):
            parts = [part.name for key in ("catalog", "db", "table", "this") if (part := at.args.get(key))]
            return self.path(node, [*parts, *names], False)
        return self.fields(node, self.of(at), names)

    def bracket(self, node: Any) -> Expression:
        only(node, "this", "expressions", "offset", "safe")
        if len(node.expressions) != 1:
            raise Wrong(node, "one index stands in [ ]")
        return self.call(node, "ITEM", (self.of(node.this), self.of(node.expressions[0])))

    # literals

    def literal(self, node: Any) -> Expression:
        if node.is_string:
            return Literal(node.this, Type("CHAR", len(node.this)))
        return number(node, node.this)

    def null(self, node: Any) -> Expression:
        return NULL

    def boolean(self, node: Any) -> Expression:
        return Literal(bool(node.this), BOOLEAN)

    def hexadecimal(self, node: Any) -> Expression:
        try:
            value = bytes.fromhex(str(node.this))
        except ValueError:
            raise Wrong(node, "x'…' holds pairs of hexadecimal digits") from None
        return Literal(value, Type("BINARY", len(value)))

    def moment(self, node: Any) -> Expression:
        text = node.args["text"]
        try:
            match node.this:
                case "DATE":
                    day = datetime.strptime(text, "%Y-%m-%d").date()
                    return Literal(day.toordinal() - 719_163, Type("DATE"))
                case "TIME":
                    whole, _, fraction = text.partition(".")
                    at = datetime.strptime(whole, "%H:%M:%S")
                    millis = ((at.hour * 60 + at.minute) * 60 + at.second) * 1000 + _fraction(fraction, 3)
                    return Literal(millis, Type("TIME", min(len(fraction), 3)))
                case _:
                    whole, _, fraction = text.partition(".")
                    moment = datetime.strptime(whole, "%Y-%m-%d %H:%M:%S") - datetime(1970, 1, 1)
                    seconds = moment.days * 86_400 + moment.seconds
                    return Literal(seconds * SECOND + _fraction(fraction, 6), Type("TIMESTAMP", min(len(fraction), 9)))
        except ValueError:
            form = {"DATE": "2026-11-22", "TIME": "10:00:00"}.get(node.this, "2026-11-22 10:00:00.000")
            raise Wrong(node, f"{text!r:.40} is no {node.this}", f"{node.this} '{form}'") from None

    def interval(self, node: Any) -> Expression:
        return interval(node)

    # operators

    def operator(self, node: Any) -> Expression:
        only(node, "this", "expression", "safe", "typed")
        kind = type(node)
        name = _COMPARISONS.get(kind) or _ARITHMETIC.get(kind) or "||"
        for part in (node.this, node.expression):
            if kind in _COMPARISONS and (type(part) in _COMPARISONS or isinstance(part, _RANGES)):
                raise Wrong(part, f"a comparison within {name}: which comes first?", "brackets around it")
            mixed = {kind, type(part)} - {exp.DPipe}
            if len(mixed) == 1 and exp.DPipe in (kind, type(part)) and mixed <= {*_ARITHMETIC}:
                raise Wrong(part, "|| beside arithmetic: which comes first?", "brackets around it")
        return self.call(node, name, (self.of(node.this), self.of(node.expression)))

    def logic(self, node: Any) -> Expression:
        name = "AND" if isinstance(node, exp.And) else "OR"
        return self.call(node, name, [self.condition(part) for part in operands(node)])

    def negation(self, node: Any) -> Expression:
        only(node, "this")
        return self.negated(node, self.condition(node.this))

    def negated(self, node: Any, value: Expression) -> Expression:
        return self.call(node, "NOT", (value,))

    def sign(self, node: Any) -> Expression:
        if isinstance(node.this, exp.Literal) and not node.this.is_string:
            return number(node.this, f"-{node.this.this}")
        if isinstance(node.this, nodes.IntervalLiteral):
            found = interval(node.this)
            return Literal(-found.value, found.type)
        return self.call(node, "NEGATE", (self.of(node.this),))

    def paren(self, node: Any) -> Expression:
        only(node, "this")
        return self.of(node.this)

    def is_(self, node: Any) -> Expression:
        only(node, "this", "expression", "negate")
        negate, what = bool(node.args.get("negate")), node.expression
        word = ""
        if isinstance(what, exp.Null):
            word = "NULL"
        elif isinstance(what, exp.Boolean):
            word = "TRUE" if what.this else "FALSE"
        elif isinstance(what, exp.Column) and what.name.upper() == "UNKNOWN" and not what.table:
            word = "UNKNOWN"
        elif isinstance(what, exp.JSON):
            only(what, "this")
            return self.call(node, f"IS {'NOT ' if negate else ''}JSON", (self.of(node.this),), (what.this or "VALUE",))
        else:
            raise Wrong(node, "IS stands before NULL, TRUE, FALSE, UNKNOWN, JSON and DISTINCT FROM")
        return self.call(node, f"IS {'NOT ' if negate else ''}{word}", (self.of(node.this),))

    def distinct(self, node: Any) -> Expression:
        only(node, "this", "expression")
        name = "IS NOT DISTINCT FROM" if isinstance(node, exp.NullSafeEQ) else "IS DISTINCT FROM"
        return self.call(node, name, (self.of(node.this), self.of(node.expression)))

    def in_(self, node: Any) -> Expression:
        if node.args.get("query"):
            raise Wrong(node, "IN (SELECT …) stands by itself in WHERE, joined by AND", "WHERE x IN (SELECT …) AND …")
        only(node, "this", "expressions")
        if any(isinstance(one, exp.Tuple) for one in (node.this, *node.expressions)):
            raise Wrong(node, "IN of several columns is not supported", "a = 1 AND b = 2 OR …")
        return self.call(node, "IN", (self.of(node.this), *self.all(node.expressions)))

    def between(self, node: Any) -> Expression:
        only(node, "this", "low", "high", "symmetric")
        name = "BETWEEN SYMMETRIC" if node.args.get("symmetric") else "BETWEEN"
        return self.call(node, name, self.all((node.this, node.args["low"], node.args["high"])))

    def like(self, node: Any) -> Expression:
        escape: tuple[Any, ...] = ()
        if isinstance(node, exp.Escape):
            only(node, "this", "expression")
            escape = (node.expression,)
            node = node.this
        if not isinstance(node, exp.Like | exp.SimilarTo):
            raise Wrong(node, "ESCAPE stands behind LIKE and SIMILAR TO")
        only(node, "this", "expression", "negate")
        name = "LIKE" if isinstance(node, exp.Like) else "SIMILAR TO"
        if isinstance(node.expression, exp.Any | exp.All | exp.Tuple):
            raise Wrong(node.expression, f"{name} ANY and ALL are not supported", f"x {name} … OR x {name} …")
        found = self.call(node, name, self.all((node.this, node.expression, *escape)))
        return self.negated(node, found) if node.args.get("negate") else found

    def case(self, node: Any) -> Expression:
        only(node, "this", "ifs", "default")
        args: list[Expression] = []
        for one in node.args["ifs"]:
            only(one, "this", "true")
            if node.this is not None:
                args.append(self.call(one, "=", (self.of(node.this), self.of(one.this))))
            else:
                args.append(self.condition(one.this))
            args.append(self.of(one.args["true"]))
        default = node.args.get("default")
        return self.call(node, "CASE", [*args, self.of(default) if default is not None else NULL])

    def function(self, node: Any) -> Expression:
        """``f(a, b)``."""
        only(node, "this", "expressions")
        name = function_name(node)
        if (own := self.scope.functions.get(name)) is not None:
            return self.own(node, own)
        if name in AGGREGATES:
            raise Wrong(node, f"the aggregate {name} cannot stand here", "SELECT … GROUP BY a window, or OVER (…)")
        for arg in node.expressions:
            if isinstance(arg, exp.Distinct | exp.Star | exp.Alias | exp.Order | exp.PropertyEQ | exp.Kwarg):
                raise Wrong(arg, f"{named(arg)} is not supported in {name}")
        return self.call(node, _SYNONYMS.get(name, name), self.all(node.expressions))

    def own(self, node: Any, own: Own) -> Expression:
        """A call of a user function."""
        own.usable(node)
        if self.scope.without:
            raise Wrong(node, f"{own.name} cannot stand in {self.scope.without}: it is a user function",
                        f"SELECT {own.name.lower()}(…) AS y in a query of its own below, and y here")  # fmt: skip
        if own.kind == "table":
            raise Wrong(node, f"{own.name} gives rows: it stands in FROM", f"LATERAL TABLE({own.name.lower()}(…)) AS t")
        if own.kind == "aggregate":
            raise Wrong(node, f"the aggregate {own.name} cannot stand here", "SELECT … GROUP BY a window")
        args = own.arguments(node, self.all(node.expressions))
        return Call(PYTHON, args, own.result[0], own.options)

    def worded(self, node: Any) -> Expression:
        """A function with words between its arguments."""
        options: tuple[Any, ...] = tuple(node.args.get("options") or ())
        kind = node.args.get("kind")
        if node.this in _WINDOW_WORDS:
            raise Wrong(node, f"{node.this} stands in GROUP BY or FROM TABLE(…)")
        if node.this in ("CAST", "TRY_CAST"):
            options = kind
        elif kind:
            options = ("RETURNING", kind[0], *options)
        return self.call(node, node.this, self.all(node.expressions), options)

    def subquery(self, node: Any) -> NoReturn:
        raise Wrong(node, "a query as a value is not supported", "a join with the query")

    def exists(self, node: Any) -> NoReturn:
        raise Wrong(node, "EXISTS stands by itself in WHERE, joined by AND", "WHERE EXISTS (SELECT …) AND …")

    def over(self, node: Any) -> NoReturn:
        raise Wrong(node, "OVER stands in SELECT only", "a query around it, with the condition in its WHERE")

    def filtered(self, node: Any) -> NoReturn:
        raise Wrong(node, "FILTER stands behind an aggregate", "COUNT(*) FILTER (WHERE …)")


_FORMS: dict[type, Callable[[Checker, Any], Expression]] = {
    exp.Column: Checker.column, exp.Dot: Checker.dot, exp.Bracket: Checker.bracket, exp.Literal: Checker.literal,
    exp.Null: Checker.null, exp.Boolean: Checker.boolean, exp.HexString: Checker.hexadecimal,
    nodes.TimeLiteral: Checker.moment, nodes.IntervalLiteral: Checker.interval,
    **dict.fromkeys((*_COMPARISONS, *_ARITHMETIC, exp.DPipe), Checker.operator),
    exp.And: Checker.logic, exp.Or: Checker.logic, exp.Not: Checker.negation, exp.Neg: Checker.sign,
    exp.Paren: Checker.paren, exp.Is: Checker.is_, exp.NullSafeEQ: Checker.distinct,
    exp.NullSafeNEQ: Checker.distinct, exp.In: Checker.in_, exp.Between: Checker.between, exp.Like: Checker.like,
    exp.SimilarTo: Checker.like, exp.Escape: Checker.like, exp.Case: Checker.case, exp.Anonymous: Checker.function,
    nodes.Call: Checker.worded, exp.Subquery: Checker.subquery, exp.Select: Checker.subquery,
    exp.Exists: Checker.exists, exp.Window: Checker.over, exp.Filter: Checker.filtered,
    exp.WithinGroup: Checker.filtered,
}  # fmt: skip


def function_name(node: Any) -> str:
    name = node.this
    return str(name.name if isinstance(name, exp.Identifier) else name).upper()


def operands(node: Any) -> list[Any]:
    """What a chain of AND (or of OR) joins, left to right, brackets around the same opened."""
    kind = type(node)
    found: list[Any] = []
    stack = [node]
    while stack:
        one = stack.pop()
        inner = one
        while isinstance(inner, exp.Paren) and isinstance(inner.this, kind | exp.Paren):
            inner = inner.this
        if type(inner) is kind:
            only(inner, "this", "expression")
            stack += [inner.expression, inner.this]
        else:
            found.append(one)
    return found


def conjuncts(node: Any) -> list[Any]:
    """What must hold of a condition: the operands of its AND."""
    while isinstance(node, exp.Paren) and isinstance(node.this, exp.And | exp.Paren):
        node = node.this
    return operands(node) if isinstance(node, exp.And) else [node]


def number(node: Any, text: str) -> Literal:
    """INT, BIGINT or DECIMAL by size; with an exponent DOUBLE."""
    if re.fullmatch(r"-?\d{1,100}", text):
        value = int(text)
        if -(1 << 31) <= value < 1 << 31:
            return Literal(value, INT)
        if -(1 << 63) <= value < 1 << 63:
            return Literal(value, BIGINT)
        text += "."
    if re.fullmatch(r"-?\d*\.\d*", text) and any(map(str.isdigit, text)):
        whole, _, fraction = text.removeprefix("-").partition(".")
        digits = max(1, len(whole)) + len(fraction) if fraction else max(1, len(whole.lstrip("0")))
        if digits <= 38:
            return Literal(
                Decimal(text).quantize(Decimal(1).scaleb(-len(fraction))), Type("DECIMAL", digits, len(fraction))
            )
    elif re.fullmatch(r"-?(\d+\.?\d*|\.\d+)[eE][+-]?\d{1,4}", text):
        return Literal(float(text), Type("DOUBLE"))
    raise Wrong(node, f"{text[:40]} is no number, or has more than 38 digits")


def _fraction(text: str, digits: int) -> int:
    if not re.fullmatch(r"\d{0,9}", text):
        raise ValueError
    return int(text.ljust(digits, "0")[:digits] or 0)


_SECONDS = {"SECOND": 1, "MINUTE": 60, "HOUR": 3_600, "DAY": 86_400, "WEEK": 604_800}
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_SPANS = {
    ("DAY", "HOUR"): (r"(\d+) (\d+)", (86_400, 3_600)),
    ("DAY", "MINUTE"): (r"(\d+) (\d+):(\d+)", (86_400, 3_600, 60)),
    ("DAY", "SECOND"): (r"(\d+) (\d+):(\d+):(\d+)(\.\d+)?", (86_400, 3_600, 60, 1)),
    ("HOUR", "MINUTE"): (r"(\d+):(\d+)", (3_600, 60)),
    ("HOUR", "SECOND"): (r"(\d+):(\d+):(\d+)(\.\d+)?", (3_600, 60, 1)),
    ("MINUTE", "SECOND"): (r"(\d+):(\d+)(\.\d+)?", (60, 1)),
    ("YEAR", "MONTH"): (r"(\d+)-(\d+)", (12, 1)),
}


def interval(node: Any) -> Literal:
    """Microseconds, or months."""
    text, unit, to, sign = (node.args.get(key) for key in ("text", "unit", "to", "sign"))
    text = text.strip()
    if text.startswith("-"):
        sign, text = -sign, text[1:]
    value: int | None = None
    if to is None and len(text) < 20:
        if unit in _MONTHS and text.isdecimal():
            value = int(text) * _MONTHS[unit]
        elif unit in _SECONDS and text.isdecimal():
            value = int(text) * _SECONDS[unit] * SECOND
        elif unit == "SECOND" and re.fullmatch(r"\d*\.\d{1,6}", text):
            value = int(Decimal(text) * SECOND)
    elif (unit, to) in _SPANS and len(text) < 40:
        pattern, sizes = _SPANS[unit, to]
        if match := re.fullmatch(pattern, text):
            value = sum(int(part) * size for part, size in zip(match.groups(), sizes, strict=False))
            if unit != "YEAR":
                fraction = match[len(sizes) + 1] if to == "SECOND" and match.lastindex == len(sizes) + 1 else None
                value = value * SECOND + (int(Decimal(fraction) * SECOND) if fraction else 0)
    if value is None or abs(value) > 1 << 56:
        raise Wrong(node, f"{text!r:.40} is no interval of {unit}{f' TO {to}' if to else ''}", "INTERVAL '10' MINUTE")
    months = unit in _MONTHS
    if not months:
        value -= value % 1000  # as in Flink
    return Literal(sign * value, Type("INTERVAL_MONTH" if months else "INTERVAL_SECOND"))


# --- expressions over other rows

OUTSIDE = 1 << 20
"""Columns beyond this are of the query around a subquery."""


def _outer(column: Column) -> Column:
    return replace(column, index=column.index + OUTSIDE)


def columns(expression: Expression | Aggregate | None) -> set[int]:
    """The indexes of the columns within it."""
    found: set[int] = set()
    stack: list[Any] = [expression]
    while stack:
        match stack.pop():
            case Column(index):
                found.add(index)
            case Call(_, args):
                stack += args
            case Aggregate(_, args, _, _, when):
                stack += [*args, when]
    return found


@overload
def substituted(expression: Expression, of: Callable[[int, Type], Expression]) -> Expression: ...
@overload
def substituted(expression: Aggregate, of: Callable[[int, Type], Expression]) -> Aggregate: ...
def substituted(expression: Any, of: Callable[[int, Type], Expression]) -> Any:
    """``expression`` with each column as ``of(index, type)`` gives it."""
    match expression:
        case Column(index, kind):
            return of(index, kind)
        case Call(name, args, kind, options):
            return Call(name, tuple(substituted(one, of) for one in args), kind, options)
        case Aggregate(name, args, kind, distinct, when, options):
            given = None if when is None else substituted(when, of)
            return Aggregate(name, tuple(substituted(one, of) for one in args), kind, distinct, given, options)
    return expression


def calls_own(expression: Any) -> bool:
    """Whether it calls a user function."""
    if not isinstance(expression, Call):
        return False
    return expression.name == PYTHON or any(map(calls_own, expression.args))


def parts(condition: Expression | None) -> Iterator[Expression]:
    """The operands of a checked AND."""
    if condition is None:
        return
    if isinstance(condition, Call) and condition.name == "AND":
        for one in condition.args:
            yield from parts(one)
    else:
        yield condition


def every(conditions: Sequence[Expression]) -> Expression | None:
    """AND of checked conditions."""
    flat = [part for one in conditions for part in parts(one)]
    return Call("AND", tuple(flat), BOOLEAN) if len(flat) > 1 else flat[0] if flat else None
