"""A statement to the nodes of ``plan/query.py``: its queries within each other, until every name is known.

Lowering gives plain nodes, a Calc for each step; ``simplify.py`` merges them, drops what nobody asks for and brings
them into one form. A query of which a row would change later (GROUP BY without a window, a join without bounds of
time, a rank without a window, DISTINCT) is refused with what to write instead.

``select.py`` lowers one SELECT: ``sources.py`` reads its FROM (``tables.py`` finds names, ``recognize.py`` lowers
MATCH_RECOGNIZE), ``joins.py`` joins and filters, ``grouping.py``, ``over.py`` and ``ranks.py`` make the items.

A statement over ``events`` is lowered again until no further field is asked for: a name that no table declares becomes
a column then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp

from vedette.rules.sql.catalog import EVENTS, Catalog
from vedette.rules.sql.relation import Relation, finished, renamed
from vedette.rules.sql.scope import Open, Scope
from vedette.rules.sql.select import selected
from vedette.rules.sql.sources import Query
from vedette.rules.sql.tables import Env, with_views
from vedette.rules.sql.trees import Wrong, named, only
from vedette.rules.sql.union import together, united

MAX_QUERIES = 200
"""Queries within each other and beside each other in one statement, views opened."""
MAX_PASSES = 40


class Lowering:
    """One statement of a file. ``rule`` of each Scan is left empty (``predicates.py`` fills it)."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.open = Open(EVENTS)
        self._queries = 0

    def statement(self, query: Any) -> Relation:
        """The relation of a statement's query, lowered to the last name."""

        def lowered() -> Relation:
            found = finished(self.query(query, {}))
            if found.open is not None:
                raise Wrong(query, f"SELECT * of {EVENTS}, which has any column", "the columns by name")
            return found

        return self._settled(query, lowered)

    def view_alone(self, tree: Any) -> None:
        """Raise what is wrong with the query of a view or a stream."""

        def lowered() -> Relation:
            found = self.query(tree.args["query"], {})
            if (names := tree.args.get("columns")) and found.open is None:
                renamed(found, names, tree)
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

    def query(self, tree: Any, env: Env, outer: Scope | None = None) -> Relation:
        """The relation of any query; ``env``: the views of WITH, ``outer``: the names of the query around it."""
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
            return self.query(tree.this, with_views(tree, env), outer)
        if isinstance(tree, exp.Union):
            env = with_views(tree, env)
            trees = united(tree)
            return together([finished(self.query(one, env)) for one in trees], trees)
        if isinstance(tree, exp.SetOperation):
            raise Wrong(
                tree, f"{type(tree).__name__.upper()} would change rows already given", "a join with bounds of time"
            )
        if isinstance(tree, exp.Values):
            raise Wrong(tree, "VALUES is not supported: rows come from events", "SELECT … FROM a table")
        if not isinstance(tree, exp.Select):
            raise Wrong(tree, f"{named(tree)} is not supported")
        return selected(Query(self, tree, with_views(tree, env), outer))
