"""Nodes of a lowered statement merged, from below.

* a Calc over a Calc is one, where that does not make expressions much larger;
* a condition on a window's rows moves below the window; of sessions, which it changes, only with a GROUP BY above, as
  in Flink;
* GROUP BY over a window table function is a ``Windowed``, which shares slices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from vedette.plan.query import (
    Assign,
    Calc,
    Call,
    Column,
    Expression,
    Grouped,
    Join,
    Literal,
    Named,
    Node,
    Scan,
    Type,
    Union,
    Windowed,
)
from vedette.rules.sql.lower.relation import GroupedSets
from vedette.rules.sql.names.expressions import columns, every, identity, parts, substituted, unnamed

MAX_SIZE = 2_000
"""Calls and columns in the expressions of a Calc that two were merged into."""


def size(expression: Any) -> int:
    if isinstance(expression, Call):
        return 1 + sum(map(size, expression.args))
    return 1


def merged_nodes(node: Node) -> Node:
    node = _with_inputs(node, [merged_nodes(below) for below in node.inputs])
    if isinstance(node, Calc):
        while isinstance(node, Calc) and isinstance(node.input, Calc):
            together = over_calc(node)
            if together is None:
                break
            node = together
        if isinstance(node, Calc) and isinstance(node.input, Assign) and node.when is not None:
            node = _below_window(node)
        if isinstance(node, Calc) and isinstance(node.input, Union) and node.when is not None:
            node = _below_union(node)
    if isinstance(node, Grouped):
        node = _windowed(node)
    return node


def _with_inputs(node: Node, inputs: Sequence[Node]) -> Node:
    match node:
        case Scan():
            return node
        case Union():
            return replace(node, parts=tuple(inputs))
        case Join():
            return replace(node, left=inputs[0], right=inputs[1])
    changed: dict[str, Any] = {"input": inputs[0]}  # of every other node the only one
    return replace(node, **changed)


def over_calc(outer: Calc) -> Calc | None:
    """One Calc for two; None when its expressions would grow too much."""
    inner = outer.input
    assert isinstance(inner, Calc)
    sizes = [size(expr) for expr in inner.exprs]
    used: dict[int, int] = {}
    for expr in (*outer.exprs, *([outer.when] if outer.when is not None else [])):
        _count(expr, used)
    grown = sum(times * sizes[at - 1] for at, times in used.items() if at)
    if grown > MAX_SIZE or any(times > 1 and sizes[at - 1] > 3 for at, times in used.items() if at):
        return None

    def of(index: int, kind: Type) -> Expression:
        return inner.exprs[index - 1]

    when = every(
        [
            condition
            for condition in (inner.when, None if outer.when is None else substituted(outer.when, of))
            if condition is not None
        ]
    )
    return Calc(outer.columns, outer.time, inner.input, tuple(substituted(expr, of) for expr in outer.exprs), when)


def _count(expression: Any, into: dict[int, int]) -> None:
    stack = [expression]
    while stack:
        part = stack.pop()
        if isinstance(part, Column):
            into[part.index] = into.get(part.index, 0) + 1
        elif isinstance(part, Call):
            stack += part.args


def _below_window(node: Calc) -> Node:
    window = node.input
    assert isinstance(window, Assign)
    if window.grid.kind == "SESSION":
        return node
    width = len(window.input.columns)
    below = [condition for condition in parts(node.when) if max(columns(condition), default=0) <= width]
    above = [condition for condition in parts(node.when) if condition not in below]
    if not below:
        return node
    same = identity(window.input.columns)
    filtered: Node = Calc(window.input.columns, window.input.time, window.input, same, every(below))
    while isinstance(filtered, Calc) and isinstance(filtered.input, Calc):
        together = over_calc(filtered)
        if together is None:
            break
        filtered = together
    return replace(node, input=replace(window, input=filtered), when=every(above))


def _below_union(node: Calc) -> Calc:
    """The condition goes to each of the parts, so that each Scan has its own."""
    union = node.input
    assert isinstance(union, Union)
    same = identity(union.columns)
    filtered = tuple(merged_nodes(Calc(union.columns, part.time, part, same, node.when)) for part in union.parts)
    return replace(node, input=replace(union, parts=filtered), when=None)


class _InWindow(NamedTuple):
    """The rows of a Grouped, right from a window table function: ``exprs`` over the columns of ``window``, of rows of
    which ``when`` is true. ``times``: by column which of the window's three it is."""

    window: Assign
    exprs: tuple[Expression, ...]
    when: Expression | None
    times: dict[int, int]


