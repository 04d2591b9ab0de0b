"""A query to the nodes of ``plan/query.py``: FROM, WHERE, windows, GROUP BY, OVER, ranks, joins, patterns, UNION ALL.

Lowering gives plain nodes, a Calc for each step; ``simplify.py`` merges them, drops what nobody asks for and brings
them into one form. A query of which a row would change later (GROUP BY without a window, a join without bounds of
time, a rank without a window, DISTINCT) is refused with what to write instead.

A statement over ``events`` is lowered again until no further field is asked for: a name that no table declares becomes
a column then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from vedette.plan.query import (
    ALL_ROWS,
    METADATA,
    MILLISECOND,
    Aggregate,
    Assign,
    Calc,
    Call,
    Column,
    Expand,
    Expression,
    Field,
    Grid,
    Grouped,
    Join,
    Literal,
    LookupJoin,
    Named,
    Node,
    Over,
    Scan,
    Top,
    Type,
    Union,
)
from vedette.rules.sql import check, nodes
from vedette.rules.sql.catalog import DELAY, EVENTS, Catalog, LookupTable, Table, View
from vedette.rules.sql.check import BIGINT, BOOLEAN, OUTSIDE, Checker, Col, Open, Part, Scope, Wrong, only
from vedette.stream import aggregates as folds
from vedette.stream.functions.library import LIBRARY
from vedette.stream.functions.table import WrongTypes
from vedette.stream.functions.tables import ORDINALITY

MAX_QUERIES = 200
"""Queries within each other and beside each other in one statement, views opened."""
MAX_PASSES = 40
OVERS = 1 << 19
"""Where columns of OVER are until the layout is known."""
NO_BOUND = "ROW_NUMBER() without a bound in the WHERE of the query around it"
MAX_SETS = 64
"""GROUPING SETS of one query."""
TIMESTAMP = Type("TIMESTAMP", 3)

Env = dict[str, tuple[View, "Env"]]


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


@dataclass(frozen=True, slots=True)
class Framed:
    """An aggregate over the rows before each row: its keys, the column of its time, ROWS or RANGE."""

    aggregate: Aggregate
    keys: tuple[Expression, ...]
    time: int
    rows: int | None
    range: int | None

    @property
    def given(self) -> tuple[Expression, ...]:
        when = self.aggregate.when
        return (*self.aggregate.args, *((when,) if when is not None else ()))

    def over(self, places: Iterator[int]) -> Aggregate:
        """The aggregate of columns at ``places``."""
        one = self.aggregate
        args = tuple(Column(next(places), value.type) for value in one.args)
        return replace(one, args=args, when=Column(next(places), BOOLEAN) if one.when is not None else None)


@dataclass(slots=True)
class Source:
    """One item of FROM. ``lookup``: FOR SYSTEM_TIME AS OF; ``unnest``: the tree of UNNEST."""

    part: Part
    node: Any
    relation: Relation | None = None
    kind: str = "INNER"
    on: Any = None
    lookup: LookupTable | None = None
    at: Any = None
    unnest: Any = None
    ordinality: bool = False
    function: Call | None = None


def named(cols: Sequence[Col]) -> tuple[Named, ...]:
    return tuple(Named("", col.type) for col in cols)


def calc(relation: Relation, exprs: Sequence[Expression], cols: list[Col], when: Expression | None = None) -> Relation:
    time = next((at for at, col in enumerate(cols, 1) if col.rowtime), 0)
    return Relation(Calc(named(cols), time, relation.node, tuple(exprs), when), cols)


def identity(cols: Sequence[Col]) -> tuple[Column, ...]:
    return tuple(Column(at, col.type) for at, col in enumerate(cols, 1))


class Lowering:
    """One statement of a file. ``rule`` of each Scan is left empty (``predicates.py`` fills it)."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.open = Open(EVENTS)
        self._queries = 0

    def statement(self, query: Any) -> Relation:
        """The relation of a statement's query, lowered to the last name."""

        def lowered() -> Relation:
            found = self._finished(self.query(query, {}))
            if found.open is not None:
                raise Wrong(query, f"SELECT * of {EVENTS}, which has any column", "the columns by name")
            return found

        return self._settled(query, lowered)

    def view_alone(self, tree: Any) -> None:
        """Raise what is wrong with the query of a view or a stream."""

        def lowered() -> Relation:
            found = self.query(tree.args["query"], {})
            if (names := tree.args.get("columns")) and found.open is None:
                self.renamed(found, names, tree)
            return found

        self._settled(tree, lowered)

    def _settled(self, tree: Any, lowered: Callable[[], Relation]) -> Relation:
        """What ``lowered`` gives once it asks ``events`` for no further column; before, neither what it gives nor what
        it raises means anything."""
        for _ in range(MAX_PASSES):
            before, self._queries = len(self.open.wanted), 0
            try:
                found = lowered()
            except (Wrong, LookupError):
                if len(self.open.wanted) == before:
                    raise
                continue
            if len(self.open.wanted) == before:
                return found
        raise Wrong(tree, "too many views and queries within each other")

    def _finished(self, relation: Relation) -> Relation:
        if relation.rank is not None:
            raise Wrong(
                relation.rank.node,
                "ROW_NUMBER() without a bound in the WHERE of the query around it",
                "SELECT … FROM (SELECT …, ROW_NUMBER() OVER (…) AS n FROM …) WHERE n <= 3",
            )
        return relation

    # --- queries

    def query(self, tree: Any, env: Env, outer: Scope | None = None) -> Relation:
        self._queries += 1
        if self._queries > MAX_QUERIES:
            raise Wrong(tree, f"more than {MAX_QUERIES} queries in one statement")
        if isinstance(tree, exp.Subquery | exp.Paren):
            only(
                tree,
                "this",
                "alias",
                "with_",
                "joins" if isinstance(tree, exp.Subquery) and not tree.args.get("joins") else "this",
            )
            return self.query(tree.this, self.env(tree, env), outer)
        if isinstance(tree, exp.Union):
            return self.union(tree, env)
        if isinstance(tree, exp.SetOperation):
            raise Wrong(
                tree, f"{type(tree).__name__.upper()} would change rows already given", "a join with bounds of time"
            )
        if isinstance(tree, exp.Values):
            raise Wrong(tree, "VALUES is not there: rows come from events", "SELECT … FROM a table")
        if not isinstance(tree, exp.Select):
            raise Wrong(tree, f"{check.named(tree)} is not there")
        return Query(self, tree, self.env(tree, env), outer).lowered()

    def env(self, tree: Any, env: Env) -> Env:
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

    def union(self, tree: Any, env: Env) -> Relation:
        env = self.env(tree, env)
        trees: list[Any] = []
        stack: list[Any] = [tree]
        while stack:
            one = stack.pop()
            if isinstance(one, exp.Union):
                only(one, "this", "expression", "with_") if not one.args.get("distinct") else None
                if one.args.get("distinct"):
                    raise Wrong(one.expression, "UNION would have to remember every row", "UNION ALL")
                stack += [one.expression, one.this]
            else:
                trees.append(one)
        return self.together([self._finished(self.query(one, env)) for one in trees], trees)

    def together(self, relations: list[Relation], trees: list[Any]) -> Relation:
        """UNION ALL: columns by place, of the type that all have in common."""
        first = relations[0]
        for one, tree in zip(relations, trees, strict=True):
            if one.open is not None:
                raise Wrong(tree, f"SELECT * of {EVENTS}, which has any column", "the columns by name")
            if len(one.cols) != len(first.cols):
                raise Wrong(tree, f"UNION ALL of {len(first.cols)} and {len(one.cols)} columns")
        if len(relations) == 1:
            return first
        cols: list[Col] = []
        for at, col in enumerate(first.cols):
            same = [one.cols[at] for one in relations]
            kind = self.common(trees[0], [one.type for one in same])
            windows = {one.window for one in same}
            cols.append(
                Col(col.name, kind, all(one.rowtime for one in same), windows.pop() if len(windows) == 1 else "")
            )
        made = []
        for one in relations:
            exprs = [
                Column(at, col.type)
                if col.type == want.type
                else Call("CAST", (Column(at, col.type),), want.type, (want.type,))
                for at, (col, want) in enumerate(zip(one.cols, cols, strict=True), 1)
            ]
            made.append(calc(one, exprs, cols).node)
        return Relation(Union(named(cols), made[0].time, tuple(made)), cols)

    def common(self, tree: Any, types: list[Type]) -> Type:
        if len(set(types)) == 1:
            return types[0]
        try:
            return LIBRARY.infer("COALESCE", [Column(1, one) for one in types])
        except WrongTypes:
            raise Wrong(
                tree, f"UNION ALL of a column that is {' and '.join(map(str, dict.fromkeys(types)))}", "CAST(… AS …)"
            ) from None

    # --- tables

    def named(self, node: Any, env: Env) -> Relation | LookupTable:
        """What a name in FROM stands for."""
        name, catalog = node.name, self.catalog
        if node.args.get("db") or node.args.get("catalog"):
            raise Wrong(node, "a table's name has one part", name)
        if name in env:
            view, inner = env[name]
            return self.view(view, inner)
        if name in catalog.views:
            return self.view(catalog.views[name], {})
        if name in catalog.streams:
            catalog.read.add(name)
            fed = [self.view(one, {}) for one in catalog.streams[name]]
            return self.together(fed, [node] * len(fed))
        if name in catalog.lookups:
            return catalog.lookups[name]
        if name in catalog.tables:
            return self.table(catalog.tables[name])
        known = ", ".join([*catalog.tables, *catalog.lookups, *catalog.views, *catalog.streams][:12])
        raise Wrong(node, f"there is no table {name}", f"one of {known}, or CREATE TABLE {name} before")

    def view(self, view: View, env: Env) -> Relation:
        found = self.query(view.query, env)
        if view.columns:
            found = self.renamed(found, view.columns, view.query)
        return found

    def renamed(self, relation: Relation, names: Sequence[str], node: Any) -> Relation:
        if len(names) != len(relation.cols) or relation.open is not None:
            raise Wrong(node, f"{len(names)} names for {len(relation.cols)} columns")
        cols = [replace(col, name=name) for col, name in zip(relation.cols, names, strict=True)]
        return replace(relation, cols=cols)

    def table(self, table: Table) -> Relation:
        """Scan and Calc of a table."""
        physical = [one for one in table.columns if one.value is None]
        cols = [Col(one.name, one.type or check.STRING) for one in physical]
        sources = [Field(one.metadata or one.path, bool(one.metadata)) for one in physical]
        if table.open:
            for path in self.open.wanted:
                cols.append(Col(path, check.STRING))
                sources.append(Field(path))
        scope = Scope([Part(table.name, cols, 0)])
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
            full = Scope([Part(table.name, all_cols, 0)])
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
            mark = check.substituted(given, lambda index, kind: exprs[index - 1])
            time = place.index
        if time:
            all_cols[time - 1] = replace(all_cols[time - 1], rowtime=True)
        scanned = time if time <= len(cols) else 0
        scan = Scan(
            tuple(Named(source.path, col.type) for source, col in zip(sources, cols, strict=True)),
            scanned,
            table.name,
            "",
            tuple(sources),
            mark,
            table.inputs,
        )
        relation = Relation(scan, all_cols, self.open if table.open else None)
        made = calc(relation, exprs, all_cols)
        return replace(made, open=relation.open)


