"""MATCH_RECOGNIZE to a ``Match``: what a column means depends on the variable before it (``plan/pattern.py``)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from vedette.plan import pattern as patterns
from vedette.plan.query import Call, Column, Expression, Literal, Match, Node
from vedette.rules.sql import checked, trees
from vedette.rules.sql.check import Checker
from vedette.rules.sql.grouping import aggregate
from vedette.rules.sql.relation import Relation, named, timed
from vedette.rules.sql.scope import Col, Part, Scope
from vedette.rules.sql.trees import Wrong, only
from vedette.stream.aggregates import AGGREGATES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vedette.rules.sql.own import Own

_OFFSETS = ("LAST", "FIRST")


def _scope(relation: Relation, name: str, functions: Mapping[str, Own]) -> Scope:
    part = Part(name, relation.cols, 0, relation.open)
    return Scope([part], functions=functions, without="MATCH_RECOGNIZE")


class _Rows(Checker):
    """Expressions over the rows of a match. ``defined``: the variable whose DEFINE it is; empty in MEASURES."""

    def __init__(self, relation: Relation, name: str, variables: Sequence[str], defined: str,
                 functions: Mapping[str, Own]) -> None:  # fmt: skip
        super().__init__(_scope(relation, name, functions))
        self.variables, self.defined = variables, defined
        self.within: tuple[str, int] | None = None
        """Of LAST and FIRST: which, and how many rows away."""

    def column(self, node: Any) -> Expression:
        only(node, "this", "table", "db", "catalog")
        parts = [part.name for key in ("catalog", "db", "table", "this") if (part := node.args.get(key)) is not None]
        variable = patterns.ANY
        if len(parts) > 1 and parts[0] in self.variables:
            variable, parts = parts[0], parts[1:]
        value = self.path(node, parts, bool(node.this.args.get("quoted")))
        word, away = self.within or ("LAST", 0)
        if self.within is None and self.defined and variable in (self.defined, patterns.ANY):
            return value if variable == self.defined else self.of_row(value, "LAST", variable, 0)
        return self.of_row(value, word, variable, away)

    @staticmethod
    def of_row(value: Expression, word: str, variable: str, away: int) -> Expression:
        name = patterns.LAST if word == "LAST" else patterns.FIRST
        return checked.substituted(
            value, lambda index, kind: Call(name, (Column(index, kind),), kind, (variable, away))
        )

    def function(self, node: Any) -> Expression:
        name = trees.function_name(node)
        if name in _OFFSETS:
            return self.offset(node, name)
        if name == "MATCH_ROWTIME":
            return Call(patterns.ROWTIME, (), self.scope.parts[0].cols[self.time - 1].type)
        self.refused(node, name)
        if name in AGGREGATES:
            return self.fold(node)
        return super().function(node)

    @staticmethod
    def refused(node: Any, word: str) -> None:
        """Raise Wrong where patterns have no such word."""
        for mistake in patterns.REFUSED:
            if mistake.at == word:
                raise Wrong(node, *_split(mistake.text))

    time = 0

    def offset(self, node: Any, name: str) -> Expression:
        only(node, "this", "expressions")
        if self.within is not None:
            raise Wrong(node, f"{name} within {self.within[0]}", "one of them")
        value, *rest = node.expressions or [None]
        away = 0
        if rest:
            number = super().of(rest[0])
            if not isinstance(number, Literal) or type(number.value) is not int or number.value < 0 or len(rest) > 1:
                raise Wrong(rest[0], f"{name} takes a whole number of rows", f"{name}(A.x, 1)")
            away = number.value
        if value is None:
            raise Wrong(node, f"{name} takes a column of a variable", f"{name}(A.x, 1)")
        self.within = (name, away)
        try:
            return self.of(value)
        finally:
            self.within = None

    def fold(self, node: Any) -> Expression:
        """An aggregate over the rows of one variable."""
        named_by = {
            one.table for one in node.find_all(exp.Column) if one.args.get("table") and one.table in self.variables
        }
        if len(named_by) > 1:
            raise Wrong(node, f"an aggregate over the rows of {' and '.join(sorted(named_by))}", "one variable")
        if any(isinstance(one, exp.Star) for one in node.expressions):
            self.refused(node, "COUNT(*)")
        variable = named_by.pop() if named_by else patterns.ANY
        inner = Checker(replace(self.scope, parts=[replace(self.scope.parts[0], alias=variable)]))
        if variable == patterns.ANY:
            inner = Checker(self.scope)
        made = aggregate(inner, node)
        assert made is not None
        if made.distinct:
            self.refused(node, "DISTINCT")
        return Call(patterns.AGGREGATE, made.args, made.type, (variable, made.name, *made.options))


def _split(text: str) -> tuple[str, str]:
    reason, _, hint = text.partition(": ")
    return reason, hint


def recognized(relation: Relation, name: str, tree: Any, functions: Mapping[str, Own]) -> Relation:
    variables = [one.name for one in tree.args["pattern"]]
    known = [*variables, *(one.alias for one in tree.args.get("define") or ())]
    scope = _scope(relation, name, functions)
    plain = Checker(scope)
    keys = []
    for one in tree.args.get("partition") or ():
        column = plain.of(one)
        if not isinstance(column, Column):
            raise Wrong(one, "PARTITION BY of MATCH_RECOGNIZE takes columns", "a query around the table")
        keys.append(column)
    order = tree.args.get("order")
    first = plain.of(order.expressions[0].this) if order is not None else None
    if not isinstance(first, Column) or not scope.col(first.index).rowtime:
        raise Wrong(order or tree, "MATCH_RECOGNIZE is ordered by a time attribute", "ORDER BY event_time")
    if len(order.expressions) > 1 or order.expressions[0].args.get("desc"):
        raise Wrong(order, "MATCH_RECOGNIZE is ordered by a time attribute alone, ascending", "ORDER BY event_time")
    relation = timed(relation, first.index)
    defines: list[tuple[str, Expression]] = []
    for one in tree.args.get("define") or ():
        variable = one.alias
        if any(variable == other for other, _ in defines):
            raise Wrong(one.args["alias"], f"{variable} is defined twice")
        rows = _Rows(relation, name, known, variable, functions)
        rows.time = first.index
        condition = rows.condition(one.this)
        if variable in variables:  # another one is checked, and means nothing
            defines.append((variable, condition))
    measures: list[Expression] = []
    cols = [relation.cols[column.index - 1] for column in keys]
    cols = [replace(col, rowtime=False, window="") for col in cols]
    for one in tree.args.get("measures") or ():
        rows = _Rows(relation, name, variables, "", functions)
        rows.time = first.index
        value = rows.of(one.this)
        measures.append(value)
        rowtime = isinstance(value, Call) and value.name == patterns.ROWTIME
        cols.append(Col(one.alias, value.type, rowtime))
    if not cols:
        raise Wrong(tree, "MATCH_RECOGNIZE gives no column", "MEASURES A.event_time AS began")
    within = 0
    if (given := tree.args.get("within")) is not None:
        span = plain.of(given)
        if not isinstance(span, Literal) or span.type.name != "INTERVAL_SECOND":
            raise Wrong(given, "WITHIN takes an interval of days to milliseconds", "WITHIN INTERVAL '1' HOUR")
        within = span.value
        if within <= 0:
            raise Wrong(given, "WITHIN takes an interval longer than nothing", "WITHIN INTERVAL '1' HOUR")
    time = next((at for at, col in enumerate(cols, 1) if col.rowtime), 0)
    node: Node = Match(
        named(cols),
        time,
        relation.node,
        tuple(column.index for column in keys),
        tree.args["pattern"],
        tuple(defines),
        tuple(measures),
        tree.args["skip"],
        tree.args.get("skip_to") or "",
        within,
    )
    assert isinstance(node, Match)
    for mistake in patterns.mistakes(node):
        raise Wrong(tree, *_split(mistake.text))
    return Relation(node, cols)
