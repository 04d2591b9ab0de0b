"""Lowered nodes into one form: fewer, and equal where they mean the same.

``merge.py`` makes one node of several, from below; here columns and aggregates that nobody asks for go, from above down
to the Scan, and those that are left have one order. The root keeps its columns and their names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import msgpack

from vedette.plan.query import (
    Aggregate,
    Assign,
    Calc,
    Column,
    Expand,
    Expression,
    Grouped,
    Join,
    LookupJoin,
    Match,
    Named,
    Node,
    Over,
    Scan,
    Top,
    Union,
    Windowed,
    dump,
)
from vedette.rules.sql.lower.relation import GroupedSets
from vedette.rules.sql.names.expressions import columns, identity, unnamed
from vedette.rules.sql.optimise.merge import merged_nodes, moved, over_calc


def _key(value: Any) -> bytes:
    return bytes(msgpack.packb(dump(value)))


def pruned(node: Node, wanted: set[int], timed: bool) -> tuple[Node, dict[int, int]]:
    """The node with the ``wanted`` columns alone, and where each of them is now. ``timed``: whether somebody above
    looks at its time attribute and its watermark."""
    if timed and node.time:
        wanted = wanted | {node.time}
    narrowed, place = _PRUNE[type(node)](node, wanted, timed)
    return replace(narrowed, time=place.get(node.time, 0) if timed else 0), place


def _names(node: Node, places: Iterable[int]) -> tuple[Named, ...]:
    return tuple(Named("", node.columns[at - 1].type) for at in places)


def _scan(node: Scan, wanted: set[int], timed: bool) -> tuple[Node, dict[int, int]]:
    if timed:
        wanted = wanted | columns(node.mark)
    order = sorted(
        wanted,
        key=lambda at: (not node.sources[at - 1].metadata, *node.sources[at - 1], str(node.columns[at - 1].type)),
    )
    place = {at: number for number, at in enumerate(order, 1)}
    mark = moved(node.mark, place) if timed and node.mark is not None else None
    return replace(
        node,
        columns=tuple(node.columns[at - 1] for at in order),
        sources=tuple(node.sources[at - 1] for at in order),
        mark=mark,
    ), place


def _calc(node: Calc, wanted: set[int], timed: bool) -> tuple[Node, dict[int, int]]:
    chosen: dict[bytes, Expression] = {}
    keys = {at: _key(node.exprs[at - 1]) for at in wanted}
    for at in wanted:
        chosen[keys[at]] = node.exprs[at - 1]
    needed = {at for expr in chosen.values() for at in columns(expr)} | columns(node.when)
    below, place = pruned(node.input, needed, timed)
    exprs = {key: moved(expr, place) for key, expr in chosen.items()}
    order = sorted(exprs, key=lambda key: _key(exprs[key]))
    when = None if node.when is None else moved(node.when, place)
    narrowed = Calc(
        tuple(Named("", exprs[key].type) for key in order), 0, below, tuple(exprs[key] for key in order), when
    )
    return narrowed, {at: order.index(keys[at]) + 1 for at in wanted}


def _assign(node: Assign, wanted: set[int], timed: bool) -> tuple[Node, dict[int, int]]:
    width = len(node.input.columns)
    below, place = pruned(node.input, {at for at in wanted if at <= width} | {*node.keys}, True)
    after = {width + at: len(below.columns) + at for at in (1, 2, 3)}
    narrowed = Assign(
        (*unnamed(below.columns), *unnamed(node.columns[-3:])),
        0,
        below,
        node.grid,
        tuple(sorted(place[at] for at in node.keys)),
    )
    return narrowed, {**place, **after}


def _folds(
    aggregates: Sequence[Aggregate], first: int, wanted: set[int], place: dict[int, int]
) -> tuple[list[Aggregate], dict[int, int]]:
    """The wanted ones, each once and in one order; by their old column its number from 1."""
    asked = {at: moved(aggregates[at - first], place) for at in wanted if first <= at < first + len(aggregates)}
    order = sorted({_key(fold): fold for fold in asked.values()}.items())
    numbers = {key: number for number, (key, _) in enumerate(order, 1)}
    return [fold for _, fold in order], {at: numbers[_key(fold)] for at, fold in asked.items()}


def _fold_columns(aggregates: Sequence[Aggregate], first: int, wanted: set[int]) -> set[int]:
    return {at for number, fold in enumerate(aggregates, first) if number in wanted for at in columns(fold)}


def _windowed_pruned(node: Windowed, wanted: set[int], timed: bool) -> tuple[Node, dict[int, int]]:
    count = len(node.keys)
    needed = {*node.keys} | _fold_columns(node.aggregates, count + 1, wanted)
    below, place = pruned(node.input, needed, True)
    order = sorted(range(count), key=lambda at: place[node.keys[at]])
    if node.sets and any(at == len(node.columns) for at in wanted):
        order = list(range(count))  # GROUPING_ID depends on the order of the keys
    keys = tuple(place[node.keys[at]] for at in order)
    folds, numbers = _folds(node.aggregates, count + 1, wanted, place)
    sets = tuple(tuple(sorted(order.index(at) for at in places)) for places in node.sets)
    out = {at + 1: order.index(at) + 1 for at in range(count)}
    out |= {at: count + number for at, number in numbers.items()}
    old = count + len(node.aggregates)
    new = count + len(folds)
    rest = node.columns[old:]
    out |= {old + at: new + at for at in range(1, len(rest) + 1)}
    cols = (
        *_names(below, keys),
        *unnamed(folds),
        *unnamed(rest),
    )
    return Windowed(cols, 0, below, node.grid, keys, tuple(folds), sets, node.legacy), out


def _grouped(node: Grouped, wanted: set[int], timed: bool) -> tuple[Node, dict[int, int]]:
    if isinstance(node, GroupedSets):
        raise ValueError("GROUPING SETS of rows that no window table function gave")
    count = len(node.keys)
    needed = {*node.keys} | _fold_columns(node.aggregates, count + 1, wanted)
    below, place = pruned(node.input, needed, True)
    order = sorted(range(count), key=lambda at: place[node.keys[at]])
    keys = tuple(place[node.keys[at]] for at in order)
    folds, numbers = _folds(node.aggregates, count + 1, wanted, place)
    out = {at + 1: order.index(at) + 1 for at in range(count)}
    out |= {at: count + number for at, number in numbers.items()}
    cols = (*_names(below, keys), *unnamed(folds))
    window = (place[node.window[0]], place[node.window[1]])
    return Grouped(cols, 0, below, keys, tuple(folds), window), out


def _over(node: Over, wanted: set[int], timed: bool) -> tuple[Node, dict[int, int]]:
    width = len(node.input.columns)
    needed = {at for at in wanted if at <= width} | {*node.keys} | _fold_columns(node.aggregates, width + 1, wanted)
    below, place = pruned(node.input, needed, True)
    folds, numbers = _folds(node.aggregates, width + 1, wanted, place)
    count = len(below.columns)
    out = {**place, **{at: count + number for at, number in numbers.items()}}
    if not folds:
        return below, place
    cols = (*unnamed(below.columns), *unnamed(folds))
    keys = tuple(sorted({place[at] for at in node.keys}))
    return Over(cols, 0, below, keys, tuple(folds), node.rows, node.range), out


def _top(node: Top, wanted: set[int], timed: bool) -> tuple[Node, dict[int, int]]:
    width = len(node.input.columns)
    needed = {at for at in wanted if at <= width} | {*node.keys} | {at for at, _, _ in node.order}
    needed |= {at for at in node.window if at}
    below, place = pruned(node.input, needed, True)
    ranked = width + 1 in wanted
    cols = unnamed(below.columns) + ((Named("", node.columns[-1].type),) if ranked else ())
    order = tuple((place[at], down, last) for at, down, last in node.order)
    window = (place[node.window[0]], place[node.window[1]]) if node.window[0] else (0, 0)
    keys = tuple(sorted({place[at] for at in node.keys}))
    narrowed = Top(cols, 0, below, keys, order, node.first, node.last, window, ranked)
    return narrowed, {**place, **({width + 1: len(cols)} if ranked else {})}


def _expand(node: Expand, wanted: set[int], timed: bool) -> tuple[Node, dict[int, int]]:
    width = len(node.input.columns)
    below, place = pruned(node.input, {at for at in wanted if at <= width} | columns(node.function), timed)
    columns_behind = node.columns[width:]
    cols = unnamed(below.columns) + unnamed(columns_behind)
    out = {**place, **{width + at: len(below.columns) + at for at in range(1, len(columns_behind) + 1)}}
    return Expand(cols, 0, below, moved(node.function, place), node.outer), out


def _join(node: Join, wanted: set[int], timed: bool) -> tuple[Node, dict[int, int]]:
    width = len(node.left.columns)
    asked = wanted | columns(node.when)
    left_wanted = {at for at in asked if at <= width} | {*node.left_keys}
    right_wanted = {at - width for at in asked if at > width} | {*node.right_keys}
    if node.windows:
        left_wanted |= {*node.windows[0]}
        right_wanted |= {*node.windows[1]}
    left, left_place = pruned(node.left, left_wanted, True)
    right, right_place = pruned(node.right, right_wanted, True)
    count = len(left.columns)
    place = {**left_place, **{width + at: count + new for at, new in right_place.items()}}
    pairs = sorted({(left_place[a], right_place[b]) for a, b in zip(node.left_keys, node.right_keys, strict=True)})
    windows = None
    if node.windows:
        (a, b), (c, d) = node.windows
        windows = ((left_place[a], left_place[b]), (right_place[c], right_place[d]))
    cols = unnamed(left.columns)
    if node.kind not in ("SEMI", "ANTI"):
        cols += unnamed(right.columns)
    when = None if node.when is None else moved(node.when, place)
    narrowed = Join(
        cols,
        0,
        left,
        right,
        node.kind,
        tuple(a for a, _ in pairs),
        tuple(b for _, b in pairs),
        when,
        node.lower,
        node.upper,
        windows,
    )
    return narrowed, place


def _lookup(node: LookupJoin, wanted: set[int], timed: bool) -> tuple[Node, dict[int, int]]:
    width = len(node.input.columns)
    asked = wanted | columns(node.when)
    needed = {at for at in asked if at <= width} | columns(node.key) | ({node.at} if node.at else set())
    below, place = pruned(node.input, needed, timed)
    count = len(below.columns)
    asked_columns = sorted(at for at in asked if at > width)
    place = {**place, **{at: count + number for number, at in enumerate(asked_columns, 1)}}
    cols = unnamed(below.columns)
    if node.kind in ("INNER", "LEFT"):
        cols += tuple(Named("", node.columns[at - 1].type) for at in asked_columns)
    names = tuple(node.wanted[at - width - 1] for at in asked_columns)
    when = None if node.when is None else moved(node.when, place)
    narrowed = LookupJoin(
        cols,
        0,
        below,
        node.lookup,
        node.index,
        moved(node.key, place),
        names,
        node.kind,
        when,
        place[node.at] if node.at else 0,
    )
    return narrowed, place


def _match(node: Match, wanted: set[int], timed: bool) -> tuple[Node, dict[int, int]]:
    needed = {*node.keys}
    for expr in (*(condition for _, condition in node.defines), *node.measures):
        needed |= columns(expr)
    below, place = pruned(node.input, needed, True)
    narrowed = replace(
        node,
        columns=unnamed(node.columns),
        input=below,
        keys=tuple(place[at] for at in node.keys),
        defines=tuple((name, moved(expr, place)) for name, expr in node.defines),
        measures=tuple(moved(expr, place) for expr in node.measures),
    )
    return narrowed, {at: at for at in range(1, len(node.columns) + 1)}


def _union(node: Union, wanted: set[int], timed: bool) -> tuple[Node, dict[int, int]]:
    order = sorted(wanted) or [1]
    parts = []
    for part in node.parts:
        below, place = pruned(part, {*order}, timed)
        exprs = tuple(Column(place[at], node.columns[at - 1].type) for at in order)
        time = order.index(node.time) + 1 if timed and node.time in order else 0
        calc = Calc(_names(node, order), time, below, exprs)
        together = over_calc(calc) if isinstance(below, Calc) else None
        parts.append(together or calc)
    return Union(_names(node, order), 0, tuple(parts)), {at: number for number, at in enumerate(order, 1)}


_PRUNE: dict[type, Callable[..., tuple[Node, dict[int, int]]]] = {
    Scan: _scan,
    Calc: _calc,
    Assign: _assign,
    Windowed: _windowed_pruned,
    Grouped: _grouped,
    GroupedSets: _grouped,
    Over: _over,
    Top: _top,
    Expand: _expand,
    Join: _join,
    LookupJoin: _lookup,
    Match: _match,
    Union: _union,
}


def simplified(root: Node, names: Sequence[str]) -> Node:
    """The nodes of a statement whose columns have ``names``: a Calc above all."""
    merged = merged_nodes(root)
    if not isinstance(merged, Calc):
        same = identity(merged.columns)
        merged = Calc(merged.columns, merged.time, merged, same)
    wanted = tuple(columns(merged.when)) + tuple(at for expr in merged.exprs for at in columns(expr))
    below, place = pruned(merged.input, set(wanted), False)
    exprs = tuple(moved(expr, place) for expr in merged.exprs)
    when = None if merged.when is None else moved(merged.when, place)
    result = Calc(
        tuple(Named(name, column.type) for name, column in zip(names, merged.columns, strict=True)),
        0,
        below,
        exprs,
        when,
    )
    return _root_merged(result)


def _root_merged(root: Calc) -> Node:
    """After pruning, the root may stand on a Calc that nothing else is asked of."""
    together = over_calc(root) if isinstance(root.input, Calc) else None
    return together or root
