"""Event time: how far each source has come, and which events are too late.

A **source** is an (input, host). Its **watermark** is the time before which no more of its events are expected: the
newest event time seen, less ``lateness``. An event below it is late.

* An event time more than ``MAX_SKEW`` after the event's receipt is set to the receipt (``clamp``): a device that
  believes to be in 2099 does not carry the watermark there.
* A source that is silent comes along with the receipts of others: each microsecond of theirs moves its event time by
  one. So a clock that runs behind stays behind by as much, and its next event is not late because of others. A gap
  between two receipts counts for ``MAX_GAP`` at most: while the agent was down, nobody was silent.
* A receipt more than ``MAX_SKEW`` before the last says that the agent's own clock was ahead and has been set. No event
  can be of a time beyond it now: sources that are come back to the receipt. Nothing else takes a watermark back.
* Everything is a function of the calls: no clock is read. ``dump`` and ``load`` carry it over a restart.
* At most ``MAX_SOURCES`` are kept; the one longest without an event goes, and begins anew when it comes back.

All times are UTC microseconds.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

MAX_SKEW = 300_000_000
MAX_GAP = 5_000_000
MAX_SOURCES = 65_536


def clamp(event_time: int | None, received_at: int) -> tuple[int, bool]:
    """The event time to go by, and whether it was set to the receipt because it lies too far after it."""
    if event_time is None:
        return received_at, False
    return (received_at, True) if event_time > received_at + MAX_SKEW else (event_time, False)


class Clock:
    """See the module's text."""

    def __init__(self, lateness: int) -> None:
        """``lateness`` in microseconds."""
        self.lateness = lateness
        self.received_at = 0
        self.running = 0
        """Microseconds of receipts gone by, without long gaps."""
        self._ids: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._state: dict[int, tuple[int, int, int]] = {}
        """By source: floor of the watermark, newest event's time, ``running`` at it."""
        self._next = 1
        self._changed: dict[tuple[str, str], None] = {}
        """The last touched last."""
        self._latest: tuple[tuple[str, str], int] | None = None
        """The source touched last and its number, unless it was written or has gone since."""

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def changed(self) -> bool:
        """True when a source has changed since the last ``dump`` or ``delta``."""
        return bool(self._changed)

    def advance(self, received_at: int) -> None:
        """Something was received at ``received_at``, or nothing was until then."""
        gap = received_at - self.received_at
        if gap > 0:
            self.running += min(gap, MAX_GAP) if self.received_at else 0
            self.received_at = received_at
        elif gap < -MAX_SKEW:
            self.received_at = received_at
            self._set_back()

    def _set_back(self) -> None:
        """Bring sources that no event could have taken to where they are back to the last receipt."""
        now = self.received_at
        for key, number in self._ids.items():
            floor, last, at = self._state.get(number, (now, now, self.running))
            if max(floor + self.lateness, last + self.running - at) > now + MAX_SKEW:
                self._state[number] = (now - self.lateness, now, self.running)
                self._changed[key] = self._latest = None

    def source(self, input: str, host: str) -> int:
        """The number of a source, the same as long as it is kept."""
        key = (input, host)
        if self._latest is not None and self._latest[0] == key:  # lines come in batches
            return self._latest[1]
        number = self._ids.get(key)
        if number is None:
            number = self._ids[key] = self._next
            self._next += 1
            if len(self._ids) > MAX_SOURCES:
                gone, old = self._ids.popitem(last=False)
                self._state.pop(old, None)
                self._changed[gone] = None
        else:
            self._ids.move_to_end(key)
        self._changed.pop(key, None)
        self._changed[key] = None
        self._latest = (key, number)
        return number

    def observe(self, source: int, time: int) -> bool:
        """An event of ``source`` at ``time``: False when it is late, and then it changes nothing."""
        known = self._state.get(source)
        if known is None:
            self._state[source] = (time - self.lateness, time, self.running)
            return True
        floor, last, at = known
        lateness, running = self.lateness, self.running
        mark = last + running - at - lateness
        if mark > floor:
            floor = mark
        if time < floor:
            return False
        mark = time - lateness
        self._state[source] = (mark if mark > floor else floor, time, running)
        return True

    def watermark(self, source: int) -> int | None:
        """No event of ``source`` before this time is taken any more; None: the source is not known (any more)."""
        known = self._state.get(source)
        if known is None:
            return None
        floor, last, at = known
        return max(floor, last + self.running - at - self.lateness)

    def dump(self) -> list[Any]:
        """All of it, for msgpack."""
        self._changed.clear()
        self._latest = None
        return [self.received_at, self.running, self._next, [self._row(key) for key in self._ids]]

    def delta(self) -> list[Any]:
        """What changed since the last ``dump`` or ``delta``, for msgpack."""
        changed, self._changed, self._latest = self._changed, {}, None
        return [self.received_at, self.running, self._next, [self._row(key) for key in changed]]

    def load(self, data: list[Any]) -> None:
        """Take over what ``dump`` or ``delta`` gave."""
        self.received_at, self.running, self._next, rows = data
        self._latest = None
        for input, host, number, *state in rows:
            if number:
                self._ids[input, host] = number
                self._ids.move_to_end((input, host))
                self._state[number] = (state[0], state[1], state[2])
            elif (gone := self._ids.pop((input, host), None)) is not None:
                self._state.pop(gone, None)

    def _row(self, key: tuple[str, str]) -> list[Any]:
        number = self._ids.get(key, 0)
        return [*key, number, *self._state.get(number, (0, 0, 0))]
