"""Brokers that speak MQTT 3.1.1 alone: asked for 5 first, then for what they speak, with that version's rules."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.broker import Broker
from tests.inputs.intake import Bin, agent
from tests.mqtt.kit import QUICK, connected
from tests.mqtt.older import only_311
from tests.waits import eventually
from vedette.inputs.condition import State
from vedette.inputs.settings import MqttInput
from vedette.inputs.subscribe import MqttSubscription
from vedette.model.counters import Counters, Log
from vedette.model.event import MAX_EVENT
from vedette.mqtt.client import MqttClient
from vedette.mqtt.connection import MAX_PACKET, READ_BYTES, Message, Session
from vedette.mqtt.settings import MqttSettings

pytestmark = pytest.mark.peer


async def test_a_broker_that_refuses_5(broker: Broker) -> None:
    """It is asked for 3.1.1 at once, at each connection; the log says so, and messages go both ways."""
    came: list[Message] = []
    async with only_311(broker) as (url, levels):
        with capture_logs() as logs:
            async with connected(url, "a", subscriptions=["t/+"], on_message=came.append, backoff=(60, 60)) as client:
                assert await client.publish("t/1", b"hello", retain=True)
                await eventually("the message", lambda: came)
                client.reconnect()
                await eventually("it again", lambda: len(came) == 2)
                assert client.downgraded
                assert not client.trouble
        assert [(message.topic, message.payload, message.retain) for message in came] == [
            ("t/1", b"hello", False),
            ("t/1", b"hello", True),
        ]
        assert levels == [5, 4, 5, 4]
        (entry, _) = [entry for entry in logs if entry["event"] == Log.BROKER_CONNECTED]
        assert entry["log_level"] == "warning"
        assert "refuses MQTT 5" in entry["reason"]


async def test_one_that_is_asked_for_311(broker: Broker) -> None:
    """By ``protocol``: one that closes without a word is asked for nothing else, and that is no warning."""
    async with only_311(broker, refusal=b"") as (url, levels):
        async with connected(MqttSettings(url, protocol="3.1.1"), "a") as client:
            assert not client.downgraded
        assert levels == [4]
        client = MqttClient(MqttSettings(url), "a", backoff=QUICK)
        async with client.running():
            await eventually("an outage", lambda: "3.1.1" in client.outage)


async def test_a_session(broker: Broker) -> None:
    """It is kept where it has an expiry: what came meanwhile is there; without one it is not."""
    async with only_311(broker) as (url, _):
        for expiry, wanted in ((0.0, []), (600.0, [b"meanwhile"])):
            came: list[Message] = []
            options = {"subscriptions": ["t"], "on_message": came.append, "session": Session(expiry=expiry)}
            async with connected(url, f"a{expiry}", **options):
                pass
            async with connected(url, "b") as other:
                await other.publish("t", b"meanwhile")
            async with connected(url, f"a{expiry}", **options) as client:
                await client.publish("t", b"now")
                await eventually("what came", lambda came=came: [m.payload for m in came][-1:] == [b"now"])
            assert [message.payload for message in came] == [*wanted, b"now"]


async def test_retained_messages_are_events_once_in_a_life(broker: Broker) -> None:
    """By 3.1.1 each SUBSCRIBE brings them, and it is sent by each connection: they are events as often as the broker
    has forgotten the session; what is published anew is another one."""
    bin, counters = Bin(), Counters()
    presents: list[bool] = []
    async with only_311(broker) as (url, _), connected(url, "b") as other:
        await other.publish("t", b"kept", retain=True)
        settings = MqttInput("in", topics=("t",), broker=MqttSettings(url))
        followed = MqttSubscription(settings, agent(bin, counters), backoff=QUICK)
        client, begins = followed.client, followed.client._on_session
        client._on_session = lambda present: presents.append(present) or begins(present)  # type: ignore[func-returns-value, misc]
        async with client.running():
            loops = [asyncio.create_task(part) for part in (followed._hand_over(), followed._acknowledgements.run())]
            await eventually("the retained one", lambda: bin.events)
            for number in (1, 2):
                client.reconnect()
                await eventually("a connection", lambda n=number: len(presents) == n + 1)
                await client.connected.wait()
                await other.publish("t", b"%d" % number, retain=True)
                await eventually("a message", lambda n=number: bin.events[-1] == b"%d" % n)
            assert bin.events == [b"kept", b"1", b"2"]
            broker.kill()  # it forgets the session, and what it retained
            broker.start()
            await eventually("a new session", lambda: len(presents) > 3 and not presents[-1])
            await client.connected.wait()
            await other.connected.wait()
            for _ in range(2):
                await other.publish("t", b"2", retain=True)
            await eventually("two more", lambda: bin.events == [b"kept", b"1", b"2", b"2", b"2"])
            for loop in loops:
                loop.cancel()
    assert counters.received["in"] == 5 + sum(counters.dropped.values())


async def test_a_message_beyond_what_is_kept(broker: Broker) -> None:
    """The broker cannot be told how much we take: the beginning is stored, flagged; memory holds no more."""
    bin, counters = Bin(), Counters()
    async with only_311(broker) as (url, _):
        settings = MqttInput("in", topics=("t",), broker=MqttSettings(url))
        followed = MqttSubscription(settings, agent(bin, counters), backoff=QUICK)
        sizes: list[int] = []

        def received(message: Message) -> Any:
            sizes.append(len(message.payload))
            return followed.received(message)

        followed.client._on_message = received
        task = asyncio.create_task(followed.run())
        await followed.client.connected.wait()
        assert followed.condition.state is State.WORKS
        assert "refuses MQTT 5" in followed.condition.reason
        async with connected(url, "b") as other:
            await other.publish("t", b"x" * (3 * MAX_PACKET))
            await other.publish("t", b"next")
        await eventually("two events", lambda: len(bin.events) == 2)
        assert bin.events == [b"x" * MAX_EVENT, b"next"]
        assert sizes[0] <= MAX_PACKET + READ_BYTES
        assert counters.cut["in"] == 1
        await followed.stop()
        await task


@pytest.mark.parametrize("topics", [("a/#", "a/+/b"), ("a/+/b", "a/x/+"), ("#", "a/#", "+/x/b")])
async def test_filters_that_overlap(broker: Broker, topics: tuple[str, ...]) -> None:
    """Mosquitto sends a message of MQTT 5 for each: it is stored once, also when it is published again and again, and
    acknowledged each time."""
    bin, counters = Bin(), Counters()
    settings = MqttInput("in", topics=topics, broker=MqttSettings(broker.url))
    followed = MqttSubscription(settings, agent(bin, counters), backoff=QUICK)
    task = asyncio.create_task(followed.run())
    await followed.client.connected.wait()
    wanted: list[bytes] = []
    async with connected(broker.url, "b") as other:
        for i in range(60):
            wanted.append(b"event %d" % (i // 3))
            await other.publish("a/x/b", wanted[-1], retain=i == 0)
            if i == 30:
                followed.client.reconnect()
        await eventually("the events", lambda: len(bin.events) >= len(wanted))
        await other.publish("a/x/b", b"last")
        await eventually("the last event", lambda: bin.events[-1] == b"last")
    assert bin.events == [*wanted, b"last"]
    await followed.stop()
    await task
    dropped = sum(counters.dropped.values())
    assert counters.received["in"] == len(bin.events) + dropped
    assert dropped >= len(wanted)
