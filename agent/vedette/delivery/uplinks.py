"""Where alerts can go: one row a type of ``[uplink]``, one file a row.

An uplink takes alerts from the outbox (``Outbox.pending``) and gives them up (``Outbox.receipt``) only when they are
durable where they went: a crash at any point sends an alert again, under the same id, and never loses one. While the
other side is away it logs that once, retries with back-off, and the alerts stay in the outbox."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from vedette.delivery.directory import DirectoryUplink
from vedette.delivery.none import NoUplink
from vedette.delivery.queue import Source
from vedette.delivery.uplink import MqttUplink


class Uplink(Protocol):
    """One running uplink."""

    async def run(self) -> None:
        """Deliver until ``stop`` or cancelled. Raises OSError of the store."""

    async def stop(self, deadline: float) -> None:
        """Deliver what the outbox holds now, at most ``deadline`` seconds; ``run`` then returns."""

    def state(self) -> dict[str, Any]:
        """What ``vedette status`` shows of it, ``type`` first."""


UPLINKS: Mapping[str, Callable[[Source], Uplink]] = {
    "directory": DirectoryUplink,
    "mqtt": MqttUplink,
    "none": NoUplink,
}
