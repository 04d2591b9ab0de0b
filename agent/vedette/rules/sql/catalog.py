"""What names in a file mean: tables, lookups, views, streams; and the table ``events``, which is there unless the file
declares one.

A name has one meaning in the whole file. One of which a statement is refused has none: what reads it is refused, too.

A table's columns are decoded fields by their names (a dotted path in backticks reaches into objects), what the agent
knows (METADATA), and computed ones. Where no WATERMARK is declared the table has no time. ``events`` has all columns of
``plan.query.METADATA``, and any other name is the decoded field of this name, as STRING.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from vedette.model.event import LogSource
from vedette.plan.query import METADATA, Type
from vedette.rules.sql import nodes
from vedette.rules.sql.own import Declaring, Own
from vedette.rules.sql.scope import MAX_COLUMNS
from vedette.rules.sql.trees import Wrong

EVENTS, ALERTS = "events", "alerts"
DELAY = 30_000_000
"""How much later than newer ones an event of the table ``events`` may come, microseconds."""


@dataclass(frozen=True, slots=True)
class TableColumn:
    """``path``: of a decoded field; ``metadata``: a name of ``METADATA``; ``value``: the tree of a computed column."""

    name: str
    type: Type | None
    path: str = ""
    metadata: str = ""
    value: Any = None
    node: Any = None


@dataclass(frozen=True, slots=True)
class Table:
    """``watermark`` and ``mark``: the trees of the column and the expression. ``inputs``: names; empty: all."""

    name: str
    columns: tuple[TableColumn, ...]
    logsource: LogSource = LogSource()
    inputs: tuple[str, ...] = ()
    watermark: Any = None
    mark: Any = None
    all_events: bool = True
    """Whether every event of the table moves the watermark, not only those that a statement selects."""
    open: bool = False
    node: Any = None


@dataclass(frozen=True, slots=True)
class LookupTable:
    name: str
    lookup: str
    columns: tuple[tuple[str, Type], ...]


@dataclass(frozen=True, slots=True)
class View:
    columns: tuple[str, ...]
    query: Any


@dataclass(slots=True)
class Catalog:
    """The names of one file; what is used must be declared before."""

    tables: dict[str, Table] = field(default_factory=dict)
    lookups: dict[str, LookupTable] = field(default_factory=dict)
    views: dict[str, View] = field(default_factory=dict)
    streams: dict[str, list[View]] = field(default_factory=dict)
    """By name what INSERT INTO feeds it."""
    functions: dict[str, Own] = field(default_factory=dict)
    """By name in capitals."""
    read: set[str] = field(default_factory=set)
    """The names that some query reads."""
    refused: dict[str, int] = field(default_factory=dict)
    """By name the line of the statement that says what it is, and is refused."""

    def __post_init__(self) -> None:
        columns = tuple(TableColumn(name, kind, metadata=name) for name, kind in METADATA.items())
        self.tables[EVENTS] = Table(EVENTS, columns, all_events=False, open=True)

    def declare(self, tree: Any, declaring: Declaring) -> bool:
        """Take a CREATE statement in, functions by ``declaring``; False for any other. Raises Wrong."""
        if not isinstance(tree, nodes.CreateTable | nodes.CreateView | nodes.CreateFunction):
            return False
        name, unless_there = tree.this.name, tree.args.get("unless_there")
        if isinstance(tree, nodes.CreateFunction):
            name = name.upper()
            if name not in self.functions:
                target, language = tree.args["implementation"], tree.args.get("language") or ""
                self.functions[name] = declaring.function(tree.this, name, target, language)
            elif not unless_there:
                raise Wrong(tree.this, f"{name} is declared already", "another name")
            return True
        if name == ALERTS:
            raise Wrong(tree.this, f"{ALERTS} is always there", f"INSERT INTO {ALERTS} without a CREATE")
        there = self.tables.get(name)
        if (there is not None and not there.open) or name in {**self.lookups, **self.views, **self.streams}:
            if unless_there:
                return True
            raise Wrong(tree.this, f"{name} is declared already", "another name")
        if there is not None:
            if name in self.read:
                raise Wrong(tree.this, f"{name} is read already, as the table of all events", "CREATE it before that")
            del self.tables[name]
        if isinstance(tree, nodes.CreateView):
            self.views[name] = View(tuple(one.name for one in tree.args.get("columns") or ()), tree.args["query"])
        else:
            self._table(name, tree)
        return True

    def usable(self, node: Any) -> None:
        """Raises Wrong for a name of which a statement is refused."""
        if line := self.refused.get(node.name):
            reason = f"{node.name} cannot be used: line {line}, which says what it is, is refused"
            raise Wrong(node, reason, "correct that line first")

    def feed(self, tree: Any) -> None:
        """INSERT INTO a name that is no table: a stream for later statements. Raises Wrong."""
        name = tree.this.name
        if name in {**self.tables, **self.lookups, **self.views}:
            raise Wrong(tree.this, f"{name} is what events are read from", f"INSERT INTO {ALERTS}, or a new name")
        columns = tuple(one.name for one in tree.args.get("columns") or ())
        self.streams.setdefault(name, []).append(View(columns, tree.args["query"]))

    def _table(self, name: str, tree: Any) -> None:
        options: dict[str, tuple[str, int]] = dict(tree.args["options"][0])

        def taken(key: str) -> str:
            return options.pop(key, ("", 0))[0]

        if taken("connector") != "vedette":
            raise Wrong(tree.this, f"the table {name} needs 'connector' = 'vedette'", "WITH ('connector' = 'vedette')")
        if len(tree.args["columns"]) > MAX_COLUMNS:
            raise Wrong(tree.this, f"more than {MAX_COLUMNS} columns")
        columns = tuple(self._column(one) for one in tree.args["columns"])
        for at, column in enumerate(columns):
            if any(other.name == column.name for other in columns[:at]):
                raise Wrong(column.node, f"the column {column.name} twice")
        lookup = taken("lookup")
        if lookup:
            self._no_more(tree, options, "lookup")
            if tree.args.get("mark") or any(column.metadata or column.value for column in columns):
                raise Wrong(tree.this, f"the lookup {name} has plain columns only")
            self.lookups[name] = LookupTable(
                name, lookup, tuple((column.name, column.type) for column in columns if column.type is not None)
            )
            return
        inputs = tuple(filter(None, (one.strip() for one in taken("input").split(","))))
        source = LogSource(*(taken(key).lower() for key in ("product", "category", "service")))
        moved = taken("watermark") or "all"
        if moved not in ("all", "selected"):
            raise Wrong(tree.this, "'watermark' is 'all' or 'selected' events", "'watermark' = 'all'")
        self._no_more(tree, options, "input, product, category, service, lookup, watermark")
        self.tables[name] = Table(
            name, columns, source, inputs, tree.args.get("watermark"), tree.args.get("mark"), moved == "all", node=tree
        )

    @staticmethod
    def _no_more(tree: Any, options: dict[str, tuple[str, int]], known: str) -> None:
        for key in options:
            raise Wrong(tree.this, f"a table has no option {key!r:.40}", f"connector, {known}")

    @staticmethod
    def _column(one: Any) -> TableColumn:
        name = one.this.name
        if (value := one.args.get("value")) is not None:
            return TableColumn(name, None, value=value, node=one)
        (kind,) = one.args["kind"]
        if not (metadata := one.args.get("metadata")):
            return TableColumn(name, kind, path=name, node=one)
        known = METADATA.get(metadata[0])
        if known is None:
            raise Wrong(one.this, f"events have no metadata {metadata[0]!r:.40}", f"one of {', '.join(METADATA)}")
        same = known.name == kind.name or {known.name, kind.name} <= {"STRING", "VARCHAR"}
        if not same or (known.precision and kind.precision != known.precision):
            raise Wrong(one.this, f"METADATA {metadata[0]} is {known}, not {kind}", f"{name} {known} METADATA")
        return TableColumn(name, known, metadata=metadata[0], node=one)
