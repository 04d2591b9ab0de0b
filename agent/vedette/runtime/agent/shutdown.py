"""How the agent stops: stage by stage in the order of the flow, each within its share of one deadline, then by force.

The first signal asks for a stop, the second hurries it: what runs gets ``HURRY_SECONDS`` more and so does each stage
after it. A stage that does not end in its time is cancelled and said; nothing is lost by that, since everything is in
the raw log or in the outbox by then, or with a sender that was not acknowledged. When even that does not help (a disk
that hangs keeps a thread for ever), the process ends itself ``FORCE_SECONDS`` after the deadline: a kill, which the
next start is made for.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Coroutine
from typing import Any

import structlog

from vedette.model.counters import Log

log = structlog.get_logger()

HURRY_SECONDS = 1.0
FORCE_SECONDS = 10.0
FORCED = 70
"""The exit code of an end by force."""


class Shutdown:
    """One stop of one agent; see the module's text."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self._hurried = asyncio.Event()
        self._within = self._began = 0.0
        self._force: threading.Timer | None = None

    def ask(self) -> None:
        if self.asked.is_set():
            self._hurried.set()
        self.asked.set()

    def begin(self, within: float) -> None:
        """The deadline is in ``within`` seconds."""
        self._within, self._began = within, asyncio.get_running_loop().time()
        self._force = threading.Timer(within + FORCE_SECONDS, _end)
        self._force.daemon = True
        self._force.start()

    def left(self, share: float = 1.0) -> float:
        """Seconds until ``share`` of the deadline has gone by."""
        if self._hurried.is_set():
            return HURRY_SECONDS
        return max(0.1, self._began + self._within * share - asyncio.get_running_loop().time())

    async def stage(self, name: str, work: Coroutine[Any, Any, None], share: float = 1.0) -> None:
        """Do ``work`` until ``share`` of the deadline has gone by. What it raises is raised."""
        task, hurried = asyncio.create_task(work), asyncio.create_task(self._hurried.wait())
        try:
            await asyncio.wait({task, hurried}, timeout=self.left(share), return_when=asyncio.FIRST_COMPLETED)
            if not task.done() and self._hurried.is_set():
                await asyncio.wait({task}, timeout=HURRY_SECONDS)
        finally:
            hurried.cancel()
        if task.done():
            task.result()
            return
        log.warning(
            Log.STOP_UNFINISHED,
            stage=name,
            reason="a second signal came" if self._hurried.is_set() else "its part of agent.stop_within is over",
            action="what is left is on disk, or comes again; the next start goes on with it",
        )
        task.cancel()
        await asyncio.wait({task}, timeout=HURRY_SECONDS)

    def done(self) -> None:
        if self._force is not None:
            self._force.cancel()


def _end() -> None:
    sys.stderr.write(f'{{"event": "{Log.STOP_FORCED}", "level": "error", "reason": "the stop hangs"}}\n')
    sys.stderr.flush()
    os._exit(FORCED)
