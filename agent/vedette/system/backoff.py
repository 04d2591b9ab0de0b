"""Back-off: how long to wait between attempts at something outside that fails."""

from __future__ import annotations

import random

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
