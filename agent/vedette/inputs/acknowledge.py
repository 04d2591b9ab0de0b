"""Acknowledge a sender after its batch is stored: one way for every input that can.

What was stored up to a raw offset is *owed* to whoever sent it. ``give`` is called for each entry, in the order in
which they were owed, once the raw log holds all before that offset on disk; entries that wait together share one sync.
What is not given when the agent ends was not acknowledged: its sender sends it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

from vedette.model.event import Intake

T = TypeVar("T")

BURST = 200
"""Entries given before the event loop gets its turn."""
DRAIN_SECONDS = 2.0
"""How long a stop waits for the log to be on disk, to acknowledge the rest."""


class Acknowledgements(Generic[T]):
    """Acknowledgements of one input. Bounded by its owner, who takes in nothing while the raw log accepts nothing."""

    def __init__(self, intake: Intake, give: Callable[[T], None]) -> None:
        self._intake = intake
        self._give = give
        self._owed: asyncio.Queue[tuple[int, Sequence[T]]] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self.last = 0
        """The raw offset after what was stored last."""

    def owe(self, batch: Sequence[T], offset: int | None = None) -> None:
        """``batch`` is stored before ``offset``; None: it goes with what was stored last."""
        self.last = self.last if offset is None else offset
        self._owed.put_nowait((self.last, batch))

    def start(self) -> None:
        """``run`` as a task, until ``stop``."""
        self._task = asyncio.create_task(self.run())

    async def stop(self) -> None:
        """Give nothing more of what is owed. May be called without ``start``, and again."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def run(self) -> None:
        """Give what is owed, until cancelled."""
        while True:
            offset, batch = await self._owed.get()
            await self._intake.durable(offset)
            for i, entry in enumerate(batch):
                self._give(entry)
                if i % BURST == BURST - 1:
                    await asyncio.sleep(0)
            self._owed.task_done()

    async def drain(self) -> None:
        """Wait until all is given, DRAIN_SECONDS at most; what is left then comes again."""
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                await self._owed.join()