_WINDOW_STARTS = {"_START": "start", "_END": "end", "_ROWTIME": "time"}
_RANKS = ("ROW_NUMBER", "RANK", "DENSE_RANK")
_REFUSED_OVER = ("LAG", "LEAD", "NTILE", "CUME_DIST", "PERCENT_RANK", "RANK", "DENSE_RANK", "NTH_VALUE")


def aggregate_type(node: Any, name: str, args: Sequence[Expression], options: tuple[Any, ...], distinct: bool) -> Type:
    try:
        return folds.AGGREGATES[name].infer(args, options)
    except WrongTypes as error:
        given = ", ".join(str(one.type) for one in args)
        raise Wrong(node, f"{name}({given}): {error}") from None


@dataclass(slots=True)
class Query:
    """One SELECT."""

    lowering: Lowering
    tree: Any
    env: Env
    outer: Scope | None = None
    scope: Scope = field(default_factory=Scope)
    sources: list[Source] = field(default_factory=list)

    def lowered(self) -> Relation:
        tree = self.tree
        for key, what in (("order", "ORDER BY"), ("limit", "LIMIT"), ("offset", "OFFSET"), ("qualify", "QUALIFY")):
            if part := tree.args.get(key):
                self.refuse_order(part, what)
        for key, hint in (
            ("hint", "no hint"),
            ("into", "INSERT INTO … SELECT"),
            ("sample", "no sample"),
            ("locks", ""),
            ("laterals", "CROSS JOIN LATERAL TABLE(…)"),
            ("pivots", ""),
        ):
            if part := tree.args.get(key):
                raise Wrong(part if isinstance(part, exp.Expr) else tree, f"{key.upper()} is not there", hint)
        only(tree, "expressions", "from_", "joins", "where", "group", "having", "windows", "distinct", "match", "with_")
        self.read_from()
        relation = self.joined(self.where())
        return self.projected(relation)

    def refuse_order(self, part: Any, what: str) -> None:
        hints = {
            "ORDER BY": "no ORDER BY; the first of a window: ROW_NUMBER() OVER (… ORDER BY …) AS n, WHERE n <= 10",
            "LIMIT": "ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY …) AS n, WHERE n <= 10",
            "QUALIFY": "a query around it, with the condition in its WHERE",
        }  # fmt: skip
        raise Wrong(part, f"{what} is not there: rows leave one by one, as they come", hints.get(what, "no OFFSET"))

    # --- FROM

    def read_from(self) -> None:
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
            raise Wrong(join, f"{join.args['method']} JOIN is not there", "JOIN … ON …")
        if join.args.get("using"):
            raise Wrong(join, "USING is not there", "ON l.k = r.k")
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
        if len(self.sources) >= check.MAX_TABLES:
            raise Wrong(item, f"more than {check.MAX_TABLES} tables in one FROM")
        self.scope.parts.append(source.part)
        self.scope.outer = self.outer
        self.sources.append(source)
        return source

    def alias(self, item: Any) -> tuple[str, tuple[str, ...]]:
        alias = item.args.get("alias")
        if alias is None:
            return (item.name if isinstance(item, exp.Table) and isinstance(item.this, exp.Identifier) else ""), ()
        only(alias, "this", "columns")
        columns = alias.args.get("columns") or ()
        if any(not isinstance(one, exp.Identifier) for one in columns):
            raise Wrong(alias, "an alias names columns by their names alone", "AS t (a, b)")
        return alias.name, tuple(one.name for one in columns)

    def source(self, item: Any, pattern: Any) -> Source:
        lowering = self.lowering
        name, columns = self.alias(item)
        if isinstance(item, exp.Lateral):
            return self.lateral(item, name, columns)
        if isinstance(item, exp.Unnest):
            return self.unnest(item, name, columns)
        at = None
        if isinstance(item, exp.Subquery):
            only(item, "this", "alias", "with_", *(("joins",)))
            found: Relation | LookupTable = lowering.query(item.this, lowering.env(item, self.env))
        elif isinstance(item, exp.Table):
            only(item, "this", "alias", "version", "joins", "db", "catalog")
            if isinstance(item.this, exp.Identifier):
                found = lowering.named(item, self.env)
            else:
                found = self.table_function(item.this)
            if version := item.args.get("version"):
                at = self.system_time(version)
        else:
            raise Wrong(item, f"{check.named(item)} is not there in FROM")
        if isinstance(found, LookupTable):
            if columns or pattern is not None:
                raise Wrong(item, "a lookup's columns have the names of its CREATE TABLE")
            cols = [Col(one, kind) for one, kind in found.columns]
            return Source(Part(name, cols, 0), item, lookup=found, at=at)
        if at is not None:
            raise Wrong(
                item,
                f"FOR SYSTEM_TIME AS OF asks a lookup, {name} is none",
                "CREATE TABLE … WITH ('connector' = 'vedette', 'lookup' = 'name')",
            )
        if pattern is not None:
            found = self.matched(self.lowering._finished(found), name, pattern)
            name = pattern.args["alias"].name if pattern.args.get("alias") else ""
            columns = self.alias(pattern)[1] if pattern.args.get("alias") else ()
        if columns:
            found = lowering.renamed(found, columns, item)
        return Source(Part(name, found.cols, 0, found.open), item, found)

    def system_time(self, version: Any) -> Any:
        only(version, "this", "expression", "kind")
        if str(version.name).upper() not in ("TIMESTAMP", "SYSTEM_TIME") or version.args.get("kind") != "AS OF":
            raise Wrong(version, "a lookup is asked FOR SYSTEM_TIME AS OF a time attribute")
        return version.expression

    def lateral(self, item: Any, name: str, columns: tuple[str, ...]) -> Source:
        inner = item.this
        if isinstance(inner, exp.Anonymous) and check.function_name(inner) == "TABLE" and len(inner.expressions) == 1:
            inner = inner.expressions[0]
        if isinstance(inner, exp.Subquery | exp.Select):
            raise Wrong(item, "LATERAL before a query is not there", "a join with bounds of time")
        called = check.function_name(inner) if isinstance(inner, exp.Anonymous) else check.named(inner)
        if called == "UNNEST":
            return self.unnest(inner, name, columns)
        raise Wrong(inner, f"functions of your own are not there yet: {called}", "UNNEST(array)")

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
        cols = [Col(columns[at] if columns else one, kind) for at, (one, kind) in enumerate(inner)]
        return Source(Part(name, cols, 0), item, function=function)

    def table_function(self, call: Any) -> Relation:
        while isinstance(call, exp.Anonymous) and check.function_name(call) == "TABLE" and len(call.expressions) == 1:
            call = call.expressions[0]
        if not isinstance(call, nodes.WindowFunction):
            raise Wrong(
                call,
                f"{check.function_name(call) if isinstance(call, exp.Anonymous) else check.named(call)}"
                " is no table function that is there",
                "TUMBLE, HOP, CUMULATE, SESSION",
            )
        lowering, table = self.lowering, call.args["table"]
        found = lowering.named(table, self.env) if isinstance(table, exp.Table) else lowering.query(table, self.env)
        if isinstance(found, LookupTable):
            raise Wrong(table, "a lookup has no events to window")
        relation = lowering._finished(found)
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
        grid = self.grid(call, call.this, call.expressions)
        relation = timed(relation, time.index)
        return windowed(relation, grid, tuple(keys))

    def grid(self, node: Any, kind: str, args: Sequence[Any]) -> Grid:
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
        return Grid(kind, size, step, offset)

    # --- WHERE and joins

    def where(self) -> list[tuple[Any, Expression | None]]:
        """The conjuncts of WHERE with their trees; None for a subquery's."""
        where = self.tree.args.get("where")
        if where is None:
            return []
        checker = Checker(self.scope)
        found: list[tuple[Any, Expression | None]] = []
        for one in check.conjuncts(where.this):
            found.append((one, None if subquery_of(one) else checker.condition(one)))
        return found

    def joined(self, conditions: list[tuple[Any, Expression | None]]) -> Relation:
        plain = [one for _, one in conditions if one is not None]
        left: list[Expression] = []
        for source in self.sources:
            nullable = source.kind in ("LEFT", "FULL")
            later = self.sources[self.sources.index(source) + 1 :]
            nullable = nullable or any(one.kind in ("RIGHT", "FULL") for one in later)
            low, high = source.part.base, source.part.base + len(source.part.cols)
            mine = [one for one in plain if (used := check.columns(one)) and all(low < at <= high for at in used)]
            if source.relation is not None and not nullable:
                plain = [one for one in plain if one not in mine]
                local = [shifted(one, -low) for one in mine]
                source.relation = self.filtered(source.relation, local, source.node)
        relation: Relation | None = None
        for source in self.sources:
            if relation is None:
                if source.relation is None:
                    what = "a lookup" if source.lookup else "UNNEST"
                    raise Wrong(source.node, f"{what} does not stand first in FROM", "FROM events AS e JOIN …")
                relation = source.relation
                if len(self.sources) > 1:
                    relation = self.lowering._finished(relation)
                continue
            width = source.part.base + len(source.part.cols)
            ready = [one for one in plain if max(check.columns(one), default=0) <= width]
            checker = Checker(Scope(self.scope.parts[: self.sources.index(source) + 1]))
            on = [] if source.on is None else list(check.parts(checker.condition(source.on)))
            if source.kind == "INNER":
                on += ready
                plain = [one for one in plain if one not in ready]
            relation = self.join(relation, source, on)
        assert relation is not None
        left = plain
        relation = self.filtered(relation, left, self.tree)
        for tree, condition in conditions:
            if condition is None:
                relation = self.half_join(relation, tree)
        return relation

    def filtered(self, relation: Relation, conditions: list[Expression], node: Any) -> Relation:
        if relation.rank is not None:
            return self.ranked(relation, conditions)
        when = check.every(conditions)
        if when is None:
            return relation
        made = calc(relation, identity(relation.cols), relation.cols, when)
        return replace(made, open=relation.open)

    def join(self, left: Relation, source: Source, on: list[Expression]) -> Relation:
        cols = [*left.cols, *source.part.cols]
        if source.function is not None:
            rest = [one for one in on if one != Literal(True, BOOLEAN)]
            if source.kind not in ("INNER", "LEFT") or (source.kind == "LEFT" and rest):
                raise Wrong(source.node, f"{source.kind} JOIN UNNEST stands with ON TRUE")
            made = Relation(
                Expand(named(cols), left.node.time, left.node, source.function, source.kind == "LEFT"), cols
            )
            return self.filtered(made, rest, source.node)
        if source.lookup is not None:
            return self.lookup_join(left, source, on, source.kind)
        assert source.relation is not None
        right = self.lowering._finished(source.relation)
        if not on and source.kind == "INNER":
            raise Wrong(source.node, "a join of every row with every row", "JOIN … ON l.k = r.k AND bounds of time")
        return self.stream_join(left, right, on, source.kind, source.node)

    def stream_join(self, left: Relation, right: Relation, on: list[Expression], kind: str, node: Any) -> Relation:
        """An interval or a window join; conditions are over the columns of left, then right."""
        width = len(left.cols)
        cols = [*left.cols, *right.cols]
        semi = kind in ("SEMI", "ANTI")
        own: list[Expression] = []
        rest: list[Expression] = []
        for one in on:  # of the right side alone: before the join
            used = check.columns(one)
            if used and min(used) > width and kind in ("INNER", "LEFT", "SEMI", "ANTI"):
                own.append(check.substituted(one, lambda at, of: Column(at - width, of)))
            elif used and max(used) <= width and kind in ("INNER", "RIGHT", "SEMI"):
                left = self.filtered(left, [one], node)
            else:
                rest.append(one)
        right = self.filtered(right, own, node)
        keys: list[tuple[Expression, Expression]] = []
        bounds: list[tuple[int | None, int | None]] = []
        windows: set[tuple[str, str]] = set()
        others: list[Expression] = []
        for one in rest:
            pair = sides(one, width)
            if pair and (names := (cols[pair[0] - 1].window, cols[pair[1] - 1].window)) in (
                ("start", "start"),
                ("end", "end"),
            ):
                windows.add(names)
            elif found := time_bounds(one, cols, width):
                bounds += found
            elif equal := equality(one, width):
                keys.append(equal)
            else:
                others.append(one)
        lower = max((low for low, _ in bounds if low is not None), default=None)
        upper = min((high for _, high in bounds if high is not None), default=None)
        both = None
        if len(windows) == 2:
            mine, theirs = left.window(), right.window()
            assert mine is not None
            assert theirs is not None
            both = (mine, theirs)
            if bounds:
                others += [one for one in rest if time_bounds(one, cols, width)]
            lower = upper = 0
        elif lower is None or upper is None or semi:
            raise Wrong(
                node,
                f"{'a subquery' if semi else 'a join'} without bounds of time keeps every row for ever",
                "ON l.k = r.k AND l.window_start = r.window_start AND l.window_end = r.window_end"
                if semi
                else "ON l.k = r.k AND r.event_time BETWEEN l.event_time AND l.event_time + INTERVAL '1' HOUR"
                " (time attributes), or equal windows, or FOR SYSTEM_TIME AS OF of a lookup",
            )
        elif lower > upper:
            raise Wrong(node, "the bounds of time leave nothing to join")
        left, left_keys = with_keys(left, [one for one, _ in keys])
        shift = len(left.cols) - width
        right, right_keys = with_keys(
            right, [check.substituted(one, lambda at, of: Column(at - width, of)) for _, one in keys]
        )
        if not both:
            compared = {at for one in rest if time_bounds(one, cols, width) for at in check.columns(one)}
            times = [at for at in compared if at <= width], [at for at in compared if at > width]
            if any(len(several) > 1 for several in times):
                raise Wrong(node, "bounds on two times of one side", "bounds on one time attribute of each")
            left, right = timed(left, times[0][0]), timed(right, times[1][0] - width)
        moved = [check.substituted(one, lambda at, of: Column(at + shift if at > width else at, of)) for one in others]
        joined = [*left.cols] if semi else [*left.cols, *right.cols]
        if not semi:
            if kind in ("LEFT", "FULL"):
                joined = [*left.cols, *(replace(col, rowtime=False, window="") for col in right.cols)]
            if kind in ("RIGHT", "FULL"):
                joined = [
                    *(replace(col, rowtime=False, window="") for col in joined[: len(left.cols)]),
                    *joined[len(left.cols) :],
                ]
            if both:
                joined = [*joined[: len(left.cols)], *(replace(col, window="") for col in joined[len(left.cols) :])]
        time = next((at for at, col in enumerate(joined, 1) if col.rowtime), 0)
        node_ = Join(
            named(joined),
            time,
            left.node,
            right.node,
            kind,
            left_keys,
            right_keys,
            check.every(moved),
            lower or 0,
            upper or 0,
            both,
        )
        made = Relation(node_, joined)
        kept = [
            at
            for at in range(1, len(joined) + 1)
            if at <= width or len(left.cols) < at <= len(left.cols) + len(cols) - width
        ]
        if semi:
            kept = list(range(1, width + 1))
        if len(kept) == len(joined):
            return made
        return calc(made, [Column(at, joined[at - 1].type) for at in kept], [joined[at - 1] for at in kept])

    def lookup_join(self, left: Relation, source: Source, on: list[Expression], kind: str) -> Relation:
        """``on`` is over the columns of left, then the lookup's."""
        lookup = source.lookup
        assert lookup is not None
        if kind not in ("INNER", "LEFT", "SEMI", "ANTI"):
            raise Wrong(source.node, f"{kind} JOIN of a lookup would give rows that no event made", "LEFT JOIN")
        width, at = len(left.cols), 0
        if source.at is None and kind in ("INNER", "LEFT"):
            raise Wrong(
                source.node,
                f"the lookup {lookup.name} is asked as of a time",
                f"JOIN {lookup.name} FOR SYSTEM_TIME AS OF e.event_time AS {source.part.alias}",
            )
        if source.at is not None:
            time = Checker(self.scope).of(source.at)
            if not isinstance(time, Column) or time.index > width or not left.cols[time.index - 1].rowtime:
                raise Wrong(source.at, "FOR SYSTEM_TIME AS OF takes a time attribute of the left side", "e.event_time")
            at = time.index
        known = [(one, found) for one in on if (found := asked(one, width, lookup)) is not None]
        if not known:
            raise Wrong(source.node, f"the lookup {lookup.name} is asked by no key", "ON d.key = e.column")
        chosen, (index, key) = next((one for one in known if check.columns(one[1][1])), known[0])
        others = [one for one in on if one is not chosen]
        wanted = tuple(one for one, _ in lookup.columns)
        cols = [*left.cols]
        if kind in ("INNER", "LEFT"):
            cols += [Col(one, of) for one, of in lookup.columns]
        made = LookupJoin(
            named(cols), left.node.time, left.node, lookup.lookup, index, key, wanted, kind, check.every(others), at
        )
        return Relation(made, cols)

    def half_join(self, relation: Relation, tree: Any) -> Relation:
        """[NOT] IN (SELECT …) and [NOT] EXISTS (SELECT …)."""
        relation = self.lowering._finished(relation)
        found = subquery_of(tree)
        assert found is not None
        node, negate = found
        scope = Scope([replace_part(part) for part in self.scope.parts], self.outer)
        if isinstance(node, exp.In):
            query = node.args["query"].this
            value: Any = node.this
            only(node, "this", "query")
        else:
            query, value = node.this, None
        while isinstance(query, exp.Subquery):
            query = query.this
        if not isinstance(query, exp.Select):
            raise Wrong(query, "IN and EXISTS take one SELECT")
        for key in ("group", "having", "distinct", "joins", "windows", "match"):
            if query.args.get(key):
                raise Wrong(
                    query, f"{key.upper()} in the SELECT of IN or EXISTS is not there", "a CREATE VIEW, or WITH, of it"
                )
        inner = Query(self.lowering, query, self.lowering.env(query, self.env), scope)
        inner.read_from()
        (source,) = inner.sources
        width = len(relation.cols)

        def over_both(one: Expression) -> Expression:
            return check.substituted(one, lambda at, kind: Column(at - OUTSIDE if at > OUTSIDE else at + width, kind))  # type: ignore[no-any-return]

        on = [over_both(one) for tree_, one in inner.where() if one is not None for one in check.parts(one)]
        if any(one is None for _, one in inner.where()):
            raise Wrong(query, "IN and EXISTS within IN or EXISTS are not there")
        if value is not None:
            if len(query.expressions) != 1:
                raise Wrong(query, "the SELECT of IN has one column")
            picked = over_both(Checker(inner.scope).of(query.expressions[0].unalias()))
            mine = Checker(self.scope).of(value)
            equal = Checker(self.scope).call(node, "=", (mine, picked))
            if negate and source.lookup is None:
                unknown = [Checker(self.scope).call(node, "IS NULL", (one,)) for one in (mine, picked)]
                equal = Checker(self.scope).call(node, "OR", (equal, *unknown))
            on.append(equal)
            if negate and source.lookup is not None:
                relation = self.filtered(relation, [Checker(self.scope).call(node, "IS NOT NULL", (mine,))], tree)
        kind = "ANTI" if negate else "SEMI"
        if source.lookup is not None:
            return self.lookup_join(relation, source, on, kind)
        assert source.relation is not None
        return self.stream_join(relation, self.lowering._finished(source.relation), on, kind, node)

    # --- ranks

    def ranked(self, relation: Relation, conditions: list[Expression]) -> Relation:
        rank = relation.rank
        assert rank is not None
        first, last, rest = 1, None, []
        for one in conditions:
            bound = bound_of(one, rank.column)
            if bound is None:
                rest.append(one)
            else:
                first = max(first, bound[0])
                last = bound[1] if last is None else last if bound[1] is None else min(last, bound[1])
        if last is None:
            if not rest:
                return relation
            raise Wrong(rank.node, "ROW_NUMBER() without a bound in the WHERE of the query around it", "WHERE n <= 3")
        if last < first or last > 1_000_000:
            raise Wrong(rank.node, f"ranks {first} to {last}: none, or too many")
        base = rank.base
        window = base.window()
        if not (window and set(window) <= set(rank.keys)):
            window = None
            at, descending, _ = rank.order[0]
            if len(rank.order) != 1 or not base.cols[at - 1].rowtime or descending or (first, last) != (1, 1):
                raise Wrong(
                    rank.node,
                    "ROW_NUMBER() without a window would change rows already given",
                    "PARTITION BY window_start, window_end, … of a window; or the first of a key: "
                    "ORDER BY a time attribute, ascending, and n = 1",
                )
        cols = [*base.cols, Col("", BIGINT)]
        top = Top(named(cols), base.node.time, base.node, rank.keys, rank.order, first, last, window or (0, 0), True)
        made = Relation(top, cols)
        exprs = [check.substituted(one, lambda at, kind: Column(at or len(cols), kind)) for one in rank.exprs]
        out = calc(made, exprs, relation.cols)
        return self.filtered(replace(out, open=relation.open), rest, rank.node)

    # --- SELECT

    def items(self, relation: Relation) -> list[tuple[str, Any, int]]:
        """Name, tree and, of a star, the column of each item."""
        found: list[tuple[str, Any, int]] = []
        names = {one.alias for one in self.tree.expressions if isinstance(one, exp.Alias)}
        for at, one in enumerate(self.tree.expressions):
            if isinstance(one, exp.Star):
                only(one)
                found += self.star(self.scope.parts, names, one)
            elif isinstance(one, exp.Column) and isinstance(one.this, exp.Star):
                only(one.this)
                parts = [part for part in self.scope.parts if part.alias == one.table]
                if not parts:
                    raise Wrong(one, f"there is no table {one.table}")
                found += self.star(parts, names, one)
            elif isinstance(one, exp.Alias):
                only(one, "this", "alias")
                found.append((one.alias, one.this, 0))
            elif isinstance(one, exp.Column | exp.Dot):
                found.append((one.name, one, 0))
            elif isinstance(one, exp.Aliases):
                raise Wrong(one, "one name stands behind AS")
            else:
                found.append((f"EXPR${at}", one, 0))
        if len(found) > check.MAX_COLUMNS:
            raise Wrong(self.tree, f"more than {check.MAX_COLUMNS} columns")
        return found

    def star(self, parts: Sequence[Part], named_too: set[str], node: Any) -> list[tuple[str, Any, int]]:
        return [
            (col.name, node, part.base + at)
            for part in parts
            for at, col in enumerate(part.cols, 1)
            if part.open is None or col.name not in named_too
        ]

    def opened(self) -> Open | None:
        """The open table whose star is among the items."""
        for one in self.tree.expressions:
            if isinstance(one, exp.Star) or (isinstance(one, exp.Column) and isinstance(one.this, exp.Star)):
                for part in self.scope.parts:
                    if part.open is not None and (isinstance(one, exp.Star) or one.table == part.alias):
                        return part.open
        return None

    def projected(self, relation: Relation) -> Relation:
        from vedette.rules.sql.grouping import Grouping, group_of, has_aggregates

        group = self.tree.args.get("group")
        items = self.items(relation)
        having = self.tree.args.get("having")
        if group is not None or having is not None or has_aggregates(self.tree):
            relation = self.lowering._finished(relation)
            if self.opened() is not None:
                raise Wrong(self.tree, "* beside GROUP BY")
            made = Grouping(self, relation, group_of(group)).lowered(items, having)
            return self.distinct(made)
        if self.tree.args.get("distinct"):
            relation = self.lowering._finished(relation)
        return self.distinct(self.plain(relation, items))

    def distinct(self, relation: Relation) -> Relation:
        distinct = self.tree.args.get("distinct")
        if not distinct:
            return relation
        only(distinct)
        window = relation.window()
        if window is None:
            raise Wrong(
                self.tree,
                "SELECT DISTINCT would have to remember every row",
                "GROUP BY of a window; or SELECT DISTINCT window_start, window_end, … of a window",
            )
        keys = tuple(range(1, len(relation.cols) + 1))
        return Relation(
            Grouped(named(relation.cols), relation.node.time, relation.node, keys, (), window), relation.cols
        )

    def plain(self, relation: Relation, items: list[tuple[str, Any, int]]) -> Relation:
        """SELECT without GROUP BY: expressions, OVER, ROW_NUMBER."""
        windows = {one.this.name: one for one in self.tree.args.get("windows") or ()}
        overs: list[Framed] = []
        ranks: list[Any] = []

        def hook(node: Any) -> Expression | None:
            if not isinstance(node, exp.Window):
                return None
            if isinstance(node.this, exp.Anonymous) and check.function_name(node.this) == "ROW_NUMBER":
                ranks.append(node)
                return Column(0, BIGINT)
            made = self.framed(relation, node, windows)
            if made not in overs:
                overs.append(made)
            return Column(OVERS + overs.index(made), made.aggregate.type)

        checker = Checker(self.scope, hook)
        exprs: list[Expression] = []
        cols: list[Col] = []
        for name, node, at in items:
            value: Expression = Column(at, self.scope.col(at).type) if at else checker.of(node)
            exprs.append(value)
            cols.append(self.col(name, value, relation))
        opened = self.opened()
        if ranks:
            if len(ranks) > 1 or overs or relation.rank is not None:
                raise Wrong(ranks[-1], "one ROW_NUMBER() stands in a query, without other OVER", "a query around it")
            return self.rank(relation, ranks[0], exprs, cols, opened, windows)
        if relation.rank is not None:
            raise Wrong(relation.rank.node, NO_BOUND, "WHERE n <= 3")
        state, places = self.over(relation, overs)
        exprs = [check.substituted(one, lambda at, kind: Column(places.get(at, at), kind)) for one in exprs]
        return replace(calc(state, exprs, cols), open=opened)

    def col(self, name: str, value: Expression, relation: Relation) -> Col:
        if isinstance(value, Column) and 0 < value.index <= len(relation.cols):
            return replace(relation.cols[value.index - 1], name=name)
        return Col(name, value.type)

    def spec(self, node: Any, windows: dict[str, Any]) -> Any:
        """The window of OVER: its own, or that of the WINDOW clause."""
        only(node, "this", "partition_by", "order", "spec", "alias", "over", "first")
        if node.args.get("alias") is not None:
            name = node.args["alias"].name if isinstance(node.args["alias"], exp.Expr) else str(node.args["alias"])
            if name not in windows:
                raise Wrong(node, f"there is no WINDOW {name}")
            if node.args.get("partition_by") or node.args.get("order") or node.args.get("spec"):
                raise Wrong(node, f"OVER ({name} …): a named window stands alone", f"OVER {name}")
            return windows[name]
        return node

    def rank(
        self,
        relation: Relation,
        node: Any,
        exprs: list[Expression],
        cols: list[Col],
        opened: Open | None,
        windows: dict[str, Any],
    ) -> Relation:
        spec = self.spec(node, windows)
        if spec.args.get("spec"):
            raise Wrong(node, "ROW_NUMBER() has no ROWS or RANGE")
        order = spec.args.get("order")
        if order is None:
            raise Wrong(node, "ROW_NUMBER() needs ORDER BY", "ORDER BY event_time")
        columns = [at for at, one in enumerate(exprs, 1) if one == Column(0, BIGINT)]
        if len(columns) != 1 or any(0 in check.columns(one) for at, one in enumerate(exprs, 1) if at not in columns):
            raise Wrong(node, "ROW_NUMBER() stands alone in its column", "ROW_NUMBER() OVER (…) AS n")
        plain = Checker(self.scope)
        keys = [plain.of(one) for one in spec.args.get("partition_by") or ()]
        by = []
        for one in order.expressions:
            only(one, "this", "desc", "nulls_first")
            descending = bool(one.args.get("desc"))
            by.append((plain.of(one.this), descending, not one.args.get("nulls_first")))
        base, places = with_keys(relation, [*keys, *(value for value, _, _ in by)])
        ordered = tuple((at, down, last) for at, (_, down, last) in zip(places[len(keys) :], by, strict=True))
        rank = Rank(columns[0], node, base, places[: len(keys)], ordered, tuple(exprs))
        cols = [replace(col, rowtime=col.rowtime) for col in cols]
        return Relation(base.node, cols, opened, rank)

    def framed(self, relation: Relation, node: Any, windows: dict[str, Any]) -> Framed:
        """What an aggregate with OVER asks."""
        from vedette.rules.sql.grouping import aggregate

        spec = self.spec(node, windows)
        inner = node.this
        called = check.function_name(inner) if isinstance(inner, exp.Anonymous) else ""
        if called in _REFUSED_OVER:
            raise Wrong(node, f"{called} is not there", "MATCH_RECOGNIZE for rows behind each other")
        plain = Checker(self.scope)
        made = aggregate(plain, inner)
        if made is None:
            raise Wrong(inner, "OVER stands behind an aggregate or ROW_NUMBER()")
        order = spec.args.get("order")
        if order is None or len(order.expressions) != 1:
            raise Wrong(node, "OVER needs ORDER BY a time attribute", "OVER (PARTITION BY k ORDER BY event_time …)")
        by = plain.of(order.expressions[0].this)
        down = order.expressions[0].args.get("desc")
        if down or not isinstance(by, Column) or not self.scope.col(by.index).rowtime:
            raise Wrong(order, "OVER is ordered by a time attribute, ascending", "ORDER BY event_time")
        rows, span = self.frame(spec)
        return Framed(made, plain.all(spec.args.get("partition_by") or ()), by.index, rows, span)

    def over(self, relation: Relation, overs: Sequence[Framed]) -> tuple[Relation, dict[int, int]]:
        """The relation with a column for each of ``overs``, and which: one ``Over`` for all of a frame."""
        places: dict[int, int] = {}
        for frame in dict.fromkeys((one.keys, one.time, one.rows, one.range) for one in overs):
            mine = [one for one in overs if (one.keys, one.time, one.rows, one.range) == frame]
            given = [value for one in mine for value in one.given]
            width = len(relation.cols)
            base, at = with_keys(relation, [*frame[0], *given])
            base = timed(base, frame[1])
            rest = iter(at[len(frame[0]) :])
            folds = tuple(one.over(rest) for one in mine)
            cols = [*base.cols, *(Col("", one.type) for one in folds)]
            over = Over(named(cols), base.node.time, base.node, at[: len(frame[0])], folds, frame[2], frame[3])
            kept = [*range(1, width + 1), *range(len(base.cols) + 1, len(cols) + 1)]
            for number, one in enumerate(mine, width + 1):
                places[OVERS + overs.index(one)] = number
            exprs = [Column(one, cols[one - 1].type) for one in kept]
            relation = calc(Relation(over, cols), exprs, [cols[one - 1] for one in kept])
        return relation, places

    def frame(self, spec: Any) -> tuple[int | None, int | None]:
        frame = spec.args.get("spec")
        if frame is None:
            return None, None
        only(frame, "kind", "start", "start_side", "end", "end_side")
        kind = frame.args.get("kind")
        if str(frame.args.get("end") or "CURRENT ROW").upper() != "CURRENT ROW":
            raise Wrong(spec, "a frame ends with CURRENT ROW: later rows are not known", "AND CURRENT ROW")
        low = frame.args.get("start")
        if frame.args.get("start_side") not in ("PRECEDING", None):
            raise Wrong(spec, "a frame begins before its row", "… PRECEDING AND CURRENT ROW")
        if isinstance(low, str):
            if low.upper() == "CURRENT ROW":
                return (0, None) if kind == "ROWS" else (None, 0)
            return (ALL_ROWS, None) if kind == "ROWS" else (None, None)
        value = Checker(Scope()).of(low)
        if kind == "ROWS":
            if not isinstance(value, Literal) or value.type.name != "INT" or value.value < 0:
                raise Wrong(spec, "ROWS takes a whole number", "ROWS BETWEEN 9 PRECEDING AND CURRENT ROW")
            return value.value, None
        if kind != "RANGE" or not isinstance(value, Literal) or value.type.name != "INTERVAL_SECOND" or value.value < 0:
            raise Wrong(spec, "RANGE takes an interval", "RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND CURRENT ROW")
        return None, value.value

    # --- MATCH_RECOGNIZE

    def matched(self, relation: Relation, name: str, tree: Any) -> Relation:
        from vedette.rules.sql.recognize import recognized

        return recognized(self, relation, name, tree)


