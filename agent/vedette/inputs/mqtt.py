"""``[[input]] type = "mqtt"``: its settings. The transport is in ``subscribe.py``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from vedette.inputs.base import InputSettings, Running, Surroundings
from vedette.model.settings import INTERNAL, Name, Seconds
from vedette.mqtt.settings import MqttSettings


@dataclass(frozen=True, slots=True)
class MqttInput(InputSettings):
    """An MQTT 5 subscription with QoS 1 and a persistent session."""

    name: Name = "mqtt"
    topics: tuple[str, ...] = ()
    broker: MqttSettings = MqttSettings()
    session_expiry: Seconds = 7 * 86400.0
    client_id: str = field(default="", metadata=INTERNAL)
    receive_maximum: int = field(default=1000, metadata=INTERNAL)

    @property
    def codec(self) -> str:
        return "mqtt" if self.format == "auto" else self.format

    def needed_files(self) -> tuple[Path | None, ...]:
        broker = self.broker
        return (broker.ca_file, broker.cert_file, broker.key_file, broker.password_file)

    def mistakes(self) -> Iterator[str]:
        if not self.topics:
            yield ": needs topics"

    async def open(self, given: Surroundings, descriptors: int) -> Running:
        import asyncio

        from vedette.inputs.subscribe import MqttSubscription

        recent = await asyncio.to_thread(lambda: list(given.recent(self.name)))
        return MqttSubscription(
            self, given.intake, given.counters, agent_id=given.agent_id, recent=recent, clock=given.clock
        )
