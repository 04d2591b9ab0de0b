"""``vedette.inputs.subscribe`` against a real mosquitto."""

from __future__ import annotations

import asyncio
import tracemalloc
from contextlib import AbstractAsyncContextManager, closing
from hashlib import md5
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.broker import Broker
from tests.inputs.intake import agent
from tests.mqtt.kit import QUICK, connected
from tests.settings import BoundedMqtt
from tests.waits import eventually
from vedette.config.settings import RawLogSettings
from vedette.inputs.subscribe import MqttSubscription
from vedette.model.counters import Counters
from vedette.model.event import MAX_EVENT, Chunk, Flag, Frame
from vedette.mqtt.client import MqttClient
from vedette.mqtt.connection import Message
from vedette.mqtt.settings import MqttSettings
from vedette.rawlog import format, read
from vedette.rawlog.log import RawLog

pytestmark = pytest.mark.peer


class Log:
    """An intake that keeps frames in a list; ``hold`` keeps them from getting durable, ``full`` from being accepted."""

    def __init__(self, counters: Counters) -> None:
        self.frames: list[Frame] = []
        self.counters = counters
        self.synced = asyncio.Event()
        self.synced.set()
        self.room = asyncio.Event()
        self.room.set()
        self.broken = False

    def store(self, chunk: Chunk) -> int:
        if self.broken:
            raise OSError(5, "Input/output error")
        offset = self.frames[-1].end if self.frames else 0
        self.frames.append(Frame(offset, chunk))
        self.counters.stored[chunk.input] += len(chunk)
        return self.frames[-1].end

    async def durable(self, offset: int) -> None:
        await self.synced.wait()

    def accepting(self) -> bool:
        return self.room.is_set()

    async def ready(self) -> None:
        await self.room.wait()

    def events(self) -> list[tuple[str, bytes, Flag]]:
        return [
            (c.origins[c.origin_of[i]], c.data[start:end], c.flags(start))
            for _, c in self.frames
            for i, (start, end) in enumerate(c.spans())
            if c.origin_of is not None
        ]

    def recent(self) -> list[tuple[int, str, bytes]]:
        """As ``rawlog.read.recent_messages`` gives it."""
        ids = [i for _, c in self.frames for i in c.message_ids or ()]
        return [(i, topic, md5(data).digest()) for i, (topic, data, _) in zip(ids, self.events(), strict=True)]

    def payloads(self) -> list[bytes]:
        return [payload for _, payload, _ in self.events()]


def publisher(broker: Broker) -> AbstractAsyncContextManager[MqttClient]:
    return connected(broker.url, "publisher")


