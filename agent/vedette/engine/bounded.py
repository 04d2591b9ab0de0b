"""Answers that are kept to spare work, bounded in what they weigh: whatever comes in, they take no more than that.

What an attacker's lines make an engine remember only costs computing it again.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Bounded(dict[K, V]):
    """A dictionary that forgets everything before what was put in by ``keep`` weighs more than ``limit``."""

    def __init__(self, limit: int) -> None:
        """``limit``: in the unit of the weights."""
        super().__init__()
        self.limit = limit
        self.weight = 0

    def keep(self, key: K, value: V, weight: int) -> V:
        """Put ``value`` in under ``key``; returns it."""
        if self.weight + weight > self.limit:
            self.clear()
        self.weight += weight
        self[key] = value
        return value

    def clear(self) -> None:
        super().clear()
        self.weight = 0
