"""Lowered nodes into one form: fewer, and equal where they mean the same.

* a Calc over a Calc is one, where that does not make expressions much larger;
* a condition on a window's rows moves below the window; of sessions, which it changes, only with a GROUP BY above, as
  in Flink;
* GROUP BY over a window table function is a ``Windowed``, which shares slices;
* columns and aggregates that nobody asks for go, down to the Scan, and what is left stands in one order.

The root keeps its columns and their names.
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
    Call,
    Column,
    Expand,
    Expression,
    Grouped,
    Join,
    Literal,
    LookupJoin,
    Match,
    Named,
    Node,
    Over,
    Scan,
    Top,
    Type,
    Union,
    Windowed,
    dump,
)
from vedette.rules.sql.checked import columns, every, parts, substituted
from vedette.rules.sql.relation import GroupedSets

MAX_SIZE = 2_000
"""Calls and columns in the expressions of a Calc that two were merged into."""


def size(expression: Any) -> int:
    if isinstance(expression, Call):
        return 1 + sum(map(size, expression.args))
    return 1


def simplified(root: Node, names: Sequence[str]) -> Node:
    """The nodes of a statement whose columns have ``names``: a Calc above all."""
    merged = _merged(root)
    if not isinstance(merged, Calc):
        same = tuple(Column(at, one.type) for at, one in enumerate(merged.columns, 1))
        merged = Calc(merged.columns, merged.time, merged, same)
    wanted = tuple(columns(merged.when)) + tuple(at for one in merged.exprs for at in columns(one))
    below, place = _pruned(merged.input, set(wanted), False)
    exprs = tuple(_moved(one, place) for one in merged.exprs)
    when = None if merged.when is None else _moved(merged.when, place)
    found = Calc(
        tuple(Named(name, one.type) for name, one in zip(names, merged.columns, strict=True)), 0, below, exprs, when
    )
    return _root_merged(found)


def _root_merged(root: Calc) -> Node:
    """After pruning, the root may stand on a Calc that nothing else is asked of."""
    together = _over_calc(root) if isinstance(root.input, Calc) and not isinstance(root.input.input, Scan) else None
    if isinstance(root.input, Calc):
        together = _over_calc(root)
    return together or root


def identified(root: Node) -> Node:
    """``root`` with the ends of the windows behind its columns, under no name, where its rows do not say of which
    window they are: the same event may complete equal rows of several windows, and each is an alert of its own."""
    if not isinstance(root, Calc):
        return root
    if isinstance(root.input, Union):
        return _of_parts(root, root.input)
    given = {one.index for one in root.exprs if isinstance(one, Column)}
    added = [end for start, end, time in _windows(root.input) if not given & {start, end, time}]
    columns = root.input.columns
    hidden = tuple(Column(at, columns[at - 1].type) for at in added)
    named = tuple(Named("", one.type) for one in hidden)
    return replace(root, columns=root.columns + named, exprs=root.exprs + hidden) if hidden else root


def _of_parts(root: Calc, union: Union) -> Calc:
    """``identified`` of UNION ALL: with the ends of its parts' windows, if any has one, and the number of the part."""
    parts = [identified(one) for one in union.parts]
    added = max(len(one.columns) for one in parts) - len(union.columns)
    if not added or not all(isinstance(one, Calc) for one in parts):
        return root
    end, number = Type("TIMESTAMP", 3), Type("INT")
    hidden = (*[Named("", end)] * added, Named("", number))
    made = []
    for place, one in enumerate(parts):
        assert isinstance(one, Calc)
        nothing = [Literal(None, end)] * (len(union.columns) + added - len(one.columns))
        exprs = (*one.exprs, *nothing, Literal(place, number))
        made.append(replace(one, columns=union.columns + hidden, exprs=exprs))
    columns = [Column(len(union.columns) + at, one.type) for at, one in enumerate(hidden, 1)]
    return replace(
        root,
        columns=root.columns + hidden,
        exprs=(*root.exprs, *columns),
        input=replace(union, columns=union.columns + hidden, parts=tuple(made)),
    )


def _windows(node: Node) -> list[tuple[int, int, int]]:
    """The columns window_start, window_end and window_time (0: none) of a node's rows, where they are of a window."""
    match node:
        case Windowed() | Assign():
            before = len(node.columns) - (4 if isinstance(node, Windowed) and node.sets else 3)
            return [(before + 1, before + 2, before + 3)]
        case Grouped() | Top() if node.window != (0, 0):
            return [(*node.window, 0)]
        case Join(windows=((_, _) as left, (_, _) as right)):
            behind = len(node.left.columns)
            other = (
                [] if node.kind in ("SEMI", "ANTI", "INNER", "LEFT") else [(right[0] + behind, right[1] + behind, 0)]
            )
            return [(*left, 0), *other]
        case LookupJoin() | Expand() | Over() | Top():
            return _windows(node.input)
        case Calc():
            at = {one.index: i for i, one in enumerate(node.exprs, 1) if isinstance(one, Column)}
            below = _windows(node.input)
            return [(at.get(start, 0), at[end], at.get(time, 0)) for start, end, time in below if end in at]
    return []


