# ruff: noqa: RUF012 - sqlglot's classes are configured by class attributes
"""Trees of statements: the nodes that sqlglot does not have, and how a tree is read without passing over a word.

A form or a word that nobody asks for is refused by name and place (``only``).
"""

from __future__ import annotations

import re
from typing import Any

from sqlglot import exp


class Wrong(Exception):
    """A fault at ``node``, and what to write instead."""

    def __init__(self, node: Any, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.node = node
        self.reason = reason
        self.hint = hint


def only(node: Any, *expected: str) -> None:
    """Refuse what a node has beside ``expected``: words that sqlglot took and nothing here would look at."""
    for key, value in node.args.items():
        if value and key not in expected and key not in ("comments",):
            what = key.removesuffix("_").upper().replace("_", " ")
            raise Wrong(value if isinstance(value, exp.Expr) else node, f"{what} is not supported in {named(node)}")


def named(node: Any) -> str:
    """The name of a form in messages."""
    names = {"Select": "a query", "Table": "a table's name", "Anonymous": "a function", "Window": "OVER"}
    name = type(node).__name__
    return names.get(name, re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).upper())


def function_name(node: Any) -> str:
    name = node.this
    return str(name.name if isinstance(name, exp.Identifier) else name).upper()


def is_proctime(node: Any) -> bool:
    """Whether it is PROCTIME(), the time of receipt."""
    return isinstance(node, exp.Anonymous) and function_name(node) == "PROCTIME" and not node.expressions


def operands(node: Any) -> list[Any]:
    """The operands that a chain of AND (or of OR) joins, left to right, brackets around the same opened."""
    kind = type(node)
    parts: list[Any] = []
    stack = [node]
    while stack:
        operand = stack.pop()
        inner = operand
        while isinstance(inner, exp.Paren) and isinstance(inner.this, kind | exp.Paren):
            inner = inner.this
        if type(inner) is kind:
            only(inner, "this", "expression")
            stack += [inner.expression, inner.this]
        else:
            parts.append(operand)
    return parts


def conjuncts(node: Any) -> list[Any]:
    """The parts of a condition that must hold: the operands of its AND."""
    while isinstance(node, exp.Paren) and isinstance(node.this, exp.And | exp.Paren):
        node = node.this
    return operands(node) if isinstance(node, exp.And) else [node]


def start(node: Any) -> int:
    """The offset where a node begins in the text: the least offset known of it and what is below it; -1 for none."""
    if not isinstance(node, exp.Expr):
        return -1
    starts = [part.meta["start"] for part in node.walk() if part._meta and "start" in part._meta]
    return min(starts, default=-1)


class CreateTable(exp.Expression):
    """``columns``: ``ColumnDef``s; ``marks``: (name, expression) of WATERMARK; ``options``: a dict."""

    arg_types = {
        "this": True,
        "columns": True,
        "watermark": False,
        "mark": False,
        "options": True,
        "unless_there": False,
    }


class ColumnDef(exp.Expression):
    """A physical column (``kind``), a METADATA column (``kind`` and ``metadata``), or a computed one (``value``)."""

    arg_types = {"this": True, "kind": False, "metadata": False, "value": False}


class CreateView(exp.Expression):
    arg_types = {"this": True, "columns": False, "query": True, "unless_there": False}


class CreateFunction(exp.Expression):
    arg_types = {"this": True, "implementation": True, "language": False, "unless_there": False}


class InsertInto(exp.Expression):
    arg_types = {"this": True, "columns": False, "query": True}


class SetOfStatements(exp.Expression):
    """BEGIN or END of a STATEMENT SET."""

    arg_types = {"this": True}


class Call(exp.Expression, exp.Func):
    """A function whose arguments have words between them. ``options``: these words, as texts; ``kind``: a ``Type``."""

    arg_types = {"this": True, "expressions": False, "options": False, "kind": False}


class TimeLiteral(exp.Expression):
    """``DATE '…'``, ``TIME '…'``, ``TIMESTAMP '…'``; ``this`` is the type's name, ``text`` the text."""

    arg_types = {"this": True, "text": True}


class IntervalLiteral(exp.Expression):
    """``INTERVAL 'text' unit [TO to]``; ``sign`` is 1 or -1."""

    arg_types = {"text": True, "unit": True, "to": False, "sign": True}


class WindowFunction(exp.Expression, exp.Func):
    """TUMBLE, HOP, SESSION, CUMULATE over a table. ``table``: a Table or Subquery; ``time``: a Column."""

    arg_types = {"this": True, "table": True, "partition": False, "time": True, "expressions": True}


class Pattern(exp.Expression):
    """MATCH_RECOGNIZE. ``partition``, ``measures`` (Aliases) and ``define`` (Aliases) are lists, ``order`` an Order,
    ``pattern`` a tuple of ``Variable``, ``skip`` and ``skip_to`` texts, ``within`` an expression."""

    arg_types = {
        "partition": False,
        "order": False,
        "measures": False,
        "skip": True,
        "skip_to": False,
        "pattern": True,
        "within": False,
        "define": False,
        "alias": False,
    }
