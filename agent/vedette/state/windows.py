"""The events of one group, in the order of their times.

Entries (``entries.py``) of one time lie by their offsets, those of one event in the order in which they came. What
correlations above want to know stands beside, index by index, where needed.

``compact`` forgets what can no longer matter, given that no event before ``settled`` comes any more: all that lies
before the last window that may still change (``extent.py``); and of a prompt correlation, before ``settled``, all but
the entries that matter (``mattering``): the newest that decide, as many as ``least`` asks for, one of each value or
slot, or (ordered) those that a chain can use; and those that an alert names. An alert is made of these alone, whether
the others have been forgotten or not: when that happens depends on when events were received, and so on whether the
agent was killed.
``thin`` keeps those of every ``THIN``, which says the same of each window that does not end within one.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Sequence
from itertools import islice
from typing import Any

from vedette.plan.aggregates import Keeps, Reads
from vedette.plan.relation import Correlation
from vedette.state.chains import Links, usable
from vedette.state.entries import HELD, Entries
from vedette.state.slides import MIN_SLIDE, Slide

ENTRY_BYTES = 26
"""With what an array has allocated beyond."""
WINDOW_BYTES = 430
"""What a window without entries takes, with its key and its places in the tables."""
LIST_BYTES = 96
"""What ``values`` and ``carried`` take each beside what is in them."""
WAIT_BYTES = 200
"""What a window takes that is decided later: its places among those that wait."""

MIN_LIMIT = 16
"""Entries below which a window is not compacted."""
_ENTRY = struct.Struct("=qqq")
LANES = 256
"""Lanes of a window; of more, those whose last event in it is longest ago go, but not the one furthest ahead: how long
the window waits for the others is counted from it."""
LANES_BYTES, LANE_BYTES = 112, 80
"""What they take when there are several, and each of them."""
LATE_BYTES = 120
"""What a time in ``Window.late`` takes."""
START_BYTES = 40
"""What a session's start takes; their list takes ``STARTS_BYTES``."""
STARTS_BYTES = 64
MAX_LATE = 1024
"""Times in ``Window.late``; beyond, the first is decided at once."""
THIN = 1_000_000
"""Microseconds."""
STEP = 4096
"""Entries that compaction takes from the front at once."""
MAX_CONTRIBUTING = 20
"""Events that an alert names."""


