"""UNION ALL: columns by place, of the type that all have in common; also the statements that feed one stream."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from vedette.plan.query import Call, Column, Type, Union
from vedette.rules.sql.catalog import EVENTS
from vedette.rules.sql.relation import Relation, calc, named
from vedette.rules.sql.scope import Col
from vedette.rules.sql.trees import Wrong, only
from vedette.stream.functions.library import LIBRARY
from vedette.stream.functions.table import WrongTypes


def united(tree: Any) -> list[Any]:
    """The queries of a UNION ALL, in their order."""
    trees: list[Any] = []
    stack: list[Any] = [tree]
    while stack:
        one = stack.pop()
        if isinstance(one, exp.Union):
            only(one, "this", "expression", "with_") if not one.args.get("distinct") else None
            if one.args.get("distinct"):
                raise Wrong(one.expression, "UNION would have to remember every row", "UNION ALL")
            stack += [one.expression, one.this]
        else:
            trees.append(one)
    return trees


def together(relations: list[Relation], trees: list[Any]) -> Relation:
    """UNION ALL: columns by place, of the type that all have in common."""
    first = relations[0]
    for one, tree in zip(relations, trees, strict=True):
        if one.open is not None:
            raise Wrong(tree, f"SELECT * of {EVENTS}, which has any column", "the columns by name")
        if len(one.cols) != len(first.cols):
            raise Wrong(tree, f"UNION ALL of {len(first.cols)} and {len(one.cols)} columns")
    if len(relations) == 1:
        return first
    cols: list[Col] = []
    for at, col in enumerate(first.cols):
        same = [one.cols[at] for one in relations]
        kind = common(trees[0], [one.type for one in same])
        windows = {one.window for one in same}
        cols.append(Col(col.name, kind, all(one.rowtime for one in same), windows.pop() if len(windows) == 1 else ""))
    made = []
    for one in relations:
        exprs = [
            Column(at, col.type)
            if col.type == want.type
            else Call("CAST", (Column(at, col.type),), want.type, (want.type,))
            for at, (col, want) in enumerate(zip(one.cols, cols, strict=True), 1)
        ]
        made.append(calc(one, exprs, cols).node)
    return Relation(Union(named(cols), made[0].time, tuple(made)), cols)


def common(tree: Any, types: list[Type]) -> Type:
    """The type that values of all ``types`` have as one column."""
    if len(set(types)) == 1:
        return types[0]
    try:
        return LIBRARY.infer("COALESCE", [Column(1, one) for one in types])
    except WrongTypes:
        raise Wrong(
            tree, f"UNION ALL of a column that is {' and '.join(map(str, dict.fromkeys(types)))}", "CAST(… AS …)"
        ) from None
