"""Where alerts can go: one row a type of ``[uplink]``, one file a row.

An uplink takes alerts from the outbox (``Outbox.pending``) and gives them up (``Outbox.receipt``) only when they are
durable where they went: a crash at any point sends an alert again, under the same id, and never loses one. While the
other side is away it logs that once, retries with back-off, and the alerts stay in the outbox."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Protocol

from vedette.delivery.queue import Source


class Uplink(Protocol):
    """One running uplink."""

    async def run(self) -> None:
        """Deliver until ``stop`` or cancelled. Raises OSError of the store."""

    async def stop(self, deadline: float) -> None:
        """Deliver what the outbox holds now, at most ``deadline`` seconds; ``run`` then returns."""

    def state(self) -> dict[str, Any]:
        """What ``vedette status`` shows of it, ``type`` first."""


UPLINKS: Mapping[str, str] = {
    "directory": "directory:DirectoryUplink",
    "mqtt": "uplink:MqttUplink",
    "none": "none:NoUplink",
}
"""MODULE:CLASS, imported when it is used: a client of MQTT takes 3 MiB."""


def opened(source: Source) -> Uplink:
    """The uplink of these settings, not yet running."""
    module, _, name = UPLINKS[source.settings.type].partition(":")
    made: Uplink = getattr(importlib.import_module(f"vedette.delivery.{module}"), name)(source)
    return made