def shifted(expression: Expression, by: int) -> Expression:
    """``expression`` over columns that stand ``by`` further."""
    return check.substituted(expression, lambda at, kind: Column(at + by, kind))  # type: ignore[no-any-return]


def replace_part(part: Part) -> Part:
    return Part(part.alias, part.cols, part.base, part.open)


def subquery_of(tree: Any) -> tuple[Any, bool] | None:
    """The IN or EXISTS with a query that a conjunct is, and whether it is negated."""
    negate = False
    while isinstance(tree, exp.Paren | exp.Not):
        negate ^= isinstance(tree, exp.Not)
        tree = tree.this
    if isinstance(tree, exp.Exists) or (isinstance(tree, exp.In) and tree.args.get("query")):
        return tree, negate
    return None


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


def sides(one: Expression, width: int) -> tuple[int, int] | None:
    """Of ``l = r``, both columns, their indexes: left's, then right's."""
    if isinstance(one, Call) and one.name == "=" and all(isinstance(arg, Column) for arg in one.args):
        first, second = (arg.index for arg in one.args if isinstance(arg, Column))
        if first <= width < second:
            return first, second
        if second <= width < first:
            return second, first
    return None


_FAMILIES = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT"), "integer"),
    **dict.fromkeys(("CHAR", "VARCHAR", "STRING"), "text"),
}


