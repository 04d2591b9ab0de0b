"""Faults that come again and again, logged when they begin and when their reason changes."""

from __future__ import annotations

from collections.abc import Hashable


class Trouble:
    """One thing that may fail; ``reason``: why it does, empty: it works."""

    def __init__(self) -> None:
        self.reason = ""

    def begins(self, reason: str) -> bool:
        """Note why it fails; whether that is new, and so to be logged."""
        new = reason != self.reason
        self.reason = reason
        return new

    def ends(self) -> None:
        """Note that it works."""
        self.reason = ""


class Firsts:
    """Senders, topics and their like, of each of which the first fault is logged; ``limit`` of them at most."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._keys = set[Hashable]()

    def __bool__(self) -> bool:
        return bool(self._keys)

    def add(self, key: Hashable) -> bool:
        """Note a fault of ``key``; whether it is the first, and so to be logged."""
        if key in self._keys or len(self._keys) >= self._limit:
            return False
        self._keys.add(key)
        return True

    def forget(self, *keys: Hashable) -> None:
        """Take the next fault of ``keys`` for the first."""
        self._keys.difference_update(keys)

    def clear(self) -> None:
        """Forget all."""
        self._keys.clear()
