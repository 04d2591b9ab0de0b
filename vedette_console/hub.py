"""News to open pages: what is published reaches each subscriber of its topic, as far as they may see it.

A subscriber has the last ``BACKLOG`` messages; one that does not read loses the oldest and is sent ``missed``, upon
which a page loads itself again. Publishing never waits. Bounded: ``Limits.streams`` subscribers in all,
``streams_each`` of one user.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

from vedette_console.security.principal import Principal
from vedette_console.settings import Limits

BACKLOG = 64
TOPICS = ("now", "alerts", "fleet", "rollouts", "jobs")


class Full(Exception):
    """There are as many subscribers as may be."""


class Subscriber:
    """One open page: read ``messages`` in a loop."""

    def __init__(self, who: Principal, topics: frozenset[str]) -> None:
        self.who, self.topics = who, topics
        self._messages: deque[tuple[str, str]] = deque()
        self._missed = 0
        self._ready = asyncio.Event()
        self._over = False

    def put(self, topic: str, text: str) -> None:
        if len(self._messages) == BACKLOG:
            self._messages.popleft()
            self._missed += 1
        self._messages.append((topic, text))
        self._ready.set()

    def end(self) -> None:
        self._over = True
        self._ready.set()

    async def messages(self, pause: float) -> AsyncIterator[tuple[str, str] | None]:
        """Topic and JSON text of each message; None after each ``pause`` seconds without any. Ends with the hub."""
        while not self._over:
            try:
                await asyncio.wait_for(self._ready.wait(), pause)
            except TimeoutError:
                yield None
                continue
            if self._missed:
                missed, self._missed = self._missed, 0
                yield "missed", _json({"messages": missed})
            while self._messages:
                yield self._messages.popleft()
            if not self._over:
                self._ready.clear()


class Hub:
    """Lives in one event loop."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._subscribers: set[Subscriber] = set()
        self._each: Counter[str] = Counter()

    def close(self) -> None:
        """End all streams."""
        for subscriber in self._subscribers:
            subscriber.end()

    def __len__(self) -> int:
        return len(self._subscribers)

    def full(self, who: Principal) -> bool:
        """Whether there is no place for a further stream of this user."""
        return len(self) >= self._limits.streams or self._each[who.name] >= self._limits.streams_each

    @contextmanager
    def subscribe(self, who: Principal, topics: Collection[str]) -> Iterator[Subscriber]:
        """Raises Full."""
        if self.full(who):
            raise Full
        subscriber = Subscriber(who, frozenset(topics))
        self._subscribers.add(subscriber)
        self._each[who.name] += 1
        try:
            yield subscriber
        finally:
            self._subscribers.discard(subscriber)
            self._each[who.name] -= 1
            if not self._each[who.name]:
                del self._each[who.name]

    def publish(self, topic: str, data: Any) -> None:
        """Send ``data`` to the subscribers of ``topic`` (of ``TOPICS``): JSON, or a function that gives what one may
        see of it, None for nothing."""
        assert topic in TOPICS
        part: Callable[[Principal], Any] = data if callable(data) else lambda who: data
        texts: dict[Principal, str] = {}
        for subscriber in self._subscribers:
            if topic not in subscriber.topics:
                continue
            if subscriber.who not in texts:
                seen = part(subscriber.who)
                texts[subscriber.who] = "" if seen is None else _json(seen)
            if text := texts[subscriber.who]:
                subscriber.put(topic, text)


def _json(data: Any) -> str:
    """JSON in ASCII, without any character that somebody might take for the end of a line."""
    return json.dumps(data, separators=(",", ":"))
