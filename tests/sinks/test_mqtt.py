"""The MQTT sink against a real mosquitto: taken is what the broker has acknowledged."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker import Broker
from tests.sinks.kit import outgoing, row
from tests.waits import eventually
from vedette.mqtt.client import MqttClient
from vedette.mqtt.connection import Message
from vedette.mqtt.settings import MqttSettings
from vedette.sinks.base import Outgoing, Verdict
from vedette.sinks.mqtt import MqttTopic
from vedette.sinks.settings import MqttSink

pytestmark = pytest.mark.peer


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    acl = tmp_path / "acl"
    acl.write_text("topic readwrite plant/#\n")
    broker = Broker(tmp_path / "broker", extra=[f"acl_file {acl}"])
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()


def opened(broker: Broker, topic: str = "plant/rows", timeout: float = 10.0) -> MqttTopic:
    return MqttTopic(MqttSink("lake", broker=MqttSettings(broker.url), topic=topic, timeout=timeout))


@pytest.mark.parametrize("alerts", [[outgoing(seq) for seq in range(1, 51)], [row(seq) for seq in range(1, 1001)]])
async def test_taken(broker: Broker, alerts: list[Outgoing]) -> None:
    """Each alert, or row, is a message once, in order, with what other sinks send."""
    came: list[Message] = []
    listener = MqttClient(MqttSettings(broker.url), "listener", subscriptions=["plant/#"], on_message=came.append)
    async with listener.running():
        await listener.connected.wait()
        receiver = opened(broker)
        answers = await receiver.deliver(alerts)
        await receiver.close()
        assert {answer.verdict for answer in answers} == {Verdict.TAKEN}
        await eventually("all messages", lambda: len(came) >= len(alerts))
    assert [message.payload for message in came] == [
        alert.line or json.dumps(alert.row, separators=(",", ":"), ensure_ascii=False).encode() for alert in alerts
    ]
    assert {(message.topic, message.retain) for message in came} == {("plant/rows", False)}


async def test_away_and_refused(broker: Broker) -> None:
    """While the broker is away, and for a topic that its access list refuses, alerts are for later, with the reason;
    they are taken once it is back."""
    receiver = opened(broker, "secret/rows")
    (answer,) = await receiver.deliver([row()])
    assert (answer.verdict, "refuses a message on secret/rows" in answer.text) == (Verdict.LATER, True)
    await receiver.close()
    broker.kill()
    receiver = opened(broker, timeout=0.5)
    answers = await receiver.deliver([row(1), row(2)])
    assert [answer.verdict for answer in answers] == [Verdict.LATER] * 2
    assert answers[0].text
    broker.start()
    while answers[0].verdict is Verdict.LATER:
        answers = await receiver.deliver([row(1), row(2)])
    assert [answer.verdict for answer in answers] == [Verdict.TAKEN] * 2
    delivering = asyncio.create_task(receiver.deliver([row(3)]))
    await delivering
    await receiver.close()
