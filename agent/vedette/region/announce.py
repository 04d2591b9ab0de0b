"""A fleet's signed files at the broker: retained, in an order in which no agent learns of what it cannot fetch.

1. every file that the targets name, to ``bundles/fleet/blobs/SHA256``, and lookups as ``fleetlookups.py`` has it;
2. roots, targets, roll-out and snapshot to ``tuf/``; the timestamp last: with it they are in force;
3. files of earlier publications that are not needed any more are cleared.

What the broker has of ``tuf/`` is read first, and sent is only what it lacks: of the files those that none of its
targets name. Published again, nothing changes; killed between two steps, publish again. Nothing here signs anything: it
takes a ``Repository`` in which everything is in force. All of it goes over one connection, but for the blocks of
lookups that are new or go, which have one each.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

from vedette.delivery.topics import ROOT, blob_topic, lookup_topic, tuf_topic
from vedette.mqtt.client import MqttClient
from vedette.mqtt.connection import REGION_PACKET, Message, Session
from vedette.mqtt.settings import MqttSettings
from vedette.region import fleetlookups
from vedette.region.repository import Repository, needed_blobs, needed_metadata
from vedette.system import foreign

CHANNEL = "fleet"
"""Under which targets lie; the agents' side has the same name (``runtime/member/targets.py``)."""
CONNECT_SECONDS = 15.0
QUIET_SECONDS = 1.0
"""Without a retained message: all of them have come."""
PUBLISH_SECONDS = 600.0


class Announced(NamedTuple):
    """How many blobs, files of metadata and lookups were sent, and how many topics and lookups cleared."""

    blobs: int
    metadata: int
    lookups: int
    cleared: int


async def announce(broker: MqttSettings, repository: Repository, *, whole: bool = False) -> Announced:
    """Publish what is in force; see the module's text. ``whole``: every file again, also those that the broker should
    have. Raises OSError (ConnectionError, PermissionError) when the broker fails."""
    fleet = repository.fleet
    names = needed_metadata(repository)
    wanted = {tuf_topic(fleet, name): (repository.folder / "tuf" / name).read_bytes() for name in names}
    blobs = {path.name: path for path in needed_blobs(repository)}
    lookups = fleetlookups.needed(repository.folder, repository.desired())
    topics = [lookup_topic(fleet, "+", "+"), tuf_topic(fleet, "#")]
    async with _reading(broker, topics) as (client, payloads):
        for topic in topics:
            client.unsubscribe(topic)
        there = {topic: data for topic, data in payloads.items() if topic.startswith(tuf_topic(fleet, ""))}
        announced = {topic: data for topic, data in payloads.items() if topic not in there}
        named = {sha256 for data in there.values() for sha256 in _named(data)}
        lacking = [path for sha256, path in blobs.items() if whole or sha256 not in named]
        changed = [topic for topic, data in wanted.items() if there.get(topic) != data]
        old = [topic for topic in there if topic not in wanted]
        old += [blob_topic(fleet, CHANNEL, sha256) for sha256 in sorted(named - blobs.keys())]
        published = await fleetlookups.publish(broker, fleet, lookups, announced, whole=whole)
        async with client.within(PUBLISH_SECONDS, "publish by"):
            for path in lacking:
                await client.publish(blob_topic(fleet, CHANNEL, path.name), path.read_bytes(), retain=True)
            for topic in changed:
                await client.publish(topic, wanted[topic], retain=True)
            for topic in old:
                await client.publish(topic, b"", retain=True)
    gone = await fleetlookups.clear(broker, fleet, lookups, announced)
    return Announced(len(lacking), len(changed), published, len(old) + gone)


def _named(data: bytes) -> list[str]:
    """The files that a file of metadata names, believed from nobody."""
    try:
        targets = foreign.read(data)["signed"]["targets"].values()
        named = [target["hashes"]["sha256"] for target in targets]
    except (ValueError, KeyError, TypeError, AttributeError):
        return []
    return [name for name in named if isinstance(name, str) and re.fullmatch(r"[0-9a-f]{64}", name)]


async def retained(broker: MqttSettings, topics: list[str]) -> dict[str, bytes]:
    """What the broker retains for ``topics``, by topic. Raises ConnectionError."""
    async with _reading(broker, topics) as (_, payloads):
        return payloads


@asynccontextmanager
async def _reading(broker: MqttSettings, topics: list[str]) -> AsyncIterator[tuple[MqttClient, dict[str, bytes]]]:
    """A connected client, and what the broker retains for ``topics``. Raises ConnectionError."""
    payloads: dict[str, bytes] = {}
    came = asyncio.Event()

    def take(message: Message) -> None:
        payloads[message.topic] = message.payload
        if message.retain:  # and not what agents send just now
            came.set()
        client.ack(message)

    client = MqttClient(
        broker, f"vedette-fleet-{secrets.token_hex(4)}", subscriptions=topics, on_message=take,
        session=Session(clean_start=True, max_packet=REGION_PACKET),
    )  # fmt: skip
    async with client.running():
        async with client.within(CONNECT_SECONDS, "read from"):
            await client.connected.wait()
        with suppress(TimeoutError):
            while True:
                came.clear()
                async with asyncio.timeout(QUIET_SECONDS):
                    await came.wait()
        yield client, dict(payloads)


async def heartbeats(broker: MqttSettings, fleet: str) -> dict[str, dict[str, Any]]:
    """The newest heartbeat of every agent of ``fleet``, by agent id. Raises ConnectionError."""
    beats = {}
    for topic, payload in (await retained(broker, [f"{ROOT}/{fleet}/+/status"])).items():
        try:
            row = foreign.read(payload)
        except ValueError:
            continue  # whatever somebody retained there
        if isinstance(row, dict):
            beats[topic.split("/")[-2]] = row
    return beats
