"""What a correlation measures over a stretch of a window, kept up while the stretch moves along.

A **slide** holds the stretch of entries that it has taken in. To measure another one it takes in what is new and lets
go of what is not in it any more: as much work as the stretch has moved, not as it is long. What it says is exactly what
the same entries give when looked at anew.

====================  ==============================================================================================
``Sum``               exact: whole numbers as such, others as multiples of 2**-1074, which all of them are
``Ranked``            the numbers in order (a list with bisection); equal ones in the order of their times
``Distinct``          how often each value occurs
``Slots``             how often each slot occurs
``Links``             for chains: when the latest chain began that has come as far as each of its links
``Longest``           the same for chains of any slots in ascending order: rules times rules for each entry
====================  ==============================================================================================
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from vedette.plan.relation import Kind

if TYPE_CHECKING:
    from vedette.state.windows import Window

Number = int | float

MIN_SLIDE = 32
"""Entries below which a stretch is looked at anew each time."""
MIN_LINKS = 16
"""The same for chains."""
SLIDE_BYTES = {Kind.VALUE_COUNT: 64, Kind.VALUE_MEDIAN: 8, Kind.VALUE_PERCENTILE: 8, Kind.TEMPORAL_ORDERED: 24}
"""Of memory that a slide takes for each entry."""

_UNIT = 1074
"""Every finite double is a multiple of 2 to the power of minus this."""
_NEVER = -(1 << 63)


class Slide:
    """A stretch of a window's entries, ``start`` to ``stop`` (exclusive), and what is known of it."""

    __slots__ = ("start", "stop")

    def __init__(self) -> None:
        self.start = self.stop = 0

    def take(self, window: Window, start: int, stop: int) -> None:
        """Take in the entries ``start`` to ``stop``."""
        raise NotImplementedError

    def leave(self, window: Window, start: int, stop: int) -> None:
        """Let go of the entries ``start`` to ``stop``."""
        raise NotImplementedError

    def clear(self) -> None:
        """Let go of all."""
        raise NotImplementedError

    def distance(self, start: int, stop: int) -> int:
        """How far it is to that stretch, in entries."""
        return abs(start - self.start) + abs(stop - self.stop)

    def to(self, window: Window, start: int, stop: int) -> None:
        """Move to that stretch."""
        if self.distance(start, stop) >= stop - start:
            self.clear()
            self.start = self.stop = start
        if start < self.start:
            self.take(window, start, self.start)
        if stop > self.stop:
            self.take(window, self.stop, stop)
        if start > self.start:
            self.leave(window, self.start, start)
        if stop < self.stop:
            self.leave(window, stop, self.stop)
        self.start, self.stop = start, stop

    def inserted(self, window: Window, i: int) -> None:
        """An entry was put before the one that was the window's ``i``-th."""
        if i <= self.start:
            self.start += 1
            self.stop += 1
        elif i < self.stop:
            self.take(window, i, i + 1)
            self.stop += 1

    def dropping(self, window: Window, n: int) -> None:
        """The window's first ``n`` entries are about to go."""
        if self.stop <= n:
            self.clear()
            self.start = self.stop = 0
            return
        if self.start < n:
            self.leave(window, self.start, n)
            self.start = n
        self.start -= n
        self.stop -= n


