"""Trees that sqlglot made, read without passing over a word: what is not known is refused by name and place."""

from __future__ import annotations

import re
from typing import Any

from sqlglot import exp


class Wrong(Exception):
    """What is wrong at ``node``, and what to write instead."""

    def __init__(self, node: Any, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.node, self.reason, self.hint = node, reason, hint


def only(node: Any, *known: str) -> None:
    """Refuse what a node has beside ``known``: words that sqlglot took and nothing here would look at."""
    for key, value in node.args.items():
        if value and key not in known and key not in ("comments",):
            what = key.removesuffix("_").upper().replace("_", " ")
            raise Wrong(value if isinstance(value, exp.Expr) else node, f"{what} is not supported in {named(node)}")


def named(node: Any) -> str:
    """What a form is called in messages."""
    known = {"Select": "a query", "Table": "a table's name", "Anonymous": "a function", "Window": "OVER"}
    name = type(node).__name__
    return known.get(name, re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).upper())


def function_name(node: Any) -> str:
    name = node.this
    return str(name.name if isinstance(name, exp.Identifier) else name).upper()


def operands(node: Any) -> list[Any]:
    """What a chain of AND (or of OR) joins, left to right, brackets around the same opened."""
    kind = type(node)
    found: list[Any] = []
    stack = [node]
    while stack:
        one = stack.pop()
        inner = one
        while isinstance(inner, exp.Paren) and isinstance(inner.this, kind | exp.Paren):
            inner = inner.this
        if type(inner) is kind:
            only(inner, "this", "expression")
            stack += [inner.expression, inner.this]
        else:
            found.append(one)
    return found


def conjuncts(node: Any) -> list[Any]:
    """What must hold of a condition: the operands of its AND."""
    while isinstance(node, exp.Paren) and isinstance(node.this, exp.And | exp.Paren):
        node = node.this
    return operands(node) if isinstance(node, exp.And) else [node]
