"""OVER: aggregates over the rows before each row, and ROW_NUMBER() with the bound that a WHERE gives it.

A frame is of ROWS or RANGE in the order of a time attribute and ends with its own row, so a row never changes once it
is given. Aggregates of one frame share one ``Over``.

A rank in a window is a Top of the rows of the window; without one, only the first row of a key never changes. Whatever
filters a relation comes through ``filtered``, so that no bound is missed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from sqlglot import exp

from vedette.plan.query import ALL_ROWS, PYTHON, Aggregate, Call, Column, Expression, Literal, Over, Top
from vedette.rules.sql.lower.grouping import aggregate, inputs, over_columns
from vedette.rules.sql.lower.relation import NO_BOUND, Rank, Relation, calc, column_of, timed, with_keys
from vedette.rules.sql.names import expressions
from vedette.rules.sql.names.check import Checker
from vedette.rules.sql.names.expressions import BIGINT, identity, microseconds, unnamed
from vedette.rules.sql.names.scope import Col, Open, Scope, time_column
from vedette.rules.sql.parse import trees
from vedette.rules.sql.parse.trees import Wrong, only
from vedette.stream.aggregates.table import in_over

OVERS = 1 << 19
"""Places of columns of OVER until the layout is known."""
_REFUSED_OVER = ("LAG", "LEAD", "NTILE", "CUME_DIST", "PERCENT_RANK", "RANK", "DENSE_RANK", "NTH_VALUE")


class Frame(NamedTuple):
    """The rows before each row: their keys, the column of their time, ROWS or RANGE (microseconds)."""

    keys: tuple[Expression, ...]
    time: int
    rows: int | None
    range: int | None


class Framed(NamedTuple):
    """An aggregate over a frame."""

    aggregate: Aggregate
    frame: Frame


def window_of(node: Any, windows: dict[str, Any]) -> Any:
    """The window of OVER: its own, or that of the WINDOW clause."""
    only(node, "this", "partition_by", "order", "spec", "alias", "over", "first")
    if node.args.get("alias") is not None:
        name = node.args["alias"].name if isinstance(node.args["alias"], exp.Expr) else str(node.args["alias"])
        if name not in windows:
            raise Wrong(node, f"there is no WINDOW {name}")
        if node.args.get("partition_by") or node.args.get("order") or node.args.get("spec"):
            raise Wrong(node, f"OVER ({name} …): a named window stands alone", f"OVER {name}")
        return windows[name]
    return node


def framed(scope: Scope, node: Any, windows: dict[str, Any]) -> Framed:
    """An aggregate with OVER, checked. Raises Wrong."""
    spec = window_of(node, windows)
    inner = node.this
    called = trees.function_name(inner) if isinstance(inner, exp.Anonymous) else ""
    if called in _REFUSED_OVER:
        raise Wrong(node, f"{called} is not supported", "MATCH_RECOGNIZE for rows behind each other")
    plain = Checker(scope)
    fold = aggregate(plain, inner)
    if fold is not None and fold.name == PYTHON:
        raise Wrong(inner, f"{called} cannot stand before OVER: it is a user function", "GROUP BY a window")
    if fold is None:
        raise Wrong(inner, "OVER stands behind an aggregate or ROW_NUMBER()")
    order = spec.args.get("order")
    if order is None or len(order.expressions) != 1:
        raise Wrong(node, "OVER needs ORDER BY a time attribute", "OVER (PARTITION BY k ORDER BY event_time …)")
    by = plain.of(order.expressions[0].this)
    down = order.expressions[0].args.get("desc")
    if down or not isinstance(by, Column) or time_column(by, [scope.col(at) for at in range(1, by.index + 1)]) is None:
        raise Wrong(order, "OVER is ordered by a time attribute, ascending", "ORDER BY event_time")
    rows, span = frame_of(spec)
    if (rows, span) == (None, None) and scope.col(by.index).receipt:
        rows = ALL_ROWS  # each by itself, as in Flink
    return Framed(in_over(fold), Frame(plain.all(spec.args.get("partition_by") or ()), by.index, rows, span))


def over(relation: Relation, overs: Sequence[Framed]) -> tuple[Relation, dict[int, int]]:
    """The relation with a column for each of ``overs``, and which: one ``Over`` for all of a frame."""
    places: dict[int, int] = {}
    times = {item.frame.time for item in overs}
    if len(times) > 1 and any(relation.cols[time - 1].receipt for time in times):
        raise Wrong(None, "OVER by PROCTIME() beside OVER by another time", "a query around it")
    for frame in dict.fromkeys(item.frame for item in overs):
        mine = [item for item in overs if item.frame == frame]
        width = len(relation.cols)
        values = [value for item in mine for value in inputs(item.aggregate)]
        base, columns = with_keys(relation, [*frame.keys, *values])
        base = timed(base, frame.time)
        keys = columns[: len(frame.keys)]
        rest = iter(columns[len(frame.keys) :])
        folds = tuple(over_columns(item.aggregate, rest) for item in mine)
        cols = [*base.cols, *(Col("", fold.type) for fold in folds)]
        node = Over(unnamed(cols), base.node.time, base.node, keys, folds, frame.rows, frame.range)
        for number, item in enumerate(mine, width + 1):
            places[OVERS + overs.index(item)] = number
        shown = [*range(1, width + 1), *range(len(base.cols) + 1, len(cols) + 1)]
        exprs = [Column(at, cols[at - 1].type) for at in shown]
        relation = calc(Relation(node, cols), exprs, [cols[at - 1] for at in shown])
    return relation, places


def frame_of(spec: Any) -> tuple[int | None, int | None]:
    """ROWS and RANGE of a window; both None for all rows of the time so far."""
    frame = spec.args.get("spec")
    if frame is None:
        return None, None
    only(frame, "kind", "start", "start_side", "end", "end_side")
    kind = frame.args.get("kind")
    if str(frame.args.get("end") or "CURRENT ROW").upper() != "CURRENT ROW":
        raise Wrong(spec, "a frame ends with CURRENT ROW: later rows are not known", "AND CURRENT ROW")
    low = frame.args.get("start")
    if frame.args.get("start_side") not in ("PRECEDING", None):
        raise Wrong(spec, "a frame begins before its row", "… PRECEDING AND CURRENT ROW")
    if isinstance(low, str):
        if low.upper() == "CURRENT ROW":
            return (0, None) if kind == "ROWS" else (None, 0)
        return (ALL_ROWS, None) if kind == "ROWS" else (None, None)
    value = Checker(Scope()).of(low)
    if kind == "ROWS":
        if not isinstance(value, Literal) or value.type.name != "INT" or value.value < 0:
            raise Wrong(spec, "ROWS takes a whole number", "ROWS BETWEEN 9 PRECEDING AND CURRENT ROW")
        return value.value, None
    length = microseconds(value)
    if kind != "RANGE" or length is None or length < 0:
        raise Wrong(spec, "RANGE takes an interval", "RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND CURRENT ROW")
    return None, length


def filtered(relation: Relation, conditions: list[Expression], node: Any) -> Relation:
    """The rows of which all ``conditions`` are true; bounds of its rank become a Top."""
    if relation.rank is not None:
        return ranked(relation, conditions)
    when = expressions.every(conditions)
    if when is None:
        return relation
    result = calc(relation, identity(relation.cols), relation.cols, when)
    return replace(result, open=relation.open)


def ranked(relation: Relation, conditions: list[Expression]) -> Relation:
    rank = relation.rank
    assert rank is not None
    first = 1
    last = None
    rest = []
    for condition in conditions:
        bound = bound_of(condition, rank.column)
        if bound is None:
            rest.append(condition)
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
        by_time = time_column(Column(at, base.cols[at - 1].type), base.cols)
        received = by_time is not None and base.cols[at - 1].receipt
        if len(rank.order) != 1 or by_time is None or descending or ((first, last) != (1, 1) and not received):
            raise Wrong(
                rank.node,
                "ROW_NUMBER() without a window would change rows already given",
                "PARTITION BY window_start, window_end, … of a window; or the first of a key: "
                "ORDER BY a time attribute, ascending, and n = 1; or ORDER BY PROCTIME()",
            )
        base = timed(base, at)
    cols = [*base.cols, Col("", BIGINT)]
    top = Top(unnamed(cols), base.node.time, base.node, rank.keys, rank.order, first, last, window or (0, 0), True)
    ranked_rows = Relation(top, cols)
    exprs = [expressions.substituted(expr, lambda at, kind: Column(at or len(cols), kind)) for expr in rank.exprs]
    shown = [column_of(col.name, expr, ranked_rows) for col, expr in zip(relation.cols, exprs, strict=True)]
    out = calc(ranked_rows, exprs, shown)
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
    columns = [at for at, expr in enumerate(exprs, 1) if expr == Column(0, BIGINT)]
    if len(columns) != 1 or any(
        0 in expressions.columns(expr) for at, expr in enumerate(exprs, 1) if at not in columns
    ):
        raise Wrong(node, "ROW_NUMBER() stands alone in its column", "ROW_NUMBER() OVER (…) AS n")
    plain = Checker(scope)
    keys = [plain.of(key) for key in spec.args.get("partition_by") or ()]
    by = []
    for item in order.expressions:
        only(item, "this", "desc", "nulls_first")
        descending = bool(item.args.get("desc"))
        by.append((plain.of(item.this), descending, not item.args.get("nulls_first")))
    base, places = with_keys(relation, [*keys, *(value for value, _, _ in by)])
    ordered = tuple((at, down, last) for at, (_, down, last) in zip(places[len(keys) :], by, strict=True))
    rank = Rank(columns[0], node, base, places[: len(keys)], ordered, tuple(exprs))
    return Relation(base.node, cols, opened, rank)


def bound_of(condition: Expression, rank: int) -> tuple[int, int | None] | None:
    """The ranks that a condition leaves, when it is one about the column ``rank`` and a whole number."""
    if not isinstance(condition, Call):
        return None
    if condition.name == "BETWEEN" and isinstance(condition.args[0], Column) and condition.args[0].index == rank:
        low, high = condition.args[1:]
        if isinstance(low, Literal) and isinstance(high, Literal):
            return low.value, high.value
        return None
    if condition.name not in ("=", "<", "<=", ">", ">=") or len(condition.args) != 2:
        return None
    name = condition.name
    (first, second) = condition.args
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
