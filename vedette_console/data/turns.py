"""Things that users take in turn, so that one user's wish for all of them keeps no other waiting."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

Thing = TypeVar("Thing")


class Turns(Generic[Thing]):
    """``things``, of which nobody has more than ``each`` at a time. Lives in one event loop."""

    def __init__(self, things: Iterable[Thing], each: int) -> None:
        self._free: asyncio.LifoQueue[Thing] = asyncio.LifoQueue()
        for thing in things:
            self._free.put_nowait(thing)
        self._each = each
        self._users = WeakValueDictionary[str, asyncio.Semaphore]()
        """For who waits or has one."""
        self._taken: dict[Thing, asyncio.Semaphore] = {}
        self.waiting = Counter[str]()
        """How many times, by user."""

    def _user(self, name: str) -> asyncio.Semaphore:
        return self._users.setdefault(name, asyncio.Semaphore(self._each))

    def has_all(self, name: str) -> bool:
        """Whether this user has as many as one may."""
        return self._user(name).locked()

    def empty(self) -> bool:
        """Whether nobody can take one now."""
        return self._free.empty()

    @contextmanager
    def waits(self, name: str) -> Iterator[None]:
        """Count this user among those who wait."""
        self.waiting[name] += 1
        try:
            yield
        finally:
            self.waiting[name] -= 1

    async def take(self, name: str) -> Thing:
        """The next for this user, who gives it back; at once where there is one."""
        user = self._user(name)
        with self.waits(name):
            await user.acquire()
            try:
                thing = await self._free.get()
            except BaseException:
                user.release()
                raise
        self._taken[thing] = user
        return thing

    def give(self, thing: Thing) -> None:
        """Give back what was taken."""
        self._taken.pop(thing).release()
        self._free.put_nowait(thing)
