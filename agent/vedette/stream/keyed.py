"""State that an operator keeps by key: accounted, bounded, and written as what has changed.

A ``Table`` is a dict (``values``) whose owner names each key that it has changed or removed (``changed``); ``settle``,
which the network calls between runs of rows, then accounts for these. The ``Budget`` is shared by all tables of a
network: beyond it, the largest table's keys that have gone unchanged longest give way and are counted (``evicted``).

Bytes of a delta: pairs of key and value, nil for a key that is gone. Keys and values are of what msgpack carries,
tuples, ``decimal.Decimal`` and whole numbers of any size: a time that is moved by an event's own number has no bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any, Generic, TypeVar

import msgpack

Value = TypeVar("Value")
Key = tuple[Any, ...]

EVER = 1 << 62
"""A time after all others."""

KEY_BYTES = 160
"""What an entry takes besides its key's texts and its value, about: places in three dicts, and the key's tuple."""
_DECIMAL, _WHOLE = 1, 2


def pack(value: Any) -> bytes:
    return bytes(msgpack.packb(value, default=_default, unicode_errors="surrogatepass"))


def unpack(data: bytes) -> Any:
    """The inverse of ``pack``; every array is a tuple."""
    return msgpack.unpackb(data, use_list=False, strict_map_key=False, ext_hook=_ext, unicode_errors="surrogatepass")


def _default(value: Any) -> Any:
    if isinstance(value, Decimal):
        return msgpack.ExtType(_DECIMAL, str(value).encode())
    if isinstance(value, int):  # beyond 64 bits
        return msgpack.ExtType(_WHOLE, format(value, "x").encode())
    raise TypeError(f"{type(value).__name__} cannot be kept in a statement's state")


def _ext(code: int, data: bytes) -> Any:
    if code == _DECIMAL:
        return Decimal(data.decode())
    if code == _WHOLE:
        return int(data, 16)
    raise ValueError(f"unknown kind of value {code} in a statement's state")


class Budget:
    """Bytes that all tables of a network may take together."""

    def __init__(self, limit: int = 64 << 20) -> None:
        self.limit = limit
        self.give_way: Callable[[], None] = lambda: None
        """Called by operators within what may take long, where their state and that of all others may stay for a
        while as it is."""
        self.torn = set[Table[Any]]()
        """Those of which something gave way since the last ``settle``."""
        self.tables: list[Table[Any]] = []

    @property
    def used(self) -> int:
        return sum(table.bytes for table in self.tables)

    def settle(self) -> set[Table[Any]]:
        """Account for what has changed, and let keys go until the tables are within the limit; the tables of which
        something gave way since the last call."""
        for table in self.tables:
            if table.changed:
                table.settle()
        over = self.used - self.limit
        torn = self.torn
        self.torn = set[Table[Any]]()
        while over > 0:
            self.give_way()
            table = max(self.tables, key=lambda table: table.bytes)
            size = table.evict()
            table.forgotten += size
            over -= size
            torn.add(table)
        return torn


class Table(Generic[Value]):
    """Values by key. ``size`` gives the bytes of a value, about; ``dump`` what msgpack can carry of it."""

    def __init__(
        self, budget: Budget, size: Callable[[Value], int], dump: Callable[[Value], Any] = lambda value: value,
        load: Callable[[Any], Value] = lambda data: data, newest: Callable[[Key, Value], int] = lambda key, value: EVER,
    ) -> None:  # fmt: skip
        """``newest``: the time of the newest row behind a value, where that is known."""
        self._size, self._dump, self._load, self._newest = size, dump, load, newest
        self.values: dict[Key, Value] = {}
        """Of all keys; those that changed last come last, as of the last ``settle``."""
        self.changed: dict[Key, None] = {}
        """Keys whose value is new, changed or gone since the last ``settle``."""
        self._sizes: dict[Key, int] = {}
        self._dirty: dict[Key, None] = {}
        self.bytes = 0
        self.evicted = 0
        self.torn = -EVER
        """The newest time of what gave way."""
        self.lost: list[tuple[Key, Value]] | None = None
        """Keys that gave way since the owner last emptied it, with their values; None where the owner does not ask."""
        self.forgotten = 0
        """Bytes of keys that gave way since the operator last looked (``Network``)."""
        self._budget = budget
        budget.tables.append(self)

    def __len__(self) -> int:
        return len(self.values)

    def put(self, key: Key, value: Value) -> None:
        self.values[key] = value
        self.changed[key] = None

    def remove(self, key: Key) -> None:
        if self.values.pop(key, None) is not None:
            self.changed[key] = None

    def clear(self) -> None:
        for key in list(self.values):
            self.remove(key)

    def settle(self) -> None:
        """Account for what has changed."""
        values, sizes = self.values, self._sizes
        for key in self.changed:
            self.bytes -= sizes.pop(key, 0)
            if key in values:
                value = values[key] = values.pop(key)  # behind all others
                size = sizes[key] = KEY_BYTES + sum(map(_extra, key)) + self._size(value)
                self.bytes += size
        self._dirty.update(self.changed)
        self.changed.clear()

    def give_up(self, key: Key) -> None:
        """A key gives way to another bound than the budget."""
        if (value := self.values.get(key)) is not None:
            self.tear(self._newest(key, value), 1)
            self.remove(key)

    def evict(self) -> int:
        """Let the key go that has gone unchanged longest; the bytes that this gives back."""
        key = next(iter(self.values))
        value = self.values.pop(key)
        self.torn = max(self.torn, self._newest(key, value))
        if self.lost is not None:
            self.lost.append((key, value))
        size = self._sizes.pop(key)
        self.bytes -= size
        self.evicted += 1
        self._dirty[key] = None
        return size

    def tear(self, newest: int, parts: int) -> None:
        """So many parts of values gave way to another bound than the budget; ``newest``: the time of their rows."""
        self.evicted += parts
        self.torn = max(self.torn, newest)
        self._budget.torn.add(self)

    # --- state

    def delta(self) -> list[Any] | None:
        """Return what changed since the last call; None for nothing."""
        self.settle()
        if not self._dirty:
            return None
        values = self.values
        parts = [part for key in self._dirty for part in (key, self._dump(values[key]) if key in values else None)]
        self._dirty.clear()
        return parts

    def restore(self, data: Iterable[Any]) -> None:
        """Take over one ``delta``. Raises ValueError or TypeError for anything else."""
        parts = iter(data)
        for key, value in zip(parts, parts, strict=True):
            if value is None:
                self.values.pop(key, None)
            else:
                self.values[key] = self._load(value)
            self.changed[key] = None
        self.settle()
        self._dirty.clear()

    def touch(self) -> None:
        """The next ``delta`` holds all of it."""
        self._dirty.update(dict.fromkeys(self.values))


def _extra(part: Any) -> int:
    return len(part) if isinstance(part, str | bytes) else 0
