"""Suppression: alerts of one rule about one entity, folded into the first.

The first alert of a (rule, values of ``by``) leaves at once and opens a window of event time. Further ones with a time
up to its end are counted, not sent. When the watermark of the first alert's lane (``clock.py``) passes the end, or an
alert beyond it comes, the window closes, and what was counted leaves as one ``Fold``. An alert whose time lies more
than the window's length before its beginning is not folded into it and opens none.

At most ``max_windows`` are open; beyond, the one longest without an alert is closed early: its fold leaves at once.
Nothing that was counted is lost. A window is found by all of its values, and keeps ``MAX_TEXT`` characters of each, and
of the host: a sender may write longer ones. Times are UTC microseconds.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import msgpack

from vedette.plan.ir import Suppress
from vedette.state.clock import Clock

MAX_WINDOWS = 100_000
MAX_TEXT = 1024


@dataclass(frozen=True, slots=True)
class Source:
    """Facts that a fold record says of its alerts beside their count: texts of the rule, and of the newest event's
    origin."""

    rule_id: str
    title: str
    digest: str
    level: str
    tags: tuple[str, ...]
    logsource: tuple[str, str, str]
    input: str
    host: str | None
    received_at: int
    offset: int
    length: int

    def to_row(self) -> list[Any]:
        return [getattr(self, name) for name in self.__slots__]

    @classmethod
    def from_row(cls, row: list[Any]) -> Source:
        rule_id, title, digest, level, tags, logsource, *rest = row
        product, category, service = logsource
        return cls(rule_id, title, digest, level, tuple(tags), (product, category, service), *rest)


@dataclass(frozen=True, slots=True)
class Fold:
    """``count`` further alerts, between ``first_time`` and ``last_time``, of the alert ``parent_id``."""

    parent_id: str
    values: dict[str, str]
    count: int
    first_time: int
    last_time: int
    source: Source


class _Open:
    """One window; a row of msgpack is its slots in order."""

    __slots__ = ("count", "first", "last", "newest", "number", "opened", "parent_id", "until", "values")

    def __init__(
        self, number: int, parent_id: str, values: dict[str, str], opened: int, until: int, newest: Source
    ) -> None:
        self.number, self.parent_id, self.values, self.opened, self.until = number, parent_id, values, opened, until
        self.newest = newest
        self.count = self.first = self.last = 0


class Suppressor:
    """Windows of suppression."""

    def __init__(self, clock: Clock, max_windows: int = MAX_WINDOWS) -> None:
        self._clock, self.max_windows = clock, max_windows
        self.folded = self.closed_early = 0
        self._open: OrderedDict[bytes, _Open] = OrderedDict()
        self._due: dict[int, list[tuple[int, bytes]]] = {}
        """By lane a heap of (end, key)."""
        self._changed: dict[bytes, bool] = {}
        self._closed: list[Fold] = []

    def __len__(self) -> int:
        """Windows that are open."""
        return len(self._open)

    def take(
        self, rule: Suppress, values: dict[str, str], time: int, number: int, alert_id: str, source: Source
    ) -> bool:
        """True when an alert is to be sent, False when it was folded. ``number``: its lane."""
        key = bytes(msgpack.packb([source.rule_id, *sorted(values.items())]))
        if len(key) > MAX_TEXT:
            key = blake2b(key, digest_size=32).digest()
            values = {name: text[:MAX_TEXT] for name, text in values.items()}
        if source.host is not None and len(source.host) > MAX_TEXT:
            source = replace(source, host=source.host[:MAX_TEXT])
        span = int(rule.seconds * 1_000_000)
        window = self._open.get(key)
        if window is not None and time > window.until:
            self._close(key)
            window = None
        if window is not None and time < window.opened - span:
            return True
        opens = window is None
        if window is None:
            window = self._open[key] = _Open(number, alert_id, values, time, time + span, source)
            heapq.heappush(self._due.setdefault(number, []), (window.until, key))
        else:
            window.first = min(window.first, time) if window.count else time
            window.last = max(window.last, time) if window.count else time
            window.count += 1
            window.newest = source
            self.folded += 1
            self._open.move_to_end(key)
        self._changed.pop(key, None)
        self._changed[key] = True
        while len(self._open) > self.max_windows:
            self.closed_early += 1
            self._close(next(iter(self._open)))
        return opens

    def advance(self) -> None:
        """The clock was advanced: close what is over."""
        for number, heap in list(self._due.items()):
            mark = self._clock.watermark(number)
            while heap and heap[0][0] < mark:
                until, key = heapq.heappop(heap)
                if (window := self._open.get(key)) is not None and window.until == until:
                    self._close(key)
            if not heap:
                del self._due[number]

    def closed(self) -> list[Fold]:
        """The folds to send since the last call."""
        closed, self._closed = self._closed, []
        return closed

    def _close(self, key: bytes) -> None:
        window = self._open.pop(key)
        if window.count:
            self._closed.append(
                Fold(window.parent_id, window.values, window.count, window.first, window.last, window.newest)
            )
        self._changed.pop(key, None)
        self._changed[key] = False

    # --- state

    @property
    def changed(self) -> bool:
        """True when a window has changed since the last ``delta``."""
        return bool(self._changed)

    def touch(self) -> None:
        """The next ``delta`` holds all of it."""
        gone = {key: False for key, here in self._changed.items() if not here}
        self._changed = gone | dict.fromkeys(self._open, True)

    def delta(self) -> list[Any]:
        """Return what changed since the last ``delta``, for msgpack."""
        changed, self._changed = self._changed, {}
        return [
            self.folded,
            self.closed_early,
            [[key, self._row(key) if here else None] for key, here in changed.items()],
        ]

    def restore(self, data: list[Any]) -> None:
        """Take over one ``delta``, in the order in which they were made."""
        self.folded, self.closed_early, rows = data
        for key, row in rows:
            self._open.pop(key, None)
            if row is not None:
                number, parent_id, values, opened, until, count, first, last, newest = row
                window = self._open[key] = _Open(number, parent_id, values, opened, until, Source.from_row(newest))
                window.count, window.first, window.last = count, first, last
                heapq.heappush(self._due.setdefault(number, []), (until, key))
        self._changed = {}

    def _row(self, key: bytes) -> list[Any]:
        window = self._open[key]
        return [
            window.number, window.parent_id, window.values, window.opened, window.until, window.count, window.first,
            window.last, window.newest.to_row(),
        ]  # fmt: skip
