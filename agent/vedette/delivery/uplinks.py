"""Where alerts can go: the contract of an uplink, a row for each type of ``[uplink]``, and the uplink to nowhere.

Delivery: an uplink takes alerts from the outbox (``Outbox.pending``) and gives them up (``Outbox.receipt``) only when
they are durable where they went: a crash at any point sends an alert again, under the same id, and never loses one.
While the other side is away it logs that once, retries with back-off, and the alerts stay in the outbox.
That to nowhere (``NoUplink``) gives them up at once: they stay in the store's ring for sinks.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol

from vedette.delivery.queue import Source
from vedette.delivery.receipts import ranges

BATCH_ALERTS = 1000
IDLE_SECONDS = 60.0


class Uplink(Protocol):
    """One running uplink."""

    async def run(self) -> None:
        """Deliver until ``stop`` or cancelled. Raises OSError of the store."""

    async def stop(self, deadline: float) -> None:
        """Deliver what the outbox holds now, at most ``deadline`` seconds; ``run`` then returns."""

    def state(self) -> dict[str, Any]:
        """What ``vedette status`` shows of it, ``type`` first."""


class NoUplink:
    """``[uplink] type = "none"``: an alert leaves the outbox at once. It stays in the store's ring until every sink has
    it, within the ring's bound (``store/sinks.py``)."""

    def __init__(self, source: Source) -> None:
        self._outbox = source.outbox
        self._stopping = self._running = False
        self._ended = asyncio.Event()

    def state(self) -> dict[str, Any]:
        return {"type": "none"}

    async def run(self) -> None:
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


UPLINKS: Mapping[str, str] = {
    "directory": "directory:DirectoryUplink",
    "mqtt": "uplink:MqttUplink",
    "none": "uplinks:NoUplink",
}
"""MODULE:CLASS, imported when it is used: a client of MQTT takes 3 MiB."""


def opened(source: Source) -> Uplink:
    """The uplink of these settings, not yet running."""
    module, _, name = UPLINKS[source.settings.type].partition(":")
    uplink: Uplink = getattr(importlib.import_module(f"vedette.delivery.{module}"), name)(source)
    return uplink
