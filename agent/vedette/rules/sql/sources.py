"""FROM of one SELECT: each of its items, and the scope that they make together.

An item is a relation, a lookup (FOR SYSTEM_TIME AS OF) or UNNEST; ``joins.py`` joins them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from vedette.plan.query import PYTHON, Call, Type
from vedette.rules.sql import trees
from vedette.rules.sql.catalog import LookupTable
from vedette.rules.sql.check import Checker
from vedette.rules.sql.recognize import recognized
from vedette.rules.sql.relation import Relation, finished, renamed
from vedette.rules.sql.scope import MAX_TABLES, Col, Part, Scope
from vedette.rules.sql.tables import Env, Queries, of_name, windows_of, with_views
from vedette.rules.sql.trees import Wrong, only
from vedette.stream.functions.tables import ORDINALITY


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
            found: Relation | LookupTable = lowering.query(item.this, with_views(item, self.env))
        elif isinstance(item, exp.Table):
            only(item, "this", "alias", "version", "joins", "db", "catalog")
            if isinstance(item.this, exp.Identifier):
                found = of_name(lowering, item, self.env)
            else:
                found = windows_of(lowering, item.this, self.env)
            if version := item.args.get("version"):
                at = system_time(version)
        else:
            raise Wrong(item, f"{trees.named(item)} is not supported in FROM")
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
            found = recognized(finished(found), name, pattern, self.scope.functions)
            name = pattern.args["alias"].name if pattern.args.get("alias") else ""
            columns = alias_of(pattern)[1] if pattern.args.get("alias") else ()
        if columns:
            found = renamed(found, columns, item)
        return Source(Part(name, found.cols, 0, found.open), item, found)

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
        cols = [Col(columns[at] if columns else one, kind) for at, (one, kind) in enumerate(fields)]
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
        cols = [Col(columns[at] if columns else one, kind) for at, (one, kind) in enumerate(inner)]
        return Source(Part(name, cols, 0), item, function=function)


def alias_of(item: Any) -> tuple[str, tuple[str, ...]]:
    """The alias of an item, and the names that it gives the columns."""
    alias = item.args.get("alias")
    if alias is None:
        return (item.name if isinstance(item, exp.Table) and isinstance(item.this, exp.Identifier) else ""), ()
    only(alias, "this", "columns")
    columns = alias.args.get("columns") or ()
    if any(not isinstance(one, exp.Identifier) for one in columns):
        raise Wrong(alias, "an alias names columns by their names alone", "AS t (a, b)")
    return alias.name, tuple(one.name for one in columns)


def system_time(version: Any) -> Any:
    """The time that FOR SYSTEM_TIME AS OF names."""
    only(version, "this", "expression", "kind")
    if str(version.name).upper() not in ("TIMESTAMP", "SYSTEM_TIME") or version.args.get("kind") != "AS OF":
        raise Wrong(version, "a lookup is asked FOR SYSTEM_TIME AS OF a time attribute")
    return version.expression
