"""Where the windows of a correlation begin, when they are over, and which matches are of one run.

Windows slide, tumble or are sessions (``plan/grid.py``: as in SQL). What they hold is always a stretch of the group's
entries, so that measuring, compaction and stored state are the same for all.

A session takes matches until the gap after its last one, and none that comes more than ``span`` after its first: that
one begins the next. ``Window.starts`` holds the start of each session of a group, and is kept right as matches come in,
in whatever order (``placed``); so entries between them may be forgotten.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right

from vedette.plan.grid import aligned, touch
from vedette.plan.relation import Correlation
from vedette.state.clock import FOREVER
from vedette.state.windows import Window


class Extent(ABC):
    """Windows of one correlation."""

    __slots__ = ("c", "gap", "span")

    def __init__(self, c: Correlation) -> None:
        self.c, self.span = c, c.span
        self.gap = c.grid.size if c.grid is not None else 0

    @abstractmethod
    def begin(self, window: Window, time: int) -> int:
        """The first time of the window of a match at ``time``."""

    @abstractmethod
    def after(self, window: Window, time: int) -> int:
        """The first time after the matches of that window. Of ``Sliding`` windows that end at the match."""

    @abstractmethod
    def over(self, window: Window, time: int) -> int:
        """The last time at which a match may still come into it."""

    @abstractmethod
    def needed(self, window: Window, settled: int) -> int:
        """When no match comes before ``settled`` any more, none before this time matters."""

    @abstractmethod
    def one_run(self, window: Window, i: int, j: int) -> bool:
        """Whether occurrences at the entries ``i`` and ``j`` that follow each other fire once."""

    @abstractmethod
    def placed(self, window: Window, at: int) -> None:
        """The entry ``at`` has been inserted."""


class Sliding(Extent):
    __slots__ = ()

    def begin(self, window: Window, time: int) -> int:
        return time - self.span

    def after(self, window: Window, time: int) -> int:
        return time + 1

    def over(self, window: Window, time: int) -> int:
        return time + self.span if self.c.forward else time

    def needed(self, window: Window, settled: int) -> int:
        return settled - self.span

    def one_run(self, window: Window, i: int, j: int) -> bool:
        return window.time(j) - window.time(i) <= self.span

    def placed(self, window: Window, at: int) -> None:
        pass


class Tumbling(Extent):
    __slots__ = ()

    def begin(self, window: Window, time: int) -> int:
        return aligned(time, self.span)

    def after(self, window: Window, time: int) -> int:
        return aligned(time, self.span) + self.span

    def over(self, window: Window, time: int) -> int:
        return aligned(time, self.span) + self.span - 1

    def needed(self, window: Window, settled: int) -> int:
        return aligned(settled, self.span)

    def one_run(self, window: Window, i: int, j: int) -> bool:
        return aligned(window.time(i), self.span) == aligned(window.time(j), self.span)

    def placed(self, window: Window, at: int) -> None:
        pass


class Session(Extent):
    __slots__ = ()

    def begin(self, window: Window, time: int) -> int:
        starts = window.starts
        return starts[bisect_right(starts, time) - 1]

    def after(self, window: Window, time: int) -> int:
        starts = window.starts
        i = bisect_right(starts, time)
        return starts[i] if i < len(starts) else FOREVER

    def over(self, window: Window, time: int) -> int:
        last = window.time(window.first(self.after(window, time)) - 1)
        return min(last + self.gap, self.begin(window, time) + self.span)

    def needed(self, window: Window, settled: int) -> int:
        starts = window.starts
        if not starts or settled < starts[0]:
            return settled
        return starts[bisect_right(starts, settled) - 1] if self.over(window, settled) >= settled else settled

    def one_run(self, window: Window, i: int, j: int) -> bool:
        return self.begin(window, window.time(i)) == self.begin(window, window.time(j))

    def _joined(self, window: Window, i: int) -> bool:
        """Whether no gap lies before entry ``i``."""
        before, time = window.time(i - 1), window.time(i)
        return touch(before, before + self.gap, time, time + self.gap)

    def placed(self, window: Window, at: int) -> None:
        time = window.time(at)
        starts = window.starts
        k = bisect_right(starts, time) - 1
        within = k >= 0 and (
            time == starts[k] or (at + 1 < len(window) and window.time(at + 1) < self.after(window, time))
        )
        if not within and (k < 0 or time - starts[k] > self.span or (at and not self._joined(window, at))):
            k += 1
            window.start(k, time)
        # What follows may now be of this session, or of one that begins elsewhere because this one is full earlier.
        while True:
            starts = window.starts
            begun = starts[k]
            following = starts[k + 1] if k + 1 < len(starts) else FOREVER
            full = window.first(begun + self.span + 1)
            if full < len(window) and window.time(full) < following:
                k += 1
                window.start(k, window.time(full))
            elif following <= begun + self.span and self._joined(window, window.first(following)):
                window.start(k + 1, None)
            else:
                return


def extent_of(c: Correlation) -> Extent:
    if c.grid is None:
        return Sliding(c)
    return Tumbling(c) if c.grid.kind == "TUMBLE" else Session(c)
