"""What a correlation measures over a stretch of a window (``plan/aggregates.py``).

A stretch of fewer than ``MIN_SLIDE`` entries is read as a whole each time. Of a longer one the aggregate's running form
is moved there from the stretch that was asked for last: as much work as the stretch has moved, not as it is long. Both
give exactly the same.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from vedette.plan.aggregates import Aggregate, Distinct, Number, Reads, Running
from vedette.plan.relation import Correlation
from vedette.state.chains import longest_chain

if TYPE_CHECKING:
    from vedette.state.windows import Window

MIN_SLIDE = 32
"""Entries below which a stretch is read as a whole each time."""
MAX_SLIDES = 2
"""Of one window: at its end, and at where late events come in."""


def read(row: Aggregate, window: Window, start: int, stop: int) -> Sequence[Any]:
    """What the aggregate reads of the entries ``start`` to ``stop`` (exclusive)."""
    if row.valued:
        return [] if window.values is None else [v for v in window.values[start:stop] if v is not None]
    return window.slots(start, stop) if row.reads is Reads.RULE else range(start, stop)


def metric(c: Correlation, window: Window, start: int, stop: int) -> Number | None:
    """What ``c`` measures over the entries ``start`` to ``stop`` (exclusive); None: of numbers there are none."""
    row = c.kind.row
    if row.ordered:
        return longest_chain(c, window, start, stop)
    percent = c.percentile if row.percentile else 50.0
    if stop - start >= MIN_SLIDE and row.running is not None:
        return slide(row, row.running, window, start, stop).value(percent)
    found = read(row, window, start, stop)
    return row.measure(found, percent) if found or not row.numeric else None


def slots(c: Correlation, window: Window, start: int, stop: int) -> Collection[int]:
    """The slots with an entry in the stretch; of a kind that reads the rule of each match."""
    if stop - start < MIN_SLIDE:
        return set(window.slots(start, stop))
    found = slide(c.kind.row, Distinct, window, start, stop)
    assert isinstance(found, Distinct)
    return found.counts.keys()


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

    def to(self, window: Window, start: int, stop: int) -> None:
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

    def inserted(self, window: Window, i: int) -> None:
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

    def dropping(self, window: Window, n: int) -> None:
        """The window's first ``n`` entries are about to go."""
        if self.stop <= n:
            self._begin(0)
            return
        if self.start < n:
            self.running.leave(read(self.row, window, self.start, n))
            self.start = n
        self.start -= n
        self.stop -= n


def slide(row: Aggregate, make: type[Running], window: Window, start: int, stop: int) -> Running:
    """The slide of ``window`` that was nearest to this stretch, moved there."""
    slides = window.slides
    if slides is None:
        slides = window.slides = []
    near = slides[0] if len(slides) == 1 else min(slides, key=lambda one: one.distance(start, stop), default=None)
    if near is None or (len(slides) < MAX_SLIDES and near.distance(start, stop) * 2 > stop - start):
        near = Slide(row, make)
        slides.append(near)
    near.to(window, start, stop)
    return near.running
