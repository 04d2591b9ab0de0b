"""The Kafka sink against a real broker: an alert is taken when it is there for good, and what cannot be is said."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sinks.kit import hostile, outgoing
from tests.spark_jobs import kafka
from vedette.model.event import Entity
from vedette.sinks.base import Receiver, Verdict
from vedette.sinks.settings import KafkaSink

confluent = pytest.importorskip("confluent_kafka", reason="needs confluent-kafka: pip install 'vedette[kafka]'")

pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(not kafka.JARS.exists(), reason="no jars in build/jars: run tools/jars.sh"),
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafka.Kafka]:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    made = kafka.Kafka(tmp_path_factory.mktemp("kafka"))
    try:
        made.start()
        admin = AdminClient({"bootstrap.servers": made.address, "log_level": 0})
        topics = [NewTopic("alerts", 4), NewTopic("small", 1, config={"max.message.bytes": "3000"})]
        for work in admin.create_topics(topics).values():
            work.result(30)
        yield made
    finally:
        made.kill()


def opened(broker: kafka.Kafka, topic: str = "alerts", **settings: Any) -> Receiver:
    given = {"brokers": (broker.address,), "tls": False, "timeout": 10.0, **settings}
    return KafkaSink("bus", topic=topic, **given).open("1.2")


def records(broker: kafka.Kafka, topic: str = "alerts", partitions: int = 4) -> list[Any]:
    """All messages of a topic."""
    consumer = confluent.Consumer({"bootstrap.servers": broker.address, "group.id": "t", "log_level": 0})
    try:
        places = [confluent.TopicPartition(topic, i, 0) for i in range(partitions)]
        left = sum(consumer.get_watermark_offsets(one, timeout=20)[1] for one in places)
        consumer.assign(places)
        found: list[Any] = []
        while len(found) < left:
            got = consumer.consume(left - len(found), 10)
            assert got
            found += got
        return found
    finally:
        consumer.close()


async def test_records(broker: kafka.Kafka) -> None:
    """Each alert is a record once, keyed so that those of one entity are in one partition, in order."""
    entities = [(Entity("ip", f"192.0.2.{i % 7}"),) for i in range(400)]
    alerts = [hostile(1), *(outgoing(i, entities=entities[i]) for i in range(2, 400))]
    receiver = opened(broker, key="entity")
    answers = await receiver.deliver(alerts)
    await receiver.close()
    assert {one.verdict for one in answers} == {Verdict.TAKEN}
    found = records(broker)
    assert sorted(json.loads(one.value())["alert_id"] for one in found) == sorted(one.id for one in alerts)
    for address in {one.key() for one in found}:
        own = [one for one in found if one.key() == address]
        assert len({one.partition() for one in own}) == 1
        seqs = [json.loads(one.value())["seq"] for one in own]
        assert seqs == sorted(seqs)
    one = next(one for one in found if json.loads(one.value())["seq"] == 1)
    assert dict(one.headers()) == {"alert_id": alerts[0].id.encode(), "level": alerts[0].row["level"].encode()}
    assert json.loads(one.value())["raw"] == alerts[0].row["raw"]


async def test_too_large(broker: kafka.Kafka) -> None:
    """An alert that the topic does not take is refused, those that went in one batch with it are taken."""
    from hashlib import shake_256

    noise = shake_256(b"noise").hexdigest(60_000)
    receiver = opened(broker, "small")
    answers = await receiver.deliver(
        [outgoing(1), outgoing(2, fields={f"f{i}": noise[i * 500 :][:500] for i in range(20)}), outgoing(3)]
    )
    await receiver.close()
    assert [one.verdict for one in answers] == [Verdict.TAKEN, Verdict.REFUSED, Verdict.TAKEN]
    assert "MSG_SIZE_TOO_LARGE" in answers[1].text


async def test_no_topic_and_no_password(broker: kafka.Kafka, tmp_path: Path) -> None:
    """A topic that is missing, a file that is, and a password that is wrong are tried later, and are named; the
    password is right once its file is."""
    receiver = opened(broker, "missing", timeout=1.0)
    (answer,) = await receiver.deliver([outgoing(1)])
    await receiver.close()
    assert answer.verdict is Verdict.LATER
    assert "UNKNOWN_TOPIC" in answer.text
    password = tmp_path / "password"
    scram = {"sasl": "scram-sha-512", "username": kafka.USER, "password_file": password}
    receiver = opened(broker, brokers=(broker.at("SASL"),), timeout=1.5, **scram)
    (answer,) = await receiver.deliver([outgoing(1)])
    assert (answer.verdict, "password" in answer.text) == (Verdict.LATER, True)
    password.write_text("wrong")
    (answer,) = await receiver.deliver([outgoing(1)])
    assert (answer.verdict, "AUTHENTICATION" in answer.text.upper()) == (Verdict.LATER, True)
    password.write_text(kafka.PASSWORD)
    verdict = Verdict.LATER
    for _ in range(10):
        if verdict is Verdict.LATER:
            verdict = (await receiver.deliver([outgoing(1)]))[0].verdict
    assert verdict is Verdict.TAKEN
    await receiver.close()


async def test_the_broker_goes_and_comes(broker: kafka.Kafka) -> None:
    """While it is away alerts are for later, a stop ends that at once, and all are there once it is back."""
    receiver = opened(broker, "small", timeout=1.0)
    before = len(records(broker, "small", 1))
    broker.kill()
    answers = await receiver.deliver([outgoing(i) for i in range(20, 25)])
    assert {one.verdict for one in answers} == {Verdict.LATER}
    waiting = asyncio.create_task(opened(broker, "small", timeout=300.0).deliver([outgoing(30)]))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(waiting, 1)
    await asyncio.to_thread(broker.start)
    while any(one.verdict is Verdict.LATER for one in answers):
        answers = await receiver.deliver([outgoing(i) for i in range(20, 25)])
    await receiver.close()
    found = [json.loads(one.value())["seq"] for one in records(broker, "small", 1)[before:]]
    assert {20, 21, 22, 23, 24} <= set(found)
