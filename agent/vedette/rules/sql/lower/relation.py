"""Relations: what a query or a table is lowered to, its node, and what each column is called and means.

With it the small steps that all forms of SQL share: a Calc, new names, a column for each key, a time attribute, a
window, UNION ALL. A step leaves the relation that it is given as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from vedette.plan.grid import MAX_PARTS, Grid
from vedette.plan.query import (
    METADATA,
    MILLISECOND,
    Assign,
    Calc,
    Call,
    Column,
    Expand,
    Expression,
    Field,
    Grouped,
    Literal,
    LookupJoin,
    Named,
    Node,
    Scan,
    Type,
    Union,
)
from vedette.rules.sql.names.catalog import EVENTS
from vedette.rules.sql.names.check import Checker
from vedette.rules.sql.names.expressions import identity, microseconds, unnamed
from vedette.rules.sql.names.scope import Col, Open, Scope
from vedette.rules.sql.parse.trees import Wrong, only
from vedette.stream.functions.library import LIBRARY
from vedette.stream.functions.table import WrongTypes

TIMESTAMP = Type("TIMESTAMP", 3)
RECEIPT = METADATA["received_at"]
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
    """Expressions over the base's columns, with ``Column(0)`` for the rank."""


@dataclass(slots=True)
class Relation:
    """A lowered query or table."""

    node: Node
    cols: list[Col]
    open: Open | None = None
    rank: Rank | None = None

    def window(self) -> tuple[int, int] | None:
        places = {col.window: at for at, col in enumerate(self.cols, 1) if col.window}
        return (places["start"], places["end"]) if "start" in places and "end" in places else None


def calc(relation: Relation, exprs: Sequence[Expression], cols: list[Col], when: Expression | None = None) -> Relation:
    time = next((at for at, col in enumerate(cols, 1) if col.rowtime), 0)
    return Relation(Calc(unnamed(cols), time, relation.node, tuple(exprs), when), cols)


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
    """The column that a query calls ``name`` and computes as ``value`` over ``relation``."""
    if isinstance(value, Column) and 0 < value.index <= len(relation.cols):
        return replace(relation.cols[value.index - 1], name=name)
    return Col(name, value.type)


def timed(relation: Relation, time: int) -> Relation:
    """The relation with ``time`` as its time attribute."""
    if relation.cols[time - 1].receipt:
        cols = [replace(col, rowtime=at == time, receipt=False) for at, col in enumerate(relation.cols, 1)]
        return replace(relation, node=by_receipt(relation.node, time), cols=cols)
    if relation.node.time == time:
        return relation
    calc = Calc(unnamed(relation.cols), time, relation.node, identity(relation.cols))
    return replace(relation, node=calc)


def by_receipt(node: Node, time: int) -> Node:
    """The node with the column ``time``, which is that of receipt, as its time attribute. Raises Wrong."""
    match node:
        case Scan():
            mark = Call("-", (Column(time, RECEIPT), Literal(MILLISECOND, Type("INTERVAL_SECOND"))), RECEIPT)
            return replace(node, time=time, mark=mark)
        case Calc(exprs=exprs) if isinstance(column := exprs[time - 1], Column):
            return replace(node, time=time, input=by_receipt(node.input, column.index))
        case Union():
            return replace(node, time=time, parts=tuple(by_receipt(part, time) for part in node.parts))
        case LookupJoin() | Expand() if time <= len(node.input.columns):
            return replace(node, time=time, input=by_receipt(node.input, time))
    raise Wrong(None, "a row of several has no time of receipt", "the window's time, or the rows' own")


def with_receipt(node: Node) -> tuple[Node, int]:
    """The node with a column of the time of receipt, and which. Raises Wrong."""
    source = Field("received_at", True)
    match node:
        case Scan():
            if source in node.sources:
                return node, node.sources.index(source) + 1
            columns = (*node.columns, Named(source.path, RECEIPT))
            return replace(node, columns=columns, sources=(*node.sources, source)), len(columns)
        case Calc():
            below, at = with_receipt(node.input)
            columns = (*node.columns, Named("", RECEIPT))
            return replace(node, input=below, columns=columns, exprs=(*node.exprs, Column(at, RECEIPT))), len(columns)
    raise Wrong(None, "PROCTIME() stands over one table", "p AS PROCTIME() in CREATE TABLE, and p here")


def windowed(relation: Relation, grid: Grid, keys: tuple[int, ...]) -> Relation:
    """The relation with window_start, window_end and window_time behind its columns."""
    rowtime = relation.cols[relation.node.time - 1].type
    cols = [replace(col, rowtime=False, window="", receipt=False) for col in relation.cols]
    cols += [
        Col("window_start", TIMESTAMP, window="start"),
        Col("window_end", TIMESTAMP, window="end"),
        Col("window_time", rowtime, True, "time"),
    ]
    return Relation(Assign(unnamed(cols), len(cols), relation.node, grid, keys), cols, relation.open)