# --- merging, from below


def _merged(node: Node) -> Node:
    node = _with_inputs(node, [_merged(below) for below in node.inputs])
    if isinstance(node, Calc):
        while isinstance(node, Calc) and isinstance(node.input, Calc):
            together = _over_calc(node)
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


def _over_calc(outer: Calc) -> Calc | None:
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
        together = _over_calc(filtered)
        if together is None:
            break
        filtered = together
    return replace(node, input=replace(window, input=filtered), when=every(above))


def _below_union(node: Calc) -> Calc:
    """The condition goes to each of the parts, so that each Scan has its own."""
    union = node.input
    assert isinstance(union, Union)
    same = tuple(Column(at, one.type) for at, one in enumerate(union.columns, 1))
    made = tuple(_merged(Calc(union.columns, part.time, part, same, node.when)) for part in union.parts)
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
    if isinstance(window.input, Calc) and (together := _over_calc(calced)) is not None:
        calced = together
    place = {at: number for number, at in enumerate(kept, 1)}
    new_keys = tuple(place[at] for at in plain)
    folds = tuple(_moved(one, place) for one in node.aggregates)
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


# --- pruning, from above


def _moved(expression: Any, place: dict[int, int]) -> Any:
    return substituted(expression, lambda index, kind: Column(place[index], kind))


def _key(value: Any) -> bytes:
    return bytes(msgpack.packb(dump(value)))


def _pruned(node: Node, wanted: set[int], timed: bool) -> tuple[Node, dict[int, int]]:
    """The node with the ``wanted`` columns alone, and where each of them is now. ``timed``: whether somebody above
    looks at its time attribute and its watermark."""
    if timed and node.time:
        wanted = wanted | {node.time}
    made, place = _PRUNE[type(node)](node, wanted, timed)
    return replace(made, time=place.get(node.time, 0) if timed else 0), place


def _names(node: Node, kept: Iterable[int]) -> tuple[Named, ...]:
    return tuple(Named("", node.columns[at - 1].type) for at in kept)


def _scan(node: Scan, wanted: set[int], timed: bool) -> tuple[Node, dict[int, int]]:
    if timed:
        wanted = wanted | columns(node.mark)
    kept = sorted(
        wanted,
        key=lambda at: (not node.sources[at - 1].metadata, *node.sources[at - 1], str(node.columns[at - 1].type)),
    )
    place = {at: number for number, at in enumerate(kept, 1)}
    mark = _moved(node.mark, place) if timed and node.mark is not None else None
    return replace(
        node,
        columns=tuple(node.columns[at - 1] for at in kept),
        sources=tuple(node.sources[at - 1] for at in kept),
        mark=mark,
    ), place


def _calc(node: Calc, wanted: set[int], timed: bool) -> tuple[Node, dict[int, int]]:
    chosen: dict[bytes, Expression] = {}
    keys = {at: _key(node.exprs[at - 1]) for at in wanted}
    for at in wanted:
        chosen[keys[at]] = node.exprs[at - 1]
    needed = {at for one in chosen.values() for at in columns(one)} | columns(node.when)
    below, place = _pruned(node.input, needed, timed)
    exprs = {key: _moved(one, place) for key, one in chosen.items()}
    order = sorted(exprs, key=lambda key: _key(exprs[key]))
    when = None if node.when is None else _moved(node.when, place)
    made = Calc(tuple(Named("", exprs[key].type) for key in order), 0, below, tuple(exprs[key] for key in order), when)
    return made, {at: order.index(keys[at]) + 1 for at in wanted}


def _assign(node: Assign, wanted: set[int], timed: bool) -> tuple[Node, dict[int, int]]:
    width = len(node.input.columns)
    below, place = _pruned(node.input, {at for at in wanted if at <= width} | {*node.keys}, True)
    after = {width + at: len(below.columns) + at for at in (1, 2, 3)}
    made = Assign(
        (*_names(below, range(1, len(below.columns) + 1)), *(Named("", one.type) for one in node.columns[-3:])),
        0,
        below,
        node.grid,
        tuple(sorted(place[at] for at in node.keys)),
    )
    return made, {**place, **after}


