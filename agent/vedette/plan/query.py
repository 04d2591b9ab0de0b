"""The meaning of a statement in SQL, free of SQL's syntax: typed expressions, and operators from tables to alerts.

A **row** is a tuple. Its element 0 is the **origin**: the offset in the raw log of the newest event behind the row. The
columns follow, from 1 on, in the order of ``Node.columns``. Values by type:

| type | Python |
|---|---|
| ``BOOLEAN`` | bool |
| ``TINYINT SMALLINT INT BIGINT`` | int, wrapped to its width |
| ``FLOAT DOUBLE`` | float (``FLOAT`` rounded to 32 bits) |
| ``DECIMAL(p, s)`` | ``decimal.Decimal`` with ``s`` digits after the point |
| ``CHAR(n) VARCHAR(n) STRING`` | str |
| ``BINARY(n) VARBINARY(n) BYTES`` | bytes |
| ``DATE`` | days since 1970, int |
| ``TIME(p)`` | milliseconds of the day, int |
| ``TIMESTAMP(p) TIMESTAMP_LTZ(p)`` | microseconds since 1970 (UTC), int; a time attribute has whole milliseconds |
| ``INTERVAL_SECOND INTERVAL_MONTH`` | microseconds; months |
| ``ARRAY<t>`` ``ROW<…>`` ``MAP<k, v>`` | tuple; tuple; dict |
| ``NULL`` | the type of a bare NULL |

NULL is None everywhere. A **mark** (watermark) is a time in microseconds: no event at or before it is waited for.
Every operator only appends rows: what would change rows already given (a GROUP BY without a window, a plain join) is
refused where rules are compiled.

Nodes are equal when they mean the same, whatever statement they are of, so that statements share operators and state;
``fingerprint`` is what state is kept under. Apache Flink 2.3, "Queries", "Windowing table-valued functions",
"Pattern Recognition" of its SQL reference: https://nightlies.apache.org/flink/flink-docs-release-2.3/docs/dev/table/sql/
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from decimal import Decimal
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import msgpack

from vedette.plan.grid import Grid
from vedette.plan.ir import Suppress

SECOND = 1_000_000
MILLISECOND = 1_000

Row = tuple[Any, ...]

HEAD = ("level", "title", "tags")
"""Columns of a statement that go before what the statement itself says."""
WINDOW = ("window_start", "window_end")
COUNT = "count"
"""Columns from which an alert has its times and its count."""


class Type(NamedTuple):
    """``args``: element types of ``ARRAY`` and ``MAP``, of ``ROW`` pairs of name and type."""

    name: str
    precision: int = 0
    """Digits of ``DECIMAL``, characters or bytes of texts (0: any), digits of a second of times."""
    scale: int = 0
    args: tuple[Any, ...] = ()

    def __str__(self) -> str:
        match self.name:
            case "DECIMAL":
                return f"DECIMAL({self.precision}, {self.scale})"
            case "ARRAY":
                return f"ARRAY<{self.args[0]}>"
            case "MAP":
                return f"MAP<{self.args[0]}, {self.args[1]}>"
            case "ROW":
                return f"ROW<{', '.join(f'{name} {of}' for name, of in self.args)}>"
            case "TIMESTAMP" | "TIMESTAMP_LTZ" | "TIME":
                return f"{self.name}({self.precision})"
            case _:
                return f"{self.name}({self.precision})" if self.precision else self.name


class Named(NamedTuple):
    """A column of a row."""

    name: str
    type: Type


# --- expressions


@dataclass(frozen=True, slots=True)
class Column:
    """``row[index]``; in a join's condition the left row's columns come first (``Node.columns`` of the join)."""

    index: int
    type: Type


@dataclass(frozen=True, slots=True)
class Literal:
    value: Any
    type: Type


@dataclass(frozen=True, slots=True)
class Call:
    """A function or operator of ``stream/functions``, by its name there: ``=``, ``AND``, ``CAST``, ``UPPER`` …

    ``options``: what is no expression, as texts and numbers (``JSON_VALUE``'s clauses, the unit of ``EXTRACT``).
    """

    name: str
    args: tuple[Expression, ...]
    type: Type
    options: tuple[Any, ...] = ()


Expression = Column | Literal | Call

PYTHON = "PYTHON"
"""The name of calls and aggregates that are user functions; ``options``: ``module.attr``, and the digest of its
``Modules``. They stand in ``Apply``, ``Expand`` and among aggregates only."""


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate function over rows, by its name in ``stream/aggregates``. ``args``: none for ``COUNT(*)``.

    ``when``: its FILTER. ``options``: the percentage, the separator.
    """

    name: str
    args: tuple[Expression, ...]
    type: Type
    distinct: bool = False
    when: Expression | None = None
    options: tuple[Any, ...] = ()


# --- operators


@dataclass(frozen=True)
class Node:
    """One operator. ``columns``: of the rows that it gives; ``time``: the index of their time attribute, 0 for none."""

    columns: tuple[Named, ...]
    time: int

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The operators whose rows it takes, by port."""
        inputs: list[Node] = []
        for attribute in fields(self):
            value = getattr(self, attribute.name)
            inputs += (part for part in (value if type(value) is tuple else (value,)) if isinstance(part, Node))
        return tuple(inputs)

    @cached_property
    def fingerprint(self) -> bytes:
        """16 bytes: equal for nodes that mean the same."""
        return hashlib.blake2b(msgpack.packb(dump(self)), digest_size=16).digest()


class Field(NamedTuple):
    """Where a column of a table comes from: a decoded field, by its name or dotted path, or what the agent knows."""

    path: str
    metadata: bool = False
    """``path`` is one of ``METADATA``."""


METADATA: dict[str, Type] = {
    "event_time": Type("TIMESTAMP_LTZ", 3),
    "received_at": Type("TIMESTAMP_LTZ", 3),
    "host": Type("STRING"),
    "input": Type("STRING"),
    "raw": Type("STRING"),
    "offset": Type("BIGINT"),
}
"""What a table's METADATA columns can name."""


@dataclass(frozen=True)
class Scan(Node):
    """The events of a table that ``rule`` selects: a rule of the plan that holds for every event the statement needs.

    ``table``: its name, for messages. ``sources``: of each column where it comes from. ``mark``: of a row its
    watermark, None without one; only events that the rule selects move it.
    """

    table: str
    rule: str
    sources: tuple[Field, ...]
    mark: Expression | None = None
    inputs_named: tuple[str, ...] = ()
    """The inputs of the agent whose events are in the table; empty: all."""


@dataclass(frozen=True)
class Calc(Node):
    """``exprs`` of each row for which ``when`` is true. There is one between a ``Scan`` and whatever takes its rows."""

    input: Node
    exprs: tuple[Expression, ...]
    when: Expression | None = None


@dataclass(frozen=True)
class Apply(Node):
    """The values of user functions behind a row's columns; their arguments hold no user functions."""

    input: Node
    functions: tuple[Call, ...]


@dataclass(frozen=True)
class Union(Node):
    """UNION ALL; the watermark is the least of its inputs'."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Expand(Node):
    """Rows of a table function for each row (LATERAL TABLE, UNNEST), behind its columns.

    ``outer``: LEFT JOIN … ON TRUE. ``function``: a ``Call`` whose value is a list of tuples.
    """

    input: Node
    function: Call
    outer: bool = False


@dataclass(frozen=True)
class Assign(Node):
    """A window table function by itself: each row once for each of its windows, with window_start, window_end and
    window_time behind its columns. ``time`` is window_time. Nothing is late (Flink 2.3, measured)."""

    input: Node
    grid: Grid
    keys: tuple[int, ...] = ()
    """Of ``SESSION`` the columns of PARTITION BY."""


@dataclass(frozen=True)
class Windowed(Node):
    """Aggregates by window and ``keys`` (columns of the input, whose time attribute says the window).

    Gives the keys, the aggregates, window_start, window_end and window_time; ``sets``: GROUPING SETS as indexes into
    ``keys`` (the others are NULL, and a last column tells GROUPING_ID), none for a plain GROUP BY. ``legacy``: a group
    window (TUMBLE in GROUP BY), which differs where Flink's does.
    """

    input: Node
    grid: Grid
    keys: tuple[int, ...]
    aggregates: tuple[Aggregate, ...]
    sets: tuple[tuple[int, ...], ...] = ()
    legacy: bool = False


@dataclass(frozen=True)
class Grouped(Node):
    """Aggregates of rows that ``Assign`` or an operator over windows gave: by its window_start and window_end among
    ``keys``, complete when the watermark passes the window. Gives the keys, then the aggregates."""

    input: Node
    keys: tuple[int, ...]
    aggregates: tuple[Aggregate, ...]
    window: tuple[int, int] = (0, 0)
    """The columns window_start and window_end."""


ALL_ROWS = 1 << 62
"""``Over.rows`` without a bound."""


@dataclass(frozen=True)
class Over(Node):
    """OVER (PARTITION BY … ORDER BY time): aggregates behind the row's columns. ``rows``: so many rows before, with
    the row itself, ``ALL_ROWS`` for all before it; ``range``: so many microseconds before; both None: all up to the
    row's time, with all of that time."""

    input: Node
    keys: tuple[int, ...]
    aggregates: tuple[Aggregate, ...]
    rows: int | None = None
    range: int | None = None


@dataclass(frozen=True)
class Top(Node):
    """ROW_NUMBER() within a window (``window``: columns window_start, window_end) or, for the first of a key,
    without: the rows of rank ``first`` to ``last`` by ``order`` (column, descending, nulls last), their rank behind."""

    input: Node
    keys: tuple[int, ...]
    order: tuple[tuple[int, bool, bool], ...]
    first: int
    last: int
    window: tuple[int, int] = (0, 0)
    ranked: bool = True
    """Whether the rank is given."""


@dataclass(frozen=True)
class Join(Node):
    """Rows of two inputs with equal keys. ``kind``: ``INNER LEFT RIGHT FULL SEMI ANTI``.

    An interval join has ``lower`` and ``upper``: right time - left time is within both, microseconds. A window join
    has ``windows``: of left and right the columns window_start and window_end, which are equal. ``when``: what else
    must hold of the joined row (left columns, then right).
    """

    left: Node
    right: Node
    kind: str
    left_keys: tuple[int, ...]
    right_keys: tuple[int, ...]
    when: Expression | None = None
    lower: int = 0
    upper: int = 0
    windows: tuple[tuple[int, int], tuple[int, int]] | None = None


@dataclass(frozen=True)
class LookupJoin(Node):
    """FOR SYSTEM_TIME AS OF: the lookup's rows for ``key``, their ``wanted`` columns behind the row's. ``kind``:
    ``INNER LEFT SEMI ANTI``."""

    input: Node
    lookup: str
    index: str
    key: Expression
    wanted: tuple[str, ...]
    kind: str
    when: Expression | None = None
    at: int = 0
    """The column of the time as of which; of lookups without validity times it is not looked at."""


class Variable(NamedTuple):
    """One of PATTERN: ``least`` to ``most`` (None: any) rows."""

    name: str
    least: int
    most: int | None
    greedy: bool = True


@dataclass(frozen=True)
class Match(Node):
    """MATCH_RECOGNIZE: keys, then measures. In ``defines`` and ``measures``, ``Call("PATTERN.LAST", …)`` and its like
    (``plan/pattern.py``, which also says what is wrong with a pattern) refer to rows of a variable. ``skip``: ``NEXT``,
    ``PAST``, ``FIRST``, ``LAST`` with ``skip_to``. ``within``: microseconds, 0 for any."""

    input: Node
    keys: tuple[int, ...]
    pattern: tuple[Variable, ...]
    defines: tuple[tuple[str, Expression], ...]
    measures: tuple[Expression, ...]
    skip: str = "NEXT"
    skip_to: str = ""
    within: int = 0
    subsets: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True)
