"""Scopes, which say what column a name means: the tables of a FROM, and those of the query around it.

A **time attribute** is a column that the table's WATERMARK is of, or that a window gives (window_time); any function
loses it. A table of events has whatever columns a statement asks for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vedette.plan.query import Column, Expression, Type
from vedette.rules.sql.names.catalog import MAX_COLUMNS, Own
from vedette.rules.sql.names.expressions import STRING
from vedette.rules.sql.parse.trees import Wrong

MAX_TABLES = 50
"""Tables of one FROM."""
GROWN = 1 << 24
"""Columns from here on are asked of ``events`` for the first time."""


@dataclass(frozen=True, slots=True)
class Col:
    """A column of a relation. ``window``: ``start``, ``end`` or ``time`` of the window that it tells. ``receipt``: a
    time of receipt, which becomes the time attribute where it is asked for."""

    name: str
    type: Type
    rowtime: bool = False
    window: str = ""
    receipt: bool = False


def time_column(value: Expression, cols: Sequence[Col]) -> int | None:
    """The index of the time attribute among ``cols`` that ``value`` is; None for any other expression."""
    if not isinstance(value, Column) or not 0 < value.index <= len(cols):
        return None
    col = cols[value.index - 1]
    return value.index if col.rowtime or col.receipt else None


@dataclass(slots=True)
class Open:
    """A table whose columns are whatever events have: those that a statement has asked for so far."""

    table: str
    wanted: dict[str, None] = field(default_factory=dict)


@dataclass(slots=True)
class Part:
    """One table of a FROM, by its alias; its columns begin behind ``base``."""

    alias: str
    cols: list[Col]
    base: int
    open: Open | None = None


@dataclass(slots=True)
class Scope:
    """The tables whose columns an expression may name; ``outer``: those of the query around it."""

    parts: list[Part] = field(default_factory=list)
    outer: Scope | None = None
    functions: Mapping[str, Own] = field(default_factory=dict)
    """The user's, by name in capitals."""
    without: str = ""
    """The clause that this is the scope of, where user functions cannot stand."""

    @property
    def width(self) -> int:
        return sum(len(part.cols) for part in self.parts)

    def col(self, index: int) -> Col:
        if index >= GROWN:
            return Col("", STRING)
        for part in self.parts:
            if part.base < index <= part.base + len(part.cols):
                return part.cols[index - part.base - 1]
        raise IndexError(index)

    def find(self, names: Sequence[str], node: Any) -> tuple[Column, int] | None:
        """The column that the dotted ``names`` begin with, and how many of them it takes; None for none here."""
        if len(names) > 1:
            parts = [part for part in self.parts if part.alias == names[0]]
            if len(parts) > 1:
                raise Wrong(node, f"{names[0]} is the name of two tables", "an alias of its own for each")
            if parts:
                return self._in(parts[0], names, 1, node)
        matches = [(part, at) for part in self.parts for at, col in enumerate(part.cols, 1) if col.name == names[0]]
        closed = [match for match in matches if match[0].open is None]
        matches = closed or matches
        if len(matches) > 1:
            raise Wrong(node, f"{names[0]} is a column of several tables", f"{matches[0][0].alias}.{names[0]}")
        if matches and (matches[0][0].open is None or len(names) == 1):
            part, at = matches[0]
            return Column(part.base + at, part.cols[at - 1].type), 1
        opened = [part for part in self.parts if part.open is not None]
        if len(opened) > 1:
            raise Wrong(node, f"{names[0]} may be a field of several tables", f"{opened[0].alias}.{names[0]}")
        return self._in(opened[0], names, 0, node) if opened else None

    def _in(self, part: Part, names: Sequence[str], skip: int, node: Any) -> tuple[Column, int]:
        for at, col in enumerate(part.cols, 1):
            if col.name == names[skip] and (part.open is None or len(names) == skip + 1):
                return Column(part.base + at, col.type), skip + 1
        if part.open is None:
            near = ", ".join(col.name for col in part.cols[:12])
            raise Wrong(node, f"{part.alias} has no column {names[skip]}", f"one of {near}" if near else "")
        path = ".".join(names[skip:])
        for at, col in enumerate(part.cols, 1):
            if col.name == path:
                return Column(part.base + at, col.type), len(names)
        if len(part.open.wanted) >= MAX_COLUMNS:
            raise Wrong(node, f"more than {MAX_COLUMNS} columns")
        part.open.wanted.setdefault(path)  # the query is lowered again, with this column among the table's
        return Column(GROWN + list(part.open.wanted).index(path), STRING), len(names)
