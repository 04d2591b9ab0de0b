"""The Kafka input against a real broker: each record once, whatever happens to the broker, the group and the topic."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.certificates import Authority
from tests.inputs.intake import Bin, account, until
from tests.spark_jobs import kafka
from vedette.decode.decoder import record
from vedette.inputs.kafka import KafkaInput
from vedette.model.counters import Counters
from vedette.model.event import MAX_EVENT, Flag

confluent = pytest.importorskip("confluent_kafka", reason="needs confluent-kafka: pip install 'vedette[kafka]'")

pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(not kafka.JARS.exists(), reason="no jars in build/jars: run tools/jars.sh"),
]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[kafka.Kafka]:
    certificate, key = authority.issue("broker")
    keystore = authority.folder / "keystore.pem"
    keystore.write_text(key.read_text() + certificate.read_text())
    made = kafka.Kafka(tmp_path_factory.mktemp("kafka"), (authority.ca, keystore))
    try:
        made.start()
        yield made
    finally:
        made.kill()


def topic(broker: kafka.Kafka, name: str, partitions: int = 2, *, delete: bool = False) -> str:
    """Make a topic, or delete it, and wait until the broker says so."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
    work = admin.delete_topics([name]) if delete else admin.create_topics([NewTopic(name, partitions)])
    work[name].result(30)
    deadline = time.monotonic() + 30
    while (name in admin.list_topics(timeout=10).topics) is delete:
        assert time.monotonic() < deadline
    return name


def send(broker: kafka.Kafka, name: str, values: list[bytes | None], **more: Any) -> None:
    producer = confluent.Producer(
        {"bootstrap.servers": broker.address, "log_level": 0, "linger.ms": 5, "message.max.bytes": 5_000_000}
    )
    failed: list[Any] = []
    for value in values:
        producer.produce(name, value, on_delivery=lambda error, _: failed.append(error) if error else None, **more)
    assert producer.flush(30) == 0
    assert not failed


def numbered(begin: int, end: int) -> list[bytes | None]:
    return [b"event %d" % i for i in range(begin, end)]


def numbers(*bins: Bin) -> list[int]:
    return sorted(int(event.split()[1]) for bin in bins for event in bin.events)


def committed(broker: kafka.Kafka, name: str, group: str = "vedette", partitions: int = 2) -> int:
    """The sum of what the group has committed."""
    consumer = confluent.Consumer({"bootstrap.servers": broker.address, "group.id": group, "log_level": 0})
    try:
        places = [confluent.TopicPartition(name, i) for i in range(partitions)]
        return sum(max(one.offset, 0) for one in consumer.committed(places, timeout=20))
    finally:
        consumer.close()


@asynccontextmanager
async def consuming(
    broker: kafka.Kafka, bin: Bin, counters: Counters, *, who: str = "a", **settings: Any
) -> AsyncIterator[Any]:
    from vedette.inputs.consume import KafkaConsumer

    given = {"brokers": (broker.address,), "tls": False, "session_timeout": 2.0, **settings}
    consumer = KafkaConsumer(
        KafkaInput("in", **given), f"vedette-{who}-in", bin, counters, [*bin.positions.values()], backoff=(0.05, 0.2)
    )
    task = asyncio.create_task(consumer.run())
    try:
        yield consumer
        assert not task.done() or task.exception() is None
    finally:
        await consumer.stop()
        await task
    account(counters, bin, "in")


async def test_what_a_record_is(broker: kafka.Kafka) -> None:
    """Bytes as they were sent; one without a value is no event, an empty one is; several JSON events are as many; what
    is too long is cut; key and headers are fields where they are asked for."""
    name, bin, counters = topic(broker, "records", 1), Bin(), Counters()
    send(broker, name, [b"plain\xff", None, b"", b'{"a":1}\n{"a":2}', b"two\nlines"])
    send(broker, name, [b"keyed"], key=b"web-1&x", headers=[("tenant", b"a b"), ("other", b"x")])
    async with consuming(broker, bin, counters, topics=(name,), key=True, headers=("tenant",)):
        await until(lambda: len(bin.events) >= 6, 30)
        assert bin.events == [b"plain\xff", b"\n", b'{"a":1}', b'{"a":2}', b"two\nlines", b"keyed"]
        last = record(b"keyed", "auto", origin=next(reversed(bin.by_origin)))
        first = record(b"plain", "auto", origin=next(iter(bin.by_origin)))
    assert last.get("kafka.key") == "web-1&x"
    assert last.get("kafka.headers.tenant") == "a b"
    assert (last.get("kafka.topic"), last.get("kafka.partition"), last.host) == ("records", 0, None)
    assert "kafka.headers.other" not in dict(last.fields())
    assert "kafka.key" not in dict(first.fields())


