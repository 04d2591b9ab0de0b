"""``[[sink]] type = "mqtt"``: its receiver. An alert or a row is a message of the topic, its JSON object, by QoS 1.

Delivery: TAKEN is the broker's PUBACK, also where it says that nobody subscribes. A message that it refuses, for its
access list or a quota, is LATER, as all is while it is away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from vedette.mqtt.client import MqttClient
from vedette.mqtt.connection import Session
from vedette.sinks.base import Answer, Outgoing, Verdict
from vedette.sinks.formats import formed
from vedette.sinks.settings import MqttSink

BATCH, ROW_BATCH = 100, 1000


class MqttTopic:
    """A topic, and the client that stays connected to its broker from the first message on."""

    batch, row_batch = BATCH, ROW_BATCH

    def __init__(self, settings: MqttSink) -> None:
        self._settings = settings
        self._open: tuple[MqttClient, asyncio.Task[None]] | None = None

    async def deliver(self, alerts: Sequence[Outgoing]) -> list[Answer]:
        client, seconds = self._client(alerts[0]), self._settings.timeout
        try:
            async with asyncio.timeout(seconds):
                await client.connected.wait()
        except TimeoutError:
            return [Answer(Verdict.LATER, client.outage or f"not connected within {seconds:g} s")] * len(alerts)
        return list(await asyncio.gather(*(self._publish(client, alert) for alert in alerts)))

    async def _publish(self, client: MqttClient, alert: Outgoing) -> Answer:
        try:
            heard = await client.publish(self._settings.topic, formed(alert, "json", ""))
        except (ConnectionError, PermissionError) as error:
            return Answer(Verdict.LATER, str(error))
        return Answer(Verdict.TAKEN, "acknowledged by the broker" if heard else "acknowledged, and nobody subscribes")

    def _client(self, first: Outgoing) -> MqttClient:
        if self._open is None or self._open[1].done():
            part = "-rows" if first.line else ""
            name = f"vedette-{first.row['agent_id']}-sink-{self._settings.name}{part}"
            client = MqttClient(self._settings.broker, name, session=Session(clean_start=True))
            self._open = client, asyncio.create_task(client.run())
        return self._open[0]

    async def close(self) -> None:
        if self._open is not None:
            (client, running), self._open = self._open, None
            await client.close()
            running.cancel()
            await asyncio.wait({running})