class Sum(Slide):
    __slots__ = ("count", "floats", "scaled", "whole")

    def __init__(self) -> None:
        super().__init__()
        self.clear()

    def clear(self) -> None:
        self.count = self.floats = self.whole = self.scaled = 0

    def add(self, values: Sequence[Number | None], sign: int = 1) -> None:
        """Take in numbers, or with ``sign`` -1 let go of them."""
        for value in values:
            if value is not None:
                self.count += sign
                if type(value) is int:
                    self.whole += sign * value
                else:
                    self.floats += sign
                    above, below = value.as_integer_ratio()
                    self.scaled += sign * (above << _UNIT + 1 - below.bit_length())

    def take(self, window: Window, start: int, stop: int) -> None:
        if window.values is not None:
            self.add(window.values[start:stop])

    def leave(self, window: Window, start: int, stop: int) -> None:
        if window.values is not None:
            self.add(window.values[start:stop], -1)

    @property
    def mean(self) -> float:
        """Rounded once."""
        return ((self.whole << _UNIT) + self.scaled) / (self.count << _UNIT)

    @property
    def total(self) -> Number:
        """Rounded once; a whole number where all are."""
        if not self.floats:
            return self.whole
        exact = (self.whole << _UNIT) + self.scaled
        try:
            return exact / (1 << _UNIT)
        except OverflowError:
            return inf if exact > 0 else -inf


class Ranked(Slide):
    __slots__ = ("numbers",)

    def __init__(self) -> None:
        super().__init__()
        self.numbers: list[Number] = []

    def clear(self) -> None:
        self.numbers.clear()

    def to(self, window: Window, start: int, stop: int) -> None:
        if start < self.start or stop < self.stop:  # equal numbers keep their order only on the way forward
            self.clear()
            self.start = self.stop = start
        super().to(window, start, stop)

    def inserted(self, window: Window, i: int) -> None:
        if self.start < i < self.stop:
            self.clear()
            self.start = self.stop = 0
        else:
            super().inserted(window, i)

    def take(self, window: Window, start: int, stop: int) -> None:
        new = [] if window.values is None else [v for v in window.values[start:stop] if v is not None]
        if len(new) * 8 > len(self.numbers):
            self.numbers += new
            self.numbers.sort()
        else:
            for value in new:
                insort(self.numbers, value)

    def leave(self, window: Window, start: int, stop: int) -> None:
        for value in () if window.values is None else window.values[start:stop]:
            if value is not None:
                del self.numbers[bisect_left(self.numbers, value)]


class Distinct(Slide):
    __slots__ = ("counts",)

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[Any, int] = {}

    def clear(self) -> None:
        self.counts.clear()

    def to(self, window: Window, start: int, stop: int) -> None:
        if self.start <= start < self.stop == stop - 1 and start < self.start + 4:  # as it comes most
            self.take(window, self.stop, stop)
            if start > self.start:
                self.leave(window, self.start, start)
            self.start, self.stop = start, stop
        else:
            super().to(window, start, stop)

    def things(self, window: Window, start: int, stop: int) -> Sequence[Any]:
        """What is counted, without None."""
        return () if window.values is None else [v for v in window.values[start:stop] if v is not None]

    def take(self, window: Window, start: int, stop: int) -> None:
        counts = self.counts
        for value in self.things(window, start, stop):
            counts[value] = counts.get(value, 0) + 1

    def leave(self, window: Window, start: int, stop: int) -> None:
        counts = self.counts
        for value in self.things(window, start, stop):
            left = counts[value] - 1
            if left:
                counts[value] = left
            else:
                del counts[value]


class Slots(Distinct):
    __slots__ = ()

    def things(self, window: Window, start: int, stop: int) -> Sequence[Any]:
        return window.slots(start, stop)


