"""The Kafka sink against librdkafka's own mock broker: an alert is taken when it is there, and what cannot be is said.

``test_kafka_broker.py`` has what only a real broker shows.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.mocked import UNKNOWN_TOPIC, Mocked, mocked
from tests.sinks.kit import hostile, outgoing
from tests.waits import DEADLINE
from vedette.model.event import Entity
from vedette.sinks import opening
from vedette.sinks.base import Receiver, Verdict
from vedette.sinks.settings import KafkaSink

confluent = pytest.importorskip("confluent_kafka", reason="needs confluent-kafka: pip install 'vedette[kafka]'")


@pytest.fixture
def broker() -> Iterator[Mocked]:
    with mocked() as started:
        yield started


def opened(address: str, topic: str, **settings: Any) -> Receiver:
    settings = {"brokers": (address,), "tls": False, "timeout": 10.0, **settings}
    return opening.opened(KafkaSink("bus", topic=topic, **settings), "1.2")


def records(address: str, topic: str, partitions: int = 1) -> list[Any]:
    """All messages of a topic."""
    consumer = confluent.Consumer({"bootstrap.servers": address, "group.id": "t", "log_level": 0})
    try:
        places = [confluent.TopicPartition(topic, i, 0) for i in range(partitions)]
        count = sum(consumer.get_watermark_offsets(place, timeout=DEADLINE)[1] for place in places)
        consumer.assign(places)
        messages: list[Any] = []
        while len(messages) < count:
            messages += consumer.consume(count - len(messages), DEADLINE)
        return messages
    finally:
        consumer.close()


def seqs(address: str, topic: str) -> list[int]:
    return [json.loads(message.value())["seq"] for message in records(address, topic)]


async def test_records(broker: Mocked) -> None:
    """Each alert is a record once, keyed so that those of one entity are in one partition, in order."""
    topic = broker.create("alerts", 4)
    entities = [(Entity("ip", f"192.0.2.{i % 7}"),) for i in range(400)]
    alerts = [hostile(1), *(outgoing(i, entities=entities[i]) for i in range(2, 400))]
    receiver = opened(broker.address, topic, key="entity")
    answers = await receiver.deliver(alerts)
    await receiver.close()
    assert {answer.verdict for answer in answers} == {Verdict.TAKEN}
    messages = records(broker.address, topic, 4)
    assert sorted(json.loads(message.value())["alert_id"] for message in messages) == sorted(
        alert.id for alert in alerts
    )
    for key in {message.key() for message in messages}:
        of_key = [message for message in messages if message.key() == key]
        assert len({message.partition() for message in of_key}) == 1
        in_order = [json.loads(message.value())["seq"] for message in of_key]
        assert in_order == sorted(in_order)
    first = next(message for message in messages if json.loads(message.value())["seq"] == 1)
    assert dict(first.headers()) == {"alert_id": alerts[0].id.encode(), "level": alerts[0].row["level"].encode()}
    assert json.loads(first.value())["raw"] == alerts[0].row["raw"]


async def test_no_topic_and_no_password(broker: Mocked, tmp_path: Path) -> None:
    """A topic that is missing and a password's file that is are for later, and are named."""
    broker.forbid(broker.create("missing"), UNKNOWN_TOPIC)
    receiver = opened(broker.address, "missing", timeout=1.0)
    (answer,) = await receiver.deliver([outgoing(1)])
    await receiver.close()
    assert answer.verdict is Verdict.LATER
    assert "UNKNOWN_TOPIC" in answer.text
    scram = {"sasl": "scram-sha-512", "username": "u", "password_file": tmp_path / "password"}
    receiver = opened(broker.address, "alerts", timeout=1.5, **scram)
    (answer,) = await receiver.deliver([outgoing(1)])
    await receiver.close()
    assert (answer.verdict, "password" in answer.text) == (Verdict.LATER, True)


async def test_the_broker_goes_and_comes(broker: Mocked) -> None:
    """While it is away alerts are for later, a stop ends that at once, and all are there once it is back."""
    topic = broker.create("alerts")
    receiver = opened(broker.address, topic, timeout=1.0)
    broker.down()
    answers = await receiver.deliver([outgoing(i) for i in range(20, 25)])
    assert {answer.verdict for answer in answers} == {Verdict.LATER}
    waiting = asyncio.create_task(opened(broker.address, topic, timeout=3600.0).deliver([outgoing(30)]))
    await receiver.deliver([outgoing(20)])  # as long as that, the other one waits
    assert not waiting.done()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    broker.up()
    while any(answer.verdict is Verdict.LATER for answer in answers):
        answers = await receiver.deliver([outgoing(i) for i in range(20, 25)])
    await receiver.close()
    assert {20, 21, 22, 23, 24} <= set(seqs(broker.address, topic))
