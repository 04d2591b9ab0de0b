"""FROM and WHERE of one SELECT to a relation: interval and window joins, lookups, UNNEST, [NOT] IN and EXISTS.

A condition is applied as early as it can be without changing what comes out. A join of streams has bounds of time or
equal windows, else it would have to keep every row for ever; what keys and bounds leave over is its condition.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlglot import exp

from vedette.plan.query import Column, Expand, Expression, Join, Literal, LookupJoin
from vedette.rules.sql import checked, trees
from vedette.rules.sql.check import Checker
from vedette.rules.sql.checked import BOOLEAN, OUTSIDE
from vedette.rules.sql.conditions import asked, equality, sides, time_bounds
from vedette.rules.sql.ranks import filtered
from vedette.rules.sql.relation import Relation, calc, finished, named, timed, with_keys
from vedette.rules.sql.scope import Col, Scope
from vedette.rules.sql.sources import Query, Source
from vedette.rules.sql.tables import with_views
from vedette.rules.sql.trees import Wrong, only


def conditions_of(query: Query) -> list[tuple[Any, Expression | None]]:
    """The conjuncts of WHERE with their trees; None for a subquery's."""
    where = query.tree.args.get("where")
    if where is None:
        return []
    checker = Checker(query.scope)
    found: list[tuple[Any, Expression | None]] = []
    for one in trees.conjuncts(where.this):
        found.append((one, None if subquery_of(one) else checker.condition(one)))
    return found


def joined(query: Query, conditions: list[tuple[Any, Expression | None]]) -> Relation:
    """The items of FROM joined, and the rows of which all conditions of WHERE are true."""
    plain = [one for _, one in conditions if one is not None]
    for source in query.sources:
        nullable = source.kind in ("LEFT", "FULL")
        later = query.sources[query.sources.index(source) + 1 :]
        nullable = nullable or any(one.kind in ("RIGHT", "FULL") for one in later)
        low, high = source.part.base, source.part.base + len(source.part.cols)
        mine = [one for one in plain if (used := checked.columns(one)) and all(low < at <= high for at in used)]
        if source.relation is not None and not nullable:
            plain = [one for one in plain if one not in mine]
            local = [shifted(one, -low) for one in mine]
            source.relation = filtered(source.relation, local, source.node)
    relation: Relation | None = None
    for source in query.sources:
        if relation is None:
            if source.relation is None:
                what = "a lookup" if source.lookup else "UNNEST"
                raise Wrong(source.node, f"{what} does not stand first in FROM", "FROM events AS e JOIN …")
            relation = source.relation
            if len(query.sources) > 1:
                relation = finished(relation)
            continue
        width = source.part.base + len(source.part.cols)
        ready = [one for one in plain if max(checked.columns(one), default=0) <= width and not checked.calls_own(one)]
        before = query.scope.parts[: query.sources.index(source) + 1]
        checker = Checker(Scope(before, functions=query.scope.functions, without="ON"))
        on = [] if source.on is None else list(checked.parts(checker.condition(source.on)))
        if source.kind == "INNER":
            on += ready
            plain = [one for one in plain if one not in ready]
        relation = join(query.scope, relation, source, on)
    assert relation is not None
    relation = filtered(relation, plain, query.tree)
    for tree, condition in conditions:
        if condition is None:
            relation = half_join(query, relation, tree)
    return relation


def join(scope: Scope, left: Relation, source: Source, on: list[Expression]) -> Relation:
    cols = [*left.cols, *source.part.cols]
    if source.function is not None:
        rest = [one for one in on if one != Literal(True, BOOLEAN)]
        if source.kind not in ("INNER", "LEFT") or (source.kind == "LEFT" and rest):
            raise Wrong(source.node, f"{source.kind} JOIN UNNEST stands with ON TRUE")
        made = Relation(Expand(named(cols), left.node.time, left.node, source.function, source.kind == "LEFT"), cols)
        return filtered(made, rest, source.node)
    if source.lookup is not None:
        return lookup_join(scope, left, source, on, source.kind)
    assert source.relation is not None
    right = finished(source.relation)
    if not on and source.kind == "INNER":
        raise Wrong(source.node, "a join of every row with every row", "JOIN … ON l.k = r.k AND bounds of time")
    return stream_join(left, right, on, source.kind, source.node)


