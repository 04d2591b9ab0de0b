"""What tests of MQTT clients share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from vedette.mqtt.client import MqttClient
from vedette.mqtt.settings import MqttSettings

QUICK = (0.05, 0.2)


@asynccontextmanager
async def connected(broker: MqttSettings | str, name: str, **options: Any) -> AsyncIterator[MqttClient]:
    """A connected client that is closed at the end."""
    settings = broker if isinstance(broker, MqttSettings) else MqttSettings(url=broker)
    client = MqttClient(settings, name, **{"backoff": QUICK, **options})
    async with client.running():
        await client.connected.wait()
        yield client