def with_keys(relation: Relation, keys: Sequence[Expression]) -> tuple[Relation, tuple[int, ...]]:
    """The relation with a column for each of ``keys``, and these columns."""
    cols = list(relation.cols)
    exprs = list[Expression](identity(relation.cols))
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
    node = Calc(unnamed(cols), relation.node.time, relation.node, tuple(exprs))
    return replace(relation, node=node, cols=cols), tuple(places)


def united(tree: Any) -> list[Any]:
    """The queries of a UNION ALL, in their order."""
    trees: list[Any] = []
    stack: list[Any] = [tree]
    while stack:
        query = stack.pop()
        if isinstance(query, exp.Union):
            only(query, "this", "expression", "with_") if not query.args.get("distinct") else None
            if query.args.get("distinct"):
                raise Wrong(query.expression, "UNION would have to remember every row", "UNION ALL")
            stack += [query.expression, query.this]
        else:
            trees.append(query)
    return trees


def together(relations: list[Relation], trees: list[Any]) -> Relation:
    """UNION ALL: columns by place, of the type that all have in common."""
    first = relations[0]
    for relation, tree in zip(relations, trees, strict=True):
        if relation.open is not None:
            raise Wrong(tree, f"SELECT * of {EVENTS}, which has any column", "the columns by name")
        if len(relation.cols) != len(first.cols):
            raise Wrong(tree, f"UNION ALL of {len(first.cols)} and {len(relation.cols)} columns")
    if len(relations) == 1:
        return first
    cols: list[Col] = []
    for at, col in enumerate(first.cols):
        same = [relation.cols[at] for relation in relations]
        kind = common(trees[0], [col.type for col in same])
        windows = {col.window for col in same}
        window = windows.pop() if len(windows) == 1 else ""
        receipt = all(col.receipt for col in same)
        cols.append(Col(col.name, kind, all(col.rowtime for col in same), window, receipt))
    parts = []
    for relation in relations:
        exprs = [
            Column(at, col.type)
            if col.type == want.type
            else Call("CAST", (Column(at, col.type),), want.type, (want.type,))
            for at, (col, want) in enumerate(zip(relation.cols, cols, strict=True), 1)
        ]
        parts.append(calc(relation, exprs, cols).node)
    return Relation(Union(unnamed(cols), parts[0].time, tuple(parts)), cols)


def common(tree: Any, types: list[Type]) -> Type:
    """The type that values of all ``types`` have as one column."""
    if len(set(types)) == 1:
        return types[0]
    try:
        return LIBRARY.infer("COALESCE", [Column(1, kind) for kind in types])
    except WrongTypes:
        raise Wrong(
            tree, f"UNION ALL of a column that is {' and '.join(map(str, dict.fromkeys(types)))}", "CAST(… AS …)"
        ) from None


def grid_of(node: Any, kind: str, args: Sequence[Any]) -> Grid:
    """``args``: intervals as the window's name takes them, the offset last."""
    values = []
    for arg in args:
        length = microseconds(Checker(Scope()).of(arg))
        if length is None:
            raise Wrong(arg, f"{kind} takes intervals of days to milliseconds", "INTERVAL '10' MINUTE")
        if length % MILLISECOND:
            raise Wrong(arg, "a window has whole milliseconds")
        values.append(length)
    least, most = {"TUMBLE": (1, 2), "SESSION": (1, 1)}.get(kind, (2, 3))
    if not least <= len(values) <= most:
        raise Wrong(node, f"{kind} takes {least} to {most} intervals, not {len(values)}")
    offset = values[least] if len(values) > least else 0
    if min(values[:least]) <= 0:
        raise Wrong(node, f"the intervals of {kind} are longer than nothing")
    if least == 1:
        if abs(offset) >= values[0]:
            raise Wrong(args[-1], "a window's offset is shorter than the window")
        return Grid(kind, values[0], 0, offset)
    step, size = values[:2]
    if kind == "CUMULATE" and size % step:
        raise Wrong(node, "CUMULATE's size is a multiple of its step")
    if kind == "CUMULATE" and size < step:
        raise Wrong(node, "CUMULATE's size is not shorter than its step")
    if abs(offset) >= size:
        raise Wrong(args[-1], "a window's offset is shorter than the window")
    grid = Grid(kind, size, step, offset)
    if grid.parts > MAX_PARTS:
        raise Wrong(node, f"a window of {kind} is made of {grid.parts:,} parts, at most {MAX_PARTS:,}: a longer step")
    return grid