def stream_join(left: Relation, right: Relation, on: list[Expression], kind: str, node: Any) -> Relation:
    """An interval or a window join; conditions are over the columns of left, then right."""
    width = len(left.cols)
    cols = [*left.cols, *right.cols]
    semi = kind in ("SEMI", "ANTI")
    own: list[Expression] = []
    rest: list[Expression] = []
    for one in on:  # of the right side alone: before the join
        used = checked.columns(one)
        if used and min(used) > width and kind in ("INNER", "LEFT", "SEMI", "ANTI"):
            own.append(checked.substituted(one, lambda at, of: Column(at - width, of)))
        elif used and max(used) <= width and kind in ("INNER", "RIGHT", "SEMI"):
            left = filtered(left, [one], node)
        else:
            rest.append(one)
    right = filtered(right, own, node)
    keys: list[tuple[Expression, Expression]] = []
    bounds: list[tuple[int | None, int | None]] = []
    windows: set[tuple[str, str]] = set()
    others: list[Expression] = []
    for one in rest:
        pair = sides(one, width)
        if pair and (names := (cols[pair[0] - 1].window, cols[pair[1] - 1].window)) in (
            ("start", "start"),
            ("end", "end"),
        ):
            windows.add(names)
        elif found := time_bounds(one, cols, width):
            bounds += found
        elif equal := equality(one, width):
            keys.append(equal)
        else:
            others.append(one)
    lower = max((low for low, _ in bounds if low is not None), default=None)
    upper = min((high for _, high in bounds if high is not None), default=None)
    both = None
    if len(windows) == 2:
        mine, theirs = left.window(), right.window()
        assert mine is not None
        assert theirs is not None
        both = (mine, theirs)
        if bounds:
            others += [one for one in rest if time_bounds(one, cols, width)]
        lower = upper = 0
    elif lower is None or upper is None or semi:
        raise Wrong(
            node,
            f"{'a subquery' if semi else 'a join'} without bounds of time keeps every row for ever",
            "ON l.k = r.k AND l.window_start = r.window_start AND l.window_end = r.window_end"
            if semi
            else "ON l.k = r.k AND r.event_time BETWEEN l.event_time AND l.event_time + INTERVAL '1' HOUR"
            " (time attributes), or equal windows, or FOR SYSTEM_TIME AS OF of a lookup",
        )
    elif lower > upper:
        raise Wrong(node, "the bounds of time leave nothing to join")
    left, left_keys = with_keys(left, [one for one, _ in keys])
    shift = len(left.cols) - width
    right, right_keys = with_keys(
        right, [checked.substituted(one, lambda at, of: Column(at - width, of)) for _, one in keys]
    )
    if not both:
        compared = {at for one in rest if time_bounds(one, cols, width) for at in checked.columns(one)}
        times = [at for at in compared if at <= width], [at for at in compared if at > width]
        if any(len(several) > 1 for several in times):
            raise Wrong(node, "bounds on two times of one side", "bounds on one time attribute of each")
        left, right = timed(left, times[0][0]), timed(right, times[1][0] - width)
    moved = [checked.substituted(one, lambda at, of: Column(at + shift if at > width else at, of)) for one in others]
    joined = [*left.cols] if semi else [*left.cols, *right.cols]
    if not semi:
        if kind in ("LEFT", "FULL"):
            joined = [*left.cols, *(replace(col, rowtime=False, window="") for col in right.cols)]
        if kind in ("RIGHT", "FULL"):
            joined = [
                *(replace(col, rowtime=False, window="") for col in joined[: len(left.cols)]),
                *joined[len(left.cols) :],
            ]
        if both:
            joined = [*joined[: len(left.cols)], *(replace(col, window="") for col in joined[len(left.cols) :])]
    time = next((at for at, col in enumerate(joined, 1) if col.rowtime), 0)
    node_ = Join(
        named(joined),
        time,
        left.node,
        right.node,
        kind,
        left_keys,
        right_keys,
        checked.every(moved),
        lower or 0,
        upper or 0,
        both,
    )
    made = Relation(node_, joined)
    kept = [
        at
        for at in range(1, len(joined) + 1)
        if at <= width or len(left.cols) < at <= len(left.cols) + len(cols) - width
    ]
    if semi:
        kept = list(range(1, width + 1))
    if len(kept) == len(joined):
        return made
    return calc(made, [Column(at, joined[at - 1].type) for at in kept], [joined[at - 1] for at in kept])


