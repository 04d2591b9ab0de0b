# ruff: noqa: RUF012 - sqlglot's classes are configured by class attributes
"""The nodes of Flink's SQL that sqlglot does not have, and where a node begins in the text."""

from __future__ import annotations

from typing import Any

from sqlglot import exp


def start(node: Any) -> int:
    """Where a node begins in the text: the least offset known of it and what is below it; -1 for none."""
    if not isinstance(node, exp.Expr):
        return -1
    known = [one.meta["start"] for one in node.walk() if one._meta and "start" in one._meta]
    return min(known, default=-1)


class CreateTable(exp.Expression):
    """``columns``: ``ColumnDef``s; ``marks``: (name, expression) of WATERMARK; ``options``: a dict."""

    arg_types = {
        "this": True, "columns": True, "watermark": False, "mark": False, "options": True, "unless_there": False,
    }  # fmt: skip


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
        "partition": False, "order": False, "measures": False, "skip": True, "skip_to": False, "pattern": True,
        "within": False, "define": False, "alias": False,
    }  # fmt: skip
