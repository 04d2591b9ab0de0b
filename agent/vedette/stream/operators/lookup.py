"""Joins with lookups: FOR SYSTEM_TIME AS OF, IN and EXISTS on a lookup.

For each row the lookup's rows of ``key``, in the lookup's order of preference: of an index on networks, domains or
ranges the one that fits best. ``INNER`` gives the row once for each with its ``wanted`` columns behind, ``LEFT`` with
NULLs when there is none, ``SEMI`` and ``ANTI`` the row itself. ``when`` sees the row and all columns wanted. NULL is in
no lookup. ``at`` is the time as of which, for lookups whose rows have times of validity: a row without that time
counts as ``failed``; without ``at`` a lookup's row counts whenever it holds.

Lookups come by ``use``, and a new version replaces one in the same way: state has nothing of them. A lookup that is
not there has no rows, and rows that asked for it count as ``failed``: ``LEFT`` and ``ANTI`` never report a partner as
missing because its table is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

from vedette.plan import query
from vedette.plan.query import Row
from vedette.stream.expression import FAILURES, condition, evaluator
from vedette.stream.functions.library import LIBRARY
from vedette.stream.functions.table import Function
from vedette.stream.keyed import Budget
from vedette.stream.operators.base import Operator

EXACT = {"text", "nocase", "number", "ip"}
"""Kinds of index under which the rows of a key are equally good: a join takes all of them, of other kinds the best."""


class Opened(Protocol):
    """The part that a join needs of ``vedette.lookup.table.Lookup``."""

    @property
    def columns(self) -> Sequence[Any]: ...
    @property
    def timed(self) -> bool: ...
    def index(self, name: str) -> Any: ...
    def get(self, index: str, key: object, at: int | None = None) -> tuple[Any, ...] | None: ...
    def all(self, index: str, key: object, at: int | None = None) -> list[tuple[Any, ...]]: ...
    def contains(self, index: str, key: object, at: int | None = None) -> bool: ...
    def tester(self, index: str) -> Callable[[object], bool]: ...


class LookupJoin(Operator):
    node: query.LookupJoin
    library: ClassVar[Mapping[str, Function]] = LIBRARY

    def __init__(self, node: query.LookupJoin, budget: Budget) -> None:
        super().__init__(node, budget)
        self._key = evaluator(node.key, self.library)
        self._when = None if node.when is None else condition(node.when, self.library)
        self._nothing = (None,) * len(node.wanted)
        self._lookup: Opened | None = None
        self._find: Callable[[Any, int | None], Sequence[tuple[Any, ...]]] = lambda key, at: ()

    def use(self, lookups: Mapping[str, Any]) -> None:
        self._lookup = lookups.get(self.node.lookup)
        if self._lookup is not None:
            self._find = self._finder(self._lookup)

    def _finder(self, lookup: Opened) -> Callable[[Any, int | None], Sequence[tuple[Any, ...]]]:
        """The wanted columns of a key's rows. Raises KeyError for an index or a column that is not in the lookup."""
        node = self.node
        index = lookup.index(node.index)
        places = {column.name: place for place, column in enumerate(lookup.columns)}
        chosen = [places[name] for name in node.wanted]
        whole = chosen == list(range(len(lookup.columns)))
        if self._when is None and node.kind in {"SEMI", "ANTI"}:
            if not (node.at and lookup.timed):
                test = lookup.tester(node.index)
                return lambda key, at: _PRESENT if test(key) else ()
            return lambda key, at: _PRESENT if lookup.contains(node.index, key, at) else ()
        if index.kind in EXACT and not index.unique:
            find = lookup.all
            return lambda key, at: [tuple([row[place] for place in chosen]) for row in find(node.index, key, at)]
        best = lookup.get

        def best_row(key: Any, at: int | None) -> Sequence[tuple[Any, ...]]:
            row = best(node.index, key, at)
            if row is None:
                return ()
            return (row,) if whole else (tuple([row[place] for place in chosen]),)

        return best_row

    def push(self, port: int, rows: Sequence[Row]) -> None:
        node, key_of, find, when = self.node, self._key, self._find, self._when
        if self._lookup is None:
            self.failed += len(rows)
            return
        kind, at = node.kind, node.at if self._lookup.timed else 0
        output: list[Row] = []
        for row in rows:
            try:
                key = key_of(row)
                as_of = row[at] if at else None
                if at and as_of is None:
                    self.failed += 1
                    continue
                parts = () if key is None else find(key, as_of)
                if kind == "INNER" and not parts:
                    continue
                if when is not None:
                    parts = [part for part in parts if when(row + part)]
            except FAILURES:
                self.failed += 1
                continue
            if kind == "SEMI" or kind == "ANTI":
                if bool(parts) == (kind == "SEMI"):
                    output.append(row)
            elif parts:
                output += [row + part for part in parts]
            elif kind == "LEFT":
                output.append(row + self._nothing)
        self.emit(output)


_PRESENT: Sequence[tuple[Any, ...]] = ((),)
