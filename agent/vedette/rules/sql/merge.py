"""Nodes of a lowered statement merged, from below.

* a Calc over a Calc is one, where that does not make expressions much larger;
* a condition on a window's rows moves below the window; of sessions, which it changes, only with a GROUP BY above, as
  in Flink;
* GROUP BY over a window table function is a ``Windowed``, which shares slices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

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
from vedette.rules.sql.checked import columns, every, parts, substituted
from vedette.rules.sql.relation import GroupedSets

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
    sizes = [size(one) for one in inner.exprs]
    used: dict[int, int] = {}
    for one in (*outer.exprs, *([outer.when] if outer.when is not None else [])):
        _count(one, used)
    grown = sum(times * sizes[at - 1] for at, times in used.items() if at)
    if grown > MAX_SIZE or any(times > 1 and sizes[at - 1] > 3 for at, times in used.items() if at):
        return None

    def of(index: int, kind: Type) -> Expression:
        return inner.exprs[index - 1]

    when = every(
        [one for one in (inner.when, None if outer.when is None else substituted(outer.when, of)) if one is not None]
    )
    return Calc(outer.columns, outer.time, inner.input, tuple(substituted(one, of) for one in outer.exprs), when)


def _count(expression: Any, into: dict[int, int]) -> None:
    stack = [expression]
    while stack:
        one = stack.pop()
        if isinstance(one, Column):
            into[one.index] = into.get(one.index, 0) + 1
        elif isinstance(one, Call):
            stack += one.args


def _below_window(node: Calc) -> Node:
    window = node.input
    assert isinstance(window, Assign)
    if window.grid.kind == "SESSION":
        return node
    width = len(window.input.columns)
    below = [one for one in parts(node.when) if max(columns(one), default=0) <= width]
    above = [one for one in parts(node.when) if one not in below]
    if not below:
        return node
    same = tuple(Column(at, one.type) for at, one in enumerate(window.input.columns, 1))
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
    same = tuple(Column(at, one.type) for at, one in enumerate(union.columns, 1))
    made = tuple(merged_nodes(Calc(union.columns, part.time, part, same, node.when)) for part in union.parts)
    return replace(node, input=replace(union, parts=made), when=None)


def _windowed(node: Grouped) -> Node:
    """A Windowed for a Grouped whose rows come right from a window table function."""
    below = node.input
    calc = below if isinstance(below, Calc) else None
    window = calc.input if calc is not None else below
    if not isinstance(window, Assign):
        return node
    width = len(window.input.columns)
    when = calc.when if calc is not None else None
    if when is not None and (window.grid.kind != "SESSION" or max(columns(when), default=0) > width):
        return node
    exprs: tuple[Expression, ...] = (
        calc.exprs if calc is not None else tuple(Column(at, one.type) for at, one in enumerate(below.columns, 1))
    )
    of_window = {
        at: one.index - width for at, one in enumerate(exprs, 1) if isinstance(one, Column) and one.index > width
    }
    start, end = node.window
    if of_window.get(start) != 1 or of_window.get(end) != 2:
        return node
    used = [*node.keys, *(at for one in node.aggregates for at in columns(one))]
    if any(at not in of_window and max(columns(exprs[at - 1]), default=0) > width for at in used):
        return node
    if any(at in of_window for one in node.aggregates for at in columns(one)):
        return node
    kept = [at for at in range(1, len(exprs) + 1) if at in used and at not in of_window]
    plain = [at for at in node.keys if at not in of_window]
    grid, keys = window.grid, window.keys
    time = window.input.time
    inner = [exprs[at - 1] for at in kept]
    if grid.kind == "SESSION" and sorted(map(str, (exprs[at - 1] for at in plain))) != sorted(
        map(str, (Column(at, window.input.columns[at - 1].type) for at in keys))
    ):
        return node  # sessions are by other keys than the groups
    rowtime: Expression = Column(time, window.input.columns[time - 1].type)
    inner.append(rowtime)
    calced = Calc(tuple(Named("", one.type) for one in inner), len(inner), window.input, tuple(inner), when)
    if isinstance(window.input, Calc) and (together := over_calc(calced)) is not None:
        calced = together
    place = {at: number for number, at in enumerate(kept, 1)}
    new_keys = tuple(place[at] for at in plain)
    folds = tuple(moved(one, place) for one in node.aggregates)
    stamp = Named("", Type("TIMESTAMP", 3))
    width_out = len(new_keys) + len(folds)
    out = [*(Named("", calced.columns[at - 1].type) for at in new_keys), *(Named("", one.type) for one in folds)]
    out += [stamp, stamp, Named("", rowtime.type)]
    sets: tuple[tuple[int, ...], ...] = ()
    if isinstance(node, GroupedSets):
        numbers = {at: number for number, at in enumerate(plain)}
        sets = tuple(tuple(numbers[node.keys[at]] for at in one if node.keys[at] in numbers) for one in node.sets)
        out.append(Named("", Type("BIGINT")))
    made = Windowed(tuple(out), width_out + 3, calced, grid, new_keys, folds, sets)
    back: list[Expression] = []
    for at in node.keys:
        index = width_out + of_window[at] if at in of_window else 1 + plain.index(at)
        back.append(Column(index, out[index - 1].type))
    back += [Column(len(new_keys) + number, one.type) for number, one in enumerate(folds, 1)]
    if sets:
        back.append(Column(len(out), Type("BIGINT")))
        back = _bits(back, node, of_window)
    return Calc(node.columns, node.time, made, tuple(back))


def _bits(back: list[Expression], node: Grouped, of_window: dict[int, int]) -> list[Expression]:
    """GROUPING_ID over all keys of the query, of one over those that are no window's: each bit moves to its place."""
    places = [at for at, key in enumerate(node.keys) if key not in of_window]
    if [*range(len(places))] == [at - (len(node.keys) - len(places)) for at in places]:
        return back  # windows first: the bits are the lowest already
    bits, total = back[-1], None
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
