"""Rows that an operator keeps, in groups, so that a delta costs what has changed and not what is kept.

A group's entries lie in chunks of ``CHUNK``, each a value of one ``Table`` under the group and a number: a further
entry writes its chunk again, not the group. An entry is a list: the row, its bytes in memory, then what the operator
adds. Chunks that the budget evicts are simply no longer there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from vedette.plan.query import Row
from vedette.stream.keyed import Budget, Key, Table

CHUNK = 32
ENTRY_BYTES = 112
"""What an entry takes besides its row: the list and its places."""

Entry = list[Any]


def weigh(values: Sequence[Any]) -> int:
    """Bytes that a row takes in memory, about."""
    size = 64 + 8 * len(values)
    for value in values:
        kind = type(value)
        if kind is str or kind is bytes:
            size += 56 + len(value)
        elif kind is int or kind is float:
            size += 32
        elif kind is tuple:
            size += weigh(value)
        elif kind is dict:
            size += 232 + weigh(tuple(value)) + weigh(tuple(value.values()))
        elif value is not None and kind is not bool:
            size += 104
    return size


def newest_by(time: int) -> Callable[[Key, list[Entry]], int]:
    """The newest row's time, by the column ``time``."""
    return lambda key, chunk: max(entry[0][time] for entry in chunk)


def _size(chunk: list[Entry]) -> int:
    total: int = sum([entry[1] for entry in chunk])
    return 64 + total


class Rows:
    """Groups of entries."""

    def __init__(self, budget: Budget, newest: Callable[[Key, list[Entry]], int]) -> None:
        """``newest``: the time of the newest row behind a chunk."""
        self.table: Table[list[Entry]] = Table(
            budget, _size, load=lambda data: [list(entry) for entry in data], newest=newest
        )
        self._numbers: dict[Key, list[int]] = {}
        """Of each group its chunks, rising; those that were evicted among them until they are met."""

    def __contains__(self, group: Key) -> bool:
        return group in self._numbers

    def add(self, group: Key, row: Row, *more: Any) -> Entry:
        entry = [row, ENTRY_BYTES + weigh(row), *more]
        numbers = self._numbers.get(group)
        if numbers is None:
            numbers = self._numbers[group] = [0]
        key = (*group, numbers[-1])
        chunk = self.table.values.get(key)
        if chunk is not None and len(chunk) >= CHUNK:
            numbers.append(numbers[-1] + 1)
            key, chunk = (*group, numbers[-1]), None
        if chunk is None:
            self.table.values[key] = [entry]
        else:
            chunk.append(entry)
        self.table.changed[key] = None
        return entry

    def chunks(self, group: Key) -> Iterator[tuple[Key, list[Entry]]]:
        """Give a group's chunks with their keys, the oldest first. Who changes an entry calls ``touch`` with the key;
        who takes entries away ``keep``, once it has gone through."""
        values = self.table.values
        for number in self._numbers.get(group, ()):
            key = (*group, number)
            chunk = values.get(key)
            if chunk is not None:
                yield key, chunk

    def entries(self, group: Key) -> list[Entry]:
        return [entry for _, chunk in self.chunks(group) for entry in chunk]

    def touch(self, key: Key) -> None:
        self.table.changed[key] = None

    def keep(self, key: Key, entries: list[Entry]) -> None:
        """Leave only these in the chunk ``key``, if any."""
        if entries:
            self.table.put(key, entries)
            return
        self.table.remove(key)
        self.prune(key[:-1])

    def bound(self, group: Key, chunks: int) -> None:
        """Let the oldest chunks of a group go, beyond so many."""
        numbers = self._numbers[group]
        while len(numbers) > chunks:
            self.table.give_up((*group, numbers.pop(0)))

    def chunks_of(self, group: Key) -> int:
        """How many it has, about."""
        return len(self._numbers.get(group, ()))

    def prune(self, group: Key) -> None:
        """Chunks of a group that were evicted are no longer looked for."""
        left = [number for number in self._numbers.get(group, ()) if (*group, number) in self.table.values]
        if left:
            self._numbers[group] = left
        else:
            self._numbers.pop(group, None)

    def drop(self, group: Key) -> None:
        for number in self._numbers.pop(group, ()):
            self.table.remove((*group, number))

    def groups(self) -> list[Key]:
        return list(self._numbers)

    def resume(self) -> None:
        """After the last ``restore`` of the table."""
        self._numbers = {}
        for key in self.table.values:
            self._numbers.setdefault(key[:-1], []).append(key[-1])
        for numbers in self._numbers.values():
            numbers.sort()