async def test_too_long(broker: kafka.Kafka) -> None:
    """A record above MAX_EVENT is cut and flagged, and what follows it comes."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
    made = admin.create_topics([NewTopic("long", 1, config={"max.message.bytes": "5000000"})])
    made["long"].result(30)
    send(broker, "long", [b"x" * (MAX_EVENT + 3_000_000), b"next"])
    bin, counters = Bin(), Counters()
    async with consuming(broker, bin, counters, topics=("long",)):
        await until(lambda: len(bin.events) == 2, 30)
    assert [len(one) for one in bin.events] == [MAX_EVENT, 4]
    assert counters.cut["in"] == 1
    assert bin.chunks[0].marks == ((0, int(Flag.CUT)),)


async def test_once_over_restarts(broker: kafka.Kafka) -> None:
    """It goes on from what the raw log holds, also where the group's offset was never committed; the group has the same
    offset in the end."""
    name, bin, counters = topic(broker, "restarts"), Bin(), Counters()
    bin.durable = lambda offset: asyncio.Event().wait()  # type: ignore[assignment,method-assign]  # never on disk
    for begin in (0, 500):
        send(broker, name, numbered(begin, begin + 500))
        async with consuming(broker, bin, counters, topics=("^rest.rts$",), group="r"):
            await until(lambda end=begin + 500: len(bin.events) >= end, 30)  # type: ignore[misc]
        assert committed(broker, name, "r") == 0
    assert numbers(bin) == list(range(1000))
    del bin.durable
    send(broker, name, numbered(1000, 1001))
    async with consuming(broker, bin, counters, topics=(name,), group="r"):
        await until(lambda: len(bin.events) > 1000, 30)
    assert numbers(bin) == list(range(1001))
    assert committed(broker, name, "r") > 0


async def test_back_pressure(broker: kafka.Kafka) -> None:
    """While the raw log takes nothing, nothing is read and the member stays in its group, longer than its session."""
    name, bin, counters = topic(broker, "pressure"), Bin(), Counters()
    async with consuming(broker, bin, counters, topics=(name,), session_timeout=1.0) as consumer:
        send(broker, name, numbered(0, 10))
        await until(lambda: len(bin.events) == 10, 30)
        bin.close()
        await until(lambda: consumer._paused, 10)
        send(broker, name, numbered(10, 1000))
        with pytest.raises(AssertionError, match="in vain"):
            await until(lambda: len(bin.events) > 10, 1.5)
        bin.reopen()
        await until(lambda: len(bin.events) == 1000, 30)
    assert numbers(bin) == list(range(1000))


async def test_two_in_a_group(broker: kafka.Kafka) -> None:
    """A second agent gets some of the partitions, goes on where the first stopped, and the first takes them back: no
    record is lost, none comes twice."""
    name, bins, counters = topic(broker, "shared", 4), (Bin(), Bin()), (Counters(), Counters())
    end = 0

    def more() -> None:
        nonlocal end
        end += 400
        send(broker, name, numbered(end - 400, end))

    async def all_there() -> None:
        await until(lambda: sum(len(one.events) for one in bins) >= end, 30)

    async with consuming(broker, bins[0], counters[0], topics=(name,), group="g") as first:
        more()
        await all_there()
        async with consuming(broker, bins[1], counters[1], who="b", topics=(name,), group="g") as second:
            for _ in range(200):
                if len(first._next) == len(second._next) == 2:
                    break
                more()
                await asyncio.sleep(0.05)
            more()
            await all_there()
            assert bins[1].events
        await until(lambda: len(first._next) == 4, 30)  # when the session of the second is over
        more()
        await all_there()
    assert numbers(*bins) == list(range(end))


async def test_the_topic_is_made_again(broker: kafka.Kafka) -> None:
    """While the agent is away, larger than before: it is read from its start, and that is counted and logged."""
    name, bin, counters = topic(broker, "again", 1), Bin(), Counters()
    send(broker, name, numbered(0, 10))
    async with consuming(broker, bin, counters, topics=(name,)):
        await until(lambda: len(bin.events) == 10, 30)
    topic(broker, name, delete=True)
    topic(broker, name, 1)
    send(broker, name, numbered(10, 40))
    with capture_logs() as logs:
        async with consuming(broker, bin, counters, topics=(name,)):
            await until(lambda: len(bin.events) == 40, 30)
    assert numbers(bin) == list(range(40))
    assert counters.totals["kafka_gaps"] == 1
    (gap,) = [entry for entry in logs if entry["event"] == "kafka_gap"]
    assert "made again" in gap["reason"]
    assert gap["topic"] == name


async def test_the_topic_is_made_again_meanwhile(broker: kafka.Kafka) -> None:
    """While it is read, and larger than before: nothing of the new one is left out."""
    name, bin, counters = topic(broker, "meanwhile", 1), Bin(), Counters()
    send(broker, name, numbered(0, 10))
    async with consuming(broker, bin, counters, topics=(name,), look=0.5):
        await until(lambda: len(bin.events) == 10, 30)
        await asyncio.to_thread(topic, broker, name, delete=True)
        await asyncio.to_thread(topic, broker, name, 1)
        await asyncio.to_thread(send, broker, name, numbered(10, 40))
        await until(lambda: len(bin.events) >= 40, 80)
    assert numbers(bin) == list(range(40))
    assert counters.totals["kafka_gaps"] == 1


async def test_records_are_deleted_before_they_are_read(broker: kafka.Kafka) -> None:
    """They are counted as received and dropped."""
    from confluent_kafka.admin import AdminClient

    name, bin, counters = topic(broker, "short", 1), Bin(), Counters()
    send(broker, name, numbered(0, 10))
    async with consuming(broker, bin, counters, topics=(name,)):
        await until(lambda: len(bin.events) == 10, 30)
    send(broker, name, numbered(10, 30))
    admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
    for work in admin.delete_records([confluent.TopicPartition(name, 0, 25)]).values():
        work.result(30)
    async with consuming(broker, bin, counters, topics=(name,)):
        await until(lambda: len(bin.events) == 15, 30)
    assert numbers(bin) == [*range(10), *range(25, 30)]
    assert counters.dropped["in", "vacuumed"] == 15


async def test_from_the_end(broker: kafka.Kafka) -> None:
    """What is there before the first start is skipped, and what comes while it is stopped is not."""
    name, bin, counters = topic(broker, "end", 1), Bin(), Counters()
    send(broker, name, numbered(0, 10))
    async with consuming(broker, bin, counters, topics=(name,), group="e", from_start=False) as consumer:
        await until(lambda: consumer._next, 30)
    send(broker, name, numbered(10, 20))
    async with consuming(broker, bin, counters, topics=(name,), group="e", from_start=False):
        await until(lambda: bin.events, 30)
    assert numbers(bin) == list(range(10, 20))


async def test_security(broker: kafka.Kafka, authority: Authority, tmp_path: Path) -> None:
    """SCRAM with a password from a file; one that is empty or wrong is logged and tried again, and right once the file
    is; TLS with a client's certificate, and not without."""
    name, password = topic(broker, "secured", 1), tmp_path / "password"
    send(broker, name, numbered(0, 3))
    scram = {"brokers": (broker.at("SASL"),), "sasl": "scram-sha-512", "username": kafka.USER}
    password.write_text("")
    bin, counters = Bin(), Counters()
    with capture_logs() as logs:
        async with consuming(broker, bin, counters, topics=(name,), password_file=password, **scram) as consumer:
            await until(lambda: any("is empty" in entry.get("reason", "") for entry in logs), 30)
            password.write_text("wrong")
            await until(lambda: any(entry["event"] == "broker_refused" for entry in logs), 30)
            assert kafka.PASSWORD not in json.dumps(logs)
            await asyncio.wait_for(consumer.stop(), 20)
    password.write_text(kafka.PASSWORD + "\n")
    async with consuming(broker, bin, counters, topics=(name,), password_file=password, **scram):
        await until(lambda: len(bin.events) == 3, 30)
    certificate, key = authority.issue("agent")
    tls = {"brokers": (broker.at("TLS"),), "tls": True, "ca_file": authority.ca, "group": "tls"}
    with capture_logs() as logs:
        async with consuming(broker, Bin(), Counters(), topics=(name,), **tls):
            await until(lambda: any(entry["event"] in ("broker_refused", "broker_away") for entry in logs), 30)
    bin, counters = Bin(), Counters()
    async with consuming(broker, bin, counters, topics=(name,), cert_file=certificate, key_file=key, **tls):
        await until(lambda: len(bin.events) == 3, 30)


async def test_the_broker_goes_and_comes(broker: kafka.Kafka) -> None:
    """Killed while records come: it is logged once, and each record is there once when it is back; a stop while it is
    away does not hang. (The last test of this broker.)"""
    name, bin, counters = topic(broker, "away"), Bin(), Counters()
    with capture_logs() as logs:
        async with consuming(broker, bin, counters, topics=(name,)):
            send(broker, name, numbered(0, 100))
            await until(lambda: len(bin.events) == 100, 30)
            broker.kill()
            await until(lambda: any(entry["event"] == "broker_away" for entry in logs), 30)
            await asyncio.to_thread(broker.start)
            send(broker, name, numbered(100, 200))
            await until(lambda: len(bin.events) >= 200, 60)
        async with consuming(broker, bin, counters, topics=(name,)) as consumer:
            await until(lambda: len(consumer._next) == 2, 30)
            broker.kill()
            await until(lambda: consumer._reported, 30)
            await asyncio.wait_for(consumer.stop(), 20)
    assert numbers(bin) == list(range(200))
    assert len([entry for entry in logs if entry["event"] == "broker_away"]) < 5
