"""ROW_NUMBER(): a rank of a query, and the bound that the WHERE of the query around it gives it.

A rank in a window is a Top of the rows of the window; without one, only the first row of a key never changes. Whatever
filters a relation comes through ``filtered``, so that no bound is missed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vedette.plan.query import Call, Column, Expression, Literal, Top
from vedette.rules.sql import checked
from vedette.rules.sql.check import Checker
from vedette.rules.sql.checked import BIGINT
from vedette.rules.sql.over import window_of
from vedette.rules.sql.relation import NO_BOUND, Rank, Relation, calc, identity, named, with_keys
from vedette.rules.sql.scope import Col, Open, Scope
from vedette.rules.sql.trees import Wrong, only


def filtered(relation: Relation, conditions: list[Expression], node: Any) -> Relation:
    """The rows of which all ``conditions`` are true; bounds of its rank become a Top."""
    if relation.rank is not None:
        return ranked(relation, conditions)
    when = checked.every(conditions)
    if when is None:
        return relation
    made = calc(relation, identity(relation.cols), relation.cols, when)
    return replace(made, open=relation.open)


def ranked(relation: Relation, conditions: list[Expression]) -> Relation:
    rank = relation.rank
    assert rank is not None
    first, last, rest = 1, None, []
    for one in conditions:
        bound = bound_of(one, rank.column)
        if bound is None:
            rest.append(one)
        else:
            first = max(first, bound[0])
            last = bound[1] if last is None else last if bound[1] is None else min(last, bound[1])
    if last is None:
        if not rest:
            return relation
        raise Wrong(rank.node, NO_BOUND, "WHERE n <= 3")
    if last < first or last > 1_000_000:
        raise Wrong(rank.node, f"ranks {first} to {last}: none, or too many")
    base = rank.base
    window = base.window()
    if not (window and set(window) <= set(rank.keys)):
        window = None
        at, descending, _ = rank.order[0]
        if len(rank.order) != 1 or not base.cols[at - 1].rowtime or descending or (first, last) != (1, 1):
            raise Wrong(
                rank.node,
                "ROW_NUMBER() without a window would change rows already given",
                "PARTITION BY window_start, window_end, … of a window; or the first of a key: "
                "ORDER BY a time attribute, ascending, and n = 1",
            )
    cols = [*base.cols, Col("", BIGINT)]
    top = Top(named(cols), base.node.time, base.node, rank.keys, rank.order, first, last, window or (0, 0), True)
    made = Relation(top, cols)
    exprs = [checked.substituted(one, lambda at, kind: Column(at or len(cols), kind)) for one in rank.exprs]
    out = calc(made, exprs, relation.cols)
    return filtered(replace(out, open=relation.open), rest, rank.node)


def rank(
    scope: Scope,
    relation: Relation,
    node: Any,
    exprs: list[Expression],
    cols: list[Col],
    opened: Open | None,
    windows: dict[str, Any],
) -> Relation:
    """The relation of a SELECT with ROW_NUMBER(), which ``exprs`` have as ``Column(0)``."""
    spec = window_of(node, windows)
    if spec.args.get("spec"):
        raise Wrong(node, "ROW_NUMBER() has no ROWS or RANGE")
    order = spec.args.get("order")
    if order is None:
        raise Wrong(node, "ROW_NUMBER() needs ORDER BY", "ORDER BY event_time")
    columns = [at for at, one in enumerate(exprs, 1) if one == Column(0, BIGINT)]
    if len(columns) != 1 or any(0 in checked.columns(one) for at, one in enumerate(exprs, 1) if at not in columns):
        raise Wrong(node, "ROW_NUMBER() stands alone in its column", "ROW_NUMBER() OVER (…) AS n")
    plain = Checker(scope)
    keys = [plain.of(one) for one in spec.args.get("partition_by") or ()]
    by = []
    for one in order.expressions:
        only(one, "this", "desc", "nulls_first")
        descending = bool(one.args.get("desc"))
        by.append((plain.of(one.this), descending, not one.args.get("nulls_first")))
    base, places = with_keys(relation, [*keys, *(value for value, _, _ in by)])
    ordered = tuple((at, down, last) for at, (_, down, last) in zip(places[len(keys) :], by, strict=True))
    rank = Rank(columns[0], node, base, places[: len(keys)], ordered, tuple(exprs))
    return Relation(base.node, cols, opened, rank)


def bound_of(one: Expression, rank: int) -> tuple[int, int | None] | None:
    """The ranks that a condition leaves, when it is one about the column ``rank`` and a whole number."""
    if not isinstance(one, Call):
        return None
    if one.name == "BETWEEN" and isinstance(one.args[0], Column) and one.args[0].index == rank:
        low, high = one.args[1:]
        if isinstance(low, Literal) and isinstance(high, Literal):
            return low.value, high.value
        return None
    if one.name not in ("=", "<", "<=", ">", ">=") or len(one.args) != 2:
        return None
    name, (first, second) = one.name, one.args
    if isinstance(first, Literal):
        first, second = second, first
        name = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(name, name)
    if (
        not isinstance(first, Column)
        or first.index != rank
        or not isinstance(second, Literal)
        or type(second.value) is not int
    ):
        return None
    value = second.value
    return {"=": (value, value), "<": (1, value - 1), "<=": (1, value), ">": (value + 1, None), ">=": (value, None)}[
        name
    ]
