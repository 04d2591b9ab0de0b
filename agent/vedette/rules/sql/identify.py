"""Rows of a statement say which window they are of, so that equal rows of two windows are two alerts."""

from __future__ import annotations

from dataclasses import replace

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
