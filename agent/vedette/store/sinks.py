"""How far each sink has got in the alerts, and what the ring could not keep for it.

The alerts lie in outbox and ring, once for all sinks; a place is one sink's cursor over both by ``seq``. It is written
by two threads, each its own part: the event loop ``after``, ``delivered`` and ``refused``, the writer thread the rest.
What is on disk is older by less than a second, so after a kill some alerts are delivered again, under their ids.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class Place:
    """Of one sink."""

    after: int = 0
    """It is done with every alert up to this seq."""
    delivered: int = 0
    refused: int = 0
    """Dead letters."""
    dropped: int = 0
    """Alerts that left the ring before the sink was done with them, whether or not its filter wants them."""
    gone: int = 0
    """The last seq that left the ring; not kept on disk, since the ring says it."""

    @property
    def passed(self) -> int:
        """Up to this seq nothing is left for the sink."""
        return max(self.after, self.gone)

    def row(self) -> tuple[int, int, int, int]:
        """What is kept on disk."""
        return self.after, self.delivered, self.refused, self.dropped


class Places(dict[str, Place]):
    """By the sinks' names."""

    def floor(self) -> int | None:
        """Up to this seq every sink is done; None: there are none."""
        return min((place.passed for place in self.values()), default=None)

    def gone(self, seqs: Sequence[int]) -> None:
        """These, ascending, have left the ring."""
        if seqs:
            for place in self.values():
                place.dropped += len(seqs) - bisect_right(seqs, place.passed)
                place.gone = max(place.gone, seqs[-1])
