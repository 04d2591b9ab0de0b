"""The deltas of one state in the store: parts under numbers, in the order to be read, written again now and then.

A key is the state's prefix and a number of 8 bytes, big-endian. After ``begins`` the parts that follow say all of it
again; with the one that is ``whole`` those before ``begins`` go.
"""

from __future__ import annotations

from collections.abc import Iterator

from vedette.store.environment import Environment, Transaction

STATE_BYTES = 8 << 20
"""Of deltas of a state, from which on all of it is to be written again; or as many as it took the last time."""
_MOST = b"\xff" * 8


class Deltas:
    def __init__(self, env: Environment, table: bytes, prefix: bytes = b"") -> None:
        """Of several states in one table none has a prefix with which that of another begins."""
        self._env, self._table, self._prefix = env, table, prefix
        self._bytes = self._whole_bytes = 0
        """Since the state was last written as a whole; what that took."""
        self._old = (b"", 0)
        """The last part before the state began to be written again, and ``_bytes`` then."""

    def parts(self) -> Iterator[bytes]:
        """The state as of the last commit, a part at a time. While a reader reads no commit of this state may come."""
        after = self._bytes = 0
        while True:
            with self._env.read() as txn:
                entry = next(txn.values(self._table, self._key(after)), None)
                if entry is None or not entry[0].startswith(self._prefix):
                    return
                part = txn.content(self._table, *entry)
            after = self._number(entry[0]) + 1
            self._bytes += len(part)
            yield part

    def is_long(self) -> bool:
        """Whether the state is to be written again, so that older parts can go."""
        return self._bytes > max(STATE_BYTES, self._whole_bytes)

    def begins(self) -> None:
        """With the next commit the state begins to be written again."""
        with self._env.read() as txn:
            self._old = self._last(txn) or b"", self._bytes

    def write(self, txn: Transaction, part: bytes, *, whole: bool) -> None:
        """Followed by ``written`` when the transaction has ended."""
        if part:
            last = self._last(txn)
            txn.put(self._table, self._key(1 if last is None else self._number(last) + 1), part)
        if whole and self._old[0]:
            txn.take(self._table, self._prefix, self._old[0])

    def written(self, part: bytes, *, whole: bool) -> None:
        self._bytes += len(part)
        if whole:
            self._whole_bytes, self._bytes = self._bytes - self._old[1], 0

    def drop(self, txn: Transaction) -> None:
        """All of it goes."""
        txn.take(self._table, self._prefix, self._prefix + _MOST)
        self._bytes, self._old = 0, (b"", 0)

    def _last(self, txn: Transaction) -> bytes | None:
        last = txn.last(self._table, self._prefix + _MOST if self._prefix else b"")
        return last if last is not None and last.startswith(self._prefix) else None

    def _key(self, number: int) -> bytes:
        return self._prefix + number.to_bytes(8, "big")

    def _number(self, key: bytes) -> int:
        return int.from_bytes(key[len(self._prefix) :], "big")
