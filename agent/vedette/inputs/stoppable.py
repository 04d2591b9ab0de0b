"""What ends an input that reads in a task of the event loop."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod


class Stoppable(ABC):
    """An input that reads in ``_run`` until it is stopped; ``run`` then returns as if it had read all."""

    _task: asyncio.Task[None] | None = None
    """The task that ``run`` is in; what else runs in it is the caller's."""
    _stopping = False

    async def run(self) -> None:
        """Read until cancelled or stopped. Raises OSError when the raw log cannot be written."""
        if self._stopping:
            return
        self._task = asyncio.current_task()
        try:
            await self._run()
        except asyncio.CancelledError:
            if not self._stopping:
                raise
        finally:
            self._task = None

    @abstractmethod
    async def _run(self) -> None:
        """Read until cancelled."""

    async def stop(self) -> None:
        """End ``run``, which returns. What was not handed over is read again at the next start, where it can be."""
        self._stopping = True
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])