def equality(one: Expression, width: int) -> tuple[Expression, Expression] | None:
    """Of an equality between both sides, what is left's and what is right's; types that compare as values do."""
    if not isinstance(one, Call) or one.name != "=":
        return None
    first, second = one.args
    a, b = check.columns(first), check.columns(second)
    if not a or not b:
        return None
    if max(b) <= width < min(a):
        first, second, a, b = second, first, b, a
    if not max(a) <= width < min(b):
        return None
    kinds = [_FAMILIES.get(part.type.name, str(part.type)) for part in (first, second)]
    return (first, second) if kinds[0] == kinds[1] else None


def shifted_time(value: Expression, cols: Sequence[Col]) -> tuple[int, int] | None:
    """Of a time attribute with an interval added or taken away: its column, and the microseconds."""
    if isinstance(value, Column):
        return (value.index, 0) if 0 < value.index <= len(cols) and cols[value.index - 1].rowtime else None
    if isinstance(value, Call) and value.name in ("+", "-") and len(value.args) == 2:
        first, second = value.args
        if isinstance(second, Literal) and second.type.name == "INTERVAL_SECOND":
            inner = shifted_time(first, cols)
            by = second.value if value.name == "+" else -second.value
        elif isinstance(first, Literal) and first.type.name == "INTERVAL_SECOND" and value.name == "+":
            inner, by = shifted_time(second, cols), first.value
        else:
            return None
        return None if inner is None else (inner[0], inner[1] + by)
    return None


