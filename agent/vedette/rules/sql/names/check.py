"""Names and types: an expression of SQL to one of ``plan/query.py``, or what is wrong with it and where.

Only what is listed here is understood; every other form of a tree, and every further word within a known one, is
refused by name. Types are those that ``stream/functions`` infers, so that what is checked is what runs. Of which
tables the names are says ``scope.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, NoReturn

from sqlglot import exp

from vedette.plan.query import PYTHON, SECOND, Call, Expression, Literal, Type
from vedette.rules.sql.names.catalog import Own
from vedette.rules.sql.names.expressions import BIGINT, BOOLEAN, INT, NULL, columns, of_outer_query
from vedette.rules.sql.names.scope import Scope
from vedette.rules.sql.parse import trees
from vedette.rules.sql.parse.reader import ALONE
from vedette.rules.sql.parse.trees import Wrong, function_name, named, only, operands
from vedette.stream.aggregates.table import AGGREGATES
from vedette.stream.functions.library import LIBRARY
from vedette.stream.functions.table import WrongTypes


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
        digits = len(whole) + len(fraction) if fraction else max(1, len(whole.lstrip("0")))
        if digits <= 38:
            return Literal(Decimal(text), Type("DECIMAL", digits, len(fraction)))
    elif re.fullmatch(r"-?(\d+\.?\d*|\.\d+)[eE][+-]?\d{1,4}", text):
        return Literal(float(text), Type("DOUBLE"))
    raise Wrong(node, f"{text[:40]} is no number, or has more than 38 digits")


def fraction_of(text: str, digits: int) -> int:
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
        sign = -sign
        text = text[1:]
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


MAX_DEPTH = 60
"""Functions and operators within each other."""


_COMPARISONS = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_ARITHMETIC = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}
_RANGES = (exp.In, exp.Like, exp.Between, exp.SimilarTo, exp.Is, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Not)
_SYNONYMS = {"CHARACTER_LENGTH": "CHAR_LENGTH", "CEILING": "CEIL", "POW": "POWER", "SUBSTR": "SUBSTRING", "MOD": "%"}
_WINDOW_WORDS = ("TUMBLE", "HOP", "SESSION")
Hook = Callable[[Any], Expression | None]


class Checker:
    """Expressions over one scope. ``hook`` is asked first of each node: what aggregates and windows mean."""

    def __init__(self, scope: Scope, hook: Hook | None = None) -> None:
        self.scope = scope
        self.hook = hook
        self._depth = 0

    def of(self, node: Any) -> Expression:
        self._depth += 1
        try:
            if self._depth > MAX_DEPTH:
                raise Wrong(node, f"functions and operators nested deeper than {MAX_DEPTH}", "a CREATE VIEW between")
            if self.hook is not None and (replacement := self.hook(node)) is not None:
                return replacement
            make = _FORMS.get(type(node))
            if make is None:
                raise Wrong(node, f"{named(node)} is not supported")
            expression: Expression = getattr(self, make.__name__)(node)  # a subclass may mean something else by it
            return expression
        finally:
            self._depth -= 1

    def all(self, nodes: Sequence[Any]) -> tuple[Expression, ...]:
        return tuple(self.of(node) for node in nodes)

    def condition(self, node: Any) -> Expression:
        condition = self.of(node)
        if condition.type.name not in ("BOOLEAN", "NULL"):
            raise Wrong(node, f"a condition is BOOLEAN, this is {condition.type}")
        return condition

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
        if len(names) == 1 and not quoted and names[0].upper() in ALONE:
            reason = f"{names[0].upper()} is no name: it would depend on the clock or the session"
            raise Wrong(node, reason, f"`{names[0]}` in backticks, or event_time")
        outer = self.scope.outer
        of_outer = outer is not None and len(names) > 1 and any(part.alias == names[0] for part in outer.parts)
        if of_outer and any(part.alias == names[0] for part in self.scope.parts):
            of_outer = False
        match = None if of_outer else self.scope.find(names, node)
        if match is None:
            if self.scope.outer is not None and (outside := self.scope.outer.find(names, node)) is not None:
                column, used = outside
                return self.fields(node, of_outer_query(column), names[used:])
            nearby = [col.name for part in self.scope.parts for col in part.cols][:12]
            raise Wrong(node, f"there is no column {'.'.join(names)}", f"one of {', '.join(nearby)}" if nearby else "")
        column, used = match
        return self.fields(node, column, names[used:])

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
        value, at = self.of(node.this), self.of(node.expressions[0])
        if value.type.name == "ROW" and isinstance(at, Literal):
            names = [name for name, _ in value.type.args]
            place = at.value - 1 if type(at.value) is int else names.index(at.value) if at.value in names else -1
            if not 0 <= place < len(names):
                raise Wrong(node, f"{value.type} has no field {at.value!r:.40}")
            return self.call(node, "FIELD", (value,), (names[place],))
        return self.call(node, "ITEM", (value, at))

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
        text = re.sub(r"^\d{1,3}(?=-)", lambda year: year[0].zfill(4), node.args["text"])
        try:
            match node.this:
                case "DATE":
                    day = datetime.strptime(text, "%Y-%m-%d").date()
                    return Literal(day.toordinal() - 719_163, Type("DATE"))
                case "TIME":
                    whole, _, fraction = text.partition(".")
                    at = datetime.strptime(whole, "%H:%M:%S")
                    millis = ((at.hour * 60 + at.minute) * 60 + at.second) * 1000 + fraction_of(fraction, 3)
                    return Literal(millis, Type("TIME", min(len(fraction), 3)))
                case _:
                    whole, _, fraction = text.partition(".")
                    moment = datetime.strptime(whole, "%Y-%m-%d %H:%M:%S") - datetime(1970, 1, 1)
                    seconds = moment.days * 86_400 + moment.seconds
                    return Literal(
                        seconds * SECOND + fraction_of(fraction, 6), Type("TIMESTAMP", min(len(fraction), 9))
                    )
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
        value = self.call(node, name, (self.of(node.this), self.of(node.expression)))
        if (
            name in ("+", "-")
            and isinstance(value, Call)
            and value.type.name.startswith("TIMESTAMP")
            and not columns(value)
        ):
            self.refuse_cut(node, value)
        return value

    def refuse_cut(self, node: Any, moment: Call) -> None:
        """Refuse a fraction beside a constant time: of this alone Flink cuts off the digits that its type has not."""
        digit = 10 ** (6 - moment.type.precision) if moment.type.name.startswith("TIMESTAMP") else 1
        spans = [
            span.value for span in moment.args if isinstance(span, Literal) and span.type.name == "INTERVAL_SECOND"
        ]
        if any(value % digit for value in spans):
            more = "TIMESTAMP '… 00:00:00.000'"
            raise Wrong(node, f"a fraction of a second beside a constant {moment.type}, which cannot hold it", more)

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
        below = node.this.unnest()
        if isinstance(below, exp.Neg) and isinstance(below.this, exp.Literal) and not below.this.is_string:
            return number(below.this, below.this.this)  # -(-2147483648) is a BIGINT
        if isinstance(node.this, trees.IntervalLiteral):
            span = interval(node.this)
            return Literal(-span.value, span.type)
        return self.call(node, "NEGATE", (self.of(node.this),))

    def paren(self, node: Any) -> Expression:
        only(node, "this")
        return self.of(node.this)

    def is_(self, node: Any) -> Expression:
        only(node, "this", "expression", "negate")
        negate = bool(node.args.get("negate"))
        what = node.expression
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
        if any(isinstance(part, exp.Tuple) for part in (node.this, *node.expressions)):
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
        matches = self.call(node, name, self.all((node.this, node.expression, *escape)))
        return self.negated(node, matches) if node.args.get("negate") else matches

    def case(self, node: Any) -> Expression:
        only(node, "this", "ifs", "default")
        args: list[Expression] = []
        for branch in node.args["ifs"]:
            only(branch, "this", "true")
            if node.this is not None:
                args.append(self.call(branch, "=", (self.of(node.this), self.of(branch.this))))
            else:
                args.append(self.condition(branch.this))
            args.append(self.of(branch.args["true"]))
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
            raise Wrong(
                node,
                f"{own.name} cannot stand in {self.scope.without}: it is a user function",
                f"SELECT {own.name.lower()}(…) AS y in a query of its own below, and y here",
            )
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
    exp.Column: Checker.column,
    exp.Dot: Checker.dot,
    exp.Bracket: Checker.bracket,
    exp.Literal: Checker.literal,
    exp.Null: Checker.null,
    exp.Boolean: Checker.boolean,
    exp.HexString: Checker.hexadecimal,
    trees.TimeLiteral: Checker.moment,
    trees.IntervalLiteral: Checker.interval,
    **dict.fromkeys((*_COMPARISONS, *_ARITHMETIC, exp.DPipe), Checker.operator),
    exp.And: Checker.logic,
    exp.Or: Checker.logic,
    exp.Not: Checker.negation,
    exp.Neg: Checker.sign,
    exp.Paren: Checker.paren,
    exp.Is: Checker.is_,
    exp.NullSafeEQ: Checker.distinct,
    exp.NullSafeNEQ: Checker.distinct,
    exp.In: Checker.in_,
    exp.Between: Checker.between,
    exp.Like: Checker.like,
    exp.SimilarTo: Checker.like,
    exp.Escape: Checker.like,
    exp.Case: Checker.case,
    exp.Anonymous: Checker.function,
    trees.Call: Checker.worded,
    exp.Subquery: Checker.subquery,
    exp.Select: Checker.subquery,
    exp.Exists: Checker.exists,
    exp.Window: Checker.over,
    exp.Filter: Checker.filtered,
    exp.WithinGroup: Checker.filtered,
}
