"""``vedette.inputs.subscribe`` when ``topics`` changes: the session keeps no old filter. By a real mosquitto."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest

from tests.broker import Broker
from tests.inputs.intake import Kept, agent
from tests.inputs.test_subscribe import Log, holds, publisher
from tests.mqtt.kit import QUICK
from tests.settings import BoundedMqtt
from tests.waits import eventually
from vedette.inputs.subscribe import UNDER_WAY, MqttSubscription
from vedette.model.counters import Counters
from vedette.mqtt.connection import Message
from vedette.mqtt.filters import Filters
from vedette.mqtt.settings import MqttSettings

BOTH = ("plant/#", "plant/+/x")


class Lives:
    """Lives of one input that have a memory and a log; each ends by a stop or as by a kill."""

    def __init__(self, broker: Broker, protocol: str = "5") -> None:
        self.log = Log(Counters())
        self.memory = Kept()
        self._settings = BoundedMqtt(name="plant", broker=MqttSettings(broker.url, protocol=protocol))

    def subscription(self, *topics: str) -> MqttSubscription:
        given = agent(self.log, self.log.counters, memory=self.memory)
        settings = replace(self._settings, topics=topics)
        return MqttSubscription(settings, given, recent=self.log.recent(), backoff=QUICK)

    async def begin(self, *topics: str) -> None:
        self.input = self.subscription(*topics)
        self._task = asyncio.create_task(self.input.run())
        await self.input.client.connected.wait()

    async def end(self, kill: bool) -> None:
        if kill:
            self._task.cancel()
        else:
            await self.input.stop()
        await asyncio.gather(self._task, return_exceptions=True)


@pytest.mark.peer
@pytest.mark.parametrize("kill", [False, True])
@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
async def test_what_left_topics_is_unsubscribed(broker: Broker, protocol: str, kill: bool) -> None:
    """One message is one event of the filter that is left, and none of those that left; so it is in the life after."""
    lives = Lives(broker, protocol)
    await lives.begin(*BOTH)
    await lives.end(kill)
    async with publisher(broker) as pub:
        for life, topic in enumerate(("plant/#", "plant/#", "other/#", "other/#")):
            await lives.begin(topic)
            await pub.publish("plant/9/x", b"%d" % life)
            await pub.publish(topic.replace("#", "end"), b"end %d" % life)
            await eventually("the marker", lambda: lives.log.payloads()[-1:] == [b"end %d" % life])  # noqa: B023
            assert lives.memory["mqtt:plant"] == {f"vedette-a1-plant {broker.url}": [topic]}
            await lives.end(kill)
    assert lives.log.payloads() == [b"0", b"end 0", b"1", b"end 1", b"end 2", b"end 3"]
    assert holds(lives.log.counters)


@pytest.mark.peer
async def test_what_is_under_way_of_a_filter_that_left(broker: Broker) -> None:
    """Of a session of overlapping filters each message is stored once, of a filter that left none; all are
    acknowledged and counted."""
    lives = Lives(broker)
    await lives.begin(*BOTH, "other/#")
    await lives.end(True)
    async with publisher(broker) as pub:
        for topic in ("plant/9/x", "other/a"):
            await pub.publish(topic, topic.encode())
        await lives.begin("plant/#")
        await pub.publish("plant/a", b"marker")
        await eventually("the marker", lambda: lives.log.payloads()[-1:] == [b"marker"])
        assert lives.log.payloads() == [b"plant/9/x", b"marker"]
        dropped = {reason: events for (_, reason), events in lives.log.counters.dropped.items()}
        assert dropped == {"unwanted": 1, "duplicate": 1}
        assert holds(lives.log.counters)
        await eventually("4 acknowledgements", lambda: broker.log().count("PUBACK from vedette-a1-plant") == 4)
    await lives.end(False)


async def test_names_that_a_broker_gives() -> None:
    """A topic that no filter covers is stored, as brokers may give it another name; unless an earlier filter does."""
    lives = Lives.__new__(Lives)
    lives.log, lives.memory = Log(Counters()), Kept()
    lives._settings = BoundedMqtt(name="plant", broker=MqttSettings("mqtt://unused:1"))
    lives.memory["mqtt:plant"] = {"vedette-a1-plant mqtt://unused:1": ["$share/g/gone/+", "plant/#"]}
    made = lives.subscription("plant/#")
    for topic in ("plant", "plant/a\nb", "renamed/x", "gone/x", "gone/", "gone/x/y"):
        made.received(Message(topic, topic.encode(), 1, False, False, 1))
    made.flush()
    assert lives.log.payloads() == [b"plant", b"plant/a\nb", b"renamed/x", b"gone/x/y"]
    assert not Filters(["gone/+"]).cover("gone")


async def test_what_was_withdrawn_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the broker has confirmed it and nothing of it has come for a while, its topics are as any others; and a
    message costs no more for thousands of filters."""
    lives = Lives.__new__(Lives)
    lives.log, lives.memory = Log(Counters()), Kept()
    lives._settings = BoundedMqtt(name="plant", broker=MqttSettings("mqtt://unused:1"))
    lives.memory["mqtt:plant"] = {"vedette-a1-plant mqtt://unused:1": ["plant/#"]}
    began = time.thread_time()
    made = lives.subscription(*(f"plant/{i}/x" for i in range(5000)))

    def came(topic: str, count: int = 1) -> int:
        before = len(made._gathered)
        for _ in range(count):
            made.received(Message(topic, b"", 0, False, False, 0))
        return len(made._gathered) - before

    assert came("plant/4999/x", 1000) == 1000
    assert time.thread_time() - began < 5  # each filter asked by itself: a minute
    now = time.monotonic()
    with monkeypatch.context() as clock:
        clock.setattr(time, "monotonic", lambda: now + 2 * UNDER_WAY)
        assert came("plant/a") == 0  # the broker has not confirmed it
        made.client.unwanted.clear()
        assert came("plant/a") == 0  # something was under way a moment ago
    assert came("plant/a") == 0
    monkeypatch.setattr(time, "monotonic", lambda: now + 4 * UNDER_WAY)
    assert came("plant/a") == 1


