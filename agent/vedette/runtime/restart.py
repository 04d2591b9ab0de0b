"""From where a rebuilt store would go on: what each raw log segment notes at its beginning (``rawlog/checkpoint.py``).

The place is *settled*: every alert made before it has its receipt, and every sink has it. So a commit becomes the place
only when the first alert that is still wanted comes after it.
"""

from __future__ import annotations

from vedette.model.counters import Counters
from vedette.model.event import FilePosition
from vedette.rawlog.checkpoint import Checkpoint, encode


class RestartPoint:
    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self.next_seq = 1
        """Of the next alert to be made."""
        self.positions: dict[tuple[str, int], FilePosition] = {}
        """Where every tailed file ends in the raw log, committed or not."""
        self._settled: Checkpoint | None = None
        """A commit: every alert before it has its receipt; None: nothing is known yet."""
        self.next_place = Checkpoint()
        """A later commit, some of whose alerts lack theirs."""

    def take_seq(self) -> int:
        seq, self.next_seq = self.next_seq, self.next_seq + 1
        return seq

    def begin(self, last: Checkpoint, settled: Checkpoint) -> None:
        """Go on after the commit ``last``, from ``settled`` if that is known to be earlier."""
        self.next_place, self._settled = last, settled

    def committed(self, place: Checkpoint, first_waiting: int | None) -> None:
        """After a commit; ``first_waiting``: the seq of the first alert without a receipt, None when none waits."""
        if first_waiting is None:
            self._settled = self.next_place = place
        elif first_waiting >= self.next_place.next_seq:
            self._settled, self.next_place = self.next_place, place

    def describe(self) -> bytes:
        """What a segment that begins now notes."""
        if self._settled is None:
            return b""
        positions, made = tuple(self.positions.values()), self._counters.totals["alerts_made"]
        return encode(self._settled._replace(positions=positions, next_seq=self.next_seq, made=made))
