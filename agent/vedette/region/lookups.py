"""Publish a signed lookup to a fleet's channel, block by block: retained blobs that agents fetch as far as they lack
them.

Order, so that an agent never learns of a version that it cannot fetch:

1. the lookup's announcement is read: an older version than it names is refused;
2. the blobs of the new version's blocks that the offer before does not name, then the offer, then the announcement;
3. the blobs that only the offer before names are withdrawn (an empty retained message), and at last that offer.

Killed between the steps: publish the same file again, which sends all of its blobs. An announcement names the offer
that it replaced, so that the next publication withdraws what a killed one has left.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from vedette.bundle.manifest import rfc3339
from vedette.delivery.topics import blob_topic, lookup_topic
from vedette.lookup import delta
from vedette.lookup.layout import NAME, LookupRefused
from vedette.lookup.offer import Announcement, Delta, Offer
from vedette.lookup.sign import BLOCK, Signed, body_at, signed_in, verify
from vedette.lookup.table import Lookup
from vedette.mqtt.client import MqttClient
from vedette.mqtt.connection import Message
from vedette.mqtt.settings import MqttSettings
from vedette.region.publish import RETAINED_SECONDS, connected

AT_ONCE = 8
"""Blobs on their way to the broker."""


class Published(NamedTuple):
    """``sent``: bytes of blobs and offer that went to the broker. ``lacking``: bytes that an agent fetches which has
    nothing, ``changed``: one that has the version before."""

    name: str
    version: str
    fleet: str
    channel: str
    blocks: int
    sent: int
    lacking: int
    changed: int
    withdrawn: int
    """Blobs of earlier versions."""


async def publish_lookup(
    broker: MqttSettings,
    path: Path,
    *,
    previous: Path | None = None,
    fleet: str | None = None,
    channel: str | None = None,
    under: str | None = None,
    trusted: tuple[str, ...] = (),
    progress: Callable[[int, int], None] = lambda done, blocks: None,
) -> Published:
    """Publish the signed lookup in ``path`` to the fleet and channel that it is signed for; see the module's text.

    ``previous``: the file of the version before, signed or not: blocks are then also offered as deltas against it.
    ``fleet``, ``channel``: it is refused unless it is signed for these. ``under``: publish it on this channel, other
    than it is signed for, which the fleet's documents say. ``trusted``: the keys that the agents trust; when given,
    the signature is checked here already. Raises LookupRefused when agents would refuse the lookup,
    ValueError when the channel holds a newer version, OSError (ConnectionError, PermissionError) when the broker fails.
    """
    signed = await asyncio.to_thread(_checked, path, trusted)
    if not signed.fleet:
        raise LookupRefused("it is signed for no fleet: sign it with `vedette lookup sign --fleet`")
    fleet, channel = fleet or signed.fleet, channel or signed.channel
    if (fleet, channel) != (signed.fleet, signed.channel):
        raise LookupRefused(f"it is signed for fleet {signed.fleet}, channel {signed.channel}")
    blocks, channel = Blocks(path, signed, previous), under or channel
    topic = lookup_topic(fleet, channel, signed.name)
    async with connected(broker, topic) as (client, retained):
        channel_of = _Channel(client, retained, fleet, channel)
        before = await channel_of.announced()
        if before is not None and before.created > signed.created:
            raise ValueError(
                f"{topic} holds the version built at {rfc3339(before.created)}, this one is of"
                f" {rfc3339(signed.created)}: build it again"
            )
        offers = (before and before.offer, before and before.replaced)
        earlier = [await channel_of.offer(digest) for digest in offers if digest]
        there = set[str]()
        if before is not None and before.version != signed.version and earlier[0] is not None:
            there = earlier[0].blobs()
        whole, deltas, sent, lacking, changed = bytearray(), dict[int, Delta](), 0, 0, 0
        flying: set[asyncio.Task[None]] = set()
        for number in range(len(signed)):
            block = await asyncio.to_thread(blocks.made, number)
            whole += hashlib.sha256(block.whole).digest()
            lacking += len(block.whole)
            changed += 0 if block.same else len(block.delta or block.whole)
            if block.delta:
                deltas[number] = Delta(hashlib.sha256(block.delta).digest(), *block.reference)
            for blob in filter(None, (block.whole, block.delta)):
                if (digest := hashlib.sha256(blob).hexdigest()) not in there:
                    there.add(digest)
                    sent += len(blob)
                    flying.add(asyncio.create_task(channel_of.put(digest, blob)))
            while len(flying) >= AT_ONCE:
                flying = await _landed(flying)
            progress(number + 1, len(signed))
        while flying:
            flying = await _landed(flying)
        offer = Offer(signed.head, bytes(whole), blocks.base, deltas)
        data = offer.to_bytes()
        digest = hashlib.sha256(data).hexdigest()
        replaced = before and (before.replaced if before.offer == digest else before.offer)
        await channel_of.put(digest, data)
        said = Announcement(signed.name, signed.version, signed.created, signed.rows, signed.size, digest, replaced)
        await client.publish(topic, said.to_bytes(), retain=True)
        gone = {name for old in earlier if old for name in old.blobs()} - offer.blobs()
        for stale in sorted(gone):
            await channel_of.withdraw(stale)
        for last in (before.offer, before.replaced) if before is not None else ():
            if last is not None and last != digest:
                await channel_of.withdraw(last)
    return Published(
        signed.name, signed.version, fleet, channel, len(signed), sent + len(data), lacking + len(data),
        changed + len(data), len(gone),
    )  # fmt: skip


async def _landed(flying: set[asyncio.Task[None]]) -> set[asyncio.Task[None]]:
    """What is still under way once one has landed. Raises what it raised."""
    done, rest = await asyncio.wait(flying, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
    return rest


def _checked(path: Path, trusted: tuple[str, ...]) -> Signed:
    """Raises LookupRefused and OSError."""
    if trusted:
        return verify(path, trusted)
    with path.open("rb") as source:
        return signed_in(source, None)


class _Made(NamedTuple):
    whole: bytes
    delta: bytes
    """Empty: it is not smaller by half, or there is nothing to compare with."""
    reference: tuple[int, int]
    """From where on, and how many bytes, of the earlier file."""
    same: bool
    """A block of the earlier version has the same bytes."""


class Blocks:
    """The blobs of a file's blocks."""

    def __init__(self, path: Path, signed: Signed, previous: Path | None) -> None:
        self._signed, self._path = signed, path
        self.base, self._digests = "", set[bytes]()
        self._previous = previous
        with Lookup.open(path, native=False) as lookup:
            self._new = lookup.header
        if previous is not None:
            with Lookup.open(previous, native=False) as lookup:
                self._old, self.base = lookup.header, lookup.version
            with previous.open("rb") as source:
                self._old_at = body_at(source)
                self._old_size = source.seek(0, 2) - self._old_at
                source.seek(self._old_at)
                while piece := source.read(BLOCK):
                    self._digests.add(hashlib.sha256(piece).digest())

    def made(self, number: int) -> _Made:
        """Raises LookupRefused when the block is not the one that was signed, OSError."""
        start, size = self._signed.span(number)
        block = _read(self._path, len(self._signed.head) + start, size)
        if not self._signed.fits(number, block):
            raise LookupRefused(f"block {number} was damaged or changed after signing: copy it again")
        whole = delta.packed(self._signed.name, block)
        if self._signed.digest(number) in self._digests:
            return _Made(whole, b"", (0, 0), same=True)
        if self._previous is not None:
            first, last = delta.reference(self._new, self._old, start, size, self._old_size)
            old = _read(self._previous, self._old_at + first, last - first)
            small = delta.packed(self._signed.name, block, old) if old else whole
            if len(small) * 2 < len(whole):
                return _Made(whole, small, (first, last - first), same=False)
        return _Made(whole, b"", (0, 0), same=False)


