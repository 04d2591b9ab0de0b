"""Expressions by a walk over their trees, and statements built by hand: for tests of operators, which mind neither."""

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
from vedette.stream.operator import Operator
from vedette.stream.operators.table import OPERATORS

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


class Walked(Operator):
    """``Calc`` by ``evaluate``."""

    def push(self, port: int, rows: Sequence[Row]) -> None:
        node: Any = self.node
        self.emit(
            [
                (row[0], *(evaluate(one, row) for one in node.exprs))
                for row in rows
                if node.when is None or evaluate(node.when, row) is True
            ]
        )


WALKED = {**OPERATORS, Calc: Walked}


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
