"""From where a rebuilt store would go on: what each raw log segment notes at its beginning (``rawlog/checkpoint.py``).

The place is *settled*: every alert made before it has its receipt. So a commit becomes the place only when the first
alert without a receipt comes after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from vedette.model.counters import Counters
from vedette.model.event import Cursor, FilePosition
from vedette.rawlog import checkpoint


class Place(NamedTuple):
    """As of a commit: cursor, counters, the seq of the next alert, and the alerts with a receipt (None: all)."""

    cursor: Cursor | None
    counters: Mapping[str, Any] | None
    next_seq: int
    receipted: int | None


class RestartPoint:
    """See the module's text."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self.next_seq = 1
        """Of the next alert to be made."""
        self.positions: dict[tuple[str, int], FilePosition] = {}
        """Where every tailed file ends in the raw log, committed or not."""
        self._settled: Place | None = None
        """Every alert before it has its receipt; None: nothing is known yet."""
        self._next = Place(None, None, 1, None)
        """Of a later commit, some of whose alerts lack theirs."""

    def take_seq(self) -> int:
        """The number of an alert that is made."""
        seq, self.next_seq = self.next_seq, self.next_seq + 1
        return seq

    def begin(self, last: Place, settled: Place) -> None:
        """Go on after the commit ``last``, from ``settled`` if that is known to be earlier."""
        self._next, self._settled = last, settled

    def committed(self, place: Place, first_waiting: int | None) -> None:
        """After a commit; ``first_waiting``: the seq of the first alert without a receipt, None when none waits."""
        if first_waiting is None:
            self._settled = self._next = place
        elif first_waiting >= self._next.next_seq:
            self._settled, self._next = self._next, place

    @property
    def next_place(self) -> Place:
        """The commit that is waiting to become the settled place."""
        return self._next

    def describe(self) -> bytes:
        """What a segment that begins now notes."""
        if self._settled is None:
            return b""
        cursor, counters, _, receipted = self._settled
        positions, made = tuple(self.positions.values()), self._counters.totals["alerts_made"]
        return checkpoint.encode(checkpoint.Checkpoint(cursor, counters, positions, self.next_seq, made, receipted))
