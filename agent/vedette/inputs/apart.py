"""Messages of connections and datagrams that may contain others (``batches.py``), taken apart in steps.

One sender's after the other's, in the order in which they came, so that a turn of the event loop has one step, however
many send such messages. Imported by ``listen.py`` with the first of them.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Sequence
from itertools import chain, repeat

from vedette.inputs.batches import Steps, at_once, may, spread
from vedette.inputs.framing import Run
from vedette.system.turns import in_steps

__all__ = ["Apart", "may"]


class Apart:
    """``give`` stores a run, with its origins and the index of each event's, and returns the raw offset after it, or
    None where it cannot. ``texts``: of what carries a text it may be a line. ``long``: why an event is cut, mostly."""

    def __init__(self, texts: bool, give: Callable[..., int | None], long: str) -> None:
        self._texts, self._give, self._long = texts, give, long
        self.size = 0
        """Bytes that wait."""
        self._turn = asyncio.Lock()
        self._works = set[asyncio.Task[int | None]]()

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
        reason: str = "", origin_of: array[int] | None = None,
    ) -> asyncio.Task[int | None]:  # fmt: skip
        """Store what ``runs`` contain (``reason``: why an event of them is cut), then call ``done`` with the task: its
        result is the offset."""
        size = sum(len(run.data) for run in runs)

        def ended(work: asyncio.Task[int | None]) -> None:
            self.size -= size
            self._works.discard(work)
            done(work)

        self.size += size
        work = asyncio.get_running_loop().create_task(self._work(runs, origins, reason or self._long, origin_of))
        self._works.add(work)
        work.add_done_callback(ended)
        return work

    async def _work(
        self, runs: Sequence[Run], origins: tuple[str, ...], reason: str, origin_of: array[int] | None
    ) -> int | None:
        offset = None
        async with self._turn:
            for run in runs:
                whole, index = await in_steps(self._taking(run, origin_of))
                offset = self._give(whole, origins, index, reason=reason)
        return offset

    async def below(self, size: int) -> None:
        """Wait until there are no more than ``size`` bytes."""
        while self.size > size:
            await asyncio.wait(self._works, return_when=asyncio.FIRST_COMPLETED)
