"""User functions in a plan: where they are evaluated.

A call is like any other expression until here; ``applied`` takes calls out of the expressions of a Calc into ``Apply``
below it, those of WHERE before those of SELECT, and what WHERE asks of plain columns before both.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from vedette.plan.query import (
    PYTHON,
    Apply,
    Calc,
    Call,
    Column,
    Expand,
    Expression,
    Join,
    LookupJoin,
    Match,
    Node,
    Scan,
    Union,
    Windowed,
    nodes,
)
from vedette.rules.ruleset import Unsupported
from vedette.rules.sql.names.catalog import Own
from vedette.rules.sql.names.expressions import calls_own, every, identity, parts, unnamed


def merging(root: Node, functions: Iterable[Own]) -> None:
    """Raises Unsupported for an aggregate without ``merge`` where windows are made of slices."""
    by_options = {function.options: function for function in functions}
    for node in nodes(root):
        if isinstance(node, Windowed) and node.grid.kind != "TUMBLE":
            for fold in node.aggregates:
                if fold.name == PYTHON and not by_options[fold.options].merges:
                    name = by_options[fold.options].name
                    raise Unsupported(
                        f"the aggregate {name} has no merge, which {node.grid.kind} needs",
                        hint="def merge(self, accumulator, accumulators)",
                    )


def applied(node: Node) -> Node:
    """The nodes with an ``Apply`` for each step of calls of user functions. Raises Unsupported where one stands where
    it cannot."""
    changes: dict[str, Any] = {}
    for key in ("input", "left", "right"):
        if isinstance(below := getattr(node, key, None), Node):
            changes[key] = applied(below)
    if isinstance(node, Union):
        changes["parts"] = tuple(applied(part) for part in node.parts)
    if changes:
        node = replace(node, **changes)
    match node:
        case Calc():
            return _calc(node)
        case Expand(function=Call() as function) if any(map(calls_own, function.args)):
            return _expand(node)
        case Join(when=when) if when is not None and _own(when):
            raise Unsupported(f"{_own(when)[0].options[0]} depends on both sides of a join", hint=_BELOW)
        case LookupJoin(key=asked, when=when) if _own(asked) or (when is not None and _own(when)):
            raise Unsupported("a user function stands in the join with a lookup", hint=_BELOW)
        case Match() if any(_own(expr) for expr in (*(each for _, each in node.defines), *node.measures)):
            raise Unsupported("a user function stands in MATCH_RECOGNIZE", hint=_BELOW)
        case Scan(mark=mark) if mark is not None and _own(mark):
            raise Unsupported("a user function stands in WATERMARK", hint="a column of the table")
    return node


_BELOW = "SELECT f(x) AS y … in a query of its own below, and y here"


def _own(expression: Any) -> list[Call]:
    """The calls of user functions in it whose arguments hold none."""
    if not isinstance(expression, Call):
        return []
    inner = [call for arg in expression.args for call in _own(arg)]
    return inner or ([expression] if expression.name == PYTHON else [])


def _replaced(expression: Any, of: dict[Expression, Column]) -> Any:
    if isinstance(expression, Call):
        if expression in of:
            return of[expression]
        args = tuple(_replaced(arg, of) for arg in expression.args)
        return replace(expression, args=args)
    return expression


def _with(node: Node, expressions: list[Any], others: list[Any]) -> tuple[Node, list[Any], list[Any]]:
    """``node`` with the values of all user functions in ``expressions`` behind its columns, and these without any;
    ``others`` take what is computed for these."""
    while calls := list(dict.fromkeys(call for expr in expressions for call in _own(expr))):
        width = len(node.columns)
        node = Apply((*unnamed(node.columns), *unnamed(calls)), node.time, node, tuple(calls))
        of: dict[Expression, Column] = {call: Column(width + at, call.type) for at, call in enumerate(calls, 1)}
        expressions = [_replaced(expr, of) for expr in expressions]
        others = [_replaced(expr, of) for expr in others]
    return node, expressions, others


def _filtered(node: Node, when: Expression | None) -> Node:
    return Calc(unnamed(node.columns), node.time, node, identity(node.columns), when)


def _calc(node: Calc) -> Node:
    conditions = list(parts(node.when))
    late = [condition for condition in conditions if calls_own(condition)]
    if not late and not any(map(calls_own, node.exprs)):
        return node
    early = every([condition for condition in conditions if not calls_own(condition)])
    below = node.input
    exprs = list(node.exprs)
    if early is not None or isinstance(below, Scan):
        below = _filtered(below, early)
    if late:
        below, late, exprs = _with(below, late, exprs)
        if any(map(calls_own, exprs)):
            below = _filtered(below, every(late))
            late = []
    below, exprs, _ = _with(below, exprs, [])
    return Calc(node.columns, node.time, below, tuple(exprs), every(late))


def _expand(node: Expand) -> Node:
    width = len(node.input.columns)
    below, args, _ = _with(node.input, list(node.function.args), [])
    grown = len(below.columns) - width
    back = tuple(replace(column, index=column.index + grown) for column in identity(node.columns)[width:])
    behind = (*unnamed(below.columns), *unnamed(node.columns[width:]))
    expanded = replace(node, columns=behind, input=below, function=replace(node.function, args=tuple(args)))
    return Calc(node.columns, node.time, expanded, identity(node.columns[:width]) + back)
