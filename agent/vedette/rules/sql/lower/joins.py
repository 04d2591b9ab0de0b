"""FROM and WHERE of one SELECT to a relation: interval and window joins, lookups, UNNEST, [NOT] IN and EXISTS.

A condition is applied as early as it can be without changing what comes out. A join of streams has bounds of time or
equal windows, else it would have to keep every row for ever; what keys and bounds leave over is its condition.

Conditions of a join are over the columns of its left side, ``width`` of them, then the right's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from vedette.plan.query import MILLISECOND, Call, Column, Expand, Expression, Join, Literal, LookupJoin, Type
from vedette.rules.sql.lower.over import filtered
from vedette.rules.sql.lower.relation import Relation, calc, finished, timed, with_keys
from vedette.rules.sql.lower.sources import Query, Source, with_views
from vedette.rules.sql.names import expressions
from vedette.rules.sql.names.catalog import LookupTable
from vedette.rules.sql.names.check import Checker
from vedette.rules.sql.names.expressions import BOOLEAN, OUTSIDE, microseconds, unnamed
from vedette.rules.sql.names.scope import Col, Scope, time_column
from vedette.rules.sql.parse import trees
from vedette.rules.sql.parse.trees import Wrong, only

_FAMILIES = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT"), "integer"),
    **dict.fromkeys(("CHAR", "VARCHAR", "STRING"), "text"),
}


def sides(condition: Expression, width: int) -> tuple[int, int] | None:
    """The indexes of both columns of ``l = r``: left's, then right's."""
    if isinstance(condition, Call) and condition.name == "=" and all(isinstance(arg, Column) for arg in condition.args):
        first, second = (arg.index for arg in condition.args if isinstance(arg, Column))
        if first <= width < second:
            return first, second
        if second <= width < first:
            return second, first
    return None


def equality(condition: Expression, width: int) -> tuple[Expression, Expression] | None:
    """Left's and right's part of an equality between both sides, of types that compare as values do."""
    if not isinstance(condition, Call) or condition.name != "=":
        return None
    first, second = condition.args
    a = expressions.columns(first)
    b = expressions.columns(second)
    if not a or not b:
        return None
    if max(b) <= width < min(a):
        first, second, a, b = second, first, b, a
    if not max(a) <= width < min(b):
        return None
    kinds = [_FAMILIES.get(part.type.name, str(part.type)) for part in (first, second)]
    return (first, second) if kinds[0] == kinds[1] else None


def shifted_time(value: Expression, cols: Sequence[Col]) -> tuple[int, int] | None:
    """The column of a time attribute with an interval added or taken away, and the microseconds."""
    if isinstance(value, Column):
        time = time_column(value, cols)
        return None if time is None else (time, 0)
    if not isinstance(value, Call) or value.name not in ("+", "-") or len(value.args) != 2:
        return None
    first, second = value.args
    by = microseconds(second)
    if by is None and value.name == "+":
        first, by = second, microseconds(first)
    if by is None:
        return None
    inner = shifted_time(first, cols)
    return None if inner is None else (inner[0], inner[1] + by if value.name == "+" else inner[1] - by)


Bound = tuple[int | None, int | None]
"""The least and the most of right time - left time, microseconds; None: not bounded."""


def time_bounds(condition: Expression, cols: Sequence[Col], width: int) -> list[Bound] | None:
    """The bounds of time that a condition says; None where it is not one of time."""
    if not isinstance(condition, Call):
        return None
    if condition.name == "BETWEEN":
        value, low, high = condition.args
        bounds = [
            time_bounds(Call(">=", (value, low), BOOLEAN), cols, width),
            time_bounds(Call("<=", (value, high), BOOLEAN), cols, width),
        ]
        return [*bounds[0], *bounds[1]] if bounds[0] and bounds[1] else None
    if condition.name not in ("=", "<", "<=", ">", ">="):
        return None
    first, second = (shifted_time(arg, cols) for arg in condition.args)
    if first is None or second is None or (first[0] <= width) == (second[0] <= width):
        return None
    name = condition.name
    if first[0] > width:  # bring left to the left
        first, second = second, first
        name = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(name, name)
    gap = first[1] - second[1]  # left + a  ?  right + b   means   right - left  ¿  a - b
    return [
        {
            "=": (gap, gap),
            "<=": (gap, None),
            "<": (gap + MILLISECOND, None),
            ">=": (None, gap),
            ">": (None, gap - MILLISECOND),
        }[name]
    ]


def asked(condition: Expression, width: int, lookup: LookupTable) -> tuple[str, Expression] | None:
    """The index of a lookup that a condition asks, and the key, which is of the left side."""
    if not isinstance(condition, Call):
        return None

    def column(value: Expression) -> tuple[str, Type] | None:
        return lookup.columns[value.index - width - 1] if isinstance(value, Column) and value.index > width else None

    def mine(value: Expression) -> bool:
        return max(expressions.columns(value), default=0) <= width

    if condition.name == "=":
        for theirs, key in (condition.args, condition.args[::-1]):
            if (indexed := column(theirs)) is not None and mine(key):
                same = _FAMILIES.get(key.type.name) == _FAMILIES.get(indexed[1].name)
                return (indexed[0], key) if same and key.type.name in _FAMILIES else None
    if condition.name == "BETWEEN" and mine(condition.args[0]):
        low = column(condition.args[1])
        high = column(condition.args[2])
        if low is not None and high is not None:
            return f"{low[0]}..{high[0]}", condition.args[0]
    return None


def conditions_of(query: Query) -> list[tuple[Any, Expression | None]]:
    """The conjuncts of WHERE with their trees; None for a subquery's."""
    where = query.tree.args.get("where")
    if where is None:
        return []
    checker = Checker(query.scope)
    conditions: list[tuple[Any, Expression | None]] = []
    for conjunct in trees.conjuncts(where.this):
        conditions.append((conjunct, None if subquery_of(conjunct) else checker.condition(conjunct)))
    return conditions


