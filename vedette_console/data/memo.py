"""Answers that are dear and asked often, kept while the tables they come from stay as they are.

``Memo.get`` gives the newest answer that it has, at once: one thread makes a new one where the tables have moved, and
whoever asks meanwhile gets the one before. Where there is none, ``BeingMade`` is raised: no thread waits for another.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Lock
from typing import Any, TypeVar

Answer = TypeVar("Answer")

MOST = 128
"""Answers kept; the one not asked for longest goes first."""


class BeingMade(Exception):
    """Another thread makes the first answer: ask again when ``over``, which has no result."""

    def __init__(self, over: Future[None]) -> None:
        super().__init__()
        self.over = over


@dataclass(slots=True)
class _Entry:
    making: Future[None] | None = None
    """While a thread makes the answer."""
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
        ask meanwhile get the former one. Raises BeingMade where there is no former one."""
        with self._lock:
            entry = self._entries.setdefault(key, _Entry())
            self._entries.move_to_end(key)
            while len(self._entries) > self._most:
                self._entries.popitem(last=False)
            age = time.monotonic() - entry.since
            fresh = age < least or (entry.state == state and age < most)
            if entry.has and (fresh or entry.making is not None):
                former: Answer = entry.answer
                return former
            if entry.making is not None:
                raise BeingMade(entry.making)
            making = entry.making = Future[None]()
        try:
            answer = make()
            with self._lock:
                entry.answer, entry.state, entry.since, entry.has = answer, state, time.monotonic(), True
            return answer
        finally:
            with self._lock:
                entry.making = None
            making.set_result(None)