def _in_window(node: Grouped) -> _InWindow | None:
    """The window that the rows of ``node`` come from, if a Windowed may take its place."""
    below = node.input
    calc = below if isinstance(below, Calc) else None
    window = calc.input if calc is not None else below
    if not isinstance(window, Assign):
        return None
    width = len(window.input.columns)
    when = calc.when if calc is not None else None
    if when is not None and (window.grid.kind != "SESSION" or max(columns(when), default=0) > width):
        return None
    exprs: tuple[Expression, ...] = calc.exprs if calc is not None else identity(below.columns)
    times = {
        at: expr.index - width for at, expr in enumerate(exprs, 1) if isinstance(expr, Column) and expr.index > width
    }
    if [times.get(at) for at in node.window] != [1, 2]:
        return None
    folded = {at for fold in node.aggregates for at in columns(fold)}
    if not folded.isdisjoint(times):
        return None
    if any(at not in times and max(columns(exprs[at - 1]), default=0) > width for at in {*node.keys, *folded}):
        return None
    if window.grid.kind == "SESSION":
        sessions = [Column(at, window.input.columns[at - 1].type) for at in window.keys]
        groups = [exprs[at - 1] for at in node.keys if at not in times]
        if sorted(map(str, groups)) != sorted(map(str, sessions)):
            return None  # sessions are by other keys than the groups
    return _InWindow(window, exprs, when, times)


def _windowed(node: Grouped) -> Node:
    """A Windowed for a Grouped whose rows come right from a window table function."""
    source = _in_window(node)
    if source is None:
        return node
    times = source.times
    needed = sorted({*node.keys, *(at for fold in node.aggregates for at in columns(fold))} - times.keys())
    place = {at: number for number, at in enumerate(needed, 1)}
    plain = [at for at in node.keys if at not in times]
    rows = _rows(source, needed)
    keys = tuple(place[at] for at in plain)
    folds = tuple(moved(fold, place) for fold in node.aggregates)
    stamp = Named("", Type("TIMESTAMP", 3))
    rowtime = source.window.input.columns[source.window.input.time - 1].type
    out = [*(Named("", rows.columns[at - 1].type) for at in keys), *unnamed(folds), stamp, stamp, Named("", rowtime)]
    time = len(out)
    sets: tuple[tuple[int, ...], ...] = ()
    if isinstance(node, GroupedSets):
        numbers = {at: number for number, at in enumerate(plain)}
        sets = tuple(tuple(numbers[node.keys[at]] for at in places if node.keys[at] in numbers) for places in node.sets)
        out.append(Named("", Type("BIGINT")))
    windowed = Windowed(tuple(out), time, rows, source.window.grid, keys, folds, sets)

    back: list[Expression] = []
    for at in node.keys:
        index = time - 3 + times[at] if at in times else 1 + plain.index(at)
        back.append(Column(index, out[index - 1].type))
    back += [Column(len(keys) + number, fold.type) for number, fold in enumerate(folds, 1)]
    if sets:
        back.append(Column(len(out), Type("BIGINT")))
        back = _bits(back, node, times)
    return Calc(node.columns, node.time, windowed, tuple(back))


def _rows(source: _InWindow, needed: list[int]) -> Calc:
    """The ``needed`` columns of rows below their window, and the time behind them."""
    below = source.window.input
    exprs = [source.exprs[at - 1] for at in needed]
    exprs.append(Column(below.time, below.columns[below.time - 1].type))
    rows = Calc(unnamed(exprs), len(exprs), below, tuple(exprs), source.when)
    together = over_calc(rows) if isinstance(below, Calc) else None
    return together or rows


def _bits(back: list[Expression], node: Grouped, of_window: dict[int, int]) -> list[Expression]:
    """GROUPING_ID over all keys of the query, of one over those that are no window's: each bit moves to its place."""
    places = [at for at, key in enumerate(node.keys) if key not in of_window]
    if [*range(len(places))] == [at - (len(node.keys) - len(places)) for at in places]:
        return back  # windows first: the bits are the lowest already
    bits = back[-1]
    total = None
    for number, at in enumerate(places):
        shift = len(places) - 1 - number
        bit: Expression = bits
        if shift:
            bit = Call("/", (bit, Literal(1 << shift, bits.type)), bits.type)
        bit = Call("%", (bit, Literal(2, bits.type)), bits.type)
        bit = Call("*", (bit, Literal(1 << (len(node.keys) - 1 - at), bits.type)), bits.type)
        total = bit if total is None else Call("+", (total, bit), bits.type)
    return [*back[:-1], total or Literal(0, bits.type)]


def moved(expression: Any, place: dict[int, int]) -> Any:
    return substituted(expression, lambda index, kind: Column(place[index], kind))