def joined(query: Query, conditions: list[tuple[Any, Expression | None]]) -> Relation:
    """The items of FROM joined, and the rows of which all conditions of WHERE are true."""
    plain = [condition for _, condition in conditions if condition is not None]
    for source in query.sources:
        nullable = source.kind in ("LEFT", "FULL")
        later = query.sources[query.sources.index(source) + 1 :]
        nullable = nullable or any(other.kind in ("RIGHT", "FULL") for other in later)
        low = source.part.base
        high = source.part.base + len(source.part.cols)
        mine = [
            condition
            for condition in plain
            if (used := expressions.columns(condition)) and all(low < at <= high for at in used)
        ]
        if source.relation is not None and not nullable:
            plain = [condition for condition in plain if condition not in mine]
            local = [shifted(condition, -low) for condition in mine]
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
        ready = [
            condition
            for condition in plain
            if max(expressions.columns(condition), default=0) <= width and not expressions.calls_own(condition)
        ]
        before = query.scope.parts[: query.sources.index(source) + 1]
        checker = Checker(Scope(before, functions=query.scope.functions, without="ON"))
        on = [] if source.on is None else list(expressions.parts(checker.condition(source.on)))
        if source.kind == "INNER":
            on += ready
            plain = [condition for condition in plain if condition not in ready]
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
        rest = [condition for condition in on if condition != Literal(True, BOOLEAN)]
        if source.kind not in ("INNER", "LEFT") or (source.kind == "LEFT" and rest):
            raise Wrong(source.node, f"{source.kind} JOIN UNNEST stands with ON TRUE")
        expanded = Relation(
            Expand(unnamed(cols), left.node.time, left.node, source.function, source.kind == "LEFT"), cols
        )
        return filtered(expanded, rest, source.node)
    if source.lookup is not None:
        return lookup_join(scope, left, source, on, source.kind)
    assert source.relation is not None
    right = finished(source.relation)
    if not on and source.kind == "INNER":
        raise Wrong(source.node, "a join of every row with every row", "JOIN … ON l.k = r.k AND bounds of time")
    return stream_join(left, right, on, source.kind, source.node)


_HALF = ("SEMI", "ANTI")
"""Kinds of joins that give the left side's columns alone."""