class Window(Entries):
    """The entries of one group, and what is decided of them."""

    __slots__ = (
        "carried",
        "clean",
        "decided",
        "gone",
        "hint",
        "late",
        "limit",
        "links",
        "share",
        "size",
        "slides",
        "sources",
        "starts",
    )

    def __init__(self, key_bytes: int = 0, share: int = 0) -> None:
        """``share``: bytes that slides take for each entry beyond ``MIN_SLIDE``."""
        super().__init__()
        self.size = WINDOW_BYTES + key_bytes
        """Bytes of memory, about."""
        self.share = share
        self.carried: list[tuple[Any, ...]] | None = None
        self.sources: Collection[int] = ()
        """The lanes (``clock.py``) of its events, ``LANES`` at most: a shared tuple of one, or a dict (``join``)."""
        self.decided: int | None = None
        """Of a correlation that is not prompt: matches up to this time are decided, but for those in ``late``."""
        self.late: list[tuple[int, int]] = []
        """Ascending: times up to ``decided`` at which matches came since, and the lane of the first of each."""
        self.starts: list[int] | tuple[()] = ()
        """Of sessions (``extent.py``): when those of these entries begin, ascending."""
        self.limit = MIN_LIMIT
        """Entries at which to compact."""
        self.slides: list[Slide] | None = None
        self.links: Links | None = None
        self.hint = 0
        """Where ``since`` has ended last."""
        self.clean = self.gone = 0
        """Since the last ``row``: how many of the first entries are as they were, and how many before them went."""

    def _cost(self, start: int = 0) -> int:
        """Bytes of the entries from ``start`` on."""
        n = len(self)
        shared = max(0, n - MIN_SLIDE) - max(0, start - MIN_SLIDE)
        lists = LIST_BYTES * ((self.values is not None) + (self.carried is not None))
        stored = _sum(self.values, start) + _sum(self.carried, start)
        return ENTRY_BYTES * (n - start) + self.share * shared + lists + stored

    @property
    def touched(self) -> int:
        """The greatest offset of its last entries; 0 when it is empty."""
        return max(self.entries[max(1, len(self.entries) - 191) :: 3], default=0)

    def hold(self, i: int, last: int = -1, holds: bool = True) -> None:
        """Mark entry ``i``, or the entries ``i`` to ``last``; or take the mark from them."""
        if i < self.clean:
            self.clean = i
        for number in range(i, max(i, last) + 1):
            if holds:
                self.entries[3 * number + 2] |= HELD
            else:
                self.entries[3 * number + 2] &= ~HELD

    def begins(self, i: int) -> int:
        """The first entry of the event that entry ``i`` is of: one event may match several rules."""
        time, offset, entries = self.entries[3 * i], self.entries[3 * i + 1], self.entries
        while i and entries[3 * i - 2] == offset and entries[3 * i - 3] == time:
            i -= 1
        return i

    def ends(self, i: int) -> int:
        """The last entry of that event."""
        time, offset, entries = self.entries[3 * i], self.entries[3 * i + 1], self.entries
        while 3 * i + 3 < len(entries) and entries[3 * i + 4] == offset and entries[3 * i + 3] == time:
            i += 1
        return i

    def first(self, time: int) -> int:
        """The index of the first entry not before ``time``."""
        entries, low, high = self.entries, 0, len(self.entries) // 3
        while low < high:
            middle = (low + high) // 2
            if entries[3 * middle] < time:
                low = middle + 1
            else:
                high = middle
        return low

    def after(self, time: int, offset: int) -> int:
        """The index of the first entry after those of this event."""
        entries, low, high = self.entries, 0, len(self.entries) // 3
        while low < high:
            middle = (low + high) // 2
            if entries[3 * middle] < time or (entries[3 * middle] == time and entries[3 * middle + 1] <= offset):
                low = middle + 1
            else:
                high = middle
        return low

    def since(self, time: int) -> int:
        """The same, quick when it is near to where it was asked for last."""
        entries, n = self.entries, len(self.entries)
        i = 3 * self.hint
        if i > n or (i and entries[i - 3] >= time):
            i = 3 * self.first(time)
        else:
            near = i + 24
            while i < n and entries[i] < time:
                i += 3
                if i > near:
                    i = 3 * self.first(time)
                    break
        self.hint = i // 3
        return self.hint

    def insert(self, time: int, offset: int, mark: int, value: Any, carried: tuple[Any, ...] | None) -> int:
        """Put an entry in its place; returns its index."""
        entries, values, rows = self.entries, self.values, self.carried
        n = len(entries)
        self.size += ENTRY_BYTES if n < 3 * MIN_SLIDE else ENTRY_BYTES + self.share
        if value is not None:
            self.size += 64 + len(value) if type(value) is str else _bytes(value)
            if values is None:
                values = self.values = [None] * (n // 3)
                self.clean = 0
                self.size += LIST_BYTES
        if carried is not None:
            self.size += _bytes(carried)
            if rows is None:
                rows = self.carried = [()] * (n // 3)
                self.clean = 0
                self.size += LIST_BYTES + _bytes(()) * (n // 3)
        if not n or time > entries[n - 3] or (time == entries[n - 3] and offset >= entries[n - 2]):
            entries.frombytes(_ENTRY.pack(time, offset, mark))
            if values is not None:
                values.append(value)
            if rows is not None:
                rows.append(carried or ())
            return n // 3
        i = self.after(time, offset)
        entries[3 * i : 3 * i] = array("q", (time, offset, mark))
        if values is not None:
            values.insert(i, value)
        if rows is not None:
            rows.insert(i, carried or ())
        self.clean = min(self.clean, i)
        for slide in self.slides or ():
            slide.inserted(self, i)
        if self.links is not None:
            self.links.inserted(self, i)
        return i

    def has(self, time: int, offset: int, value: Any, slots: tuple[int, ...]) -> bool:
        """True when an entry of one of ``slots`` is this very event with this value."""
        i = self.after(time, offset) - 1
        while i >= 0 and self.offset(i) == offset and self.time(i) == time:
            if self.slot(i) in slots and (None if self.values is None else self.values[i]) == value:
                return True
            i -= 1
        return False

    def join(self, lanes: Collection[int], mark: Callable[[int], int] | None = None) -> None:
        """An event of these lanes has come: as much work as there are of them. ``mark``: a lane's watermark."""
        own = self.sources
        if not isinstance(own, dict):
            if len(own) == len(lanes) == 1 and own == lanes:
                return
            if not own and isinstance(lanes, tuple) and len(lanes) == 1:
                self.sources = lanes
                return
            own = self.sources = dict.fromkeys(own)
            self.size += LANES_BYTES + LANE_BYTES * len(own)
        before = len(own)
        for lane in lanes:
            own.pop(lane, None)
            own[lane] = None
        while len(own) > LANES:
            first, second = islice(own, 2)  # the furthest is never the one to go: it goes by comparison alone
            del own[second if mark and mark(first) > mark(second) else first]
        self.size += LANE_BYTES * (len(own) - before)

    def part(self, taking: Callable[[int], bool]) -> None:
        """Forget those of several lanes that take no events any more; one stays."""
        own = self.sources
        if isinstance(own, dict):
            for lane in [lane for lane in own if not taking(lane)][: len(own) - 1]:
                del own[lane]
                self.size -= LANE_BYTES
            if len(own) == 1:
                self.sources = tuple(own)
                self.size -= LANES_BYTES + LANE_BYTES

    def wait(self, time: int, lane: int) -> bool:
        """Put ``time`` among those of ``late``; False when it is there."""
        i = bisect_left(self.late, (time, 0))
        if i < len(self.late) and self.late[i][0] == time:
            return False
        self.late.insert(i, (time, lane))
        self.size += LATE_BYTES
        return True

    def waited(self, time: int) -> bool:
        """Take ``time`` from ``late``; False when it is not there."""
        i = bisect_left(self.late, (time, 0))
        if i == len(self.late) or self.late[i][0] != time:
            return False
        del self.late[i]
        self.size -= LATE_BYTES
        return True

    def start(self, k: int, time: int | None) -> None:
        """A session begins at ``time``, the ``k``-th; None: that one begins no more."""
        self._put_starts([*self.starts[:k], *(() if time is None else (time,)), *self.starts[k + (time is None) :]])
        if self.links is not None:
            self.links.reset()

    def _put_starts(self, starts: list[int]) -> None:
        for beginnings, sign in ((self.starts, -1), (starts, 1)):
            self.size += sign * (STARTS_BYTES + START_BYTES * len(beginnings)) if beginnings else 0
        self.starts = starts or ()

    def _forget_starts(self) -> None:
        """Forget the starts of sessions without entries, at the front."""
        if starts := self.starts:
            gone = bisect_right(starts, self.time(0)) - 1 if self.entries else len(starts)
            if gone > 0:
                self._put_starts([*starts[gone:]])

    def keep(self, indexes: list[int]) -> None:
        """Forget all entries but those at ``indexes``, ascending."""
        base = self.size - self._cost()
        entries, left = self.entries, array("q")
        for i in indexes:
            left.extend(entries[3 * i : 3 * i + 3])
        self.entries = left
        if self.values is not None:
            self.values = [self.values[i] for i in indexes]
        if self.carried is not None:
            self.carried = [self.carried[i] for i in indexes]
        self.slides = self.links = None
        self.clean = self.gone = 0
        self.size = base + self._cost()
        self._forget_starts()

    def compact(self, c: Correlation, settled: int, needed: int) -> None:
        """Forget what can no longer matter. At most ``STEP`` entries go from the front at once. ``needed``: the time
        before which no entry matters."""
        old = self.first(needed)
        self.drop(min(old, STEP))
        n = len(self)
        until = self.first(settled)
        if c.prompt and self.carried is None and until > 1 and c.kind.row.keeps is not Keeps.ALL:
            indexes = self.mattering(c, 0, until)
            if len(indexes) < until:
                if indexes[0] == until - len(indexes):
                    self.drop(until - len(indexes))
                else:
                    self.keep([*indexes, *range(until, n)])
        self.limit = len(self) + 1 if old > STEP else max(MIN_LIMIT, 2 * len(self))

    def thin(self, c: Correlation, settled: int) -> None:
        """Keep of every ``THIN`` the entries that decide. Of a prompt correlation that is compacted, from ``settled``
        on."""
        i = self.first(settled)
        indexes = list(range(i))
        while i < len(self):
            stop = self.first(self.time(i) // THIN * THIN + THIN)
            indexes += self.mattering(c, i, stop)
            i = stop
        if len(indexes) < len(self):
            self.keep(indexes)
        self.limit = max(MIN_LIMIT, 2 * len(self))

    def mattering(self, c: Correlation, start: int, until: int) -> Sequence[int]:
        """Return those of the entries ``start`` to ``until`` (exclusive) that can decide a prompt correlation, and
        those that an alert names: the newest of each slot, and the newest; ascending. The same whatever ``compact`` has
        taken."""
        keeps = c.kind.row.keeps
        if keeps is Keeps.NEWEST and c.prompt:  # there are no more when it fires
            return self._deciding(c, start, until)
        if until - start <= MAX_CONTRIBUTING or not c.prompt or keeps is Keeps.ALL:
            return range(start, until)
        named = {slot: i for i, slot in enumerate(self.slots(start, until), start)} if len(c.slots) > 1 else {}
        newest = range(until - MAX_CONTRIBUTING, until)
        return sorted({*self._deciding(c, start, until), *named.values(), *newest})

    def _deciding(self, c: Correlation, start: int, until: int) -> list[int]:
        """Return those of the entries ``start`` to ``until`` (exclusive) that can still decide (``Keeps``),
        ascending."""
        row = c.kind.row
        match row.keeps:
            case Keeps.NEWEST:
                return list(range(max(start, until - max(c.least, 1)), until))
            case Keeps.CHAIN:
                return usable(c, self, start, until)
        values = self.values or ()
        things = self.slots(start, until) if row.reads is Reads.RULE else values[start:until]
        newest = {thing: i for i, thing in enumerate(things, start)}
        newest.pop(None, None)
        return sorted({*newest.values(), until - 1})  # the newest of all: what comes goes on from it

    def drop(self, n: int) -> None:
        """Forget the first ``n`` entries."""
        if n:
            for slide in self.slides or ():
                slide.dropping(self, n)
            if self.links is not None:
                self.links.dropping(self, n)
            before = len(self)
            del self.entries[: 3 * n]
            self.size -= ENTRY_BYTES * n + self.share * (max(0, before - MIN_SLIDE) - max(0, before - n - MIN_SLIDE))
            if self.values is not None:
                self.size -= _sum(self.values, 0, n)
                del self.values[:n]
            if self.carried is not None:
                self.size -= _sum(self.carried, 0, n)
                del self.carried[:n]
            self.gone += n
            self.clean = max(0, self.clean - n)
            self.hint = max(0, self.hint - n)
            self._forget_starts()

    def recarry(self, before: tuple[str, ...], now: tuple[str, ...]) -> None:
        """Change what is carried: what correlations above want to know is no longer ``before`` but ``now``; what was
        not kept is not known."""
        if before == now:
            return
        base = self.size - self._cost()
        rows = self.carried or [()] * len(self)
        self.carried = [tuple(dict(zip(before, row, strict=False)).get(name) for name in now) for row in rows]
        if not now:
            self.carried = None
        self.clean = 0
        self.size = base + self._cost()

    def row(self) -> list[Any]:
        """Return what has changed since the last ``row``, for msgpack; ``apply`` takes it over."""
        clean, gone = self.clean, self.gone if self.clean else 0
        self.clean, self.gone = len(self), 0
        values = None if self.values is None else self.values[clean:]
        carried = None if self.carried is None else self.carried[clean:]
        entries = self.entries[3 * clean :].tobytes()
        row = [gone, clean, entries, values, carried, [*self.sources], self.decided, self.limit, self.late]
        return [*row, self.starts] if self.starts else row

    def apply(self, row: list[Any]) -> None:
        """Take over what ``row`` gave of a window that was like this one: as much work as the row is long.

        Raises ValueError or TypeError when it cannot be read.
        """
        gone, clean, entries, values, carried, sources, decided, limit, late, *more = row
        if gone + clean > len(self):
            raise ValueError("a part of a window is missing")
        self.drop(gone if clean else len(self))
        self.size -= self._cost(clean)
        del self.entries[3 * clean :]
        self.entries.frombytes(entries)
        if not clean:
            self.values = None if values is None else []
            self.carried = None if carried is None else []
        if self.values is not None:
            self.values[clean:] = [tuple(v) if isinstance(v, list) else v for v in values]
        if self.carried is not None:
            self.carried[clean:] = [tuple(v) for v in carried]
        self.size += self._cost(clean)
        self.size -= LANES_BYTES + LANE_BYTES * len(self.sources) if isinstance(self.sources, dict) else 0
        self.sources = ()
        if sources:
            self.join(tuple(sources))
        self.decided, self.limit = decided, limit
        self.size += LATE_BYTES * (len(late) - len(self.late))
        self.late = [(time, lane) for time, lane in late]
        self._put_starts([int(time) for time in more[0]] if more else [])
        self.slides = self.links = None
        self.clean, self.gone, self.hint = len(self), 0, 0


def _bytes(value: Any) -> int:
    """Bytes of memory, about, that a value or a row of values takes besides its entry."""
    if value is None:
        return 0
    if isinstance(value, str):
        return 64 + len(value)
    return 64 + sum(map(_bytes, value)) if isinstance(value, tuple) else 40


def _sum(values: list[Any] | None, start: int = 0, stop: int | None = None) -> int:
    """Sum ``_bytes`` up."""
    return sum([64 + len(v) if type(v) is str else _bytes(v) for v in values[start:stop]]) if values else 0