def lookup_join(scope: Scope, left: Relation, source: Source, on: list[Expression], kind: str) -> Relation:
    """``on`` is over the columns of left, then the lookup's."""
    lookup = source.lookup
    assert lookup is not None
    if kind not in ("INNER", "LEFT", "SEMI", "ANTI"):
        raise Wrong(source.node, f"{kind} JOIN of a lookup would give rows that no event made", "LEFT JOIN")
    width = len(left.cols)
    at = left.node.time
    if source.at is None and kind in ("INNER", "LEFT"):
        raise Wrong(
            source.node,
            f"the lookup {lookup.name} is asked as of a time",
            f"JOIN {lookup.name} FOR SYSTEM_TIME AS OF e.event_time AS {source.part.alias}",
        )
    if source.at is not None:
        time = Checker(scope).of(source.at)
        if not isinstance(time, Column) or time.index > width or not left.cols[time.index - 1].rowtime:
            raise Wrong(source.at, "FOR SYSTEM_TIME AS OF takes a time attribute of the left side", "e.event_time")
        at = time.index
    known = [(one, found) for one in on if (found := asked(one, width, lookup)) is not None]
    if not known:
        raise Wrong(source.node, f"the lookup {lookup.name} is asked by no key", "ON d.key = e.column")
    chosen, (index, key) = next((one for one in known if checked.columns(one[1][1])), known[0])
    others = [one for one in on if one is not chosen]
    wanted = tuple(one for one, _ in lookup.columns)
    cols = [*left.cols]
    if kind in ("INNER", "LEFT"):
        cols += [Col(one, of) for one, of in lookup.columns]
    made = LookupJoin(
        named(cols), left.node.time, left.node, lookup.lookup, index, key, wanted, kind, checked.every(others), at
    )
    return Relation(made, cols)


def half_join(around: Query, relation: Relation, tree: Any) -> Relation:
    """[NOT] IN (SELECT …) and [NOT] EXISTS (SELECT …)."""
    relation = finished(relation)
    found = subquery_of(tree)
    assert found is not None
    node, negate = found
    scope = Scope([replace(part) for part in around.scope.parts], around.outer, around.scope.functions)
    if isinstance(node, exp.In):
        query = node.args["query"].this
        value: Any = node.this
        only(node, "this", "query")
    else:
        query, value = node.this, None
    while isinstance(query, exp.Subquery):
        query = query.this
    if not isinstance(query, exp.Select):
        raise Wrong(query, "IN and EXISTS take one SELECT")
    for key in ("group", "having", "distinct", "joins", "windows", "match"):
        if query.args.get(key):
            raise Wrong(
                query, f"{key.upper()} in the SELECT of IN or EXISTS is not supported", "a CREATE VIEW, or WITH, of it"
            )
    inner = Query(around.lowering, query, with_views(query, around.env), scope)
    inner.read_from()
    (source,) = inner.sources
    width = len(relation.cols)

    def over_both(one: Expression) -> Expression:
        return checked.substituted(one, lambda at, kind: Column(at - OUTSIDE if at > OUTSIDE else at + width, kind))

    on = [over_both(one) for tree_, one in conditions_of(inner) if one is not None for one in checked.parts(one)]
    if any(one is None for _, one in conditions_of(inner)):
        raise Wrong(query, "IN and EXISTS within IN or EXISTS are not supported")
    if value is not None:
        if len(query.expressions) != 1:
            raise Wrong(query, "the SELECT of IN has one column")
        picked = over_both(Checker(inner.scope).of(query.expressions[0].unalias()))
        mine = Checker(around.scope).of(value)
        equal = Checker(around.scope).call(node, "=", (mine, picked))
        if negate and source.lookup is None:
            unknown = [Checker(around.scope).call(node, "IS NULL", (one,)) for one in (mine, picked)]
            equal = Checker(around.scope).call(node, "OR", (equal, *unknown))
        on.append(equal)
        if negate and source.lookup is not None:
            relation = filtered(relation, [Checker(around.scope).call(node, "IS NOT NULL", (mine,))], tree)
    kind = "ANTI" if negate else "SEMI"
    if source.lookup is not None:
        return lookup_join(around.scope, relation, source, on, kind)
    assert source.relation is not None
    return stream_join(relation, finished(source.relation), on, kind, node)


def subquery_of(tree: Any) -> tuple[Any, bool] | None:
    """The IN or EXISTS with a query that a conjunct is, and whether it is negated."""
    negate = False
    while isinstance(tree, exp.Paren | exp.Not):
        negate ^= isinstance(tree, exp.Not)
        tree = tree.this
    if isinstance(tree, exp.Exists) or (isinstance(tree, exp.In) and tree.args.get("query")):
        return tree, negate
    return None


def shifted(expression: Expression, by: int) -> Expression:
    """``expression`` over columns that stand ``by`` further."""
    return checked.substituted(expression, lambda at, kind: Column(at + by, kind))
