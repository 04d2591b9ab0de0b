"""What a name or a table function in FROM means: tables, views, streams, lookups, and windows over them.

A table becomes a Scan of its physical columns and a Calc of its computed ones; ``events`` has the columns that the
statement has asked for so far. A view is lowered again wherever it is named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from sqlglot import exp

from vedette.plan.grid import MAX_PARTS, Grid
from vedette.plan.query import METADATA, MILLISECOND, Column, Expression, Field, Literal, Named, Scan, Type
from vedette.rules.sql import checked, nodes, trees
from vedette.rules.sql.catalog import DELAY, Catalog, LookupTable, Table, View
from vedette.rules.sql.check import Checker
from vedette.rules.sql.checked import STRING
from vedette.rules.sql.own import Own
from vedette.rules.sql.relation import Relation, calc, finished, identity, renamed, timed, windowed
from vedette.rules.sql.scope import Col, Open, Part, Scope
from vedette.rules.sql.trees import Wrong, only
from vedette.rules.sql.union import together

Env = dict[str, tuple[View, "Env"]]
"""The views of WITH by name, each with those that it may name itself."""


class Queries(Protocol):
    """One statement being lowered (``lower.py``): its catalog, the fields it asks of ``events``, its inner queries."""

    catalog: Catalog
    open: Open

    def query(self, tree: Any, env: Env, outer: Scope | None = None) -> Relation: ...


def with_views(tree: Any, env: Env) -> Env:
    """``env`` with what the WITH of ``tree`` adds."""
    with_ = tree.args.get("with_")
    if with_ is None:
        return env
    only(with_, "expressions")
    for one in with_.expressions:
        only(one, "this", "alias")
        alias = one.args["alias"]
        columns = tuple(column.name for column in alias.args.get("columns") or ())
        env = {**env, alias.name: (View(columns, one.this), env)}
    return env


def of_name(lowering: Queries, node: Any, env: Env) -> Relation | LookupTable:
    """What a name in FROM means."""
    name, catalog = node.name, lowering.catalog
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
        fed = [view_of(lowering, one, {}) for one in catalog.streams[name]]
        return together(fed, [node] * len(fed))
    if name in catalog.lookups:
        return catalog.lookups[name]
    if name in catalog.tables:
        return scanned(catalog.tables[name], lowering.open, catalog.functions)
    known = ", ".join([*catalog.tables, *catalog.lookups, *catalog.views, *catalog.streams][:12])
    raise Wrong(node, f"there is no table {name}", f"one of {known}, or CREATE TABLE {name} before")


def view_of(lowering: Queries, view: View, env: Env) -> Relation:
    """The relation of a view; ``env``: the views that its query may name."""
    found = lowering.query(view.query, env)
    if view.columns:
        found = renamed(found, view.columns, view.query)
    return found


def scanned(table: Table, asked: Open, functions: Mapping[str, Own]) -> Relation:
    """Scan and Calc of a table; ``asked``: the fields that the statement asks of ``events``."""
    physical = [one for one in table.columns if one.value is None]
    cols = [Col(one.name, one.type or STRING) for one in physical]
    sources = [Field(one.metadata or one.path, bool(one.metadata)) for one in physical]
    if table.open:
        for path in asked.wanted:
            cols.append(Col(path, STRING))
            sources.append(Field(path))
    scope = Scope([Part(table.name, cols, 0)], functions=functions)
    exprs: list[Expression] = list(identity(cols))
    all_cols = list(cols)
    for one in table.columns:
        if one.value is not None:
            value = Checker(scope).of(one.value)
            all_cols.append(Col(one.name, value.type))
            exprs.append(value)
    time, mark = 0, None
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
        given = Checker(full).of(table.mark)
        if given.type.name != place.type.name:
            raise Wrong(
                table.mark,
                f"the WATERMARK's value is {place.type}, this is {given.type}",
                f"{all_cols[place.index - 1].name} - INTERVAL '30' SECOND",
            )
        mark = checked.substituted(given, lambda index, kind: exprs[index - 1])
        time = place.index
    if time:
        all_cols[time - 1] = replace(all_cols[time - 1], rowtime=True)
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
    made = calc(relation, exprs, all_cols)
    return replace(made, open=relation.open)


def windows_of(lowering: Queries, call: Any, env: Env) -> Relation:
    """TABLE(TUMBLE(TABLE t, DESCRIPTOR(time), …)) and its like."""
    while isinstance(call, exp.Anonymous) and trees.function_name(call) == "TABLE" and len(call.expressions) == 1:
        call = call.expressions[0]
    if not isinstance(call, nodes.WindowFunction):
        raise Wrong(
            call,
            f"{trees.function_name(call) if isinstance(call, exp.Anonymous) else trees.named(call)}"
            " is no table function that is there",
            "TUMBLE, HOP, CUMULATE, SESSION",
        )
    table = call.args["table"]
    found = of_name(lowering, table, env) if isinstance(table, exp.Table) else lowering.query(table, env)
    if isinstance(found, LookupTable):
        raise Wrong(table, "a lookup has no events to window")
    relation = finished(found)
    scope = Scope([Part(table.name, relation.cols, 0, relation.open)])
    time = Checker(scope).of(call.args["time"])
    if not isinstance(time, Column) or not (scope.col(time.index).rowtime):
        raise Wrong(
            call.args["time"],
            f"{call.args['time'].name} ({time.type}) is no time attribute: a function lost it, or no WATERMARK",
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
    relation = timed(relation, time.index)
    return windowed(relation, grid, tuple(keys))


def grid_of(node: Any, kind: str, args: Sequence[Any]) -> Grid:
    """``args``: intervals as the window's name takes them, the offset last."""
    values = []
    for arg in args:
        value = Checker(Scope()).of(arg)
        if not isinstance(value, Literal) or value.type.name != "INTERVAL_SECOND":
            raise Wrong(arg, f"{kind} takes intervals of days to milliseconds", "INTERVAL '10' MINUTE")
        if value.value % MILLISECOND:
            raise Wrong(arg, "a window has whole milliseconds")
        values.append(value.value)
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