class Input:
    """A running subscription; ``kill`` ends it as a crash would, without acknowledging or disconnecting."""

    def __init__(self, broker: Broker, log: Log, who: str = "a1", **options: Any) -> None:
        options = {"topics": ("plant/#",), **options}
        settings = BoundedMqtt(name="plant", broker=MqttSettings(broker.url), **options)
        self.input = MqttSubscription(settings, agent(log, log.counters, name=who), recent=log.recent(), backoff=QUICK)
        self.task = asyncio.create_task(self.input.run())

    async def connected(self) -> Input:
        await self.input.client.connected.wait()
        return self

    async def kill(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def stop(self) -> None:
        await self.input.stop()
        await self.task


def holds(counters: Counters) -> bool:
    counts = counters.snapshot()["inputs"]["plant"]
    return bool(counts["received"] == counts["stored"] + sum(counts["dropped"].values()))


async def test_messages_become_events(broker: Broker) -> None:
    """Every message is one event, newlines and NULs included, with its topic as origin and its packet identifier."""
    payloads = [b'{"temp": 1}', b"two\nlines", b"", b"\x00\xff", *(b"%d" % i for i in range(2000))]
    log = Log(Counters())
    opened = await Input(broker, log).connected()
    async with publisher(broker) as pub:
        await asyncio.gather(*(pub.publish(f"plant/p{i % 5}", p) for i, p in enumerate(payloads)))
        await pub.publish("plant/q0", b"qos 0", qos=0)
    await eventually("the events", lambda: len(log.events()) == len(payloads) + 1)
    await opened.stop()
    expected = [(f"plant/p{i % 5}", p or b"\n", Flag(0)) for i, p in enumerate(payloads)]
    assert log.events() == [*expected, ("plant/q0", b"qos 0", Flag(0))]
    ids = [i for _, c in log.frames for i in c.message_ids or ()]
    assert all(ids[:-1])
    assert ids[-1] == 0
    assert {c.codec for _, c in log.frames} == {"mqtt"}
    assert len(log.frames) < len(payloads) / 4
    assert log.counters.received["plant"] == log.counters.stored["plant"] == len(payloads) + 1
    assert log.counters.bytes_in["plant"] == sum(len(p or b"\n") for p in payloads) + 5


async def test_a_shared_subscription(broker: Broker) -> None:
    """Two agents of one have each message once, and each has some."""
    logs = Log(Counters()), Log(Counters())
    topics = ("$share/group/plant/#",)
    members = [await Input(broker, log, who, topics=topics).connected() for log, who in zip(logs, "ab", strict=True)]
    sent = [b"%d" % number for number in range(100)]
    async with publisher(broker) as pub:
        for payload in sent:
            await pub.publish("plant/x", payload)
    await eventually("all messages", lambda: sum(len(log.events()) for log in logs) == len(sent))
    assert all(log.events() for log in logs)
    assert {payload for log in logs for payload in log.payloads()} == {*sent}
    for member in members:
        await member.stop()


async def test_acknowledged_only_when_on_disk(broker: Broker) -> None:
    """Messages that are written but not synced come again after a crash, and are then known by the log's tail."""
    log = Log(Counters())
    log.synced.clear()
    opened = await Input(broker, log).connected()
    async with publisher(broker) as pub:
        for i in range(20):
            await pub.publish("plant/x", b"same" if i % 2 else b"%d" % i)
        await eventually("20 events", lambda: len(log.events()) == 20)
        await opened.kill()
        assert "Received PUBACK from vedette-a1-plant" not in broker.log()
        log.synced.set()
        opened = await Input(broker, log).connected()
        await eventually(
            "PUBACK at the broker", lambda: broker.log().count("Received PUBACK from vedette-a1-plant") == 20
        )
        await pub.publish("plant/x", b"same")
        await eventually("21 events", lambda: len(log.events()) == 21)
        await opened.stop()
    assert log.payloads()[:20] == [b"same" if i % 2 else b"%d" % i for i in range(20)]
    assert log.counters.snapshot()["inputs"]["plant"]["dropped"] == {"duplicate": 20}
    assert log.counters.received["plant"] == 41
    assert holds(log.counters)


async def test_a_redelivery_the_log_does_not_hold_is_stored_and_marked(broker: Broker) -> None:
    """When the log's tail was cut, redelivered messages are stored again with Flag.DUP: none is lost."""
    log = Log(Counters())
    log.synced.clear()
    opened = await Input(broker, log).connected()
    async with publisher(broker) as pub:
        for i in range(6):
            await pub.publish("plant/x", b"%d" % i)
            await eventually("a chunk of its own", lambda i=i: len(log.events()) == i + 1)  # type: ignore[misc]
        await opened.kill()
    kept = Log(Counters())
    kept.store(log.frames[0].chunk)
    kept.store(log.frames[1].chunk)
    opened = await Input(broker, kept).connected()
    await eventually("6 events", lambda: len(kept.events()) == 6)
    await opened.stop()
    assert kept.payloads() == [b"%d" % i for i in range(6)]
    assert [flags for _, _, flags in kept.events()] == [Flag(0)] * 2 + [Flag.DUP] * 4
    assert kept.counters.dropped["plant", "duplicate"] == 2


async def test_nothing_is_lost_while_the_agent_is_away(broker: Broker) -> None:
    """What is published while the agent is down, or stopped in order, is in the session when it comes back."""
    log = Log(Counters())
    opened = await Input(broker, log).connected()
    async with publisher(broker) as pub:
        await pub.publish("plant/x", b"0")
        await eventually("an event", lambda: len(log.events()) == 1)
        await opened.stop()
        for i in range(1, 1500):
            await pub.publish("plant/x", b"%d" % i)
        opened = await Input(broker, log, receive_maximum=50).connected()
        await eventually("1500 events", lambda: len(log.events()) == 1500)
        await opened.stop()
    assert log.payloads() == [b"%d" % i for i in range(1500)]
    assert not log.counters.dropped


async def test_duplicates_after_a_reconnect_are_not_stored_twice(broker: Broker) -> None:
    """A connection lost between store and acknowledgement gives each message once in the log."""
    log = Log(Counters())
    log.synced.clear()
    opened = await Input(broker, log).connected()
    async with publisher(broker) as pub:
        for i in range(100):
            await pub.publish("plant/x", b"%d" % i)
        await eventually("100 events", lambda: len(log.events()) == 100)
        for _ in range(2):
            opened.input.client.reconnect()
            await opened.connected()
        await eventually("the count of what was dropped", lambda: log.counters.dropped["plant", "duplicate"] == 200)
        log.synced.set()
        await eventually(
            "PUBACK at the broker", lambda: broker.log().count("Received PUBACK from vedette-a1-plant") == 100
        )
    await opened.stop()
    assert log.payloads() == [b"%d" % i for i in range(100)]
    assert holds(log.counters)


async def test_broker_away_at_start_and_killed_later(tmp_path: Path) -> None:
    """The input waits for its broker, and goes on with a broker that lost its sessions."""
    broker = Broker(tmp_path / "broker")

    try:
        log = Log(Counters())
        opened = Input(broker, log)
        await eventually("the outage", lambda: opened.input.client.outage)
        broker.start()
        await opened.connected()
        async with publisher(broker) as pub:
            await pub.publish("plant/x", b"one")
            await eventually("an event", lambda: len(log.events()) == 1)
        broker.restart()
        await eventually("the connection", lambda: not opened.input.client.connected.is_set())
        await opened.connected()
        async with publisher(broker) as pub:
            await pub.publish("plant/x", b"one")  # the same packet identifier, topic and payload: a new message
            await eventually("2 events", lambda: len(log.events()) == 2)
        await opened.stop()
    finally:
        broker.kill()
    assert log.payloads() == [b"one", b"one"]


async def test_without_room_messages_stay_with_the_broker(broker: Broker) -> None:
    """While the disk budget is reached QoS 1 waits at the broker, QoS 0 is counted as dropped; then all come."""
    log = Log(Counters())
    opened = await Input(broker, log).connected()
    log.room.clear()
    async with publisher(broker) as pub:
        for i in range(30):
            await pub.publish("plant/x", b"%d" % i)
        await pub.publish("plant/y", b"fleeting", qos=0)
        await eventually("the count of what was dropped", lambda: log.counters.dropped["plant", "disk_full"] == 1)
        assert not log.frames
        log.room.set()
        await eventually("30 events", lambda: len(log.events()) == 30)
    await opened.stop()
    assert log.payloads() == [b"%d" % i for i in range(30)]
    assert log.counters.received["plant"] == 31
    assert holds(log.counters)


async def test_long_payloads_are_cut(broker: Broker) -> None:
    """A payload above MAX_EVENT is cut, flagged and counted; its neighbours are whole."""
    log = Log(Counters())
    opened = await Input(broker, log).connected()
    async with publisher(broker) as pub:
        await pub.publish("plant/x", b"before")
        await pub.publish("plant/x", bytes(3 * MAX_EVENT))
        await pub.publish("plant/x", b"after")
    await eventually("3 events", lambda: len(log.events()) == 3)
    await opened.stop()
    assert [(len(p), f) for _, p, f in log.events()] == [(6, Flag(0)), (MAX_EVENT, Flag.CUT), (5, Flag(0))]
    assert log.counters.cut["plant"] == 1


def test_retained_messages_come_once_per_session(broker: Broker) -> None:
    """A retained message is an event when the subscription is made and not again at every reconnect."""

    async def main() -> Log:
        log = Log(Counters())
        async with publisher(broker) as pub:
            await pub.publish("plant/state", b"on", retain=True)
            opened = await Input(broker, log).connected()
            await eventually("an event", lambda: len(log.events()) == 1)
            await opened.stop()
            opened = await Input(broker, log).connected()
            await pub.publish("plant/x", b"next")
            await eventually("2 events", lambda: len(log.events()) >= 2)
            await opened.stop()
        return log

    assert asyncio.run(main()).payloads() == [b"on", b"next"]


async def test_a_log_that_cannot_be_written_ends_the_input(broker: Broker) -> None:
    """``run`` raises the raw log's OSError, and the message is not acknowledged: a restarted agent gets it."""
    log = Log(Counters())
    log.broken = True
    opened = await Input(broker, log).connected()
    async with publisher(broker) as pub:
        await pub.publish("plant/x", b"kept")
    with pytest.raises(OSError, match="Input/output error"):
        await opened.task
    fresh = Log(Counters())
    opened = await Input(broker, fresh).connected()
    await eventually("the messages", lambda: fresh.payloads() == [b"kept"])
    await opened.stop()


def subscription(log: Log, **options: Any) -> MqttSubscription:
    """A subscription that is not connected: the test plays the broker."""
    settings = BoundedMqtt(name="plant", broker=MqttSettings("mqtt://unused:1"), topics=("plant/#",), **options)
    return MqttSubscription(settings, agent(log, log.counters), recent=log.recent())


def numbered(first: int, count: int, *, dup: bool = False) -> list[Message]:
    """A broker's next messages, all alike; packet identifiers go from 1 to 65,535 in turn."""
    return [
        Message("plant/input", b"OPEN", 1, False, dup, n % 65535 + 1, 1) for n in range(first - 1, first + count - 1)
    ]


def receive(subscription: MqttSubscription, messages: list[Message]) -> None:
    for message in messages:
        subscription.received(message)
    subscription.flush()


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_batch_is_stored_once(restarted: bool, tmp_path: Path) -> None:
    """The events of a batch lie side by side with their message's topic and identifier; come again, also after a
    restart, the batch is known as a whole and counted by its events."""
    payloads = [b'{"n":1}\n{"n":2}\n', b'[{"n":3}, {"n":4}]', b'{"n":5}', b'{"n":6}\nbroken']
    messages = [Message(f"plant/{i}", payload, 1, False, False, i + 1) for i, payload in enumerate(payloads)]
    with closing(RawLog.open(tmp_path, RawLogSettings(), Counters())) as raw:
        log = Log(Counters())
        made = subscription(log)
        with capture_logs() as logs:
            receive(made, messages)
        assert [row["topic"] for row in logs if row["event"] == "payload_undecodable"] == ["plant/3"]
        events = [b'{"n":1}', b'{"n":2}', b'{"n":3}', b'{"n":4}', b'{"n":5}', b'{"n":6}\nbroken']
        assert log.payloads() == events
        (chunk,) = [chunk for _, chunk in log.frames]
        assert list(chunk.message_ids or ()) == [1, 1, 2, 2, 3, 4]
        assert [chunk.origin(start) for start, _ in chunk.spans()] == [f"plant/{i}" for i in (0, 0, 1, 1, 2, 3)]
        assert log.counters.totals["decode_failed"] == 1
        if restarted:
            raw.append(chunk)
            raw.sync()
            again = MqttSubscription(
                made.settings, agent(log, log.counters), recent=read.recent_messages(tmp_path, "plant")
            )
            again.session(True)
            made = again
        receive(made, [message._replace(dup=True) for message in messages])
        assert log.payloads() == events
        assert log.counters.dropped["plant", "duplicate"] == 6
        assert holds(log.counters)


async def test_a_message_of_tiny_events() -> None:
    """Takes memory for few objects until it is stored, all of it in one frame."""
    payload = b"[" + b"{}," * 50_000 + b"{}]"
    made = subscription(Log(Counters()))
    tracemalloc.start()
    try:
        work = made.received(Message("plant/x", payload, 1, False, False, 1, 1))
        assert work is not None
        await work
        made.flush()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 6 << 20
    assert made._agent.counters.received["plant"] == 50_001


async def test_a_redelivered_batch_fits_a_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that a frame holds is held come again, too: it takes no more room, each event is flagged, and a cut one
    is both; the message behind it is not."""
    monkeypatch.setattr(format, "MAX_META", 90_000)
    payload = b"[" + b"{}," * 10_000 + b'{"long":"' + b"x" * MAX_EVENT + b'"},{}]'
    with closing(RawLog.open(tmp_path, RawLogSettings(), Counters())) as raw:
        log = Log(Counters())
        made = subscription(log)
        monkeypatch.setattr(log, "store", lambda chunk: log.frames.append(raw.append(chunk)) or raw.end)
        for dup in (False, True):
            work = made.received(Message("plant/x", payload, 1, False, dup, 1 + dup, 1))
            assert work is not None
            await work
            receive(made, [Message("plant/x", b'{"n":1}', 1, False, False, 3 + dup, 1)])
    flags = [flags for _, _, flags in log.events()]
    assert flags[:10_003] == [*[Flag(0)] * 10_000, Flag.CUT, Flag(0), Flag(0)]
    assert flags[10_003:] == [*[Flag.DUP] * 10_000, Flag.DUP | Flag.CUT, Flag.DUP, Flag(0)]


@pytest.mark.parametrize("restarted", [False, True])
async def test_identifiers_begin_anew(restarted: bool) -> None:
    """A redelivery that the log does not hold is stored although a message of the round before, with the same
    identifier, topic and payload, is known; what is in the log is told apart however long ago the round began."""
    log = Log(Counters())
    made = subscription(log)
    receive(made, numbered(1, 70_000))
    if restarted:
        made = subscription(log)
    made.session(True)
    receive(made, numbered(69_981, 20, dup=True))  # stored, not acknowledged
    assert len(log.events()) == 70_000
    receive(made, numbered(70_001, 80, dup=True))  # under way when the connection ended
    assert len(log.events()) == 70_080
    assert log.counters.dropped["plant", "duplicate"] == 20
    assert all(flag == Flag.DUP for _, _, flag in log.events()[70_000:])


async def test_half_a_round_is_looked_at() -> None:
    """Of the stored messages the last 32,767 are known when they come again, whatever ``receive_maximum`` says."""
    log = Log(Counters())
    made = subscription(log, receive_maximum=10)
    receive(made, numbered(1, 70_000))
    for number, stored in ((70_000 - 32_766, 0), (70_000 - 32_767, 1)):
        receive(made, numbered(number, 1, dup=True))
        assert len(log.events()) == 70_000 + stored
        assert log.counters.dropped["plant", "duplicate"] == 1


async def test_a_session_of_before_is_no_duplicate() -> None:
    """Identifiers that begin anew are another session's, also when the agent learns of it from the log only."""
    log = Log(Counters())
    made = subscription(log)
    receive(made, numbered(1, 30))
    made.session(False)
    receive(made, numbered(1, 10))
    made = subscription(log)  # the broker has this session
    made.session(True)
    receive(made, numbered(6, 5, dup=True))
    assert log.counters.dropped["plant", "duplicate"] == 5
    receive(made, numbered(11, 5, dup=True))
    assert len(log.events()) == 45


async def test_order_is_kept_when_there_is_room_again() -> None:
    """What comes after a message that was left with the broker is left there too, until both come again: only so the
    stored messages that can come again are the last ones."""
    log = Log(Counters())
    made = subscription(log)
    log.room.clear()
    receive(made, numbered(1, 2))
    log.room.set()
    receive(made, numbered(3, 2))
    receive(made, [Message("plant/input", b"fleeting", 0, False, False, 0, 1)])
    assert log.payloads() == [b"fleeting"]
