"""No uplink: alerts stay on this host, in the ring of the store, and go to sinks where there are some.

Delivery: an alert leaves the outbox at once. It stays in the ring until every sink has it, within the store's bound
(``store.sinks``).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from vedette.delivery.queue import Source
from vedette.delivery.receipts import ranges

BATCH_ALERTS = 1000
IDLE_SECONDS = 60.0


class NoUplink:
    """``[uplink] type = "none"``."""

    def __init__(self, source: Source) -> None:
        self._outbox = source.outbox
        self._stopping = self._running = False
        self._ended = asyncio.Event()

    def state(self) -> dict[str, Any]:
        return {"type": "none"}

    async def run(self) -> None:
        """Until ``stop`` or cancelled. Raises OSError of the store."""
        self._running = True
        try:
            while True:
                last = self._stopping
                while pending := self._outbox.pending(0, BATCH_ALERTS):
                    await self._outbox.receipt(ranges(seq for seq, _ in pending))
                if last:
                    return
                await self._outbox.more(IDLE_SECONDS)
        finally:
            self._ended.set()

    async def stop(self, deadline: float) -> None:
        self._stopping = True
        self._outbox.wake()
        if self._running:
            with suppress(TimeoutError):
                async with asyncio.timeout(deadline):
                    await self._ended.wait()
