"""Expressions by a walk over their trees, and statements built by hand, for tests of operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vedette.plan.query import (
    MILLISECOND,
    SECOND,
    Calc,
    Call,
    Column,
    Expression,
    Field,
    Literal,
    Named,
    Node,
    Row,
    Scan,
    Statement,
    Type,
)

BIGINT, DOUBLE, STRING, BOOLEAN = Type("BIGINT"), Type("DOUBLE"), Type("STRING"), Type("BOOLEAN")
TIME = Type("TIMESTAMP", 3)

_CALLS: dict[str, Callable[..., Any]] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, ">": lambda a, b: a > b,
    "<": lambda a, b: a < b, ">=": lambda a, b: a >= b, "=": lambda a, b: a == b,
}  # fmt: skip


def evaluate(one: Expression, row: Row) -> Any:
    match one:
        case Column(index):
            return row[index]
        case Literal(value):
            return value
        case Call(name, args):
            values = [evaluate(arg, row) for arg in args]
            return None if None in values else _CALLS[name](*values)


def scan(
    columns: Sequence[tuple[str, Type]], delay: int | None = 5 * SECOND, rule: str = "r", table: str = "events"
) -> Scan:
    """A table whose first column is its time."""
    named = tuple(Named(*one) for one in columns)
    mark = None if delay is None else Call("-", (Column(1, TIME), Literal(delay, Type("INTERVAL_SECOND"))), TIME)
    return Scan(named, 1, table, rule, tuple(Field(one.name) for one in named), mark)


def calc(input: Node, when: Expression | None = None, exprs: Sequence[Expression] | None = None) -> Calc:
    """All columns of ``input``, or ``exprs``, of which the first is the time."""
    if exprs is None:
        return Calc(input.columns, input.time, input, _all(input), when)
    return Calc(tuple(Named(f"c{i}", one.type) for i, one in enumerate(exprs)), 1, input, tuple(exprs), when)


def _all(input: Node) -> tuple[Expression, ...]:
    return tuple(Column(i, one.type) for i, one in enumerate(input.columns, 1))


def statement(id: str, root: Node) -> Statement:
    return Statement(id, id, "medium", (), root, root.fingerprint.hex(), "test.sql", 1)


def seconds(time: float) -> int:
    return int(time * SECOND) // MILLISECOND * MILLISECOND
