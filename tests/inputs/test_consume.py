"""The Kafka input against librdkafka's own mock broker: each record once, whatever happens to the group and the topic.

``test_consume_broker.py`` has what only a real broker shows. A test that starts the input again takes five seconds: so
long the mock broker waits for other members of a group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.inputs.consumed import consuming, numbered, numbers
from tests.inputs.intake import Bin
from tests.inputs.test_acknowledge import Disk
from tests.waits import DEADLINE, eventually
from vedette.decode.decoder import record
from vedette.inputs import acknowledge
from vedette.model.counters import Counters
from vedette.model.event import MAX_EVENT, Flag

pytest.importorskip("confluent_kafka", reason="needs confluent-kafka: pip install 'vedette[kafka]'")

from tests.kafka.mocked import HEARTBEAT, UNKNOWN_MEMBER, Mocked, committed, mocked, send, send_header


@pytest.fixture(scope="module")
def broker() -> Iterator[Mocked]:
    with mocked() as started:
        yield started


def assignments(logs: list[Any]) -> int:
    return sum(entry["event"] == "broker_connected" for entry in logs)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop does not wait long for a disk that takes nothing."""
    monkeypatch.setattr(acknowledge, "DRAIN_SECONDS", 0.05)


async def test_what_a_record_is(broker: Mocked) -> None:
    """Bytes as they were sent; one without a value is no event, an empty one is; several JSON events are as many; what
    is too long is cut; key and headers are fields where they are asked for."""
    name, bin, counters = broker.create("records"), Bin(), Counters()
    send(broker.address, name, [b"plain\xff", None, b"", b'{"a":1}\n{"a":2}', b"two\nlines"])
    send(broker.address, name, [b"keyed"], key=b"web-1&x", headers=[("tenant", b"a b"), ("other", b"x")])
    async with consuming(broker.address, bin, counters, topics=(name,), group=name, key=True, headers=("tenant",)):
        await eventually("6 events", lambda: len(bin.events) >= 6)
        assert bin.events == [b"plain\xff", b"\n", b'{"a":1}', b'{"a":2}', b"two\nlines", b"keyed"]
        last = record(b"keyed", "auto", origin=next(reversed(bin.by_origin)))
        first = record(b"plain", "auto", origin=next(iter(bin.by_origin)))
    assert last.get("kafka.key") == "web-1&x"
    assert last.get("kafka.headers.tenant") == "a b"
    assert (last.get("kafka.topic"), last.get("kafka.partition"), last.host) == ("records", 0, None)
    assert "kafka.headers.other" not in dict(last.fields())
    assert "kafka.key" not in dict(first.fields())


