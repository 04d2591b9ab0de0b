"""Blobs that a broker retains, fetched by their SHA-256: checked, and no faster than a rate."""

from __future__ import annotations

import asyncio
import hashlib
import time
from typing import TYPE_CHECKING

from vedette.delivery.topics import blob_topic

if TYPE_CHECKING:
    from vedette.delivery.uplink import MqttUplink

BLOB_SECONDS = 30.0
"""For one to come while the broker is connected."""


class Gone(ConnectionError):
    """A blob did not come: it was withdrawn, or the broker has lost it."""


class Blobs:
    """Over one uplink at a time."""

    def __init__(self, fleet: str, rate: float) -> None:
        """``rate``: bytes a second; 0: as fast as they come."""
        self._fleet, self._rate = fleet, rate
        self.uplink: MqttUplink | None = None
        self._paid = 0.0
        """Until when (monotonic seconds) the link is paid for what has come."""

    async def get(self, channel: str, digest: str, most: int) -> bytes:
        """Raises ValueError for bytes that do not have the digest, OSError (Gone) when none come."""
        uplink = self.uplink
        if uplink is None:
            raise ConnectionError("the uplink has gone: the rest comes by the next one")
        await asyncio.sleep(self._paid - time.monotonic())
        topic, came = blob_topic(self._fleet, channel, digest), asyncio.Queue[bytes]()
        uplink.subscribe(topic, lambda message: came.put_nowait(message.payload))
        try:
            while True:
                try:
                    async with asyncio.timeout(BLOB_SECONDS):
                        data = await came.get()
                    break
                except TimeoutError:
                    if self.uplink is not uplink or uplink.client.connected.is_set():
                        raise Gone(f"blob {digest[:12]} did not come: publish it again") from None
        finally:
            uplink.unsubscribe(topic)
        if not data:
            raise Gone(f"blob {digest[:12]} was withdrawn: a newer version is announced, or publish it again")
        if self._rate:
            self._paid = max(self._paid, time.monotonic()) + len(data) / self._rate
        if len(data) > most or await asyncio.to_thread(_sha256, data) != digest:
            raise ValueError(f"blob {digest[:12]} is not what its digest says: publish it again")
        return data


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
