"""Faults that come again and again: when one is logged, and how long to wait before the next attempt."""

from __future__ import annotations

import random
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


BACKOFF = (1.0, 30.0)
"""Seconds: the first wait and the longest."""


class Backoff:
    """Waits that double with every failure; each is shortened by up to 30 %, so that many do not try at once."""

    def __init__(self, bounds: tuple[float, float] = BACKOFF) -> None:
        self.first, self.longest = bounds
        self._failures = 0

    @property
    def failing(self) -> bool:
        return self._failures > 0

    def reset(self) -> None:
        self._failures = 0

    def failed(self) -> float:
        """An attempt failed: seconds to wait before the next."""
        wait = min(self.first * 2.0 ** min(self._failures, 30), self.longest)
        self._failures += 1
        return wait * random.uniform(0.7, 1.0)