def _read(path: Path, start: int, size: int) -> bytes:
    with path.open("rb") as source:
        source.seek(start)
        return source.read(size)


async def withdraw_lookup(broker: MqttSettings, fleet: str, channel: str, name: str) -> int:
    """Clear what a channel holds of a lookup; returns how many blobs. Raises ValueError for what is no lookup's name,
    OSError."""
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r}: no name of a lookup")
    topic = lookup_topic(fleet, channel, name)
    async with connected(broker, topic) as (client, retained):
        channel_of = _Channel(client, retained, fleet, channel)
        before = await channel_of.announced()
        offer = await channel_of.offer(before.offer) if before else None
        gone = offer.blobs() if offer else set()
        for stale in sorted(gone):
            await channel_of.withdraw(stale)
        await client.publish(topic, b"", retain=True)
        if before is not None:
            await channel_of.withdraw(before.offer)
    return len(gone)


class _Channel:
    """What a channel's topics hold."""

    def __init__(self, client: MqttClient, retained: asyncio.Queue[Message], fleet: str, channel: str) -> None:
        self._client, self._retained, self._fleet, self._channel = client, retained, fleet, channel

    async def announced(self) -> Announcement | None:
        """None when there is none, or one that cannot be read."""
        message = await self._next()
        try:
            return Announcement.from_bytes(message.payload) if message is not None and message.payload else None
        except LookupRefused:
            return None

    async def offer(self, digest: str) -> Offer | None:
        topic = blob_topic(self._fleet, self._channel, digest)
        self._client.subscribe(topic)
        message = await self._next(topic)
        self._client.unsubscribe(topic)
        try:
            return Offer.from_bytes(message.payload) if message is not None and message.payload else None
        except LookupRefused:
            return None

    async def _next(self, topic: str = "") -> Message | None:
        try:
            async with asyncio.timeout(RETAINED_SECONDS):
                while True:
                    message = await self._retained.get()
                    self._client.ack(message)
                    if not topic or message.topic == topic:
                        return message
        except TimeoutError:
            return None

    async def put(self, digest: str, blob: bytes) -> None:
        await self._client.publish(blob_topic(self._fleet, self._channel, digest), blob, retain=True)

    async def withdraw(self, digest: str) -> None:
        await self.put(digest, b"")
