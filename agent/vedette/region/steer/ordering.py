"""An operator's word to the controller, and what the controller says: over the broker, both signed.

Used by whoever steers for people: the commands of ``vedette fleet rollout`` and the console.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from vedette.bundle.seal import key_text
from vedette.delivery.topics import steer_topic
from vedette.mqtt.client import MqttClient
from vedette.mqtt.connection import Session
from vedette.mqtt.settings import MqttSettings
from vedette.region.announce import CONNECT_SECONDS, retained
from vedette.region.repository import Repository
from vedette.region.steer.sealed import opened

OLD_SECONDS = 180
"""After which the controller's report is old."""


def controller_keys(repository: Repository) -> list[Ed25519PublicKey]:
    """Of the role that the controller signs with. Raises ValueError and OSError."""
    targets = repository.newest("targets")
    if targets is None:
        raise ValueError(f"{repository.folder}: the fleet's root and targets are not signed yet")
    delegated = targets.signed.delegations.keys
    keys = [delegated[keyid] for keyid in targets.signed.delegations.roles["rollout"].keyids]
    return [Ed25519PublicKey.from_public_bytes(bytes.fromhex(key.keyval["public"])) for key in keys]


def operator_of(repository: Repository, public: str) -> str:
    """The operator whose key (``ed25519:BASE64``) that is; empty: nobody's. Raises ValueError and OSError."""
    operators = repository.operators() if repository.folder.exists() else None
    return (
        next((operator.name for operator in operators.by_name.values() if key_text(operator.key) == public), "")
        if operators
        else ""
    )


async def report(broker: MqttSettings, repository: Repository) -> dict[str, Any] | None:
    """What the controller last said; None: nothing that is signed by its key. Raises OSError and ValueError."""
    topic = steer_topic(repository.fleet, "progress")
    data = (await retained(broker, [topic])).get(topic, b"")
    return opened("progress", data, controller_keys(repository))


async def give(broker: MqttSettings, fleet: str, id: str, order: bytes) -> None:
    """Leave a signed order at the broker, where it holds for a day. Raises ConnectionError."""
    client = MqttClient(broker, f"vedette-fleet-{id[:8]}", session=Session(clean_start=True))
    async with client.running():
        async with client.within(CONNECT_SECONDS, "order by"):
            await client.connected.wait()
        await client.publish(steer_topic(fleet, f"requests/{id}"), order, retain=True)


async def outcome(broker: MqttSettings, repository: Repository, id: str, wait: float) -> str | None:
    """What the controller made of an order within ``wait`` seconds; None: it has not taken it. Raises OSError and
    ValueError."""
    until = time.monotonic() + wait
    while True:
        said = await report(broker, repository)
        if said is not None and id in said["requests"]:
            return str(said["requests"][id])
        if time.monotonic() > until:
            return None
        await asyncio.sleep(1)
