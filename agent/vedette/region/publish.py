"""Publish a signed bundle to a fleet's channel: retained topics that every agent of the channel subscribes to.

Order, so that an agent never learns of a bundle that it cannot fetch:

1. the channel's manifest message is read: a bundle older than it, or another one of the same version, is refused;
2. the rule list goes to ``{landing}/rules/{version}.json``, of another channel than "stable" to
   ``{channel}-{version}.json`` (``durable.write_whole``);
3. the blob, retained, to ``…/blobs/{sha256}``, then the manifest message, retained, to ``…/manifest``;
4. the blob that the manifest message named before is cleared (an empty retained message).

The manifest message is JSON: ``{"version": int, "sha256": hex of the whole file, "size": bytes, "created": RFC 3339,
"expires": RFC 3339, "replaced": hex or null}``. It is a hint; agents believe only the signature of the bundle.
``replaced`` is the blob of step 4: a publish that was killed before it leaves that to the next one. Published again,
nothing changes. Killed between the steps: publish the same bundle again.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import orjson
from msgspec import Struct
from msgspec.structs import replace

from vedette.bundle.manifest import rfc3339
from vedette.bundle.trust import Bundle, addressed, admit, inspect, verify
from vedette.delivery.topics import blob_topic, manifest_topic
from vedette.fleet.documents import Desired
from vedette.mqtt.client import MqttClient
from vedette.mqtt.connection import REGION_PACKET, Message, Session
from vedette.mqtt.settings import MqttSettings
from vedette.system import documents, foreign
from vedette.system.documents import Sha256
from vedette.system.durable import write_whole
from vedette.version import __version__

DEFAULT_CHANNEL = "stable"
CONNECT_SECONDS = 15.0
RETAINED_SECONDS = 1.0
"""How long a manifest message that is retained may take to come."""
PUBLISH_SECONDS = 120.0
"""For the blob's way to the broker."""


class Published(NamedTuple):
    """What was published; ``replaced`` is the SHA-256 of the blob that was cleared."""

    version: int
    sha256: str
    size: int
    fleet: str
    channel: str
    replaced: str | None


async def publish(
    broker: MqttSettings,
    data: bytes,
    *,
    fleet: str | None = None,
    channel: str | None = None,
    trusted: Sequence[str] = (),
    landing: Path | None = None,
    clock: Callable[[], int] = lambda: time.time_ns() // 1000,
) -> Published:
    """Publish the bundle ``data`` to the fleet and channel that it is signed for; see the module's text.

    ``fleet``, ``channel``: it is refused unless it is signed for these. ``trusted`` (``ed25519:BASE64``): the keys that
    the agents trust; when given, the signature is checked here already. Raises BundleRefused when agents would refuse
    the bundle, ValueError when the channel holds a newer one, OSError (ConnectionError, PermissionError) when the
    broker or the landing folder fails.
    """
    bundle = verify(data, trusted, __version__) if trusted else inspect(data)
    fleet, channel = fleet or bundle.fleet or "NAME", channel or bundle.channel or DEFAULT_CHANNEL
    addressed(bundle, fleet, channel)
    admit(bundle, None, clock())
    topic = manifest_topic(fleet, channel)
    async with connected(broker, topic) as (client, retained):
        previous = await _previous(retained)
        if previous is not None and previous.version > bundle.version:
            raise ValueError(
                f"{topic} holds version {previous.version}, this bundle is {bundle.version}:"
                " build it under a higher version"
            )
        if previous is not None and previous.version == bundle.version and previous.sha256 != bundle.sha256:
            raise ValueError(f"{topic} holds another bundle of version {bundle.version}: build it under a higher one")
        if landing is not None:
            name = f"{bundle.version}" if channel == DEFAULT_CHANNEL else f"{channel}-{bundle.version}"
            await asyncio.to_thread(write_rules, landing, bundle, name)
        left = None if previous is None else previous.replaced
        replaced = left if previous is None or previous.sha256 == bundle.sha256 else previous.sha256
        message = {
            "version": bundle.version,
            "sha256": bundle.sha256,
            "size": len(data),
            "created": rfc3339(bundle.manifest.created),
            "expires": rfc3339(bundle.manifest.expires),
            "replaced": replaced,
        }
        async with asyncio.timeout(PUBLISH_SECONDS):
            if left is not None and left not in (replaced, bundle.sha256):
                await client.publish(blob_topic(fleet, channel, left), b"", retain=True)
            await client.publish(blob_topic(fleet, channel, bundle.sha256), data, retain=True)
            await client.publish(topic, orjson.dumps(message), retain=True)
            if replaced is not None:
                await client.publish(blob_topic(fleet, channel, replaced), b"", retain=True)
    return Published(bundle.version, bundle.sha256, len(data), fleet, channel, replaced)


async def held(broker: MqttSettings, fleet: str, channel: str) -> int | None:
    """The version that a channel holds, None for none. Raises ConnectionError."""
    async with connected(broker, manifest_topic(fleet, channel)) as (_, retained):
        previous = await _previous(retained)
    return None if previous is None else previous.version


class _Previous(Struct, frozen=True):
    version: int
    sha256: Sha256
    replaced: Sha256 | None = None


@asynccontextmanager
async def connected(broker: MqttSettings, *topics: str) -> AsyncIterator[tuple[MqttClient, asyncio.Queue[Message]]]:
    """A connected client and what is retained on ``topics``; raises ConnectionError with the broker's address."""
    retained: asyncio.Queue[Message] = asyncio.Queue()
    name = f"vedette-publish-{secrets.token_hex(4)}"
    client = MqttClient(
        broker,
        name,
        subscriptions=topics,
        on_message=retained.put_nowait,
        session=Session(clean_start=True, max_packet=REGION_PACKET),
    )
    async with client.within(None, "publish by"), client.running():
        async with asyncio.timeout(CONNECT_SECONDS):
            await client.connected.wait()
        yield client, retained


async def _previous(retained: asyncio.Queue[Message]) -> _Previous | None:
    """What the channel's manifest message names; None when there is none, or one that cannot be read."""
    try:
        async with asyncio.timeout(RETAINED_SECONDS):
            message = await retained.get()
        previous = documents.read(_Previous, foreign.read(message.payload))
    except (TimeoutError, ValueError):
        return None
    return previous if previous.replaced != previous.sha256 else replace(previous, replaced=None)


def write_rules(landing: Path, bundle: Bundle, name: str) -> None:
    """The rule list, and which bundle it is of, as ``rules/NAME.json`` in ``landing``. Raises OSError."""
    folder = landing / "rules"
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "name": bundle.manifest.name,
        "version": bundle.version,
        "digest": bundle.digest,
        "sha256": bundle.sha256,
        "created": rfc3339(bundle.manifest.created),
        "expires": rfc3339(bundle.manifest.expires),
        "rules": bundle.rules,
    }
    write_whole(folder / f"{name}.json", orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")


def ruled(trust: Path, desired: Desired | None, landing: Path) -> int:
    """Write the rule lists of the bundles that the document in force names, whose files lie in ``trust``, into
    ``landing``, for the Spark jobs; how many. Raises ValueError and OSError."""
    changes = [change for group in desired.groups for change in group.bundles.values()] if desired else []
    blobs = {change.to.sha256 for change in changes if change.to is not None}
    for sha256 in blobs:
        write_rules(landing, inspect((trust / "blobs" / sha256).read_bytes()), f"fleet-{sha256[:16]}")
    return len(blobs)