def time_bounds(one: Expression, cols: Sequence[Col], width: int) -> list[tuple[int | None, int | None]] | None:
    """What a condition says of right time - left time: least and most, microseconds."""
    if not isinstance(one, Call):
        return None
    if one.name == "BETWEEN":
        value, low, high = one.args
        found = [
            time_bounds(Call(">=", (value, low), BOOLEAN), cols, width),
            time_bounds(Call("<=", (value, high), BOOLEAN), cols, width),
        ]
        return [*found[0], *found[1]] if found[0] and found[1] else None
    if one.name not in ("=", "<", "<=", ">", ">="):
        return None
    first, second = (shifted_time(arg, cols) for arg in one.args)
    if first is None or second is None or (first[0] <= width) == (second[0] <= width):
        return None
    name = one.name
    if first[0] > width:  # bring left to the left
        first, second = second, first
        name = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(name, name)
    gap = first[1] - second[1]  # left + a  ?  right + b   means   right - left  ¿  a - b
    return [
        {
            "=": (gap, gap),
            "<=": (gap, None),
            "<": (gap + MILLISECOND, None),
            ">=": (None, gap),
            ">": (None, gap - MILLISECOND),
        }[name]
    ]


def asked(one: Expression, width: int, lookup: LookupTable) -> tuple[str, Expression] | None:
    """How a condition asks a lookup: its index, and the key, which is of the left side."""
    if not isinstance(one, Call):
        return None

    def column(value: Expression) -> tuple[str, Type] | None:
        return lookup.columns[value.index - width - 1] if isinstance(value, Column) and value.index > width else None

    def mine(value: Expression) -> bool:
        return max(check.columns(value), default=0) <= width

    if one.name == "=":
        for theirs, key in (one.args, one.args[::-1]):
            if (found := column(theirs)) is not None and mine(key):
                same = _FAMILIES.get(key.type.name) == _FAMILIES.get(found[1].name)
                return (found[0], key) if same and key.type.name in _FAMILIES else None
    if one.name == "BETWEEN" and mine(one.args[0]):
        low, high = column(one.args[1]), column(one.args[2])
        if low is not None and high is not None:
            return f"{low[0]}..{high[0]}", one.args[0]
    return None


def bound_of(one: Expression, rank: int) -> tuple[int, int | None] | None:
    """The ranks that a condition leaves, when it is one about the column ``rank`` and a whole number."""
    if not isinstance(one, Call):
        return None
    if one.name == "BETWEEN" and isinstance(one.args[0], Column) and one.args[0].index == rank:
        low, high = one.args[1:]
        if isinstance(low, Literal) and isinstance(high, Literal):
            return low.value, high.value
        return None
    if one.name not in ("=", "<", "<=", ">", ">=") or len(one.args) != 2:
        return None
    name, (first, second) = one.name, one.args
    if isinstance(first, Literal):
        first, second = second, first
        name = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(name, name)
    if (
        not isinstance(first, Column)
        or first.index != rank
        or not isinstance(second, Literal)
        or type(second.value) is not int
    ):
        return None
    value = second.value
    return {"=": (value, value), "<": (1, value - 1), "<=": (1, value), ">": (value + 1, None), ">=": (value, None)}[
        name
    ]