class Statement:
    """A query whose rows are alerts, or with ``sink`` rows for the sink of this name: JSON objects of the columns of
    ``root``. ``digest`` covers its meaning, not its texts.

    Of an alert, columns of ``root`` named ``level``, ``title`` and ``tags`` (a text, tags by commas) go before the
    statement's own; all others are its fields. ``entities``: pairs of a column and the kind of entity that it names.
    """

    id: str
    title: str
    level: str
    tags: tuple[str, ...]
    root: Node
    digest: str
    path: str
    line: int
    entities: tuple[tuple[str, str], ...] = ()
    suppress: Suppress | None = None
    sink: str = ""

    noun: ClassVar[str] = "statement"

    @cached_property
    def scans(self) -> tuple[Scan, ...]:
        return tuple(node for node in nodes(self.root) if isinstance(node, Scan))

    @cached_property
    def lookups(self) -> tuple[LookupJoin, ...]:
        return tuple(node for node in nodes(self.root) if isinstance(node, LookupJoin))

    @cached_property
    def places(self) -> dict[str, int]:
        """By name in lower case the index of a column in the statement's rows, the first of that name."""
        return {column.name.lower(): i for i, column in reversed([*enumerate(self.root.columns, 1)])}

    @cached_property
    def shown(self) -> tuple[tuple[int, Named], ...]:
        """The columns that are an alert's fields: those with a name that is none of ``HEAD``."""
        return tuple(
            (i, column) for i, column in enumerate(self.root.columns, 1) if column.name.lower() not in {*HEAD, ""}
        )

    @cached_property
    def stateful(self) -> bool:
        """Whether a row is about more than one event, or an event makes more than one."""
        return any(not isinstance(node, Scan | Calc | Apply | Union) for node in nodes(self.root))

    @cached_property
    def plain(self) -> bool:
        """Whether a row is about one event, and says nothing of an alert but its fields."""
        return not self.stateful and self.places.keys().isdisjoint({*HEAD, *WINDOW, COUNT})

    @cached_property
    def single(self) -> bool:
        """Whether an event makes at most one row, which is about it alone."""
        return all(isinstance(node, Scan | Calc | Apply) for node in nodes(self.root))

    @cached_property
    def modules(self) -> frozenset[str]:
        """The digests of the modules whose functions it calls."""
        return frozenset(str(call.options[1]) for call in functions(self.root))


