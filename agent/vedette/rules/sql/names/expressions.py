"""Checked expressions: the columns in them, the same over other rows, and conditions joined by AND."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol, overload

from vedette.plan.query import PYTHON, Aggregate, Call, Column, Expression, Literal, Named, Type

BOOLEAN = Type("BOOLEAN")
INT = Type("INT")
BIGINT = Type("BIGINT")
STRING = Type("STRING")
NULL = Literal(None, Type("NULL"))


OUTSIDE = 1 << 20
"""Columns beyond this are of the query around a subquery."""


class Typed(Protocol):
    @property
    def type(self) -> Type: ...


def identity(columns: Iterable[Typed]) -> tuple[Column, ...]:
    """An expression for each of ``columns``: the column itself."""
    return tuple(Column(at, column.type) for at, column in enumerate(columns, 1))


def unnamed(columns: Iterable[Typed]) -> tuple[Named, ...]:
    """Columns of a node, of these types and under no name."""
    return tuple(Named("", column.type) for column in columns)


def of_outer_query(column: Column) -> Column:
    return replace(column, index=column.index + OUTSIDE)


def columns(expression: Expression | Aggregate | None) -> set[int]:
    """The indexes of the columns within it."""
    indexes: set[int] = set()
    stack: list[Any] = [expression]
    while stack:
        match stack.pop():
            case Column(index):
                indexes.add(index)
            case Call(_, args):
                stack += args
            case Aggregate(_, args, _, _, when):
                stack += [*args, when]
    return indexes


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
            return Call(name, tuple(substituted(arg, of) for arg in args), kind, options)
        case Aggregate(name, args, kind, distinct, when, options):
            condition = None if when is None else substituted(when, of)
            return Aggregate(name, tuple(substituted(arg, of) for arg in args), kind, distinct, condition, options)
    return expression


def microseconds(value: Expression) -> int | None:
    """The length of an interval of days to milliseconds that is written out; None for any other expression."""
    return value.value if isinstance(value, Literal) and value.type.name == "INTERVAL_SECOND" else None


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
        for operand in condition.args:
            yield from parts(operand)
    else:
        yield condition


def every(conditions: Sequence[Expression]) -> Expression | None:
    """AND of checked conditions."""
    flat = [part for condition in conditions for part in parts(condition)]
    return Call("AND", tuple(flat), BOOLEAN) if len(flat) > 1 else flat[0] if flat else None
