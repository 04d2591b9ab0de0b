"""Sessions: windows of one key that end when nothing has come for a gap, merged as rows close it.

A row at ``t`` is a session [t, t + gap) of its own, which then merges with every session of its key that it overlaps or
touches. It is late when the session that this gives ends at or before the watermark. A session is complete when the
watermark is at its end less a millisecond.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import Any, ClassVar

from vedette.plan.grid import touch
from vedette.plan.query import MILLISECOND, Assign, Row, Windowed
from vedette.stream.aggregates.accumulators import Accumulators
from vedette.stream.aggregates.parts import dump, load, size
from vedette.stream.expression import FAILURES
from vedette.stream.keyed import Budget, Key, Table
from vedette.stream.operators.base import FOREVER, Operator
from vedette.stream.operators.rows import weigh
from vedette.stream.userfunctions import Functions

Extent = list[Any]
"""Of one session: start, end, origin, then what it holds."""


def _newest(key: Key, sessions: list[Extent]) -> int:
    return max(int(session[1]) for session in sessions)


class Sessions(Operator):
    """The common part of both uses of sessions: ``fresh``, ``take`` and ``join`` of what a session holds, ``give`` its
    rows."""

    renews: ClassVar[bool] = True
    exact: ClassVar[bool] = True

    def __init__(self, node: Windowed | Assign, budget: Budget) -> None:
        super().__init__(node, budget)
        self.gap, self.keys, self.time = node.grid.size, node.keys, node.input.time
        self.sessions: Table[list[Extent]] = Table(budget, self._size, self._dump, self._load, _newest)
        self.retains = self.gap
        self.tables.append(self.sessions)
        self._ends: list[tuple[int, str, Key]] = []
        """A heap; sessions that have merged since are still in it."""

    @abstractmethod
    def fresh(self, row: Row) -> list[Any]:
        """Return what a session of one row holds; raises what expressions raise."""

    @abstractmethod
    def take(self, session: Extent, row: Row) -> None:
        """Take in a row that is fit to be a session; without what it costs to merge two."""

    @abstractmethod
    def join(self, session: Extent, other: Extent) -> None:
        """Take in what a session holds whose rows came later."""

    @abstractmethod
    def give(self, key: Key, session: Extent) -> list[Row]: ...

    def push(self, port: int, rows: Sequence[Row]) -> None:
        gap, mark = self.gap, self.mark
        for row in rows:
            key = tuple([row[at] for at in self.keys])
            start = row[self.time]
            sessions = self.sessions.values.get(key)
            first, last = start, start + gap
            merged: list[Extent] = []
            if sessions is not None:
                merged = [session for session in sessions if touch(first, last, session[0], session[1])]
                for session in merged:
                    first, last = min(first, session[0]), max(last, session[1])
            if last - MILLISECOND <= mark:
                self.late += 1
                continue
            try:
                own = self.fresh(row)
            except FAILURES:
                self.failed += 1
                continue
            whole = merged[0] if merged else [first, last, row[0]]
            before = whole[1] if merged else None
            for session in merged[1:]:
                self.join(whole, session)
                assert sessions is not None  # what is merged is of it
                sessions.remove(session)
            if merged:
                self.take(whole, row)
            else:
                whole += own
                sessions = [*(sessions or ()), whole]
            whole[0], whole[1] = first, last
            assert sessions is not None
            self.sessions.put(key, sessions)
            if last != before:
                heappush(self._ends, (last, repr(key), key))

    def due(self, mark: int) -> None:
        ends, output = self._ends, list[Row]()
        while ends and ends[0][0] - MILLISECOND <= mark:
            end, _, key = heappop(ends)
            sessions = self.sessions.values.get(key)
            over = [session for session in sessions or () if session[1] == end]
            if sessions is None or not over:
                continue
            for session in over:
                sessions.remove(session)
                output = self.so_far(output + self.give(key, session))
            if sessions:
                self.sessions.put(key, sessions)
            else:
                self.sessions.remove(key)
        self.emit(output)

    def boundary(self, mark: int) -> int:
        """A session must be over before a row that begins at its end, or closes the gap to it."""
        first = self._ends[0][0] if self._ends else FOREVER
        return max(mark + 1, min(first, mark + self.gap) - MILLISECOND)

    def resume(self) -> None:
        self._ends = [
            (session[1], repr(key), key) for key, sessions in self.sessions.values.items() for session in sessions
        ]
        heapify(self._ends)

    def _size(self, sessions: list[Extent]) -> int:
        return sum(120 + self.size_of(session[3:]) for session in sessions)

    def _dump(self, sessions: list[Extent]) -> Any:
        return [[*session[:3], *self.dumped(session[3:])] for session in sessions]

    def _load(self, data: Any) -> list[Extent]:
        return [[*session[:3], *self.loaded(session[3:])] for session in data]

    @abstractmethod
    def size_of(self, parts: Sequence[Any]) -> int: ...

    @abstractmethod
    def dumped(self, parts: Sequence[Any]) -> Iterator[Any]: ...

    @abstractmethod
    def loaded(self, parts: Sequence[Any]) -> Iterator[Any]: ...


class Session(Sessions):
    """Aggregates by session and key."""

    def __init__(self, node: Windowed, budget: Budget) -> None:
        super().__init__(node, budget)
        self.kinds = Accumulators(node.aggregates)
        self._add, self._merge, self._values = self.kinds.compiled(node.aggregates)

    def call_by(self, functions: Functions | None) -> None:
        self.kinds.users.calls.functions = functions

    def fresh(self, row: Row) -> list[Any]:
        fields = self.kinds.new()
        self._add(fields, row)
        return fields

    def take(self, session: Extent, row: Row) -> None:
        fields = session[3:]
        self._add(fields, row)
        self._keep(session, row[0], fields)

    def join(self, session: Extent, other: Extent) -> None:
        fields = session[3:]
        self._merge(fields, other[3:])
        self._keep(session, other[2], fields)

    def _keep(self, session: Extent, origin: int, fields: list[Any]) -> None:
        self.kinds.users.shrink(fields)
        session[2:] = [max(session[2], origin), *fields]

    def give(self, key: Key, session: Extent) -> list[Row]:
        start, end, origin, *fields = session
        try:
            return [(origin, *key, *self._values(fields), start, end, end - MILLISECOND)]
        except FAILURES:  # of a user's aggregate
            self.failed += 1
            return []
        finally:
            self.failed += self.kinds.users.failed()

    def size_of(self, parts: Sequence[Any]) -> int:
        return sum(map(size, self.kinds.fields, parts))

    def dumped(self, parts: Sequence[Any]) -> Iterator[Any]:
        return map(dump, self.kinds.fields, parts)

    def loaded(self, parts: Sequence[Any]) -> Iterator[Any]:
        return map(load, self.kinds.fields, parts)


class SessionRows(Sessions):
    """SESSION without GROUP BY: the rows of a session when it is complete, by arrival. A session holds their bytes,
    then the rows."""

    def fresh(self, row: Row) -> list[Any]:
        return [weigh(row), row]

    def take(self, session: Extent, row: Row) -> None:
        session[3] += weigh(row)
        session.append(row)

    def join(self, session: Extent, other: Extent) -> None:
        session[3] += other[3]
        session += other[4:]

    def give(self, key: Key, session: Extent) -> list[Row]:
        start, end = session[:2]
        return [(*row, start, end, end - MILLISECOND) for row in session[4:]]

    def size_of(self, parts: Sequence[Any]) -> int:
        return int(parts[0])

    def dumped(self, parts: Sequence[Any]) -> Iterator[Any]:
        return iter(parts[1:])

    def loaded(self, parts: Sequence[Any]) -> Iterator[Any]:
        return iter([sum(map(weigh, parts)), *parts])