@dataclass(slots=True)
class Terms:
    """Conditions of a join of streams by what they say: ``keys`` are equal, left's and right's; ``bounds`` are those of
    time, and ``timed`` the conditions that say them; ``windows`` has ``start`` and ``end`` where these are equal."""

    keys: list[tuple[Expression, Expression]] = field(default_factory=list)
    bounds: list[Bound] = field(default_factory=list)
    timed: list[Expression] = field(default_factory=list)
    windows: set[str] = field(default_factory=set)
    others: list[Expression] = field(default_factory=list)


def stream_join(left: Relation, right: Relation, on: list[Expression], kind: str, node: Any) -> Relation:
    """An interval or a window join; conditions are over the columns of left, then right. Raises Wrong."""
    left, right, on = _filtered_sides(left, right, on, kind, node)
    width = len(left.cols)
    right_width = len(right.cols)
    terms = _terms(on, [*left.cols, *right.cols], width)
    windows = _equal_windows(left, right, terms)
    lower, upper = (0, 0) if windows else _span(terms, kind, node)
    left, left_keys = with_keys(left, [key for key, _ in terms.keys])
    right, right_keys = with_keys(right, [shifted(key, -width) for _, key in terms.keys])
    others = terms.others
    if windows:
        others = [*others, *terms.timed]
    else:
        left_time, right_time = _times(terms, width, node)
        if left.cols[left_time - 1].receipt != right.cols[right_time - width - 1].receipt:
            raise Wrong(node, "bounds between a time of receipt and another time", "two times of one kind")
        left = timed(left, left_time)
        right = timed(right, right_time - width)

    behind = len(left.cols)  # right's columns begin there, behind the keys that left was given
    when = expressions.every(
        [
            expressions.substituted(condition, lambda at, of: Column(at + behind - width if at > width else at, of))
            for condition in others
        ]
    )
    cols = _joined_cols(left.cols, right.cols, kind, windows is not None)
    time = next((at for at, col in enumerate(cols, 1) if col.rowtime), 0)
    join = Join(unnamed(cols), time, left.node, right.node, kind, left_keys, right_keys, when, lower, upper, windows)
    shown = [*range(1, width + 1)]
    if kind not in _HALF:
        shown += range(behind + 1, behind + right_width + 1)
    result = Relation(join, cols)
    if len(shown) == len(cols):
        return result
    return calc(result, [Column(at, cols[at - 1].type) for at in shown], [cols[at - 1] for at in shown])


def _filtered_sides(
    left: Relation, right: Relation, on: list[Expression], kind: str, node: Any
) -> tuple[Relation, Relation, list[Expression]]:
    """Both sides, filtered by what is about one of them alone and changes nothing there; and the other conditions."""
    width = len(left.cols)
    of_right: list[Expression] = []
    rest: list[Expression] = []
    for condition in on:
        used = expressions.columns(condition)
        if used and min(used) > width and kind in ("INNER", "LEFT", "SEMI", "ANTI"):
            of_right.append(shifted(condition, -width))
        elif used and max(used) <= width and kind in ("INNER", "RIGHT", "SEMI"):
            left = filtered(left, [condition], node)
        else:
            rest.append(condition)
    return left, filtered(right, of_right, node), rest


def _terms(on: list[Expression], cols: list[Col], width: int) -> Terms:
    terms = Terms()
    for condition in on:
        pair = sides(condition, width)
        ends = {cols[at - 1].window for at in pair} if pair else set()
        if ends in ({"start"}, {"end"}):
            terms.windows |= ends
        elif bounds := time_bounds(condition, cols, width):
            terms.bounds += bounds
            terms.timed.append(condition)
        elif key := equality(condition, width):
            terms.keys.append(key)
        else:
            terms.others.append(condition)
    return terms


