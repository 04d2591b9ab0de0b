"""Checked expressions: the columns in them, the same over other rows, and conditions joined by AND."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, overload

from vedette.plan.query import PYTHON, Aggregate, Call, Column, Expression, Literal, Type

BOOLEAN, INT, BIGINT, STRING = Type("BOOLEAN"), Type("INT"), Type("BIGINT"), Type("STRING")
NULL = Literal(None, Type("NULL"))


OUTSIDE = 1 << 20
"""Columns beyond this are of the query around a subquery."""


def of_outer_query(column: Column) -> Column:
    return replace(column, index=column.index + OUTSIDE)


def columns(expression: Expression | Aggregate | None) -> set[int]:
    """The indexes of the columns within it."""
    found: set[int] = set()
    stack: list[Any] = [expression]
    while stack:
        match stack.pop():
            case Column(index):
                found.add(index)
            case Call(_, args):
                stack += args
            case Aggregate(_, args, _, _, when):
                stack += [*args, when]
    return found


@overload
def substituted(expression: Expression, of: Callable[[int, Type], Expression]) -> Expression: ...
@overload
def substituted(expression: Aggregate, of: Callable[[int, Type], Expression]) -> Aggregate: ...
def substituted(expression: Any, of: Callable[[int, Type], Expression]) -> Any:
    """``expression`` with each column as ``of(index, type)`` gives it."""
    match expression:
        case Column(index, kind):
            return of(index, kind)
        case Call(name, args, kind, options):
            return Call(name, tuple(substituted(one, of) for one in args), kind, options)
        case Aggregate(name, args, kind, distinct, when, options):
            given = None if when is None else substituted(when, of)
            return Aggregate(name, tuple(substituted(one, of) for one in args), kind, distinct, given, options)
    return expression


def calls_own(expression: Any) -> bool:
    """Whether it calls a user function."""
    if not isinstance(expression, Call):
        return False
    return expression.name == PYTHON or any(map(calls_own, expression.args))


def parts(condition: Expression | None) -> Iterator[Expression]:
    """The operands of a checked AND."""
    if condition is None:
        return
    if isinstance(condition, Call) and condition.name == "AND":
        for one in condition.args:
            yield from parts(one)
    else:
        yield condition


def every(conditions: Sequence[Expression]) -> Expression | None:
    """AND of checked conditions."""
    flat = [part for one in conditions for part in parts(one)]
    return Call("AND", tuple(flat), BOOLEAN) if len(flat) > 1 else flat[0] if flat else None
