"""FROM of one SELECT: each of its items, and the scope that they make together.

An item is a relation, a lookup (FOR SYSTEM_TIME AS OF) or UNNEST; ``joins.py`` joins them. A name is a view, a stream,
a lookup or a table; a table function is a window over one of these. A table becomes a Scan of its physical columns and
a Calc of its computed ones; ``events`` has the columns that the statement has asked for so far. A view is lowered again
wherever it is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from sqlglot import exp

from vedette.plan.query import (
    METADATA,
    PYTHON,
    Call,
    Column,
    Expression,
    Field,
    Literal,
    Named,
    Scan,
    Type,
)
from vedette.rules.sql.lower.recognize import recognized
from vedette.rules.sql.lower.relation import Relation, calc, finished, grid_of, renamed, timed, together, windowed
from vedette.rules.sql.names import expressions
from vedette.rules.sql.names.catalog import DELAY, Catalog, LookupTable, Own, Table, View
from vedette.rules.sql.names.check import Checker
from vedette.rules.sql.names.expressions import STRING, identity
from vedette.rules.sql.names.scope import MAX_TABLES, Col, Open, Part, Scope, time_column
from vedette.rules.sql.parse import trees
from vedette.rules.sql.parse.trees import Wrong, only
from vedette.stream.functions.tables import ORDINALITY

Env = dict[str, tuple[View, "Env"]]
"""The views of WITH by name, each with those that it may name itself."""


class Queries(Protocol):
    """One statement being lowered (``select.py``): its catalog, the fields it asks of ``events``, its inner queries."""

    catalog: Catalog
    open: Open

    def query(self, tree: Any, env: Env, outer: Scope | None = None) -> Relation: ...


def with_views(tree: Any, env: Env) -> Env:
    """``env`` with what the WITH of ``tree`` adds."""
    with_ = tree.args.get("with_")
    if with_ is None:
        return env
    only(with_, "expressions")
    for view in with_.expressions:
        only(view, "this", "alias")
        alias = view.args["alias"]
        columns = tuple(column.name for column in alias.args.get("columns") or ())
        env = {**env, alias.name: (View(columns, view.this), env)}
    return env


def of_name(lowering: Queries, node: Any, env: Env) -> Relation | LookupTable:
    """The table, view, stream or lookup that a name in FROM means. Raises Wrong."""
    name = node.name
    catalog = lowering.catalog
    if node.args.get("db") or node.args.get("catalog"):
        raise Wrong(node, "a table's name has one part", name)
    if name in env:
        view, inner = env[name]
        return view_of(lowering, view, inner)
    catalog.read.add(name)
    catalog.usable(node)
    if name in catalog.views:
        return view_of(lowering, catalog.views[name], {})
    if name in catalog.streams:
        fed = [view_of(lowering, view, {}) for view in catalog.streams[name]]
        return together(fed, [node] * len(fed))
    if name in catalog.lookups:
        return catalog.lookups[name]
    if name in catalog.sinks:
        raise Wrong(node, f"{name} is a sink, which is only written to", "the query that writes to it, as a view")
    if name in catalog.tables:
        return scanned(catalog.tables[name], lowering.open, catalog.functions)
    names = ", ".join([*catalog.tables, *catalog.lookups, *catalog.views, *catalog.streams][:12])
    raise Wrong(node, f"there is no table {name}", f"one of {names}, or CREATE TABLE {name} before")


def view_of(lowering: Queries, view: View, env: Env) -> Relation:
    """The relation of a view; ``env``: the views that its query may name."""
    relation = lowering.query(view.query, env)
    if view.columns:
        relation = renamed(relation, view.columns, view.query)
    return relation


def scanned(table: Table, asked: Open, functions: Mapping[str, Own]) -> Relation:
    """Scan and Calc of a table; ``asked``: the fields that the statement asks of ``events``."""
    physical = [column for column in table.columns if column.value is None]
    cols = [Col(column.name, column.type or STRING, receipt=column.metadata == "received_at") for column in physical]
    sources = [Field(column.metadata or column.path, bool(column.metadata)) for column in physical]
    if table.open:
        for path in asked.wanted:
            cols.append(Col(path, STRING))
            sources.append(Field(path))
    scope = Scope([Part(table.name, cols, 0)], functions=functions)
    exprs: list[Expression] = list(identity(cols))
    all_cols = list(cols)
    for column in table.columns:
        if column.value is not None:
            value = Checker(scope).of(column.value)
            all_cols.append(Col(column.name, value.type))
            exprs.append(value)
    time = 0
    mark = None
    if table.open:
        time = 1 + list(METADATA).index("event_time")
        delay = Literal(DELAY, Type("INTERVAL_SECOND"))
        mark = Checker(scope).call(None, "-", (exprs[time - 1], delay))
    elif table.mark is not None:
        full = Scope([Part(table.name, all_cols, 0)], functions=functions, without="WATERMARK")
        place = Checker(full).of(table.watermark)
        if not isinstance(place, Column) or place.type.name not in ("TIMESTAMP", "TIMESTAMP_LTZ"):
            raise Wrong(table.watermark, f"the WATERMARK is of a column TIMESTAMP(3), this is {place.type}")
        if place.type.precision > 3:
            raise Wrong(
                table.watermark,
                f"a time attribute has at most milliseconds, this is {place.type}",
                f"{place.type.name}(3)",
            )
        watermark = Checker(full).of(table.mark)
        if watermark.type.name != place.type.name:
            raise Wrong(
                table.mark,
                f"the WATERMARK's value is {place.type}, this is {watermark.type}",
                f"{all_cols[place.index - 1].name} - INTERVAL '30' SECOND",
            )
        mark = expressions.substituted(watermark, lambda index, kind: exprs[index - 1])
        time = place.index
    if time:
        all_cols[time - 1] = replace(all_cols[time - 1], rowtime=True, receipt=False)
    physical_time = time if time <= len(cols) else 0
    scan = Scan(
        tuple(Named(source.path, col.type) for source, col in zip(sources, cols, strict=True)),
        physical_time,
        table.name,
        "",
        tuple(sources),
        mark,
        table.inputs,
    )
    relation = Relation(scan, all_cols, asked if table.open else None)
    computed = calc(relation, exprs, all_cols)
    return replace(computed, open=relation.open)


def windows_of(lowering: Queries, call: Any, env: Env) -> Relation:
    """TABLE(TUMBLE(TABLE t, DESCRIPTOR(time), …)) and its like."""
    while isinstance(call, exp.Anonymous) and trees.function_name(call) == "TABLE" and len(call.expressions) == 1:
        call = call.expressions[0]
    if not isinstance(call, trees.WindowFunction):
        raise Wrong(
            call,
            f"{trees.function_name(call) if isinstance(call, exp.Anonymous) else trees.named(call)}"
            " is no table function that is there",
            "TUMBLE, HOP, CUMULATE, SESSION",
        )
    table = call.args["table"]
    meaning = of_name(lowering, table, env) if isinstance(table, exp.Table) else lowering.query(table, env)
    if isinstance(meaning, LookupTable):
        raise Wrong(table, "a lookup has no events to window")
    relation = finished(meaning)
    scope = Scope([Part(table.name, relation.cols, 0, relation.open)])
    value = Checker(scope).of(call.args["time"])
    time = time_column(value, relation.cols)
    if time is None:
        raise Wrong(
            call.args["time"],
            f"{call.args['time'].name} ({value.type}) is no time attribute: a function lost it, or no WATERMARK",
            "DESCRIPTOR(event_time)",
        )
    keys: list[int] = []
    for key in call.args.get("partition") or ():
        column = Checker(scope).of(key)
        assert isinstance(column, Column)
        keys.append(column.index)
    if keys and call.this != "SESSION":
        raise Wrong(call.args["partition"][0], f"PARTITION BY is for SESSION; {call.this} has GROUP BY")
    grid = grid_of(call, call.this, call.expressions)
    relation = timed(relation, time)
    return windowed(relation, grid, tuple(keys))


@dataclass(slots=True)
class Source:
    """One item of FROM: a relation, a lookup asked as of ``at``, or the ``function`` of UNNEST; ``on``: tree of ON."""

    part: Part
    node: Any
    relation: Relation | None = None
    kind: str = "INNER"
    on: Any = None
    lookup: LookupTable | None = None
    at: Any = None
    function: Call | None = None


@dataclass(slots=True)
class Query:
    """One SELECT: the items of its FROM so far, and the names that they give to the rest of it."""

    lowering: Queries
    tree: Any
    env: Env
    outer: Scope | None = None
    scope: Scope = field(default_factory=Scope)
    sources: list[Source] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scope.functions = self.lowering.catalog.functions

    def read_from(self) -> None:
        """Fill ``scope`` and ``sources`` from FROM and its joins."""
        tree = self.tree
        if not tree.args.get("from_"):
            raise Wrong(tree, "a query without FROM", "SELECT … FROM events")
        first = tree.args["from_"].this
        only(tree.args["from_"], "this")
        pattern = tree.args.get("match")
        self.add(first, pattern)
        for join in [*(first.args.get("joins") or ()), *(tree.args.get("joins") or ())]:
            self.add_join(join)

    def add_join(self, join: Any) -> None:
        only(join, "this", "side", "kind", "on", "method", "using")
        if join.args.get("method"):
            raise Wrong(join, f"{join.args['method']} JOIN is not supported", "JOIN … ON …")
        if join.args.get("using"):
            raise Wrong(join, "USING is not supported", "ON l.k = r.k")
        kind = str(join.args.get("side") or "").upper() or "INNER"
        comma = not join.args.get("on") and kind == "INNER"
        source = self.add(join.this, None, join.args.get("on"))
        source.kind = kind
        if not comma and source.on is None:
            raise Wrong(join, f"{kind} JOIN needs ON")

    def add(self, item: Any, pattern: Any = None, on: Any = None) -> Source:
        source = self.source(item, pattern)
        source.on = on
        base = self.scope.width
        source.part.base = base
        if any(part.alias == source.part.alias for part in self.scope.parts) and source.part.alias:
            raise Wrong(item, f"two tables are called {source.part.alias}", "AS and a name of its own")
        if len(self.sources) >= MAX_TABLES:
            raise Wrong(item, f"more than {MAX_TABLES} tables in one FROM")
        self.scope.parts.append(source.part)
        self.scope.outer = self.outer
        self.sources.append(source)
        return source

    def source(self, item: Any, pattern: Any) -> Source:
        lowering = self.lowering
        name, columns = alias_of(item)
        if isinstance(item, exp.Lateral):
            return self.lateral(item, name, columns)
        if isinstance(item, exp.Unnest):
            return self.unnest(item, name, columns)
        at = None
        if isinstance(item, exp.Subquery):
            only(item, "this", "alias", "with_", "joins")
            meaning: Relation | LookupTable = lowering.query(item.this, with_views(item, self.env))
        elif isinstance(item, exp.Table):
            only(item, "this", "alias", "version", "joins", "db", "catalog")
            if isinstance(item.this, exp.Identifier):
                meaning = of_name(lowering, item, self.env)
            else:
                meaning = windows_of(lowering, item.this, self.env)
            if version := item.args.get("version"):
                at = system_time(version)
        else:
            raise Wrong(item, f"{trees.named(item)} is not supported in FROM")
        if isinstance(meaning, LookupTable):
            if columns or pattern is not None:
                raise Wrong(item, "a lookup's columns have the names of its CREATE TABLE")
            cols = [Col(column, kind) for column, kind in meaning.columns]
            return Source(Part(name, cols, 0), item, lookup=meaning, at=at)
        if at is not None:
            raise Wrong(
                item,
                f"FOR SYSTEM_TIME AS OF asks a lookup, {name} is none",
                "CREATE TABLE … WITH ('connector' = 'vedette', 'lookup' = 'name')",
            )
        if pattern is not None:
            meaning = recognized(finished(meaning), name, pattern, self.scope.functions)
            name = pattern.args["alias"].name if pattern.args.get("alias") else ""
            columns = alias_of(pattern)[1] if pattern.args.get("alias") else ()
        if columns:
            meaning = renamed(meaning, columns, item)
        return Source(Part(name, meaning.cols, 0, meaning.open), item, meaning)

    def lateral(self, item: Any, name: str, columns: tuple[str, ...]) -> Source:
        inner = item.this
        if isinstance(inner, exp.Anonymous) and trees.function_name(inner) == "TABLE" and len(inner.expressions) == 1:
            inner = inner.expressions[0]
        if isinstance(inner, exp.Subquery | exp.Select):
            raise Wrong(item, "LATERAL before a query is not supported", "a join with bounds of time")
        called = trees.function_name(inner) if isinstance(inner, exp.Anonymous) else trees.named(inner)
        if called == "UNNEST":
            return self.unnest(inner, name, columns)
        own = self.scope.functions.get(called)
        if own is None:
            raise Wrong(inner, f"there is no table function {called}", "CREATE TEMPORARY FUNCTION … LANGUAGE PYTHON")
        own.usable(inner)
        if own.kind != "table":
            raise Wrong(inner, f"{called} gives a value, not rows", f"SELECT {called.lower()}(…)")
        only(inner, "this", "expressions")
        args = own.arguments(inner, Checker(self.scope).all(inner.expressions))
        fields = tuple((f"f{at}", kind) for at, kind in enumerate(own.result))
        if columns and len(columns) != len(fields):
            raise Wrong(item, f"{len(columns)} names for {len(fields)} columns")
        function = Call(PYTHON, args, Type("ARRAY", args=(Type("ROW", args=fields),)), own.options)
        cols = [Col(columns[at] if columns else field_name, kind) for at, (field_name, kind) in enumerate(fields)]
        return Source(Part(name, cols, 0), item, function=function)

    def unnest(self, item: Any, name: str, columns: tuple[str, ...]) -> Source:
        only(item, "expressions", "alias", "offset", "this")
        if len(item.expressions) != 1:
            raise Wrong(item, "UNNEST takes one array")
        value = Checker(self.scope).of(item.expressions[0])
        number = item.args.get("offset")
        ordinality = (ORDINALITY,) if number else ()
        if isinstance(number, exp.Identifier):  # sqlglot takes the last name of the alias away
            columns = (*columns, number.name)
        function = Checker(self.scope).call(item, "UNNEST", (value,), ordinality)
        assert isinstance(function, Call)
        inner = function.type.args[0].args
        if columns and len(columns) != len(inner):
            raise Wrong(item, f"{len(columns)} names for {len(inner)} columns")
        cols = [Col(columns[at] if columns else field_name, kind) for at, (field_name, kind) in enumerate(inner)]
        return Source(Part(name, cols, 0), item, function=function)


def alias_of(item: Any) -> tuple[str, tuple[str, ...]]:
    """The alias of an item, and the names that it gives the columns."""
    alias = item.args.get("alias")
    if alias is None:
        return (item.name if isinstance(item, exp.Table) and isinstance(item.this, exp.Identifier) else ""), ()
    only(alias, "this", "columns")
    columns = alias.args.get("columns") or ()
    if any(not isinstance(column, exp.Identifier) for column in columns):
        raise Wrong(alias, "an alias names columns by their names alone", "AS t (a, b)")
    return alias.name, tuple(column.name for column in columns)


def system_time(version: Any) -> Any:
    """The time that FOR SYSTEM_TIME AS OF names."""
    only(version, "this", "expression", "kind")
    if str(version.name).upper() not in ("TIMESTAMP", "SYSTEM_TIME") or version.args.get("kind") != "AS OF":
        raise Wrong(version, "a lookup is asked FOR SYSTEM_TIME AS OF a time attribute")
    return version.expression