class Module(NamedTuple):
    """One module of Python, by its dotted name; ``package``: it is an ``__init__.py``."""

    name: str
    package: bool
    source: str


@dataclass(frozen=True)
class Modules:
    """The modules of a user function: its own, and those beside it that it imports."""

    modules: tuple[Module, ...]

    @cached_property
    def digest(self) -> str:
        """Digest names and contents; part of what a statement means that calls a function of it."""
        return hashlib.blake2b(msgpack.packb([list(module) for module in self.modules]), digest_size=16).hexdigest()


def scans_of(statements: Iterable[Statement]) -> dict[str, tuple[Scan, ...]]:
    """By the rule that selects their events the scans of all, equal ones once."""
    by_rule: dict[str, dict[bytes, Scan]] = {}
    for statement in statements:
        for scan in statement.scans:
            by_rule.setdefault(scan.rule, {}).setdefault(scan.fingerprint, scan)
    return {rule: tuple(scans.values()) for rule, scans in by_rule.items()}


def fields_read(statements: Iterable[Statement]) -> tuple[str, ...]:
    """All decoded fields that are columns of their tables."""
    sources = {source for statement in statements for scan in statement.scans for source in scan.sources}
    return tuple(sorted(source.path for source in sources if not source.metadata))


# --- as bytes

KINDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        Type, Named, Column, Literal, Call, Aggregate, Field, Scan, Calc, Apply, Union, Expand, Grid, Assign, Windowed,
        Grouped, Over, Top, Join, LookupJoin, Variable, Match, Statement, Suppress,
    )
}  # fmt: skip


_NAMES: dict[Any, tuple[str, ...]] = {
    kind: getattr(kind, "_fields", None) or tuple(attribute.name for attribute in fields(kind))
    for kind in KINDS.values()
}
"""By class what it is made of, in order."""


def dump(value: Any) -> Any:
    """Return ``value`` (of this module's classes, tuples and values of rows) as lists for msgpack.

    ``stored.load`` is the inverse."""
    kind: Any = type(value)
    if (names := _NAMES.get(kind)) is not None:
        return [kind.__name__, *(dump(getattr(value, name)) for name in names)]
    if isinstance(value, tuple | list):
        return ["", *map(dump, value)]
    if isinstance(value, Decimal):
        return ["Decimal", str(value)]
    return value


def indexes(value: Any) -> Iterator[int]:
    """Give the indexes of all columns that the expressions in ``value`` name."""
    if isinstance(value, Column):
        yield value.index
    elif isinstance(value, Call | Aggregate):
        yield from indexes(value.args)
        yield from indexes(value.when) if isinstance(value, Aggregate) else ()
    elif type(value) is tuple:
        for item in value:
            yield from indexes(item)


def functions(root: Node) -> list[Call | Aggregate]:
    """The user functions that ``root`` and everything below it calls."""
    calls: list[Call | Aggregate] = []
    for node in nodes(root):
        match node:
            case Apply(functions=called):
                calls += called
            case Expand(function=called) if called.name == PYTHON:
                calls.append(called)
            case Windowed() | Grouped() | Over():
                calls += (aggregate for aggregate in node.aggregates if aggregate.name == PYTHON)
    return calls


def nodes(root: Node) -> list[Node]:
    """``root`` and everything below it, each after its inputs, equal ones once."""
    by_fingerprint: dict[bytes, Node] = {}

    def visit(node: Node) -> None:
        if node.fingerprint not in by_fingerprint:
            for below in node.inputs:
                visit(below)
            by_fingerprint[node.fingerprint] = node

    visit(root)
    return list(by_fingerprint.values())
