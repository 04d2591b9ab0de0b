"""Where windows of event time lie: of statements in SQL and of correlations in Sigma alike. Microseconds.

A window holds the times from its start up to its end, which is not in it. All but sessions are aligned to 1970, in UTC.
A session ends a gap after its last row; sessions that overlap or touch are one, so rows exactly a gap apart are of one
session (as in Flink).
"""

from __future__ import annotations

from math import gcd
from typing import NamedTuple

MAX_PARTS = 10_000
"""Of a window: each row is in as many windows, at most, and each window is made of as many slices."""


class Grid(NamedTuple):
    """Windows of event time, aligned to 1970 plus ``offset``; microseconds.

    ``kind``: ``TUMBLE`` (``size``), ``HOP`` (``size``, ``step``), ``CUMULATE`` (``size``, ``step``), ``SESSION``
    (``size`` is the gap; sessions are by the node's ``keys``).
    """

    kind: str
    size: int
    step: int = 0
    offset: int = 0

    @property
    def parts(self) -> int:
        """Slices that a window is made of; 0 for lengths that are none."""
        stepped = self.kind in ("HOP", "CUMULATE")
        if self.size <= 0 or self.step < stepped:
            return 0
        return self.size // gcd(self.size, self.step)

    def windows(self, time: int) -> list[tuple[int, int]]:
        """Start and end of those that a row of this time is in: of HOP the newest first, of CUMULATE the shortest. Not
        for SESSION."""
        size, step = self.size, self.step
        if self.kind == "HOP":
            return [(start, start + size) for start in range(aligned(time, step, self.offset), time - size, -step)]
        start = aligned(time, size, self.offset)
        if self.kind == "TUMBLE":
            return [(start, start + size)]
        return [(start, end) for end in range(aligned(time, step, start) + step, start + size + 1, step)]

    def last_end(self, time: int) -> int:
        """The end of the last window that a row of this time is in; of all but SESSION."""
        return aligned(time, self.step if self.kind == "HOP" else self.size, self.offset) + self.size


def aligned(time: int, size: int, offset: int = 0) -> int:
    """The start of the slice of this ``size`` that ``time`` is in."""
    return time - (time - offset) % size


def touch(start: int, end: int, other: int, others_end: int) -> bool:
    """Whether two sessions, by start and end, are one."""
    return other <= end and start <= others_end