@pytest.mark.peer
async def test_the_loop_waits_for_no_disk(broker: Broker) -> None:
    """A filter is given to the session when the store has it; until then the event loop, and the connection, go on."""
    lives = Lives(broker)
    disk = asyncio.Event()
    put = lives.memory.put

    async def slow(name: str, value: Any) -> None:
        await disk.wait()
        await put(name, value)

    lives.memory.put = slow  # type: ignore[method-assign]
    task = asyncio.create_task(lives.begin("plant/#"))
    await eventually("the connection", lambda: "as vedette-a1-plant" in broker.log())
    async with publisher(broker):
        assert "Received SUBSCRIBE from vedette-a1-plant" not in broker.log()
    disk.set()
    await task
    assert "Received SUBSCRIBE from vedette-a1-plant" in broker.log()
    await lives.end(False)


@pytest.mark.peer
@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
async def test_a_broker_that_comes_back_with_an_older_session(broker: Broker, protocol: str) -> None:
    """A filter that it does not know is given to it again; and what it retains is an event once."""
    lives = Lives(broker, protocol)
    await lives.begin("plant/#")
    await lives.end(False)
    broker.stop()
    broker.start()
    async with publisher(broker) as pub:
        await lives.begin("plant/#", "other/#")
        await pub.publish("other/kept", b"kept", retain=True)
        await eventually("the first", lambda: lives.log.payloads() == [b"kept"])
        for end in (broker.restart, lives.input.client.reconnect):
            attempts = lives.input.client.attempts
            end()
            await eventually("a connection", lambda: lives.input.client.attempts > attempts)  # noqa: B023
            await lives.input.client.connected.wait()
            await eventually("the publisher", lambda: pub.connected.is_set())
            await pub.publish("other/kept", b"again", retain=True)
            await pub.publish("plant/a", end.__name__.encode())
        await eventually("the last", lambda: lives.log.payloads()[-1:] == [b"reconnect"])
        assert lives.log.payloads() == [b"kept", b"again", b"restart", b"again", b"reconnect"]
    assert holds(lives.log.counters)
    await lives.end(False)
