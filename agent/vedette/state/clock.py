"""Event time: how far each host has come, by what it says and by when that was received.

A **source** is an (input, host). Whoever sends chooses both a line's time and its host, so no line makes another one
late. A source has **lanes**: runs of events whose times go on from each other. An event belongs to the lane that its
time fits; when there is none, it begins one. Every event has a lane, so correlations take every event.

* A lane's **time** is the newest that its events have given; between them it goes on with the receipts, also with
  those of others. A gap between two receipts counts for ``MAX_GAP`` at most: while the agent was down, nobody was
  silent. So a clock that runs ahead or behind stays so by as much.
* A lane's **watermark** is its time or the newest receipt, whichever is earlier, less ``lateness``. No event of the
  lane comes before it; groups wait, and forget, by the watermarks of the lanes that they have events of.
* An event **fits** from the watermark on up to ``lead`` after the lane's time, ``lead`` being the lateness, but
  ``MIN_LEAD`` at least. So one line moves a lane by no more than an event out of order may lie behind it.
* Of a source, ``LANES`` lanes take events. When another begins, the one longest without an event is **retired**: it
  takes none, but goes on with the receipts as a silent one does.
* A group does not wait for a lane that lies more than ``MAX_SKEW`` behind its furthest and has been silent for
  ``MAX_SKEW`` of receipts (``slowest``).
* A lane that begins beside others **jumps** when its time lies before their watermarks, or more than ``lead`` after
  its receipt. Jumps are counted and flagged.
* An event time more than ``MAX_SKEW`` after the event's receipt is set to the receipt (``model/times.py``).
* Everything is a function of the calls: no clock is read. ``delta`` and ``load`` carry it over a restart.
* At most ``MAX_LANES`` are kept: the one retired first goes, then the source longest without an event.

All times are UTC microseconds.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from vedette.model.event import MAX_HOST
from vedette.model.times import MAX_SKEW

CHECK_EVERY = 1_000_000
"""Microseconds of receipts between two looks at silent sources, and at groups and folds that have expired."""

MAX_GAP = 5_000_000
MIN_LEAD = 1_000_000
LANES = 8
MAX_LANES = 65_536
FOREVER = 1 << 62


class Clock:
    """Lanes and their watermarks."""

    def __init__(self, lateness: int) -> None:
        """``lateness`` in microseconds."""
        self.lateness = lateness
        self.lead = max(lateness, MIN_LEAD)
        self.received_at = 0
        """0: none is known, so watermarks go by the lanes' times alone."""
        self.running = 0
        """Microseconds of receipts gone by, without long gaps."""
        self.jumps = 0
        self._sources: OrderedDict[tuple[str, str], list[int]] = OrderedDict()
        """The lanes of each that take events; the last touched last, in both."""
        self._state: dict[int, tuple[int, int]] = {}
        """By lane: its time less ``running``; ``running`` at its last event."""
        self._retired: dict[int, None] = {}
        """The first retired first."""
        self._next = 1
        self._changed: dict[tuple[str, str], None] = {}
        self._retiring: list[int] = []
        """Lanes retired since the last ``delta``."""
        self._latest: tuple[str, str] | None = None
        """The source touched last, unless it was written or has gone since."""

    def __len__(self) -> int:
        """Sources."""
        return len(self._sources)

    @property
    def changed(self) -> bool:
        """True when a source has changed since the last ``delta``."""
        return bool(self._changed)

    def advance(self, received_at: int) -> None:
        """Something was received at ``received_at``, or nothing was until then."""
        gap = received_at - self.received_at
        if gap > 0:
            self.running += min(gap, MAX_GAP) if self.received_at else 0
            self.received_at = received_at
        elif gap < -MAX_SKEW:  # the agent's own clock was ahead and has been set: no watermark lies beyond it now
            self.received_at = received_at

    def observe(self, input: str, host: str, time: int) -> tuple[int, bool]:
        """An event of this source at ``time``: the number of its lane, and whether it jumps."""
        key = (input, host[:MAX_HOST])
        if key != self._latest:  # lines come in batches
            self._touch(key)
        lanes, running = self._sources[key], self.running
        if len(lanes) == 1:
            number = lanes[0]
            base = self._state[number][0]
            now = base + running
            edge = now if now < self.received_at or not self.received_at else self.received_at
            if edge - self.lateness <= time <= now + self.lead:
                self._state[number] = (base if time <= now else time - running, running)
                return number, False
        fits = [n for n in lanes if self.mark(n) <= time <= self._state[n][0] + running + self.lead]
        if fits:
            number = min(fits, key=lambda n: abs(self._state[n][0] + running - time))
            lanes.remove(number)
            lanes.append(number)
            self.move(number, time)
            return number, False
        jumps = bool(lanes) and (time > self.received_at + self.lead or time < max(map(self.mark, lanes)))
        self.jumps += jumps
        return self._begin(lanes, time), jumps

    def _touch(self, key: tuple[str, str]) -> None:
        if key in self._sources:
            self._sources.move_to_end(key)
        else:
            self._sources[key] = []
        self._changed.pop(key, None)
        self._changed[key] = None
        self._latest = key

    def _begin(self, lanes: list[int], time: int) -> int:
        number, self._next = self._next, self._next + 1
        self._state[number] = (time - self.running, self.running)
        lanes.append(number)
        if len(lanes) > LANES:
            self._retired[lanes[0]] = None
            self._retiring.append(lanes.pop(0))
        while len(self._state) > MAX_LANES:
            if self._retired:
                self._drop_retired()
            else:
                gone, numbers = self._sources.popitem(last=False)
                self._changed[gone] = None
                for lane in numbers:
                    del self._state[lane]
        return number

    def _drop_retired(self) -> None:
        first = next(iter(self._retired))
        del self._retired[first], self._state[first]

    def move(self, lane: int, time: int) -> None:
        """An event of ``lane`` at ``time``. Of lanes that no ``observe`` gave, too: for events in order."""
        base = time - self.running
        state = self._state.get(lane)
        self._state[lane] = (base if state is None or base > state[0] else state[0], self.running)

    def lane(self, input: str, host: str, time: int) -> int:
        """The lane that an event of before has most likely been of; 0: none that is known."""
        lanes = self._sources.get((input, host[:MAX_HOST]), ())
        return min(lanes, key=lambda n: abs(self._state[n][0] + self.running - time), default=0)

    def mark(self, lane: int) -> int:
        """The watermark of a lane that is known."""
        now = self._state[lane][0] + self.running
        return (now if now < self.received_at or not self.received_at else self.received_at) - self.lateness

    def newest_mark(self) -> int:
        """No watermark is later than this."""
        return self.received_at - self.lateness if self.received_at else FOREVER

    def watermark(self, lane: int) -> int:
        """No event of ``lane`` comes before this time any more; none at all when it is not known (any more)."""
        return self.mark(lane) if lane in self._state else FOREVER

    def reached(self, lane: int) -> int:
        """The watermark of any lane; one that is not known (any more) comes before all others."""
        return self.mark(lane) if lane in self._state else -FOREVER

    def slowest(self, lanes: Iterable[int]) -> tuple[int, int]:
        """The least watermark of the lanes that a group waits for, and whose it is; ``(FOREVER, 0)``: of none."""
        marks = [(self.mark(lane), lane) for lane in lanes if lane in self._state]
        if len(marks) < 2:
            return marks[0] if marks else (FOREVER, 0)
        near, active = max(marks)[0] - MAX_SKEW, self.running - MAX_SKEW
        return min(mark for mark in marks if mark[0] >= near or self._state[mark[1]][1] >= active)

    def taking(self, lane: int) -> bool:
        """True when events may still be of this lane."""
        return lane in self._state and lane not in self._retired

    def touch(self) -> None:
        """The next ``delta`` holds all of it."""
        gone = {key: None for key in self._changed if key not in self._sources}
        self._changed, self._retiring = gone | dict.fromkeys(self._sources), list(self._retired)

    def delta(self) -> list[Any]:
        """Return what changed since the last call, for msgpack."""
        changed, retired, self._changed, self._retiring = self._changed, self._retiring, {}, []
        self._latest = None
        head = [self.received_at, self.running, self._next, self.jumps, len(self._retired)]
        sources = [[*key, [[n, *self._state[n]] for n in self._sources.get(key, ())]] for key in changed]
        return [head, sources, [[n, *self._state[n]] for n in retired if n in self._retired]]

    def load(self, data: list[Any]) -> None:
        """Take over what ``delta`` gave, in its order."""
        (self.received_at, self.running, self._next, self.jumps, retired_count), sources, retired = data
        self._latest = None
        for input, host, lanes in sources:
            for number in self._sources.pop((input, host), ()):
                del self._state[number]
            if lanes:
                self._sources[input, host] = [number for number, _, _ in lanes]
                self._state.update({number: (base, at) for number, base, at in lanes})
        for number, base, at in retired:
            self._retired[number] = None
            self._state[number] = (base, at)
        while len(self._retired) > retired_count:
            self._drop_retired()