async def test_partitions_in_the_order_of_time(broker: Mocked) -> None:
    """Minutes that wait in four partitions come minute by minute: at the start, and after a while in which the raw log
    took nothing. A partition without a record holds nothing up."""
    from confluent_kafka import Producer

    name, bin, counters = broker.create("minutes", 5), Bin(), Counters()

    def minutes(begin: int, end: int) -> None:
        producer = Producer({"bootstrap.servers": broker.address, "log_level": 0, "linger.ms": 100})
        for partition in range(4):
            for minute in range(begin, end):
                first = 2400 * minute + 600 * partition
                time = 1_790_000_000_000 + 60_000 * minute
                for value in numbered(first, first + 600):
                    producer.produce(name, value, partition=partition, timestamp=time)
        assert producer.flush(DEADLINE) == 0

    minutes(0, 2)
    async with consuming(broker.address, bin, counters, topics=(name,), group=name) as consumer:
        await eventually("the first", lambda: len(bin.events) == 4800 and not consumer._aligned._behind)
        bin.close()
        await eventually("the pause", lambda: consumer._paused)
        await asyncio.to_thread(minutes, 2, 4)
        bin.reopen()
        await eventually("the rest", lambda: len(bin.events) == 9600)
    assert [int(event.split()[1]) // 2400 for event in bin.events] == [n // 2400 for n in range(9600)]


async def test_a_header_that_is_not_utf_8(broker: Mocked) -> None:
    """Its record is taken without headers, counted, said once for its topic; what follows has its own. So many that
    Python's specialized calls come to them."""
    name, bin, counters = broker.create("names"), Bin(), Counters()
    send(broker.address, name, [b"before"] * 100, headers=[("tenant", b"t")])
    send_header(broker.address, name, [b"\xff\xfe", b"tenant\xff"] * 20)
    send(broker.address, name, [b"after"], headers=[("tenant", b"t")])
    with capture_logs() as logs:
        async with consuming(broker.address, bin, counters, topics=(name,), group=name, headers=("tenant",)):
            await eventually("141 events", lambda: len(bin.events) == 141)
    assert bin.by_origin == {
        "kafka:names/0": [b"hostile"] * 40,
        "kafka:names/0?h.tenant=t": [b"before"] * 100 + [b"after"],
    }
    assert counters.totals["decode_failed"] == 40
    assert [line["topic"] for line in logs if line["event"] == "payload_undecodable"] == [name]


async def test_too_long(broker: Mocked) -> None:
    """A record above MAX_EVENT is cut and flagged, and what follows it comes."""
    name, bin, counters = broker.create("long"), Bin(), Counters()
    send(broker.address, name, [b"x" * (MAX_EVENT + 3_000_000), b"next"])
    async with consuming(broker.address, bin, counters, topics=(name,), group=name):
        await eventually("2 events", lambda: len(bin.events) == 2)
    assert [len(event) for event in bin.events] == [MAX_EVENT, 4]
    assert counters.cut["in"] == 1
    assert bin.chunks[0].marks == ((0, int(Flag.CUT)),)


@pytest.mark.usefixtures("impatient")
async def test_once_over_restarts(broker: Mocked) -> None:
    """It goes on from what the raw log holds, also where the group's offset was never committed; the group has the same
    offset in the end."""
    # Over 3 s: the broker takes a member into the group three times.
    name, bin, counters = broker.create("restarts", 2), Disk(), Counters()
    for begin in (0, 500):
        send(broker.address, name, numbered(begin, begin + 500))
        async with consuming(broker.address, bin, counters, topics=("^rest.rts$",), group="r"):
            await eventually("the events", lambda end=begin + 500: len(bin.events) >= end)  # type: ignore[misc]
    assert numbers(bin) == list(range(1000))
    await bin.sync(1 << 60)
    send(broker.address, name, numbered(1000, 1001))
    async with consuming(broker.address, bin, counters, topics=(name,), group="r"):
        await eventually("the events", lambda: len(bin.events) > 1000)
    assert numbers(bin) == list(range(1001))
    assert committed(broker.address, name, "r", 2) == 1001


@pytest.mark.long
@pytest.mark.usefixtures("impatient")
async def test_a_session_that_is_lost_commits_nothing_that_is_not_on_disk(broker: Mocked) -> None:
    """Received, not on disk, and the session is lost before a first commit: it goes on where it was. The group's
    offset stays, so that after a kill all of it is read again."""
    name, bin, counters = broker.create("lost"), Disk(), Counters()
    send(broker.address, name, numbered(0, 10))
    with capture_logs() as logs:
        async with consuming(broker.address, bin, counters, topics=(name,), group="l"):
            await eventually("10 events", lambda: len(bin.events) == 10)
            with broker.refusing(HEARTBEAT, UNKNOWN_MEMBER):
                await eventually("a second assignment", lambda: assignments(logs) >= 2)
            send(broker.address, name, numbered(10, 11))
            await eventually("11 events", lambda: len(bin.events) == 11)
    assert numbers(bin) == list(range(11))
    assert committed(broker.address, name, "l") == 0
    after = Disk()  # of what was received nothing is there
    async with consuming(broker.address, after, Counters(), topics=(name,), group="l"):
        await eventually("11 events", lambda: len(after.events) == 11)
        await after.sync(1 << 60)
    assert committed(broker.address, name, "l") == 11


@pytest.mark.usefixtures("impatient")
async def test_what_reaches_the_disk_late_is_not_committed_for_the_topic_that_was_made_again(broker: Mocked) -> None:
    """The disk has the old topic's records when the new one is read already: the group's offset is of the new one."""
    name, bin, counters = broker.create("late"), Disk(), Counters()
    send(broker.address, name, numbered(0, 10))
    with capture_logs() as logs:
        async with consuming(broker.address, bin, counters, topics=(name,), group="m", look=0.1):
            await eventually("10 events", lambda: len(bin.events) == 10)
            stored = sum(len(chunk.data) for chunk in bin.chunks)
            broker.delete(name)
            broker.create(name)
            send(broker.address, name, numbered(10, 13))
            await eventually("a second assignment", lambda: assignments(logs) >= 2)
            await eventually("13 events", lambda: len(bin.events) == 13)
            await bin.sync(stored)
    assert committed(broker.address, name, "m") == 0
    assert numbers(bin) == list(range(13))


# Takes over a session's time, which is its subject.
@pytest.mark.long
async def test_back_pressure(broker: Mocked) -> None:
    """While the raw log takes nothing, nothing is read and the member stays in its group, longer than its session."""
    name, bin, counters = broker.create("pressure", 2), Bin(), Counters()
    with capture_logs() as logs:
        async with consuming(broker.address, bin, counters, topics=(name,), group="p") as consumer:
            send(broker.address, name, numbered(0, 10))
            await eventually("10 events", lambda: len(bin.events) == 10)
            bin.close()
            await eventually("the pause", lambda: consumer._paused)
            send(broker.address, name, numbered(10, 1000))
            before = consumer.empty  # turns that wait for a record in vain, POLL_SECONDS each
            await eventually("turns of a session and more", lambda: consumer.empty > before + consumer.a_session)
            assert len(bin.events) == 10
            bin.reopen()
            await eventually("1000 events", lambda: len(bin.events) == 1000)
    assert numbers(bin) == list(range(1000))
    assert assignments(logs) == 1


@pytest.mark.long
async def test_two_in_a_group(broker: Mocked) -> None:
    """A second agent gets some of the partitions, goes on where the first stopped, and the first takes them back: no
    record is lost, none comes twice."""
    name, bins, counters = broker.create("shared", 4), (Bin(), Bin()), (Counters(), Counters())
    end = 0

    async def more() -> None:
        nonlocal end
        end += 400
        await asyncio.to_thread(send, broker.address, name, numbered(end - 400, end))
        await eventually("all events", lambda: sum(len(bin.events) for bin in bins) >= end)

    common: dict[str, Any] = {"topics": (name,), "group": "g"}
    async with consuming(broker.address, bins[0], counters[0], **common) as first:
        await more()
        async with consuming(broker.address, bins[1], counters[1], who="b", **common) as second:
            while not len(first._reading) == len(second._reading) == 2 or not bins[1].events:
                await more()  # all of a burst may go to one partition
        await eventually("the partitions of the second", lambda: len(first._reading) == 4)  # its session is over
        await more()
    assert numbers(*bins) == list(range(end))


async def test_the_topic_is_made_again(broker: Mocked) -> None:
    """While the agent is away, larger than before: it is read from its start, and that is counted and logged."""
    name, bin, counters = broker.create("again"), Bin(), Counters()
    send(broker.address, name, numbered(0, 10))
    async with consuming(broker.address, bin, counters, topics=(name,), group=name):
        await eventually("10 events", lambda: len(bin.events) == 10)
    broker.delete(name)
    broker.create(name)
    send(broker.address, name, numbered(10, 40))
    with capture_logs() as logs:
        async with consuming(broker.address, bin, counters, topics=(name,), group=name):
            await eventually("40 events", lambda: len(bin.events) == 40)
    assert numbers(bin) == list(range(40))
    assert counters.totals["kafka_gaps"] == 1
    (gap,) = [entry for entry in logs if entry["event"] == "kafka_gap"]
    assert "made again" in gap["reason"]
    assert gap["topic"] == name


@pytest.mark.long
async def test_the_topic_is_made_again_meanwhile(broker: Mocked) -> None:
    """While it is read, and larger than before: nothing of the new one is left out."""
    name, bin, counters = broker.create("meanwhile"), Bin(), Counters()
    send(broker.address, name, numbered(0, 10))
    async with consuming(broker.address, bin, counters, topics=(name,), group=name, look=0.1):
        await eventually("10 events", lambda: len(bin.events) == 10)
        broker.delete(name)
        broker.create(name)
        await asyncio.to_thread(send, broker.address, name, numbered(10, 40))
        await eventually("40 events", lambda: len(bin.events) >= 40)
    assert numbers(bin) == list(range(40))
    assert counters.totals["kafka_gaps"] == 1


async def test_records_are_deleted_before_they_are_read(broker: Mocked) -> None:
    """They are counted as received and dropped."""
    name, bin, counters = broker.create("short"), Bin(), Counters()
    send(broker.address, name, numbered(0, 10))
    async with consuming(broker.address, bin, counters, topics=(name,), group=name):
        await eventually("10 events", lambda: len(bin.events) == 10)
    send(broker.address, name, numbered(10, 30))
    broker.delete_records(name, 0, 25)
    async with consuming(broker.address, bin, counters, topics=(name,), group=name):
        await eventually("15 events", lambda: len(bin.events) == 15)
    assert numbers(bin) == [*range(10), *range(25, 30)]
    assert counters.dropped["in", "vacuumed"] == 15


@pytest.mark.long
async def test_from_the_end(broker: Mocked) -> None:
    """What is there before the first start is skipped, and what comes while it is stopped is not."""
    name, bin, counters = broker.create("end"), Bin(), Counters()
    send(broker.address, name, numbered(0, 10))
    async with consuming(broker.address, bin, counters, topics=(name,), group="e", from_start=False) as consumer:
        await eventually("an assignment", lambda: consumer._reading)
    send(broker.address, name, numbered(10, 20))
    async with consuming(broker.address, bin, counters, topics=(name,), group="e", from_start=False):
        await eventually("10 events", lambda: len(bin.events) == 10)
    assert numbers(bin) == list(range(10, 20))


async def test_the_broker_goes_and_comes() -> None:
    """Away while records come: it is logged once, and each record is there once when it is back; a stop meanwhile does
    not hang."""
    bin, counters = Bin(), Counters()
    with mocked() as broker, capture_logs() as logs:
        name = broker.create("away", 2)
        async with consuming(broker.address, bin, counters, topics=(name,), group=name):
            send(broker.address, name, numbered(0, 100))
            await eventually("100 events", lambda: len(bin.events) == 100)
            broker.down()
            await eventually("a broker that is away", lambda: any(entry["event"] == "broker_away" for entry in logs))
            broker.up()
            await asyncio.to_thread(send, broker.address, name, numbered(100, 200))
            await eventually("200 events", lambda: len(bin.events) >= 200)
        async with consuming(broker.address, bin, counters, topics=(name,), group=name) as consumer:
            await eventually("both partitions", lambda: len(consumer._reading) == 2)
            broker.down()
            await eventually("the report of it", lambda: consumer._reported)
    assert numbers(bin) == list(range(200))
    assert len([entry for entry in logs if entry["event"] == "broker_away"]) < 5
