"""Messages of connections and datagrams that may contain others (``batches.py``), taken apart in steps.

One sender's after the other's, in the order in which they came, so that a turn of the event loop has one step of all
connections, and one of each socket for datagrams, however many send such messages. Imported by ``listen.py`` with the
first of them.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, repeat
from typing import Any, Protocol

from vedette.inputs.batches import Steps, at_once, spread
from vedette.inputs.framing import LONG, Run
from vedette.system.turns import in_steps

HELD_BYTES = 64 << 20
"""That wait, beyond which who sent such a message is not read; beyond twice as much nobody is."""
STOP_SECONDS = 1.0
"""For which a stop has messages taken apart."""

Stream = Any
"""One of the listener's connections."""


class Owner(Protocol):
    """The listener to which it belongs (``listen.StreamListener``)."""

    stopping: bool

    def give(
        self, run: Run, origins: tuple[str, ...], origin_of: array[int] | None = None, *, reason: str
    ) -> int | None:
        """Store a run; the raw offset after it, None where it cannot."""

    def pause(self) -> None:
        """Read nobody."""

    def read_again(self, connection: Stream) -> None:
        """Read it, unless something else forbids."""

    def wait_for_flush(self, connection: Stream) -> None:
        """Take its further messages soon."""

    def stored(self, streams: Sequence[Stream], offset: int) -> None:
        """What was taken of ``streams`` last is stored before ``offset``."""

    def unstored(self, stream: Stream, runs: Sequence[Run]) -> None:
        """Not all of ``runs`` is stored."""


class Apart:
    """``listener`` stores what is taken apart. ``texts``: of what carries a text it may be a line."""

    def __init__(self, listener: Owner, texts: bool) -> None:
        self._listener = listener
        self._texts = texts
        self.size = 0
        """Bytes that wait."""
        self._turn = asyncio.Lock()
        self._works = set[asyncio.Task[int | None]]()
        self._crowd = list[Stream]()
        """Whose messages were taken apart, and who are not read while those of others are too much."""
        self._until: float | None = None
        """Of a stop, by the event loop's time."""

    def small(self, connection: Stream, runs: list[Run]) -> list[Run]:
        """What a connection's small run contains; nothing where that fails."""
        try:
            return [self.at_once(runs[0])[0]]
        except Exception as error:  # whatever a message makes a library raise: this sender's alone
            self._spoilt(connection, runs, error)
            return []

    def take(self, connection: Stream, runs: Sequence[Run], reason: str) -> None:
        """Store what the runs of a connection contain; it is not read meanwhile."""
        connection.transport.pause_reading()
        connection.work = self.begin(runs, (connection.peer,), partial(self._took, connection, runs), reason)
        if self.size > 2 * HELD_BYTES:
            self._listener.pause()

    def _took(self, connection: Stream, runs: Sequence[Run], work: asyncio.Task[int | None]) -> None:
        connection.work = offset = None
        try:
            offset = work.result()
        except Exception as error:  # likewise
            self._spoilt(connection, runs, error)
        self._crowd.append(connection)
        if self.size <= HELD_BYTES:
            while self._crowd:
                self._listener.read_again(self._crowd.pop())
        if connection.framer.size:
            self._listener.wait_for_flush(connection)
        if offset is not None:
            self._listener.stored([connection], offset)

    def _spoilt(self, connection: Stream, runs: Sequence[Run], error: Exception) -> None:
        """Not all of ``runs`` is stored: no answer may say so."""
        connection.ended = True
        connection.transport.abort()
        self._listener.unstored(connection, runs)
        context = {"message": f"what {connection.peer} sent is not all stored", "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)

    def at_once(self, run: Run, origin_of: array[int] | None = None) -> tuple[Run, array[int] | None]:
        """What a small run contains, and the index of each event's origin."""
        return at_once(self._taking(run, origin_of))

    def _taking(self, run: Run, origin_of: array[int] | None) -> Steps[tuple[Run, array[int] | None]]:
        counts = list[int]()
        whole = yield from spread(run, self._texts, counts)
        if origin_of is not None and counts:
            origin_of = array("H", chain.from_iterable(map(repeat, origin_of, counts)))
        return whole, origin_of

    def begin(
        self, runs: Sequence[Run], origins: tuple[str, ...], done: Callable[[asyncio.Task[int | None]], None],
        reason: str = LONG, origin_of: array[int] | None = None,
    ) -> asyncio.Task[int | None]:  # fmt: skip
        """Store what ``runs`` contain (``reason``: why an event of them is cut), then call ``done`` with the task: its
        result is the offset."""
        size = sum(len(run.data) for run in runs)

        def ended(work: asyncio.Task[int | None]) -> None:
            self.size -= size
            self._works.discard(work)
            done(work)

        self.size += size
        work = asyncio.get_running_loop().create_task(self._work(runs, origins, reason, origin_of))
        self._works.add(work)
        work.add_done_callback(ended)
        return work

    async def _work(
        self, runs: Sequence[Run], origins: tuple[str, ...], reason: str, origin_of: array[int] | None
    ) -> int | None:
        offset = None
        async with self._turn:
            for run in runs:
                whole, index = (run, origin_of) if self._hurries() else await in_steps(self._taking(run, origin_of))
                offset = self._listener.give(whole, origins, index, reason=reason)
        return offset

    def _hurries(self) -> bool:
        """Whether a stop takes long: what waits is stored as it is."""
        now = asyncio.get_running_loop().time()
        if self._until is None and self._listener.stopping:
            self._until = now + STOP_SECONDS
        return self._until is not None and now >= self._until

    async def crowds(self) -> None:
        """Wait while nobody is to be read."""
        await self.below(2 * HELD_BYTES)

    async def below(self, size: int) -> None:
        """Wait until there are no more than ``size`` bytes."""
        while self.size > size:
            await asyncio.wait(self._works, return_when=asyncio.FIRST_COMPLETED)
