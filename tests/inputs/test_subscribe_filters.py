"""``vedette.inputs.subscribe`` when ``topics`` changes: the session keeps no old filter. By a real mosquitto."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tests.broker import Broker
from tests.inputs.intake import Kept, agent
from tests.inputs.test_subscribe import Log, holds, publisher
from tests.mqtt.kit import QUICK
from tests.settings import BoundedMqtt
from tests.waits import eventually
from vedette.inputs.subscribe import MqttSubscription
from vedette.model.counters import Counters
from vedette.mqtt.connection import Message
from vedette.mqtt.filters import covers
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
    assert not covers("gone/+", "gone")
