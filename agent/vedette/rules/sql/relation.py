"""What a query or a table is lowered to: its node, and what each column is called and means.

With it the small steps that all forms of SQL share: a Calc, new names, a column for each key, a time attribute, a
window. A step leaves the relation that it is given as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from vedette.plan.grid import Grid
from vedette.plan.query import Assign, Calc, Column, Expression, Grouped, Named, Node, Type
from vedette.rules.sql.scope import Col, Open
from vedette.rules.sql.trees import Wrong

TIMESTAMP = Type("TIMESTAMP", 3)
NO_BOUND = "ROW_NUMBER() without a bound in the WHERE of the query around it"


@dataclass(frozen=True)
class GroupedSets(Grouped):
    """A Grouped with GROUPING SETS, which ``simplify`` makes a Windowed."""

    sets: tuple[tuple[int, ...], ...] = ()


@dataclass(slots=True)
class Rank:
    """ROW_NUMBER() of a relation whose WHERE is still to say which rows: ``column`` is where the rank stands."""

    column: int
    node: Any
    base: Relation
    keys: tuple[int, ...]
    order: tuple[tuple[int, bool, bool], ...]
    exprs: tuple[Expression, ...]
    """Of the base's columns, with ``Column(0)`` for the rank."""


@dataclass(slots=True)
class Relation:
    """A lowered query or table."""

    node: Node
    cols: list[Col]
    open: Open | None = None
    rank: Rank | None = None

    def window(self) -> tuple[int, int] | None:
        found = {col.window: at for at, col in enumerate(self.cols, 1) if col.window}
        return (found["start"], found["end"]) if "start" in found and "end" in found else None


def named(cols: Sequence[Col]) -> tuple[Named, ...]:
    return tuple(Named("", col.type) for col in cols)


def calc(relation: Relation, exprs: Sequence[Expression], cols: list[Col], when: Expression | None = None) -> Relation:
    time = next((at for at, col in enumerate(cols, 1) if col.rowtime), 0)
    return Relation(Calc(named(cols), time, relation.node, tuple(exprs), when), cols)


def identity(cols: Sequence[Col]) -> tuple[Column, ...]:
    return tuple(Column(at, col.type) for at, col in enumerate(cols, 1))


def finished(relation: Relation) -> Relation:
    """The relation, whose rank is bound if it has one."""
    if relation.rank is not None:
        raise Wrong(
            relation.rank.node,
            NO_BOUND,
            "SELECT … FROM (SELECT …, ROW_NUMBER() OVER (…) AS n FROM …) WHERE n <= 3",
        )
    return relation


def renamed(relation: Relation, names: Sequence[str], node: Any) -> Relation:
    if len(names) != len(relation.cols) or relation.open is not None:
        raise Wrong(node, f"{len(names)} names for {len(relation.cols)} columns")
    cols = [replace(col, name=name) for col, name in zip(relation.cols, names, strict=True)]
    return replace(relation, cols=cols)


def column_of(name: str, value: Expression, relation: Relation) -> Col:
    """What a query calls ``name`` and computes as ``value`` over ``relation``."""
    if isinstance(value, Column) and 0 < value.index <= len(relation.cols):
        return replace(relation.cols[value.index - 1], name=name)
    return Col(name, value.type)


def timed(relation: Relation, time: int) -> Relation:
    """The relation with ``time`` as its time attribute."""
    if relation.node.time == time:
        return relation
    made = Calc(named(relation.cols), time, relation.node, identity(relation.cols))
    return replace(relation, node=made)


def windowed(relation: Relation, grid: Grid, keys: tuple[int, ...]) -> Relation:
    """The relation with window_start, window_end and window_time behind its columns."""
    rowtime = relation.cols[relation.node.time - 1].type
    cols = [replace(col, rowtime=False, window="") for col in relation.cols]
    cols += [
        Col("window_start", TIMESTAMP, window="start"),
        Col("window_end", TIMESTAMP, window="end"),
        Col("window_time", rowtime, True, "time"),
    ]
    return Relation(Assign(named(cols), len(cols), relation.node, grid, keys), cols, relation.open)


def with_keys(relation: Relation, keys: Sequence[Expression]) -> tuple[Relation, tuple[int, ...]]:
    """The relation with a column for each of ``keys``, and these columns."""
    cols, exprs = list(relation.cols), list[Expression](identity(relation.cols))
    places: list[int] = []
    for key in keys:
        if key in exprs:
            places.append(exprs.index(key) + 1)
        else:
            exprs.append(key)
            cols.append(Col("", key.type))
            places.append(len(cols))
    if len(cols) == len(relation.cols):
        return relation, tuple(places)
    node = Calc(named(cols), relation.node.time, relation.node, tuple(exprs))
    return replace(relation, node=node, cols=cols), tuple(places)