class Links:
    """How far chains have come. ``tracks``: the slots of each chain, in order. For stretches of which each begins and
    ends no earlier than the one before.

    Of each link, the latest time at which a chain that has come as far began: a chain lies in a stretch when its last
    link has one that is not before the stretch. Neighbours of one offset are one event, and one link at most.
    """

    __slots__ = ("event", "links", "reached", "stop", "undo")

    def __init__(self, tracks: Sequence[Sequence[int]]) -> None:
        self.reached = [[_NEVER] * len(track) for track in tracks]
        self.links: dict[int, list[tuple[list[int], int]]] = {}
        """By slot, of which links it can be: their track in ``reached``, and their place there."""
        for track, reached in zip(tracks, self.reached, strict=True):
            for i, slot in enumerate(track):
                self.links.setdefault(slot, []).append((reached, i))
        self.reset()

    def reset(self) -> None:
        """Know nothing."""
        self.stop = self.event = -1
        self.undo: list[tuple[list[int], int, int]] = []
        """What the last event has changed: how it was before."""
        for reached in self.reached:
            reached[:] = [_NEVER] * len(reached)

    def measure(self, window: Window, start: int, stop: int) -> int:
        """How many of the chains lie in the stretch."""
        if stop < self.stop or self.stop < start:
            self.reset()
            self.stop = start
        entries = window.entries
        while self.stop < stop:
            begin = self.stop
            offset = entries[3 * begin + 1]
            if self.event >= 0 and offset == entries[3 * self.event + 1]:  # the last event has more
                begin = self.event
                for reached, i, before in reversed(self.undo):
                    reached[i] = before
            after = self.stop + 1
            while after < stop and entries[3 * after + 1] == offset:
                after += 1
            self.undo = []
            for reached, i, since in self._follows(window, begin, after):
                if since > reached[i]:
                    self.undo.append((reached, i, reached[i]))
                    reached[i] = since
            self.event, self.stop = begin, after
        earliest = entries[3 * start]
        return sum([reached[-1] >= earliest for reached in self.reached])

    def _follows(self, window: Window, begin: int, after: int) -> list[tuple[list[int], int, int]]:
        """Where the entries of one event come in: all follow on what was before it."""
        found = []
        for n in range(begin, after):
            for reached, i in self.links.get(window.slot(n), ()):
                since = reached[i - 1] if i else window.time(n)
                if since > reached[i]:
                    found.append((reached, i, since))
        return found

    def inserted(self, window: Window, i: int) -> None:
        """See ``Slide``."""
        if i < self.stop:
            self.reset()

    def dropping(self, window: Window, n: int) -> None:
        """See ``Slide``."""
        if n > self.event:
            self.reset()
        else:
            self.stop -= n
            self.event -= n


class Longest(Links):
    """Chains of any of ``slots`` slots in ascending order: ``measure`` gives how many the longest has."""

    __slots__ = ()

    def __init__(self, slots: int) -> None:
        super().__init__([range(slots)] * slots)
        """Of chains of 1, 2, … links, by slot: those that end there or at a lower one."""

    def _follows(self, window: Window, begin: int, after: int) -> list[tuple[list[int], int, int]]:
        found = []
        for n in range(begin, after):
            slot, since = window.slot(n), window.time(n)
            for reached in self.reached:
                found += [(reached, i, since) for i in range(slot, len(reached)) if since > reached[i]]
                since = reached[slot - 1] if slot else _NEVER
        return found


def total(values: Sequence[Number]) -> Number:
    """The exact sum, rounded once."""
    found = Sum()
    found.add(values)
    return found.total


def mean(values: Sequence[Number]) -> float:
    """The average, rounded once. Denominators are powers of two."""
    ratios = [value.as_integer_ratio() for value in values]
    below = max(ratio[1] for ratio in ratios)
    return sum(above * (below // own) for above, own in ratios) / (below * len(values))


def at_rank(ranked: Sequence[Number], percent: float) -> Number:
    """Of ``n`` numbers in order, by linear interpolation between the two nearest ranks; the last has rank n - 1.

    Exact, and rounded once: Python's division of integers is. So it lies between the two, and rises with ``percent``.
    """
    above, below = percent.as_integer_ratio()
    whole = 100 * below
    low, part = divmod((len(ranked) - 1) * above, whole)
    if not part or ranked[low] == ranked[low + 1]:
        return ranked[low]
    (a, over_a), (b, over_b) = ranked[low].as_integer_ratio(), ranked[low + 1].as_integer_ratio()
    return (a * over_b * (whole - part) + b * over_a * part) / (over_a * over_b * whole)