def _folds(
    aggregates: Sequence[Aggregate], first: int, wanted: set[int], place: dict[int, int]
) -> tuple[list[Aggregate], dict[int, int]]:
    """The wanted ones, each once and in one order; by their old column its number from 1."""
    asked = {at: _moved(aggregates[at - first], place) for at in wanted if first <= at < first + len(aggregates)}
    order = sorted({_key(one): one for one in asked.values()}.items())
    numbers = {key: number for number, (key, _) in enumerate(order, 1)}
    return [one for _, one in order], {at: numbers[_key(one)] for at, one in asked.items()}


def _fold_columns(aggregates: Sequence[Aggregate], first: int, wanted: set[int]) -> set[int]:
    return {
        at for number, one in enumerate(aggregates, first) if number in wanted
        for at in columns(one)
    }  # fmt: skip


def _windowed_pruned(node: Windowed, wanted: set[int], timed: bool) -> tuple[Node, dict[int, int]]:
    count = len(node.keys)
    needed = {*node.keys} | _fold_columns(node.aggregates, count + 1, wanted)
    below, place = _pruned(node.input, needed, True)
    order = sorted(range(count), key=lambda at: place[node.keys[at]])
    if node.sets and any(at == len(node.columns) for at in wanted):
        order = list(range(count))  # GROUPING_ID depends on the order of the keys
    keys = tuple(place[node.keys[at]] for at in order)
    folds, numbers = _folds(node.aggregates, count + 1, wanted, place)
    sets = tuple(tuple(sorted(order.index(at) for at in one)) for one in node.sets)
    out = {at + 1: order.index(at) + 1 for at in range(count)}
    out |= {at: count + number for at, number in numbers.items()}
    old, new = count + len(node.aggregates), count + len(folds)
    rest = node.columns[old:]
    out |= {old + at: new + at for at in range(1, len(rest) + 1)}
    cols = (*_names(below, keys), *(Named("", one.type) for one in folds), *(Named("", one.type) for one in rest))
    return Windowed(cols, 0, below, node.grid, keys, tuple(folds), sets, node.legacy), out


def _grouped(node: Grouped, wanted: set[int], timed: bool) -> tuple[Node, dict[int, int]]:
    if isinstance(node, GroupedSets):
        raise ValueError("GROUPING SETS of rows that no window table function gave")
    count = len(node.keys)
    needed = {*node.keys} | _fold_columns(node.aggregates, count + 1, wanted)
    below, place = _pruned(node.input, needed, True)
    order = sorted(range(count), key=lambda at: place[node.keys[at]])
    keys = tuple(place[node.keys[at]] for at in order)
    folds, numbers = _folds(node.aggregates, count + 1, wanted, place)
    out = {at + 1: order.index(at) + 1 for at in range(count)}
    out |= {at: count + number for at, number in numbers.items()}
    cols = (*_names(below, keys), *(Named("", one.type) for one in folds))
    window = (place[node.window[0]], place[node.window[1]])
    return Grouped(cols, 0, below, keys, tuple(folds), window), out


def _over(node: Over, wanted: set[int], timed: bool) -> tuple[Node, dict[int, int]]:
    width = len(node.input.columns)
    needed = {at for at in wanted if at <= width} | {*node.keys} | _fold_columns(node.aggregates, width + 1, wanted)
    below, place = _pruned(node.input, needed, True)
    folds, numbers = _folds(node.aggregates, width + 1, wanted, place)
    count = len(below.columns)
    out = {**place, **{at: count + number for at, number in numbers.items()}}
    if not folds:
        return below, place
    cols = (*_names(below, range(1, count + 1)), *(Named("", one.type) for one in folds))
    keys = tuple(sorted({place[at] for at in node.keys}))
    return Over(cols, 0, below, keys, tuple(folds), node.rows, node.range), out


def _top(node: Top, wanted: set[int], timed: bool) -> tuple[Node, dict[int, int]]:
    width = len(node.input.columns)
    needed = {at for at in wanted if at <= width} | {*node.keys} | {at for at, _, _ in node.order}
    needed |= {at for at in node.window if at}
    below, place = _pruned(node.input, needed, True)
    ranked = width + 1 in wanted
    cols = _names(below, range(1, len(below.columns) + 1)) + ((Named("", node.columns[-1].type),) if ranked else ())
    order = tuple((place[at], down, last) for at, down, last in node.order)
    window = (place[node.window[0]], place[node.window[1]]) if node.window[0] else (0, 0)
    keys = tuple(sorted({place[at] for at in node.keys}))
    made = Top(cols, 0, below, keys, order, node.first, node.last, window, ranked)
    return made, {**place, **({width + 1: len(cols)} if ranked else {})}


