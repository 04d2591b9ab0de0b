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
from vedette.stream.accumulators import Accumulators
from vedette.stream.expression import FAILURES
from vedette.stream.keyed import Budget, Key, Table
from vedette.stream.operator import FOREVER, Operator
from vedette.stream.operators.rows import weigh
from vedette.stream.parts import dump, load, size
from vedette.stream.userfunctions import Functions

Held = list[Any]
"""Of one session: start, end, origin, then what it holds."""


def _newest(key: Key, held: list[Held]) -> int:
    return max(int(one[1]) for one in held)


class Sessions(Operator):
    """What both uses of sessions do: ``fresh``, ``take`` and ``join`` of what a session holds, ``give`` its rows."""

    renews: ClassVar[bool] = True
    exact: ClassVar[bool] = True

    def __init__(self, node: Windowed | Assign, budget: Budget) -> None:
        super().__init__(node, budget)
        self.gap, self.keys, self.time = node.grid.size, node.keys, node.input.time
        self.sessions: Table[list[Held]] = Table(budget, self._size, self._dump, self._load, _newest)
        self.retains = self.gap
        self.tables.append(self.sessions)
        self._ends: list[tuple[int, str, Key]] = []
        """A heap; sessions that have merged since are still in it."""

    @abstractmethod
    def fresh(self, row: Row) -> list[Any]:
        """What a session of one row holds; raises what expressions raise."""

    @abstractmethod
    def join(self, held: Held, other: Held) -> None:
        """Take in what a session holds whose rows came later."""

    @abstractmethod
    def give(self, key: Key, held: Held) -> list[Row]: ...

    def push(self, port: int, rows: Sequence[Row]) -> None:
        gap, mark = self.gap, self.mark
        for row in rows:
            key = tuple([row[at] for at in self.keys])
            start = row[self.time]
            held = self.sessions.values.get(key)
            first, last = start, start + gap
            merged: list[Held] = []
            if held is not None:
                merged = [one for one in held if touch(first, last, one[0], one[1])]
                for one in merged:
                    first, last = min(first, one[0]), max(last, one[1])
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
            for one in merged[1:]:
                self.join(whole, one)
                assert held is not None  # what is merged is of it
                held.remove(one)
            if merged:
                self.join(whole, [start, start + gap, row[0], *own])
            else:
                whole += own
                held = [*(held or ()), whole]
            whole[0], whole[1] = first, last
            assert held is not None
            self.sessions.put(key, held)
            if last != before:
                heappush(self._ends, (last, repr(key), key))

    def due(self, mark: int) -> None:
        ends, found = self._ends, []
        while ends and ends[0][0] - MILLISECOND <= mark:
            end, _, key = heappop(ends)
            held = self.sessions.values.get(key)
            over = [one for one in held or () if one[1] == end]
            if held is None or not over:
                continue
            for one in over:
                held.remove(one)
                found += self.give(key, one)
            if held:
                self.sessions.put(key, held)
            else:
                self.sessions.remove(key)
        self.emit(found)

    def boundary(self, mark: int) -> int:
        """A session must be over before a row that begins at its end, or closes the gap to it."""
        first = self._ends[0][0] if self._ends else FOREVER
        return max(mark + 1, min(first, mark + self.gap) - MILLISECOND)

    def resume(self) -> None:
        self._ends = [(one[1], repr(key), key) for key, held in self.sessions.values.items() for one in held]
        heapify(self._ends)

    def _size(self, held: list[Held]) -> int:
        return sum(120 + self.size_of(one[3:]) for one in held)

    def _dump(self, held: list[Held]) -> Any:
        return [[*one[:3], *self.dumped(one[3:])] for one in held]

    def _load(self, data: Any) -> list[Held]:
        return [[*one[:3], *self.loaded(one[3:])] for one in data]

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

    def join(self, held: Held, other: Held) -> None:
        fields = held[3:]
        self._merge(fields, other[3:])
        self.kinds.users.shrink(fields)
        held[2:] = [max(held[2], other[2]), *fields]

    def give(self, key: Key, held: Held) -> list[Row]:
        start, end, origin, *fields = held
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
    """SESSION without GROUP BY: the rows of a session when it is complete, by arrival."""

    def fresh(self, row: Row) -> list[Any]:
        return [row]

    def join(self, held: Held, other: Held) -> None:
        held += other[3:]

    def give(self, key: Key, held: Held) -> list[Row]:
        start, end = held[:2]
        return [(*row, start, end, end - MILLISECOND) for row in held[3:]]

    def size_of(self, parts: Sequence[Any]) -> int:
        return sum(weigh(row) for row in parts)

    def dumped(self, parts: Sequence[Any]) -> Iterator[Any]:
        return iter(parts)

    def loaded(self, parts: Sequence[Any]) -> Iterator[Any]:
        return iter(parts)
