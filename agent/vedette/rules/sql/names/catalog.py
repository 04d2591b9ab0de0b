"""Names of a file: tables, lookups, views, streams, sinks, user functions; and the table ``events``, which is there
unless the file declares one.

A name has one meaning in the whole file. One of which a statement is refused has none: what reads it is refused, too.

A table's columns are decoded fields by their names (a dotted path in backticks reaches into objects), what the agent
knows (METADATA), and computed ones. Where no WATERMARK is declared the table has no time. ``events`` has all columns of
``plan.query.METADATA``, and any other name is the decoded field of this name, as STRING.

The kind and the types of a user function are what its modules say: they are imported to find out, in an isolated
subprocess (``udf/``), and only where that is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vedette.model.event import LogSource
from vedette.plan.query import METADATA, Call, Expression, Modules, Type
from vedette.plan.stored import load
from vedette.rules.ruleset import RuleSet
from vedette.rules.sql.parse import trees
from vedette.rules.sql.parse.trees import Wrong
from vedette.stream.aggregates.table import AGGREGATES
from vedette.stream.functions import cast
from vedette.stream.functions.library import LIBRARY
from vedette.stream.functions.table import WrongTypes
from vedette.udf.modules import collected

NONE = Modules(())
_INTERVALS = ("INTERVAL_SECOND", "INTERVAL_MONTH")


@dataclass(frozen=True)
class Own:
    """A declared function. ``problem``: why it cannot be called, where it cannot."""

    name: str
    target: str
    kind: str = ""
    modules: Modules = NONE
    input: tuple[Type, ...] | None = None
    result: tuple[Type, ...] = ()
    least: int = 0
    most: int | None = None
    merges: bool = True
    problem: str = ""
    hint: str = ""

    @property
    def options(self) -> tuple[Any, ...]:
        return self.target, self.modules.digest

    def usable(self, node: Any) -> None:
        """Raises Wrong when it cannot be called."""
        if self.problem:
            raise Wrong(node, f"{self.name} cannot be called: {self.problem}", self.hint)

    def arguments(self, node: Any, args: Sequence[Expression]) -> tuple[Expression, ...]:
        """The arguments of a call, of the types that the function has declared. Raises Wrong."""
        count = len(args)
        most = self.most
        wanted = self.input
        least = len(wanted) if wanted is not None else self.least
        most = len(wanted) if wanted is not None else most
        if count < least or (most is not None and count > most):
            takes = str(least) if least == most else f"{least} or more" if most is None else f"{least} to {most}"
            raise Wrong(node, f"{self.name} takes {takes} argument{'s' * (takes != '1')}, not {count}")
        fitted = []
        for at, arg in enumerate(args):
            if arg.type.name in _INTERVALS:
                raise Wrong(
                    node, f"{self.name}: argument {at + 1} is an interval, which functions in Python do not take"
                )
            fitted.append(arg if wanted is None else self._fitting(node, at, arg, wanted[at]))
        return tuple(fitted)

    def _fitting(self, node: Any, at: int, arg: Expression, to: Type) -> Expression:
        try:
            change = cast.implicit(arg.type, to)
        except WrongTypes:
            change = None
            raise Wrong(node, f"{self.name}: argument {at + 1} is {to}, not {arg.type}", f"CAST(… AS {to})") from None
        narrower = arg.type.name not in ("NULL",) and change is not None and not _widens(arg.type, to)
        if narrower:
            raise Wrong(node, f"{self.name}: argument {at + 1} is {to}, not {arg.type}", f"CAST(… AS {to})")
        if change is None:
            return arg
        return Call("CAST", (arg,), LIBRARY.infer("CAST", (arg,), (to,)), (to,))


_ORDER = ("TINYINT", "SMALLINT", "INT", "BIGINT", "DECIMAL", "FLOAT", "DOUBLE")


def _widens(source: Type, to: Type) -> bool:
    """Whether Flink brings an argument of one type to the other by itself."""
    if source.name in _ORDER and to.name in _ORDER:
        return _ORDER.index(source.name) <= _ORDER.index(to.name)
    return source.name == to.name or {source.name, to.name} <= {"TIMESTAMP", "TIMESTAMP_LTZ"}


@dataclass
class Declaring:
    """Makes functions of what one file declares."""

    rules: RuleSet
    path: str
    files: list[Path] = field(default_factory=list)

    def function(self, node: Any, name: str, target: str, language: str) -> Own:
        """Raises Wrong when it is none."""
        if language != "PYTHON":
            raise Wrong(node, f"{name} is written in {language or 'Java'}", "AS 'module.attribute' LANGUAGE PYTHON")
        if name in LIBRARY or name in LIBRARY.refused or name in AGGREGATES:
            raise Wrong(node, f"{name} is a function of Flink", "another name")
        try:
            target, modules, files = collected(Path(self.path).parent, target)
        except ValueError as error:
            raise Wrong(node, f"{name}: {error}", "a file beside this one, or in functions/") from None
        if self.rules.functions is None:
            return Own(
                name,
                target,
                problem="functions in Python are not allowed here",
                hint="--functions, or [functions] allow = true of an agent: it runs the code of these rules",
            )
        try:
            description = self.rules.functions.describe(modules, target)
        except ValueError as error:
            raise Wrong(node, f"{name}: {error}", "udf, udtf or udaf with types, in the module") from None
        self.rules.modules[modules.digest] = modules
        self.rules.module_files.update(dict.fromkeys(files))
        try:
            result = tuple(load(_lists(column_type)) for column_type in description["result"])
            inputs = (
                None
                if description["input"] is None
                else tuple(load(_lists(column_type)) for column_type in description["input"])
            )
        except (ValueError, KeyError, TypeError) as error:
            raise Wrong(node, f"{name}: {error}") from None
        return Own(
            name,
            target,
            description["kind"],
            modules,
            inputs,
            result,
            description["least"],
            description["most"],
            description["merges"],
        )


def _lists(value: Any) -> Any:
    return [_lists(part) for part in value] if isinstance(value, tuple | list) else value


def _keyed_by_text(kind: Type) -> bool:
    """Whether each MAP in a type has texts for keys."""
    if kind.name == "MAP" and kind.args[0].name not in ("CHAR", "VARCHAR", "STRING"):
        return False
    return all(_keyed_by_text(part[1] if kind.name == "ROW" else part) for part in kind.args)


_SINK = re.compile(r"[A-Za-z0-9._-]{1,64}")
EVENTS = "events"
ALERTS = "alerts"
MAX_COLUMNS = 1_000
"""Columns of a table or a query."""
DELAY = 30_000_000
"""The most that an event of the table ``events`` may come later than newer ones, microseconds."""


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
class SinkTable:
    """A table that is only written to: its rows go to the agent's sink ``sink``."""

    name: str
    sink: str
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
    """Queries of each by name, which INSERT INTO feeds it from."""
    sinks: dict[str, SinkTable] = field(default_factory=dict)
    functions: dict[str, Own] = field(default_factory=dict)
    """User functions by name, in capitals."""
    read: set[str] = field(default_factory=set)
    """The names that some query reads."""
    refused: dict[str, int] = field(default_factory=dict)
    """Lines of refused statements, by the name that each says something of."""

    def __post_init__(self) -> None:
        columns = tuple(TableColumn(name, kind, metadata=name) for name, kind in METADATA.items())
        self.tables[EVENTS] = Table(EVENTS, columns, all_events=False, open=True)

    def declare(self, tree: Any, declaring: Declaring) -> bool:
        """Take a CREATE statement in, functions by ``declaring``; False for any other. Raises Wrong."""
        if not isinstance(tree, trees.CreateTable | trees.CreateView | trees.CreateFunction):
            return False
        name = tree.this.name
        unless_there = tree.args.get("unless_there")
        if isinstance(tree, trees.CreateFunction):
            name = name.upper()
            if name not in self.functions:
                target = tree.args["implementation"]
                language = tree.args.get("language") or ""
                self.functions[name] = declaring.function(tree.this, name, target, language)
            elif not unless_there:
                raise Wrong(tree.this, f"{name} is declared already", "another name")
            return True
        if name == ALERTS:
            raise Wrong(tree.this, f"{ALERTS} is always there", f"INSERT INTO {ALERTS} without a CREATE")
        there = self.tables.get(name)
        if (there is not None and not there.open) or name in {
            **self.lookups,
            **self.views,
            **self.streams,
            **self.sinks,
        }:
            if unless_there:
                return True
            raise Wrong(tree.this, f"{name} is declared already", "another name")
        if there is not None:
            if name in self.read:
                raise Wrong(tree.this, f"{name} is read already, as the table of all events", "CREATE it before that")
            del self.tables[name]
        if isinstance(tree, trees.CreateView):
            self.views[name] = View(tuple(column.name for column in tree.args.get("columns") or ()), tree.args["query"])
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
        columns = tuple(column.name for column in tree.args.get("columns") or ())
        self.streams.setdefault(name, []).append(View(columns, tree.args["query"]))

    def _table(self, name: str, tree: Any) -> None:
        options: dict[str, tuple[str, int]] = dict(tree.args["options"][0])

        def option(key: str) -> str:
            return options.pop(key, ("", 0))[0]

        connector = option("connector")
        if connector not in ("vedette", "sink"):
            raise Wrong(tree.this, f"the table {name} needs 'connector' = 'vedette'", "WITH ('connector' = 'vedette')")
        if len(tree.args["columns"]) > MAX_COLUMNS:
            raise Wrong(tree.this, f"more than {MAX_COLUMNS} columns")
        columns = tuple(self._column(column) for column in tree.args["columns"])
        for at, column in enumerate(columns):
            if any(other.name == column.name for other in columns[:at]):
                raise Wrong(column.node, f"the column {column.name} twice")
        plain = tuple((column.name, column.type) for column in columns if column.type is not None)
        if connector == "sink":
            self._sink(tree, option("name"), plain, options)
            return
        lookup = option("lookup")
        if lookup:
            self._no_more(tree, options, "lookup")
            self._plain(tree, "lookup")
            self.lookups[name] = LookupTable(name, lookup, plain)
            return
        inputs = tuple(filter(None, (name.strip() for name in option("input").split(","))))
        source = LogSource(*(option(key).lower() for key in ("product", "category", "service")))
        moved = option("watermark") or "all"
        if moved not in ("all", "selected"):
            raise Wrong(tree.this, "'watermark' is 'all' or 'selected' events", "'watermark' = 'all'")
        self._no_more(tree, options, "input, product, category, service, lookup, watermark")
        self.tables[name] = Table(
            name, columns, source, inputs, tree.args.get("watermark"), tree.args.get("mark"), moved == "all", node=tree
        )

    def _sink(
        self, tree: Any, sink: str, columns: tuple[tuple[str, Type], ...], options: dict[str, tuple[str, int]]
    ) -> None:
        name = tree.this.name
        self._no_more(tree, options, "name")
        self._plain(tree, "sink")
        if not _SINK.fullmatch(sink):
            raise Wrong(tree.this, f"the sink {name} needs the 'name' of a [[sink]] of the agent", "'name' = 'lake'")
        for column, kind in columns:
            if not _keyed_by_text(kind):
                raise Wrong(tree.this, f"{column}: the keys of a MAP in JSON are texts", "MAP<STRING, …>")
        self.sinks[name] = SinkTable(name, sink, columns)

    @staticmethod
    def _plain(tree: Any, what: str) -> None:
        columns = tree.args["columns"]
        if tree.args.get("mark") or any(column.args.get("value") or column.args.get("metadata") for column in columns):
            raise Wrong(tree.this, f"the {what} {tree.this.name} has plain columns only")

    @staticmethod
    def _no_more(tree: Any, options: dict[str, tuple[str, int]], possible: str) -> None:
        for key in options:
            raise Wrong(tree.this, f"a table has no option {key!r:.40}", f"connector, {possible}")

    @staticmethod
    def _column(column: Any) -> TableColumn:
        name = column.this.name
        value = column.args.get("value")
        if trees.is_proctime(value):
            return TableColumn(name, METADATA["received_at"], metadata="received_at", node=column)
        if value is not None:
            return TableColumn(name, None, value=value, node=column)
        (kind,) = column.args["kind"]
        if not (metadata := column.args.get("metadata")):
            return TableColumn(name, kind, path=name, node=column)
        metadata_type = METADATA.get(metadata[0])
        if metadata_type is None:
            raise Wrong(column.this, f"events have no metadata {metadata[0]!r:.40}", f"one of {', '.join(METADATA)}")
        same = metadata_type.name == kind.name or {metadata_type.name, kind.name} <= {"STRING", "VARCHAR"}
        if not same or (metadata_type.precision and kind.precision != metadata_type.precision):
            raise Wrong(
                column.this,
                f"METADATA {metadata[0]} is {metadata_type}, not {kind}",
                f"{name} {metadata_type} METADATA",
            )
        return TableColumn(name, metadata_type, metadata=metadata[0], node=column)