def _expand(node: Expand, wanted: set[int], timed: bool) -> tuple[Node, dict[int, int]]:
    width = len(node.input.columns)
    below, place = _pruned(node.input, {at for at in wanted if at <= width} | columns(node.function), timed)
    given = node.columns[width:]
    cols = _names(below, range(1, len(below.columns) + 1)) + tuple(Named("", one.type) for one in given)
    out = {**place, **{width + at: len(below.columns) + at for at in range(1, len(given) + 1)}}
    return Expand(cols, 0, below, _moved(node.function, place), node.outer), out


def _join(node: Join, wanted: set[int], timed: bool) -> tuple[Node, dict[int, int]]:
    width = len(node.left.columns)
    asked = wanted | columns(node.when)
    left_wanted = {at for at in asked if at <= width} | {*node.left_keys}
    right_wanted = {at - width for at in asked if at > width} | {*node.right_keys}
    if node.windows:
        left_wanted |= {*node.windows[0]}
        right_wanted |= {*node.windows[1]}
    left, left_place = _pruned(node.left, left_wanted, True)
    right, right_place = _pruned(node.right, right_wanted, True)
    count = len(left.columns)
    place = {**left_place, **{width + at: count + new for at, new in right_place.items()}}
    pairs = sorted({(left_place[a], right_place[b]) for a, b in zip(node.left_keys, node.right_keys, strict=True)})
    windows = None
    if node.windows:
        (a, b), (c, d) = node.windows
        windows = ((left_place[a], left_place[b]), (right_place[c], right_place[d]))
    cols = _names(left, range(1, count + 1))
    if node.kind not in ("SEMI", "ANTI"):
        cols += _names(right, range(1, len(right.columns) + 1))
    when = None if node.when is None else _moved(node.when, place)
    made = Join(
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
    return made, place


def _lookup(node: LookupJoin, wanted: set[int], timed: bool) -> tuple[Node, dict[int, int]]:
    width = len(node.input.columns)
    asked = wanted | columns(node.when)
    needed = {at for at in asked if at <= width} | columns(node.key) | ({node.at} if node.at else set())
    below, place = _pruned(node.input, needed, timed or bool(node.at))
    count = len(below.columns)
    kept = sorted(at for at in asked if at > width)
    place = {**place, **{at: count + number for number, at in enumerate(kept, 1)}}
    cols = _names(below, range(1, count + 1))
    if node.kind in ("INNER", "LEFT"):
        cols += tuple(Named("", node.columns[at - 1].type) for at in kept)
    names = tuple(node.wanted[at - width - 1] for at in kept)
    when = None if node.when is None else _moved(node.when, place)
    made = LookupJoin(
        cols,
        0,
        below,
        node.lookup,
        node.index,
        _moved(node.key, place),
        names,
        node.kind,
        when,
        place[node.at] if node.at else 0,
    )
    return made, place


def _match(node: Match, wanted: set[int], timed: bool) -> tuple[Node, dict[int, int]]:
    needed = {*node.keys}
    for one in (*(condition for _, condition in node.defines), *node.measures):
        needed |= columns(one)
    below, place = _pruned(node.input, needed, True)
    made = replace(
        node,
        columns=tuple(Named("", one.type) for one in node.columns),
        input=below,
        keys=tuple(place[at] for at in node.keys),
        defines=tuple((name, _moved(one, place)) for name, one in node.defines),
        measures=tuple(_moved(one, place) for one in node.measures),
    )
    return made, {at: at for at in range(1, len(node.columns) + 1)}


def _union(node: Union, wanted: set[int], timed: bool) -> tuple[Node, dict[int, int]]:
    kept = sorted(wanted) or [1]
    made = []
    for part in node.parts:
        below, place = _pruned(part, {*kept}, timed)
        exprs = tuple(Column(place[at], node.columns[at - 1].type) for at in kept)
        time = kept.index(node.time) + 1 if timed and node.time in kept else 0
        calc = Calc(_names(node, kept), time, below, exprs)
        together = _over_calc(calc) if isinstance(below, Calc) else None
        made.append(together or calc)
    return Union(_names(node, kept), 0, tuple(made)), {at: number for number, at in enumerate(kept, 1)}


_PRUNE: dict[type, Callable[..., tuple[Node, dict[int, int]]]] = {
    Scan: _scan, Calc: _calc, Assign: _assign, Windowed: _windowed_pruned, Grouped: _grouped, GroupedSets: _grouped,
    Over: _over, Top: _top, Expand: _expand, Join: _join, LookupJoin: _lookup, Match: _match, Union: _union,
}  # fmt: skip