def _equal_windows(left: Relation, right: Relation, terms: Terms) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Start and end of the windows of both sides; None where these need not be equal."""
    if len(terms.windows) < 2:
        return None
    left_window = left.window()
    right_window = right.window()
    assert left_window is not None
    assert right_window is not None
    return left_window, right_window


def _span(terms: Terms, kind: str, node: Any) -> tuple[int, int]:
    """The least and the most of right time - left time, microseconds."""
    lower = max((low for low, _ in terms.bounds if low is not None), default=None)
    upper = min((high for _, high in terms.bounds if high is not None), default=None)
    if kind in _HALF:
        raise Wrong(
            node,
            "a subquery without bounds of time keeps every row for ever",
            "ON l.k = r.k AND l.window_start = r.window_start AND l.window_end = r.window_end",
        )
    if lower is None or upper is None:
        raise Wrong(
            node,
            "a join without bounds of time keeps every row for ever",
            "ON l.k = r.k AND r.event_time BETWEEN l.event_time AND l.event_time + INTERVAL '1' HOUR"
            " (time attributes), or equal windows, or FOR SYSTEM_TIME AS OF of a lookup",
        )
    if lower > upper:
        raise Wrong(node, "the bounds of time leave nothing to join")
    return lower, upper


def _times(terms: Terms, width: int, node: Any) -> tuple[int, int]:
    """The columns of the time attributes that the bounds are of: left's, then right's."""
    compared = {at for condition in terms.timed for at in expressions.columns(condition)}
    of_left = [at for at in compared if at <= width]
    of_right = [at for at in compared if at > width]
    if len(of_left) > 1 or len(of_right) > 1:
        raise Wrong(node, "bounds on two times of one side", "bounds on one time attribute of each")
    return of_left[0], of_right[0]


def _joined_cols(left: list[Col], right: list[Col], kind: str, windows: bool) -> list[Col]:
    """The columns of a join: those of a side that may be NULL are no times, and equal windows are left's."""
    if kind in _HALF:
        return [*left]
    if kind in ("RIGHT", "FULL"):
        left = [replace(col, rowtime=False, window="", receipt=False) for col in left]
    if kind in ("LEFT", "FULL"):
        right = [replace(col, rowtime=False, window="", receipt=False) for col in right]
    if windows:
        right = [replace(col, window="") for col in right]
    return [*left, *right]


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
        time = time_column(Checker(scope).of(source.at), left.cols)
        if time is None:
            raise Wrong(source.at, "FOR SYSTEM_TIME AS OF takes a time attribute of the left side", "e.event_time")
        at = time
    keyed = [(condition, pair) for condition in on if (pair := asked(condition, width, lookup)) is not None]
    if not keyed:
        raise Wrong(source.node, f"the lookup {lookup.name} is asked by no key", "ON d.key = e.column")
    chosen, (index, key) = next((entry for entry in keyed if expressions.columns(entry[1][1])), keyed[0])
    others = [condition for condition in on if condition is not chosen]
    wanted = tuple(name for name, _ in lookup.columns)
    cols = [*left.cols]
    if kind in ("INNER", "LEFT"):
        cols += [Col(name, of) for name, of in lookup.columns]
    node = LookupJoin(
        unnamed(cols), left.node.time, left.node, lookup.lookup, index, key, wanted, kind, expressions.every(others), at
    )
    return Relation(node, cols)


def half_join(around: Query, relation: Relation, tree: Any) -> Relation:
    """[NOT] IN (SELECT …) and [NOT] EXISTS (SELECT …)."""
    relation = finished(relation)
    subquery = subquery_of(tree)
    assert subquery is not None
    node, negate = subquery
    scope = Scope([replace(part) for part in around.scope.parts], around.outer, around.scope.functions)
    if isinstance(node, exp.In):
        query = node.args["query"].this
        value: Any = node.this
        only(node, "this", "query")
    else:
        query = node.this
        value = None
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

    def over_both(condition: Expression) -> Expression:
        return expressions.substituted(
            condition, lambda at, kind: Column(at - OUTSIDE if at > OUTSIDE else at + width, kind)
        )

    conjuncts = conditions_of(inner)
    if any(condition is None for _, condition in conjuncts):
        raise Wrong(query, "IN and EXISTS within IN or EXISTS are not supported")
    on = [over_both(part) for _, condition in conjuncts for part in expressions.parts(condition)]
    if value is not None:
        if len(query.expressions) != 1:
            raise Wrong(query, "the SELECT of IN has one column")
        picked = over_both(Checker(inner.scope).of(query.expressions[0].unalias()))
        mine = Checker(around.scope).of(value)
        equal = Checker(around.scope).call(node, "=", (mine, picked))
        if negate and source.lookup is None:
            unknown = [Checker(around.scope).call(node, "IS NULL", (side,)) for side in (mine, picked)]
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
    return expressions.substituted(expression, lambda at, kind: Column(at + by, kind))
