"""Withdraw what a channel holds: a signed bundle without rules, under the next version, so that its agents run none.

To an agent it is a bundle as any other: its version only rises, it is verified before it is believed, and the bundle
before it is one rollback away. Rules come back with the next bundle that is published.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from vedette.engine.artifact import Artifact
from vedette.mqtt.settings import MqttSettings
from vedette.plan.plan import Plan
from vedette.region.build import build
from vedette.region.publish import Published, held, publish
from vedette.region.sign import sign

NAME = "withdrawn"
DAYS = 3650
"""Until it expires: an agent that was off for long takes it, too."""


async def withdraw(
    broker: MqttSettings, key: Ed25519PrivateKey, *, fleet: str, channel: str,
    clock: Callable[[], int] = lambda: time.time_ns() // 1000,
) -> Published:  # fmt: skip
    """Raises ValueError when nothing is published there, and as ``publish`` does."""
    version = await held(broker, fleet, channel)
    if version is None:
        raise ValueError(f"fleet {fleet}, channel {channel}: nothing is published")
    artifact, now = Artifact.of(Plan((), (), ())), clock()
    data = build(
        name=NAME,
        version=version + 1,
        created=now,
        expires=now + DAYS * 86_400_000_000,
        plan=artifact.plan,
        databases=artifact.databases,
        sources={},
        rules=[],
        tests=[],
        hyperscan_version=artifact.library,
    )
    return await publish(broker, sign(data, key, fleet, channel), clock=clock)
