"""A statement to the nodes of ``plan/query.py``: its queries within each other, until every name is known.

Lowering gives plain nodes, a Calc for each step; ``optimise/`` merges them, drops what nobody asks for and brings them
into one form. A query of which a row would change later (GROUP BY without a window, a join without bounds of time, a
rank without a window, DISTINCT) is refused with what to write instead. ORDER BY, LIMIT and QUALIFY are refused: rows
leave one by one.

Of one SELECT ``sources.py`` reads the FROM (``recognize.py`` lowers MATCH_RECOGNIZE), ``joins.py`` joins and filters;
its items are made by ``grouping.py``, ``over.py`` or alone.

A statement over ``events`` is lowered again until no further field is asked for: a name that no table declares becomes
a column then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from vedette.plan.query import Column, Expression, Grouped
from vedette.rules.sql.lower.grouping import Grouping, group_of, has_aggregates
from vedette.rules.sql.lower.joins import conditions_of, joined
from vedette.rules.sql.lower.over import OVERS, Framed, framed, over, rank
from vedette.rules.sql.lower.relation import (
    NO_BOUND,
    RECEIPT,
    Relation,
    calc,
    column_of,
    finished,
    renamed,
    together,
    united,
    with_receipt,
)
from vedette.rules.sql.lower.sources import Env, Query, with_views
from vedette.rules.sql.names import expressions
from vedette.rules.sql.names.catalog import EVENTS, MAX_COLUMNS, Catalog
from vedette.rules.sql.names.check import Checker
from vedette.rules.sql.names.expressions import BIGINT, unnamed
from vedette.rules.sql.names.scope import Col, Open, Part, Scope
from vedette.rules.sql.parse import trees
from vedette.rules.sql.parse.trees import Wrong, is_proctime, named, only


def selected(query: Query) -> Relation:
    """The relation of a SELECT; a rank in it is still without its bound."""
    tree = query.tree
    for key, what in (("order", "ORDER BY"), ("limit", "LIMIT"), ("offset", "OFFSET"), ("qualify", "QUALIFY")):
        if part := tree.args.get(key):
            refuse_order(part, what)
    for key, hint in (
        ("hint", "no hint"),
        ("into", "INSERT INTO … SELECT"),
        ("sample", "no sample"),
        ("locks", ""),
        ("laterals", "CROSS JOIN LATERAL TABLE(…)"),
        ("pivots", ""),
    ):
        if part := tree.args.get(key):
            raise Wrong(part if isinstance(part, exp.Expr) else tree, f"{key.upper()} is not supported", hint)
    only(tree, "expressions", "from_", "joins", "where", "group", "having", "windows", "distinct", "match", "with_")
    query.read_from()
    relation = joined(query, conditions_of(query))
    return projected(query, relation)


def refuse_order(part: Any, what: str) -> None:
    hints = {
        "ORDER BY": "no ORDER BY; the first of a window: ROW_NUMBER() OVER (… ORDER BY …) AS n, WHERE n <= 10",
        "LIMIT": "ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY …) AS n, WHERE n <= 10",
        "QUALIFY": "a query around it, with the condition in its WHERE",
    }
    raise Wrong(part, f"{what} is not supported: rows leave one by one, as they come", hints.get(what, "no OFFSET"))


def items_of(query: Query) -> list[tuple[str, Any, int]]:
    """Name, tree and, of a star, the column of each item."""
    items: list[tuple[str, Any, int]] = []
    names = {item.alias for item in query.tree.expressions if isinstance(item, exp.Alias)}
    for at, item in enumerate(query.tree.expressions):
        if isinstance(item, exp.Star):
            only(item)
            items += star(query.scope.parts, names, item)
        elif isinstance(item, exp.Column) and isinstance(item.this, exp.Star):
            only(item.this)
            parts = [part for part in query.scope.parts if part.alias == item.table]
            if not parts:
                raise Wrong(item, f"there is no table {item.table}")
            items += star(parts, names, item)
        elif isinstance(item, exp.Alias):
            only(item, "this", "alias")
            items.append((item.alias, item.this, 0))
        elif isinstance(item, exp.Column | exp.Dot):
            items.append((item.name, item, 0))
        elif isinstance(item, exp.Aliases):
            raise Wrong(item, "one name stands behind AS")
        else:
            items.append((f"EXPR${at}", item, 0))
    if len(items) > MAX_COLUMNS:
        raise Wrong(query.tree, f"more than {MAX_COLUMNS} columns")
    return items


def star(parts: Sequence[Part], named_too: set[str], node: Any) -> list[tuple[str, Any, int]]:
    """The items of a star; columns of ``events`` that another item names are left out."""
    return [
        (col.name, node, part.base + at)
        for part in parts
        for at, col in enumerate(part.cols, 1)
        if part.open is None or col.name not in named_too
    ]


def open_table(query: Query) -> Open | None:
    """The open table whose star is among the items."""
    for item in query.tree.expressions:
        if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
            for part in query.scope.parts:
                if part.open is not None and (isinstance(item, exp.Star) or item.table == part.alias):
                    return part.open
    return None


def projected(query: Query, relation: Relation) -> Relation:
    """The items over the rows that FROM and WHERE leave: with GROUP BY or without, DISTINCT last."""
    group = query.tree.args.get("group")
    items = items_of(query)
    having = query.tree.args.get("having")
    if group is not None or having is not None or has_aggregates(query.tree, query.scope):
        relation = finished(relation)
        if open_table(query) is not None:
            raise Wrong(query.tree, "* beside GROUP BY")
        grouped = Grouping(query.tree, query.scope, relation, group_of(group)).lowered(items, having)
        return distinct_of(query.tree, grouped)
    if query.tree.args.get("distinct"):
        relation = finished(relation)
    return distinct_of(query.tree, plain(query, relation, items))


def distinct_of(tree: Any, relation: Relation) -> Relation:
    distinct = tree.args.get("distinct")
    if not distinct:
        return relation
    only(distinct)
    window = relation.window()
    if window is None:
        raise Wrong(
            tree,
            "SELECT DISTINCT would have to remember every row",
            "GROUP BY of a window; or SELECT DISTINCT window_start, window_end, … of a window",
        )
    keys = tuple(range(1, len(relation.cols) + 1))
    return Relation(Grouped(unnamed(relation.cols), relation.node.time, relation.node, keys, (), window), relation.cols)


def plain(query: Query, relation: Relation, items: list[tuple[str, Any, int]]) -> Relation:
    """SELECT without GROUP BY: expressions, OVER, ROW_NUMBER."""
    windows = {window.this.name: window for window in query.tree.args.get("windows") or ()}
    overs: list[Framed] = []
    ranks: list[Any] = []

    def hook(node: Any) -> Expression | None:
        nonlocal relation
        if is_proctime(node):
            below, at = with_receipt(relation.node)
            if at > len(relation.cols):
                relation = replace(relation, node=below, cols=[*relation.cols, Col("", RECEIPT, receipt=True)])
            return Column(at, RECEIPT)
        if not isinstance(node, exp.Window):
            return None
        if isinstance(node.this, exp.Anonymous) and trees.function_name(node.this) == "ROW_NUMBER":
            ranks.append(node)
            return Column(0, BIGINT)
        framed_fold = framed(query.scope, node, windows)
        if framed_fold not in overs:
            overs.append(framed_fold)
        return Column(OVERS + overs.index(framed_fold), framed_fold.aggregate.type)

    checker = Checker(query.scope, hook)
    names = [name for name, _, _ in items]
    exprs = [Column(at, query.scope.col(at).type) if at else checker.of(node) for _, node, at in items]

    def shown(below: Relation) -> list[Col]:
        return [column_of(name, value, below) for name, value in zip(names, exprs, strict=True)]

    opened = open_table(query)
    if ranks:
        if len(ranks) > 1 or overs or relation.rank is not None:
            raise Wrong(ranks[-1], "one ROW_NUMBER() stands in a query, without other OVER", "a query around it")
        return rank(query.scope, relation, ranks[0], exprs, shown(relation), opened, windows)
    if relation.rank is not None:
        raise Wrong(relation.rank.node, NO_BOUND, "WHERE n <= 3")
    state, places = over(relation, overs)
    exprs = [expressions.substituted(expr, lambda at, kind: Column(places.get(at) or at, kind)) for expr in exprs]
    return replace(calc(state, exprs, shown(state)), open=opened)


MAX_QUERIES = 200
"""Queries within each other and beside each other in one statement, views opened."""
MAX_PASSES = 40


class Lowering:
    """One statement of a file. ``rule`` of each Scan is left empty (``predicates.py`` fills it)."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.open = Open(EVENTS)
        self._queries = 0

    def statement(self, query: Any) -> Relation:
        """The relation of a statement's query, lowered to the last name."""

        def lowered() -> Relation:
            relation = finished(self.query(query, {}))
            if relation.open is not None:
                raise Wrong(query, f"SELECT * of {EVENTS}, which has any column", "the columns by name")
            return relation

        return self._settled(query, lowered)

    def view_alone(self, tree: Any) -> None:
        """Raise what is wrong with the query of a view or a stream."""

        def lowered() -> Relation:
            relation = self.query(tree.args["query"], {})
            if (names := tree.args.get("columns")) and relation.open is None:
                renamed(relation, names, tree)
            return relation

        self._settled(tree, lowered)

    def _settled(self, tree: Any, lowered: Callable[[], Relation]) -> Relation:
        """The result of ``lowered`` once it asks ``events`` for no further column; before, neither its result nor what
        it raises means anything."""
        for _ in range(MAX_PASSES):
            before = len(self.open.wanted)
            self._queries = 0
            try:
                relation = lowered()
            except (Wrong, LookupError):
                if len(self.open.wanted) == before:
                    raise
                continue
            if len(self.open.wanted) == before:
                return relation
        raise Wrong(tree, "too many views and queries within each other")

    def query(self, tree: Any, env: Env, outer: Scope | None = None) -> Relation:
        """The relation of any query; ``env``: the views of WITH, ``outer``: the names of the query around it."""
        self._queries += 1
        if self._queries > MAX_QUERIES:
            raise Wrong(tree, f"more than {MAX_QUERIES} queries in one statement")
        if isinstance(tree, exp.Subquery | exp.Paren):
            only(
                tree,
                "this",
                "alias",
                "with_",
                "joins" if isinstance(tree, exp.Subquery) and not tree.args.get("joins") else "this",
            )
            return self.query(tree.this, with_views(tree, env), outer)
        if isinstance(tree, exp.Union):
            env = with_views(tree, env)
            trees = united(tree)
            return together([finished(self.query(query, env)) for query in trees], trees)
        if isinstance(tree, exp.SetOperation):
            raise Wrong(
                tree, f"{type(tree).__name__.upper()} would change rows already given", "a join with bounds of time"
            )
        if isinstance(tree, exp.Values):
            raise Wrong(tree, "VALUES is not supported: rows come from events", "SELECT … FROM a table")
        if not isinstance(tree, exp.Select):
            raise Wrong(tree, f"{named(tree)} is not supported")
        return selected(Query(self, tree, with_views(tree, env), outer))
