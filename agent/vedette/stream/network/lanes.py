"""How far a table is, by its sources: whose clock is ahead makes no other's rows late, nor does one that is quiet hold
them back for long.

A **source** is an (input, host), of Kafka a (partition, host); each has a **lane**: the newest watermark that its rows
have given. Between its rows a lane goes on with the receipts of all, as ``state/clock.py`` has it. The table's
watermark is the least of its lanes', and never beyond the newest that a row has given: of one source it is what Apache
Flink makes it.

* A row whose time lies after its receipt moves its lane by so much less: no clock that is ahead, and no line that
  someone forges, takes the watermark beyond the receipts.
* A lane without a row for ``IDLE`` of receipts is left out, and so is one more than ``MAX_SKEW`` behind the newest:
  it holds nothing back, and its rows may be late.
* A table has a limited number of lanes: the one longest without a row is left out for a new one.

Everything is a function of the calls. Bytes: ``[newest, at, lanes, gone]``, a lane as ``[input, host, base, at]``.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any

from vedette.model.event import MAX_HOST
from vedette.model.times import MAX_SKEW
from vedette.plan.query import MILLISECOND
from vedette.stream.operators.base import NEVER

IDLE = 60_000_000
"""Microseconds of receipts after which a lane without a row, and a table without one, counts as idle."""
MAX_LANES = 16_384
"""Of all tables together."""
MIN_LANES = 16
"""Of one table, however many there are."""

Source = tuple[str, str]
"""Input or partition, host."""


class _Lane:
    __slots__ = ("at", "base", "changed", "source")

    def __init__(self, source: Source, base: int, at: int) -> None:
        self.source, self.base, self.at = source, base, at
        """``base``: the lane's watermark less ``running``; ``at``: ``running`` at its last row."""
        self.changed = True


class Lanes:
    """The lanes of a table. ``running``: microseconds of receipts gone by, as the caller counts them."""

    def __init__(self, limit: int = MAX_LANES) -> None:
        self.limit = limit
        self.newest = NEVER
        """The newest watermark that a row has given."""
        self.at = 0
        """``running`` at the last row."""
        self._lanes: dict[Source, _Lane] = {}
        """The last to have had a row last."""
        self._latest: _Lane | None = None
        self._heap: list[tuple[int, int, _Lane]] = []
        """By base; those that have changed since, or have gone, are found when they come to its head."""
        self._number = 0
        self._gone: dict[Source, None] = {}
        """Left out since the last ``delta``."""
        self.changed = False
        """Whether a row has come, or a lane gone, since the last ``delta``."""

    def __len__(self) -> int:
        return len(self._lanes)

    def take(self, source: Source, mark: int, running: int) -> int:
        """A row of ``source`` gives this watermark: the table's."""
        self.at, self.changed = running, True
        if mark > self.newest:
            self.newest = mark
        latest = self._latest
        if latest is None or latest.source != source:
            latest = self._touch(source, mark, running)
        if latest is not None:
            latest.at, latest.changed = running, True
            if mark - running > latest.base:
                latest.base = mark - running
        return mark if mark == self.newest and len(self._lanes) == 1 else self.least(running)

    def _touch(self, source: Source, mark: int, running: int) -> _Lane | None:
        """The lane of a source, which comes last now; None when it is too far behind to have one."""
        input, host = source
        source = input, host[:MAX_HOST]
        lane = self._lanes.pop(source, None)
        if lane is None:
            if mark < self.newest - MAX_SKEW:
                return None
            if len(self._lanes) >= self.limit:
                self._leave_out(next(iter(self._lanes.values())))
            lane = _Lane(source, mark - running, running)
            self._push(lane)
            self._gone.pop(source, None)
        self._lanes[source] = self._latest = lane
        return lane

    def _push(self, lane: _Lane) -> None:
        self._number += 1
        heappush(self._heap, (lane.base, self._number, lane))

    def _leave_out(self, lane: _Lane) -> None:
        self._lanes.pop(lane.source)
        self._gone[lane.source] = None
        self.changed = True
        if lane is self._latest:
            self._latest = None
        if len(self._heap) > 2 * len(self._lanes) + MIN_LANES:
            self._heap = [entry for entry in self._heap if self._lanes.get(entry[2].source) is entry[2]]
            heapify(self._heap)

    def least(self, running: int) -> int:
        """The table's watermark, when so much has gone by."""
        furthest, active = self.newest - MAX_SKEW - running, running - IDLE
        while self._heap:
            base, number, lane = self._heap[0]
            if self._lanes.get(lane.source) is not lane:
                heappop(self._heap)
            elif lane.base != base:
                heapreplace(self._heap, (lane.base, number, lane))
            elif base < furthest or lane.at < active:
                heappop(self._heap)
                self._leave_out(lane)
            else:
                return min(self.newest, (base + running) // MILLISECOND * MILLISECOND)
        return self.newest

    # --- state

    def delta(self) -> list[Any]:
        """Return what changed since the last call, for msgpack."""
        changed: list[_Lane] = []
        for lane in reversed(self._lanes.values()):
            if not lane.changed:
                break  # those before it have had no row since
            lane.changed = False
            changed.append(lane)
        gone, self._gone = list(self._gone), {}
        self._latest, self.changed = None, False
        return [self.newest, self.at, [[*lane.source, lane.base, lane.at] for lane in reversed(changed)], gone]

    def restore(self, data: Iterable[Any]) -> None:
        """Take over one ``delta``, in the order in which they were made."""
        self.newest, self.at, lanes, gone = data
        for input, host in gone:
            self._lanes.pop((input, host), None)
        for input, host, base, at in lanes:
            self._lanes.pop((input, host), None)
            lane = self._lanes[input, host] = _Lane((input, host), base, at)
            lane.changed = False
            self._push(lane)
        self._latest, self._gone, self.changed = None, {}, False

    def touch(self) -> None:
        """The next ``delta`` holds everything."""
        self.changed = self.newest != NEVER
        for lane in self._lanes.values():
            lane.changed = True
