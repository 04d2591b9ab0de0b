"""Names and types: an expression of SQL to one of ``plan/query.py``, or what is wrong with it and where.

Only what is listed here is understood; every other form of a tree, and every further word within a known one, is
refused by name. Types are those that ``stream/functions`` infers, so that what is checked is what runs. Of which
tables the names are says ``scope.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

from sqlglot import exp

from vedette.plan.query import PYTHON, SECOND, Call, Expression, Literal, Type
from vedette.rules.sql import nodes
from vedette.stream.aggregates import AGGREGATES
from vedette.stream.functions.library import LIBRARY
from vedette.stream.functions.table import WrongTypes

if TYPE_CHECKING:
    from vedette.rules.sql.own import Own
from vedette.rules.sql.checked import BOOLEAN, NULL, columns, of_outer_query
from vedette.rules.sql.constants import fraction_of, interval, number
from vedette.rules.sql.scope import Scope
from vedette.rules.sql.trees import Wrong, function_name, named, only, operands

MAX_DEPTH = 60
"""Functions and operators within each other."""


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
                return self.fields(node, of_outer_query(column), names[taken:])
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
        found = self.call(node, name, (self.of(node.this), self.of(node.expression)))
        if (
            name in ("+", "-")
            and isinstance(found, Call)
            and found.type.name.startswith("TIMESTAMP")
            and not columns(found)
        ):
            self.refuse_cut(node, found)
        return found

    def refuse_cut(self, node: Any, found: Call) -> None:
        """Of a constant time Flink cuts off, in the end, the digits that its type has not; of others it does not."""
        digit = 10 ** (6 - found.type.precision) if found.type.name.startswith("TIMESTAMP") else 1
        spans = [one.value for one in found.args if isinstance(one, Literal) and one.type.name == "INTERVAL_SECOND"]
        if any(value % digit for value in spans):
            more = "TIMESTAMP '… 00:00:00.000'"
            raise Wrong(node, f"a fraction of a second beside a constant {found.type}, which cannot hold it", more)

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
