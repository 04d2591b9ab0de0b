"""One SELECT: its clauses in their order, and what its items are, by GROUP BY, OVER, a rank or alone.

ORDER BY, LIMIT and QUALIFY are refused: rows leave one by one. So is DISTINCT without a window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from vedette.plan.query import Column, Expression, Grouped
from vedette.rules.sql import checked, trees
from vedette.rules.sql.check import Checker
from vedette.rules.sql.checked import BIGINT
from vedette.rules.sql.grouping import Grouping, group_of, has_aggregates
from vedette.rules.sql.joins import conditions_of, joined
from vedette.rules.sql.over import OVERS, Framed, framed, over
from vedette.rules.sql.ranks import rank
from vedette.rules.sql.relation import NO_BOUND, Relation, calc, column_of, finished, named
from vedette.rules.sql.scope import MAX_COLUMNS, Col, Open, Part
from vedette.rules.sql.sources import Query
from vedette.rules.sql.trees import Wrong, only


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
    }  # fmt: skip
    raise Wrong(part, f"{what} is not supported: rows leave one by one, as they come", hints.get(what, "no OFFSET"))


def items_of(query: Query) -> list[tuple[str, Any, int]]:
    """Name, tree and, of a star, the column of each item."""
    found: list[tuple[str, Any, int]] = []
    names = {one.alias for one in query.tree.expressions if isinstance(one, exp.Alias)}
    for at, one in enumerate(query.tree.expressions):
        if isinstance(one, exp.Star):
            only(one)
            found += star(query.scope.parts, names, one)
        elif isinstance(one, exp.Column) and isinstance(one.this, exp.Star):
            only(one.this)
            parts = [part for part in query.scope.parts if part.alias == one.table]
            if not parts:
                raise Wrong(one, f"there is no table {one.table}")
            found += star(parts, names, one)
        elif isinstance(one, exp.Alias):
            only(one, "this", "alias")
            found.append((one.alias, one.this, 0))
        elif isinstance(one, exp.Column | exp.Dot):
            found.append((one.name, one, 0))
        elif isinstance(one, exp.Aliases):
            raise Wrong(one, "one name stands behind AS")
        else:
            found.append((f"EXPR${at}", one, 0))
    if len(found) > MAX_COLUMNS:
        raise Wrong(query.tree, f"more than {MAX_COLUMNS} columns")
    return found


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
    for one in query.tree.expressions:
        if isinstance(one, exp.Star) or (isinstance(one, exp.Column) and isinstance(one.this, exp.Star)):
            for part in query.scope.parts:
                if part.open is not None and (isinstance(one, exp.Star) or one.table == part.alias):
                    return part.open
    return None


def projected(query: Query, relation: Relation) -> Relation:
    """What the items give of the rows that FROM and WHERE leave: with GROUP BY or without, DISTINCT last."""
    group = query.tree.args.get("group")
    items = items_of(query)
    having = query.tree.args.get("having")
    if group is not None or having is not None or has_aggregates(query.tree, query.scope):
        relation = finished(relation)
        if open_table(query) is not None:
            raise Wrong(query.tree, "* beside GROUP BY")
        made = Grouping(query.tree, query.scope, relation, group_of(group)).lowered(items, having)
        return distinct_of(query.tree, made)
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
    return Relation(Grouped(named(relation.cols), relation.node.time, relation.node, keys, (), window), relation.cols)


def plain(query: Query, relation: Relation, items: list[tuple[str, Any, int]]) -> Relation:
    """SELECT without GROUP BY: expressions, OVER, ROW_NUMBER."""
    windows = {one.this.name: one for one in query.tree.args.get("windows") or ()}
    overs: list[Framed] = []
    ranks: list[Any] = []

    def hook(node: Any) -> Expression | None:
        if not isinstance(node, exp.Window):
            return None
        if isinstance(node.this, exp.Anonymous) and trees.function_name(node.this) == "ROW_NUMBER":
            ranks.append(node)
            return Column(0, BIGINT)
        made = framed(query.scope, node, windows)
        if made not in overs:
            overs.append(made)
        return Column(OVERS + overs.index(made), made.aggregate.type)

    checker = Checker(query.scope, hook)
    exprs: list[Expression] = []
    cols: list[Col] = []
    for name, node, at in items:
        value: Expression = Column(at, query.scope.col(at).type) if at else checker.of(node)
        exprs.append(value)
        cols.append(column_of(name, value, relation))
    opened = open_table(query)
    if ranks:
        if len(ranks) > 1 or overs or relation.rank is not None:
            raise Wrong(ranks[-1], "one ROW_NUMBER() stands in a query, without other OVER", "a query around it")
        return rank(query.scope, relation, ranks[0], exprs, cols, opened, windows)
    if relation.rank is not None:
        raise Wrong(relation.rank.node, NO_BOUND, "WHERE n <= 3")
    state, places = over(relation, overs)
    exprs = [checked.substituted(one, lambda at, kind: Column(places.get(at) or at, kind)) for one in exprs]
    return replace(calc(state, exprs, cols), open=opened)
