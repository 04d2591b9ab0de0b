"""Rows of a statement say which window they are of, so that equal rows of two windows are two alerts.

Above a window's operator a SELECT may leave the window's times out. They are given on all the same, behind the columns
and under no name, through all that keeps no rows (Calc, Expand, LookupJoin, Union) and through interval joins, whose
rows take a time more each.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from vedette.plan.query import (
    Assign,
    Calc,
    Column,
    Expand,
    Grouped,
    Join,
    Literal,
    LookupJoin,
    Named,
    Node,
    Over,
    Top,
    Type,
    Union,
    Windowed,
)
from vedette.rules.sql.names.expressions import identity
from vedette.rules.sql.optimise.merge import moved

END = Named("", Type("TIMESTAMP", 3))
NUMBER = Named("", Type("INT"))


class _Wide(NamedTuple):
    """``node``, with columns more where that takes any. ``windows``: of each window that its rows are of the columns of
    which each tells it, first the one to give on. ``place``: where each of the columns that it had is now."""

    node: Node
    windows: list[tuple[int, ...]]
    place: dict[int, int]


def identified(root: Node) -> Node:
    """``root`` with the ends of the windows behind its columns, under no name, where its rows do not say of which
    window they are: the same event may complete equal rows of several windows, and each is an alert of its own."""
    return _wide(root).node if isinstance(root, Calc) else root


def _same(node: Node, windows: list[tuple[int, ...]]) -> _Wide:
    return _Wide(node, windows, _places(node))


def _places(node: Node) -> dict[int, int]:
    return {at: at for at in range(len(node.columns) + 1)}


def _wide(node: Node) -> _Wide:
    match node:
        case Windowed() | Assign():
            before = len(node.columns) - (4 if isinstance(node, Windowed) and node.sets else 3)
            return _same(node, [(before + 2, before + 1, before + 3)])
        case Grouped() | Top() if node.window != (0, 0):
            return _same(node, [node.window[::-1]])
        case Join(windows=((_, _) as left, (_, _) as right)):
            behind = len(node.left.columns)
            other = [] if node.kind in ("SEMI", "ANTI", "INNER", "LEFT") else [(right[1] + behind, right[0] + behind)]
            return _same(node, [left[::-1], *other])
        case Join():
            return _wide_join(node)
        case Expand() | LookupJoin():
            return _wide_behind(node)
        case Over() | Top():
            below = _wide(node.input)
            return _same(node, below.windows if below.node is node.input else [])
        case Union():
            return _wide_union(node)
        case Calc():
            return _wide_calc(node)
    return _same(node, [])


def _wide_calc(node: Calc) -> _Wide:
    below = _wide(node.input)
    if below.node is not node.input:
        exprs = tuple(moved(expr, below.place) for expr in node.exprs)
        when = None if node.when is None else moved(node.when, below.place)
        node = replace(node, input=below.node, exprs=exprs, when=when)
    place = _places(node)
    places = {expr.index: at for at, expr in enumerate(node.exprs, 1) if isinstance(expr, Column)}
    windows = list[tuple[int, ...]]()
    columns = below.node.columns
    for shown_by in below.windows:
        if not (shown := tuple(places[at] for at in shown_by if at in places)):
            end = Column(shown_by[0], columns[shown_by[0] - 1].type)
            node = replace(node, columns=(*node.columns, Named("", end.type)), exprs=(*node.exprs, end))
            shown = (len(node.columns),)
        windows.append(shown)
    return _Wide(node, windows, place)


def _wide_behind(node: Expand | LookupJoin) -> _Wide:
    """Widen a node that puts columns behind those of its input."""
    below = _wide(node.input)
    own = len(node.input.columns)
    if below.node is node.input:
        return _same(node, below.windows)
    grown = len(below.node.columns) - own
    more = len(node.columns) - own if isinstance(node, Expand) else len(node.wanted)
    place = {**below.place, **{at: at + grown for at in range(own + 1, own + more + 1)}}
    columns = below.node.columns + node.columns[own:]
    time = place[node.time]
    if isinstance(node, Expand):
        widened: Node = replace(
            node, columns=columns, time=time, input=below.node, function=moved(node.function, below.place)
        )
    else:
        when = None if node.when is None else moved(node.when, place)
        widened = replace(
            node,
            columns=columns,
            time=time,
            input=below.node,
            key=moved(node.key, below.place),
            when=when,
            at=below.place[node.at],
        )
    return _Wide(widened, below.windows, place)


def _wide_join(node: Join) -> _Wide:
    """Widen an interval join."""
    semi = node.kind in ("SEMI", "ANTI")
    left = _wide(node.left)
    right = _same(node.right, []) if semi else _wide(node.right)
    before = len(node.left.columns)
    now = len(left.node.columns)
    windows = [*left.windows, *(tuple(at + now for at in window) for window in right.windows)]
    if left.node is node.left and right.node is node.right:
        return _same(node, windows)
    place = {**left.place, **{before + at: now + to for at, to in right.place.items() if at}}
    widened = replace(
        node,
        columns=left.node.columns if semi else left.node.columns + right.node.columns,
        time=place[node.time],
        left=left.node,
        right=right.node,
        left_keys=tuple(left.place[at] for at in node.left_keys),
        right_keys=tuple(right.place[at] for at in node.right_keys),
        when=None if node.when is None else moved(node.when, place),
    )
    return _Wide(widened, windows, place)


def _wide_union(union: Union) -> _Wide:
    """Widen UNION ALL by the ends of its parts' windows, if any has one, and the number of the part."""
    parts = [_wide_calc(_as_calc(part)) for part in union.parts]
    width = len(union.columns)
    added = max(len(part.node.columns) for part in parts) - width
    if not added:
        shown = [{at for window in part.windows for at in window} for part in parts]
        return _same(union, [(at,) for at in sorted(set.intersection(*shown))])
    hidden = (*[END] * added, NUMBER)
    widened = list[Node]()
    for number, part in enumerate(parts):
        calc = part.node
        assert isinstance(calc, Calc)
        nothing = [Literal(None, END.type)] * (width + added - len(calc.columns))
        exprs = (*calc.exprs, *nothing, Literal(number, NUMBER.type))
        widened.append(replace(calc, columns=union.columns + hidden, exprs=exprs))
    wide = replace(union, columns=union.columns + hidden, parts=tuple(widened))
    return _Wide(wide, [(width + at,) for at in range(1, added + 2)], _places(union))


def _as_calc(node: Node) -> Calc:
    if isinstance(node, Calc):
        return node
    return Calc(node.columns, node.time, node, identity(node.columns))
