"""Stretches of a window's entries that move: an aggregate's running form, and where it is.

A slide is moved from the stretch that was asked for last: as much work as the stretch has moved, not as it is long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vedette.plan.aggregates import Aggregate, Reads, Running
from vedette.state.entries import Entries

MIN_SLIDE = 32
"""Entries below which a stretch is read as a whole each time."""
MAX_SLIDES = 2
"""Of one window: at its end, and at where late events come in."""


def read(row: Aggregate, window: Entries, start: int, stop: int) -> Sequence[Any]:
    """Return what the aggregate reads of the entries ``start`` to ``stop`` (exclusive)."""
    if row.valued:
        return [] if window.values is None else [v for v in window.values[start:stop] if v is not None]
    return window.slots(start, stop) if row.reads is Reads.RULE else range(start, stop)


class Slide:
    """A stretch of a window's entries, ``start`` to ``stop`` (exclusive), and what is known of it."""

    __slots__ = ("make", "row", "running", "start", "stop")

    def __init__(self, row: Aggregate, make: type[Running]) -> None:
        self.row, self.make = row, make
        self._begin(0)

    def _begin(self, start: int) -> None:
        self.running, self.start, self.stop = self.make(), start, start

    def distance(self, start: int, stop: int) -> int:
        """How far it is to that stretch, in entries."""
        return abs(start - self.start) + abs(stop - self.stop)

    def to(self, window: Entries, start: int, stop: int) -> None:
        """Move to that stretch."""
        row, running = self.row, self.running
        if self.start <= start < self.stop == stop - 1 and start < self.start + 4:  # as it comes most
            running.take(read(row, window, self.stop, stop))
            if start > self.start:
                running.leave(read(row, window, self.start, start))
            self.start, self.stop = start, stop
            return
        backward = start < self.start or stop < self.stop
        if self.distance(start, stop) >= stop - start or (backward and running.in_order):
            self._begin(start)
            running = self.running
        if start < self.start:
            running.take(read(row, window, start, self.start))
        if stop > self.stop:
            running.take(read(row, window, self.stop, stop))
        if start > self.start:
            running.leave(read(row, window, self.start, start))
        if stop < self.stop:
            running.leave(read(row, window, stop, self.stop))
        self.start, self.stop = start, stop

    def inserted(self, window: Entries, i: int) -> None:
        """An entry was put before the one that was the window's ``i``-th."""
        if i <= self.start:
            self.start += 1
            self.stop += 1
        elif i < self.stop:
            if self.running.in_order:
                self._begin(0)
            else:
                self.running.take(read(self.row, window, i, i + 1))
                self.stop += 1

    def dropping(self, window: Entries, n: int) -> None:
        """The window's first ``n`` entries are about to go."""
        if self.stop <= n:
            self._begin(0)
            return
        if self.start < n:
            self.running.leave(read(self.row, window, self.start, n))
            self.start = n
        self.start -= n
        self.stop -= n
