"""MATCH_RECOGNIZE to a ``Match``: what a column means depends on the variable before it (``plan/pattern.py``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from vedette.plan import pattern as patterns
from vedette.plan.query import Call, Column, Expression, Literal, Match
from vedette.rules.sql.lower.grouping import aggregate
from vedette.rules.sql.lower.relation import Relation, timed
from vedette.rules.sql.names import expressions
from vedette.rules.sql.names.catalog import Own
from vedette.rules.sql.names.check import Checker
from vedette.rules.sql.names.expressions import microseconds, unnamed
from vedette.rules.sql.names.scope import Col, Part, Scope, time_column
from vedette.rules.sql.parse import trees
from vedette.rules.sql.parse.trees import Wrong, only
from vedette.stream.aggregates.table import AGGREGATES

_OFFSETS = ("LAST", "FIRST")


def _scope(relation: Relation, name: str, functions: Mapping[str, Own]) -> Scope:
    part = Part(name, relation.cols, 0, relation.open)
    return Scope([part], functions=functions, without="MATCH_RECOGNIZE")


class _Rows(Checker):
    """Expressions over the rows of a match. ``defined``: the variable whose DEFINE it is; empty in MEASURES."""

    def __init__(
        self, relation: Relation, name: str, variables: Sequence[str], defined: str, functions: Mapping[str, Own],
        received: bool,
    ) -> None:  # fmt: skip
        super().__init__(_scope(relation, name, functions))
        self.rowtime = "MATCH_PROCTIME" if received else "MATCH_ROWTIME"
        self.variables = variables
        self.defined = defined
        self.time = relation.cols[relation.node.time - 1].type
        self.within: tuple[str, int] | None = None
        """LAST or FIRST, and how many rows away."""

    def column(self, node: Any) -> Expression:
        only(node, "this", "table", "db", "catalog")
        parts = [part.name for key in ("catalog", "db", "table", "this") if (part := node.args.get(key)) is not None]
        variable = patterns.ANY
        if len(parts) > 1 and parts[0] in self.variables:
            variable = parts[0]
            parts = parts[1:]
        value = self.path(node, parts, bool(node.this.args.get("quoted")))
        word, away = self.within or ("LAST", 0)
        if self.within is None and self.defined and variable in (self.defined, patterns.ANY):
            return value if variable == self.defined else self.of_row(value, "LAST", variable, 0)
        return self.of_row(value, word, variable, away)

    @staticmethod
    def of_row(value: Expression, word: str, variable: str, away: int) -> Expression:
        name = patterns.LAST if word == "LAST" else patterns.FIRST
        return expressions.substituted(
            value, lambda index, kind: Call(name, (Column(index, kind),), kind, (variable, away))
        )

    def function(self, node: Any) -> Expression:
        name = trees.function_name(node)
        if name in _OFFSETS:
            return self.offset(node, name)
        if name in ("MATCH_ROWTIME", self.rowtime):
            return Call(patterns.ROWTIME, (), self.time)
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
            column.table
            for column in node.find_all(exp.Column)
            if column.args.get("table") and column.table in self.variables
        }
        if len(named_by) > 1:
            raise Wrong(node, f"an aggregate over the rows of {' and '.join(sorted(named_by))}", "one variable")
        if any(isinstance(arg, exp.Star) for arg in node.expressions):
            self.refused(node, "COUNT(*)")
        variable = named_by.pop() if named_by else patterns.ANY
        inner = Checker(replace(self.scope, parts=[replace(self.scope.parts[0], alias=variable)]))
        if variable == patterns.ANY:
            inner = Checker(self.scope)
        fold = aggregate(inner, node)
        assert fold is not None
        if fold.distinct:
            self.refused(node, "DISTINCT")
        return Call(patterns.AGGREGATE, fold.args, fold.type, (variable, fold.name, *fold.options))


def _split(text: str) -> tuple[str, str]:
    reason, _, hint = text.partition(": ")
    return reason, hint


def recognized(relation: Relation, name: str, tree: Any, functions: Mapping[str, Own]) -> Relation:
    """MATCH_RECOGNIZE over the table ``name``: a column for each key and each measure. Raises Wrong."""
    plain = Checker(_scope(relation, name, functions))
    keys = [_key(plain, key) for key in tree.args.get("partition") or ()]
    time = _time(plain, tree, relation.cols)
    received = relation.cols[time - 1].receipt
    relation = timed(relation, time)
    variables = [variable.name for variable in tree.args["pattern"]]
    definitions = tree.args.get("define") or ()
    every = [*variables, *(definition.alias for definition in definitions)]
    defines: dict[str, Expression] = {}
    for definition in definitions:
        variable = definition.alias
        if variable in defines:
            raise Wrong(definition.args["alias"], f"{variable} is defined twice")
        condition = _Rows(relation, name, every, variable, functions, received).condition(definition.this)
        if variable in variables:  # another one is checked, and means nothing
            defines[variable] = condition
    cols = [replace(relation.cols[at - 1], rowtime=False, window="", receipt=False) for at in keys]
    measures: list[Expression] = []
    for measure in tree.args.get("measures") or ():
        value = _Rows(relation, name, variables, "", functions, received).of(measure.this)
        measures.append(value)
        cols.append(Col(measure.alias, value.type, isinstance(value, Call) and value.name == patterns.ROWTIME))
    if not cols:
        raise Wrong(tree, "MATCH_RECOGNIZE gives no column", "MEASURES A.event_time AS began")
    node = Match(
        unnamed(cols),
        next((at for at, col in enumerate(cols, 1) if col.rowtime), 0),
        relation.node,
        tuple(keys),
        tree.args["pattern"],
        tuple(defines.items()),
        tuple(measures),
        tree.args["skip"],
        tree.args.get("skip_to") or "",
        _within(plain, tree.args.get("within")),
    )
    for mistake in patterns.mistakes(node):
        raise Wrong(tree, *_split(mistake.text))
    return Relation(node, cols)


def _key(plain: Checker, key: Any) -> int:
    column = plain.of(key)
    if not isinstance(column, Column):
        raise Wrong(key, "PARTITION BY of MATCH_RECOGNIZE takes columns", "a query around the table")
    return column.index


def _time(plain: Checker, tree: Any, cols: Sequence[Col]) -> int:
    """The column of the time attribute that ORDER BY names."""
    order = tree.args.get("order")
    time = None if order is None else time_column(plain.of(order.expressions[0].this), cols)
    if time is None:
        raise Wrong(order or tree, "MATCH_RECOGNIZE is ordered by a time attribute", "ORDER BY event_time")
    if len(order.expressions) > 1 or order.expressions[0].args.get("desc"):
        raise Wrong(order, "MATCH_RECOGNIZE is ordered by a time attribute alone, ascending", "ORDER BY event_time")
    return time


def _within(plain: Checker, limit: Any) -> int:
    """The longest that a match may last, microseconds; 0: any time."""
    if limit is None:
        return 0
    span = microseconds(plain.of(limit))
    if span is None:
        raise Wrong(limit, "WITHIN takes an interval of days to milliseconds", "WITHIN INTERVAL '1' HOUR")
    if span <= 0:
        raise Wrong(limit, "WITHIN takes an interval longer than nothing", "WITHIN INTERVAL '1' HOUR")
    return span
