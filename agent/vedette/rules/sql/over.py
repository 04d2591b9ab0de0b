"""OVER: aggregates over the rows before each row, in the order of a time attribute, by ROWS or RANGE.

A frame ends with its own row, so a row never changes once it is given. Aggregates of one frame share one ``Over``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from vedette.plan.query import ALL_ROWS, PYTHON, Aggregate, Column, Expression, Literal, Over
from vedette.rules.sql import trees
from vedette.rules.sql.check import Checker
from vedette.rules.sql.checked import BOOLEAN
from vedette.rules.sql.grouping import aggregate
from vedette.rules.sql.relation import Relation, calc, named, timed, with_keys
from vedette.rules.sql.scope import Col, Scope
from vedette.rules.sql.trees import Wrong, only

OVERS = 1 << 19
"""Where columns of OVER are until the layout is known."""
_REFUSED_OVER = ("LAG", "LEAD", "NTILE", "CUME_DIST", "PERCENT_RANK", "RANK", "DENSE_RANK", "NTH_VALUE")


@dataclass(frozen=True, slots=True)
class Framed:
    """An aggregate over the rows before each row: its keys, the column of its time, ROWS or RANGE."""

    aggregate: Aggregate
    keys: tuple[Expression, ...]
    time: int
    rows: int | None
    range: int | None

    @property
    def given(self) -> tuple[Expression, ...]:
        when = self.aggregate.when
        return (*self.aggregate.args, *((when,) if when is not None else ()))

    def over(self, places: Iterator[int]) -> Aggregate:
        """The aggregate of columns at ``places``."""
        one = self.aggregate
        args = tuple(Column(next(places), value.type) for value in one.args)
        return replace(one, args=args, when=Column(next(places), BOOLEAN) if one.when is not None else None)


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
    """What an aggregate with OVER asks."""
    spec = window_of(node, windows)
    inner = node.this
    called = trees.function_name(inner) if isinstance(inner, exp.Anonymous) else ""
    if called in _REFUSED_OVER:
        raise Wrong(node, f"{called} is not supported", "MATCH_RECOGNIZE for rows behind each other")
    plain = Checker(scope)
    made = aggregate(plain, inner)
    if made is not None and made.name == PYTHON:
        raise Wrong(inner, f"{called} cannot stand before OVER: it is a user function", "GROUP BY a window")
    if made is None:
        raise Wrong(inner, "OVER stands behind an aggregate or ROW_NUMBER()")
    order = spec.args.get("order")
    if order is None or len(order.expressions) != 1:
        raise Wrong(node, "OVER needs ORDER BY a time attribute", "OVER (PARTITION BY k ORDER BY event_time …)")
    by = plain.of(order.expressions[0].this)
    down = order.expressions[0].args.get("desc")
    if down or not isinstance(by, Column) or not scope.col(by.index).rowtime:
        raise Wrong(order, "OVER is ordered by a time attribute, ascending", "ORDER BY event_time")
    rows, span = frame_of(spec)
    return Framed(made, plain.all(spec.args.get("partition_by") or ()), by.index, rows, span)


def over(relation: Relation, overs: Sequence[Framed]) -> tuple[Relation, dict[int, int]]:
    """The relation with a column for each of ``overs``, and which: one ``Over`` for all of a frame."""
    places: dict[int, int] = {}
    for frame in dict.fromkeys((one.keys, one.time, one.rows, one.range) for one in overs):
        mine = [one for one in overs if (one.keys, one.time, one.rows, one.range) == frame]
        given = [value for one in mine for value in one.given]
        width = len(relation.cols)
        base, at = with_keys(relation, [*frame[0], *given])
        base = timed(base, frame[1])
        rest = iter(at[len(frame[0]) :])
        folds = tuple(one.over(rest) for one in mine)
        cols = [*base.cols, *(Col("", one.type) for one in folds)]
        over = Over(named(cols), base.node.time, base.node, at[: len(frame[0])], folds, frame[2], frame[3])
        kept = [*range(1, width + 1), *range(len(base.cols) + 1, len(cols) + 1)]
        for number, one in enumerate(mine, width + 1):
            places[OVERS + overs.index(one)] = number
        exprs = [Column(one, cols[one - 1].type) for one in kept]
        relation = calc(Relation(over, cols), exprs, [cols[one - 1] for one in kept])
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
    if kind != "RANGE" or not isinstance(value, Literal) or value.type.name != "INTERVAL_SECOND" or value.value < 0:
        raise Wrong(spec, "RANGE takes an interval", "RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND CURRENT ROW")
    return None, value.value
