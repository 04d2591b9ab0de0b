"""Files that the fleet has signed, as the broker brings them: metadata that are retained, targets by their SHA-256.
Or as somebody has carried them here: ``FLEET/carried``, which `vedette fleet import` makes.

Nothing that comes is believed here: ``fleet/trust.py`` decides.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from vedette.delivery.topics import blob_topic, tuf_topic
from vedette.fleet.documents import Target
from vedette.fleet.mailbox import Mailbox
from vedette.fleet.trust import FolderSource, Trust
from vedette.lookup.names import SUFFIX

if TYPE_CHECKING:
    from vedette.delivery.uplink import MqttUplink
    from vedette.mqtt.connection import Message

BLOBS = "fleet"
"""The channel under which targets lie."""
CARRIED = "carried"
FETCH_SECONDS = 60.0
"""For a target to come."""


class Targets:
    """Over one uplink at a time."""

    def __init__(self, fleet: str, trust: Trust, folder: Path) -> None:
        """``folder``: the agent's of its fleet."""
        self._fleet, self._trust = fleet, trust
        self.carried = FolderSource(folder / CARRIED)
        self.mailbox = Mailbox()
        self.news = asyncio.Event()
        """Metadata have come."""
        self._uplink: MqttUplink | None = None
        self._fetching: dict[str, asyncio.Future[bytes]] = {}

    def attach(self, uplink: MqttUplink) -> None:
        """``uplink`` takes the place of the one before."""
        self._uplink = uplink
        uplink.subscribe(tuf_topic(self._fleet, "+"), self._metadata)
        self.news.set()

    def _metadata(self, message: Message) -> None:
        if self.mailbox.put(message.topic.rpartition("/")[2], message.payload):
            self.news.set()

    def carried_lookup(self, sha256: str) -> Path | None:
        """The lookup whose head has this digest, when it was carried here."""
        path = self.carried.folder / "lookups" / f"{sha256}{SUFFIX}"
        return path if path.exists() else None

    async def blob(self, sha256: str) -> bytes:
        """What was carried here or the broker retains under ``sha256``, believed by nobody. Raises TimeoutError and
        OSError."""
        if (there := await asyncio.to_thread(self.carried.blob, sha256)) is not None:
            return there
        if self._uplink is None:
            raise TimeoutError("no uplink to the region")
        topic = blob_topic(self._fleet, BLOBS, sha256)
        uplink, answer = self._uplink, asyncio.get_running_loop().create_future()
        self._fetching[topic] = answer
        uplink.subscribe(topic, self._came)
        try:
            async with asyncio.timeout(FETCH_SECONDS):
                data: bytes = await answer
                return data
        except TimeoutError:
            raise TimeoutError(f"{topic} does not come") from None
        finally:
            uplink.unsubscribe(topic)
            self._fetching.pop(topic, None)

    def _came(self, message: Message) -> None:
        answer = self._fetching.get(message.topic)
        if message.payload and answer is not None and not answer.done():
            answer.set_result(message.payload)

    async def target(self, target: Target) -> bytes:
        """A target's verified bytes. Raises TrustRefused, TimeoutError and OSError."""
        await asyncio.to_thread(self._trust.length, target)  # before anything is fetched: is it among the targets?
        try:
            self.mailbox.keep(target.sha256, await self.blob(target.sha256))
            return await asyncio.to_thread(self._trust.fetch, target, self.mailbox)
        finally:
            self.mailbox.clear()
