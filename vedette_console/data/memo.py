"""Answers that are dear and asked often, kept while the tables they come from stay as they are.

``Memo.get`` gives the newest answer that it has, at once: one thread makes a new one where the tables have moved, and
whoever asks meanwhile gets the one before. Only the first ever waits.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, TypeVar

Answer = TypeVar("Answer")

MOST = 128
"""Answers kept; the one not asked for longest goes first."""


@dataclass(slots=True)
class _Entry:
    lock: Lock = field(default_factory=Lock)
    """Held while the answer is made."""
    has: bool = False
    answer: Any = None
    state: Hashable = None
    since: float = 0.0


class Memo:
    """Answers by key. Any thread may ask."""

    def __init__(self, most: int = MOST) -> None:
        self._lock = Lock()
        self._most = most
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()

    def get(
        self, key: Hashable, state: Hashable, make: Callable[[], Answer], *, least: float = 0.0, most: float = 60.0
    ) -> Answer:
        """The answer for ``key``. It is made anew when ``state`` (versions of tables, a day) is another, at the
        earliest after ``least`` seconds, or when it is older than ``most``; who asks then gets it, while others that
        ask meanwhile get the former one."""
        with self._lock:
            entry = self._entries.setdefault(key, _Entry())
            self._entries.move_to_end(key)
            while len(self._entries) > self._most:
                self._entries.popitem(last=False)
        age = time.monotonic() - entry.since
        if entry.has and (age < least or (entry.state == state and age < most)):
            answer: Answer = entry.answer
            return answer
        if not entry.lock.acquire(blocking=not entry.has):
            former: Answer = entry.answer
            return former
        try:
            if not entry.has or entry.state != state or time.monotonic() - entry.since >= most:
                entry.answer = make()
                entry.state = state
                entry.since = time.monotonic()
                entry.has = True
            newest: Answer = entry.answer
            return newest
        finally:
            entry.lock.release()
