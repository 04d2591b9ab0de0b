"""``vedette.mqtt.client`` against a real mosquitto."""

from __future__ import annotations

import asyncio
import getpass
import socket
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.broker import Broker, running
from tests.certificates import Authority
from tests.looptime import forward
from tests.mqtt.kit import QUICK, connected
from tests.waits import DEADLINE, eventually
from vedette.mqtt import client, connection
from vedette.mqtt.client import MqttClient
from vedette.mqtt.connection import MAX_PACKET, REGION_PACKET, Connection, Message, Session
from vedette.mqtt.settings import MqttSettings
from vedette.system.trouble import Backoff

pytestmark = pytest.mark.peer


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that clients wait before they connect again."""
    every: list[float] = []

    class Noted(Backoff):
        def failed(self) -> float:
            every.append(super().failed())
            return every[-1]

    monkeypatch.setattr(client, "Backoff", Noted)
    return every


def sent(broker: Broker) -> int:
    """Messages that the broker has sent to the client "r"."""
    return broker.log().count("Sending PUBLISH to r ")


def acknowledged(broker: Broker) -> int:
    """Messages that it has acknowledged."""
    return broker.log().count("Received PUBACK from r ")


async def test_published_messages_arrive_in_order(broker: Broker) -> None:
    """Everything published with QoS 1 arrives once, in order, with topic and bytes unchanged."""
    got: list[Message] = []
    async with (
        connected(broker.url, "reader", subscriptions=["t/#"], on_message=got.append) as reader,
        connected(broker.url, "writer") as writer,
    ):
        await asyncio.gather(*(writer.publish(f"t/{i % 3}", b"\x00\xff%d" % i) for i in range(500)))
        await eventually("500 messages", lambda: len(got) == 500)
        for message in got:
            reader.ack(message)
    assert [(m.topic, m.payload) for m in got] == [(f"t/{i % 3}", b"\x00\xff%d" % i) for i in range(500)]
    assert all(m.qos == 1 and not m.dup and not m.retain for m in got)


def test_what_is_not_acknowledged_comes_again(broker: Broker) -> None:
    """After a reconnect the broker resends exactly the unacknowledged messages, marked dup, under the same id."""

    async def main() -> tuple[list[Message], list[Message], list[bool]]:
        got: list[Message] = []
        sessions: list[bool] = []
        async with connected(
            broker.url,
            "r",
            subscriptions=["t"],
            on_message=got.append,
            on_session=sessions.append,
            session=Session(expiry=60),
        ) as reader:
            async with connected(broker.url, "w") as writer:
                for i in range(4):
                    await writer.publish("t", b"%d" % i)
            await eventually("4 messages", lambda: len(got) == 4)
            first = got.copy()
            reader.ack(first[0])
            reader.ack(first[1])
            await eventually("acknowledgements at the broker", lambda: acknowledged(broker) == 2)
            got.clear()
            reader.reconnect()
            await eventually("2 messages", lambda: len(got) == 2)
            for stale in first:
                reader.ack(stale)  # of the connection before: must do nothing
            again = got.copy()
            got.clear()
            reader.reconnect()
            await eventually("2 messages", lambda: len(got) == 2)
            return first, again, sessions

    first, again, sessions = asyncio.run(main())
    assert [(m.payload, m.message_id) for m in again] == [(m.payload, m.message_id) for m in first[2:]]
    assert all(m.dup for m in again)
    assert sessions == [False, True, True]


async def test_receive_maximum_holds_the_broker_back(broker: Broker) -> None:
    """No more than ``receive_maximum`` unacknowledged messages are under way; an ack brings the next one."""
    got: list[Message] = []
    async with (
        connected(
            broker.url, "r", subscriptions=["t"], on_message=got.append, session=Session(receive_maximum=5)
        ) as reader,
        connected(broker.url, "w") as writer,
    ):
        for i in range(12):
            await writer.publish("t", b"%d" % i)
        await eventually("5 messages", lambda: len(got) == 5)
        assert sent(broker) == 5
        for n in range(12):
            await eventually("a further message", lambda n=n: len(got) > n)  # type: ignore[misc]
            reader.ack(got[n])
        assert [m.payload for m in got] == [b"%d" % i for i in range(12)]


async def test_broker_away_at_start_and_later(tmp_path: Path) -> None:
    """A client started before its broker connects when it comes, survives a kill, and says each outage once."""
    broker = Broker(tmp_path / "broker")

    try:
        with capture_logs() as logs:
            got: list[Message] = []
            made = MqttClient(
                MqttSettings(url=broker.url), "r", subscriptions=["t"], on_message=got.append, backoff=(0.02, 0.05)
            )
            async with made.running():
                await eventually("further attempts to connect", lambda: made.attempts > 3)
                assert not made.connected.is_set()
                with pytest.raises(ConnectionError, match="not connected"):
                    await made.publish("t", b"lost")
                broker.start()
                await eventually("the connection", made.connected.is_set)
                broker.kill()
                before = made.attempts
                await eventually("further attempts to connect", lambda: made.attempts > before + 3)
                broker.start()
                await eventually("the connection", made.connected.is_set)
                await made.publish("t", b"back")
                await eventually("the messages", lambda: [m.payload for m in got] == [b"back"])
    finally:
        broker.kill()
    assert [entry["event"] for entry in logs] == ["broker_away", "broker_connected"] * 2
    assert all(entry["reason"] and entry["broker"] == broker.url for entry in logs[::2])


async def test_publish_fails_when_the_connection_ends(broker: Broker) -> None:
    """A publication without PUBACK raises ConnectionError when the broker dies; it never hangs."""
    async with connected(broker.url, "w") as made:
        assert broker.process is not None
        broker.process.send_signal(19)  # SIGSTOP: it takes bytes and answers nothing
        waiting = [asyncio.create_task(made.publish("t", b"x")) for _ in range(50)]
        await asyncio.sleep(0)
        assert not any(w.done() for w in waiting)
        broker.kill()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(r, ConnectionError) for r in results)


async def test_will_is_sent_on_death_and_not_on_close(broker: Broker) -> None:
    """A client that vanishes leaves its retained last will; one that closes does not."""
    got: list[Message] = []
    async with connected(broker.url, "watch", subscriptions=["w/#"], on_message=got.append) as watch:
        async with connected(broker.url, "leaves", session=Session(will=("w/leaves", b"lost"))):
            pass
        gone = MqttClient(MqttSettings(url=broker.url), "gone", session=Session(will=("w/gone", b"lost")))
        task = asyncio.create_task(gone.run())
        await eventually("the connection", gone.connected.is_set)
        task.cancel()
        await eventually("a message", lambda: got)
        assert [(m.topic, m.payload) for m in got] == [("w/gone", b"lost")]
        watch.ack(got[0])


async def test_subscriptions_come_and_go(broker: Broker) -> None:
    """``subscribe`` brings retained messages at once, and again after a reconnect; ``unsubscribe`` ends it."""
    got: list[Message] = []
    async with (
        connected(broker.url, "w") as writer,
        connected(broker.url, "r", on_message=got.append, session=Session(expiry=60)) as reader,
    ):
        await writer.publish("m/manifest", b"v1", retain=True)
        reader.subscribe("m/manifest")
        await eventually("a message", lambda: len(got) == 1)
        assert got[0].retain
        reader.ack(got[0])
        await eventually("acknowledgements at the broker", lambda: acknowledged(broker) == 1)
        reader.reconnect()
        await eventually("2 messages", lambda: len(got) == 2)
        reader.unsubscribe("m/manifest")
        await eventually("UNSUBSCRIBE at the broker", lambda: "Received UNSUBSCRIBE from r" in broker.log())
        await writer.publish("m/manifest", b"v2")
        assert sent(broker) == 2
        reader.subscribe("m/more")
        await eventually("a subscription", lambda: "r 1 m/more" in broker.log())
        reader.reconnect()
        reader.unsubscribe("m/more")  # while it is not connected
        await eventually("another UNSUBSCRIBE", lambda: broker.log().count("Received UNSUBSCRIBE from r") == 2)


async def test_a_subscription_withdrawn_while_the_broker_answers_goes(broker: Broker) -> None:
    """Before the connection counts as made: its SUBSCRIBE is under way."""

    class Hasty(MqttClient):
        def _subscribe(self, connection: Connection, topics: list[str]) -> asyncio.Future[list[Any]]:
            answer = super()._subscribe(connection, topics)
            self.unsubscribe("m/once")
            return answer

    hasty = Hasty(MqttSettings(url=broker.url), "r", subscriptions=["m/once"])
    async with hasty.running():
        await eventually("UNSUBSCRIBE at the broker", lambda: "Received UNSUBSCRIBE from r" in broker.log())
        await eventually("its confirmation", lambda: not hasty.unwanted)


async def published(writer: MqttClient, topic: str, payload: bytes) -> None:
    """Publish, over the next connection where this one ends: mosquitto 2.0.11 ends it after a refusal."""
    while True:
        await writer.connected.wait()
        try:
            await writer.publish(topic, payload)
            return
        except ConnectionError:
            await asyncio.sleep(0)


def test_refusals_say_why(tmp_path: Path) -> None:
    """Wrong credentials, a forbidden subscription and a forbidden publication are each told with the reason."""
    secret = tmp_path / "secret"
    secret.write_text("wrong\n")
    acl = tmp_path / "acl"
    acl.write_text("topic readwrite open/#\n")
    passwords = tmp_path / "passwords"
    passwords.write_text("")
    with running(tmp_path / "open", extra=[f"acl_file {acl}"]) as broker:

        async def forbidden() -> None:
            async with connected(broker.url, "a", subscriptions=["shut/x", "open/x"]) as made:
                with pytest.raises(PermissionError, match="shut/y"):
                    await made.publish("shut/y", b"x")
                await published(made, "open/y", b"x")

        with capture_logs() as logs:
            asyncio.run(forbidden())
        refused = [entry for entry in logs if entry["event"] == "broker_refused"]
        assert [entry["topic"] for entry in refused] in (["shut/x"], [])  # 2.0.11 grants any subscription
    with running(tmp_path / "shut", extra=["allow_anonymous false", f"password_file {passwords}"]) as broker:

        async def stranger() -> None:
            settings = MqttSettings(url=broker.url, username="x", password_file=secret)
            made = MqttClient(settings, "b", backoff=(0.02, 0.05))
            async with made.running():
                await eventually("further attempts to connect", lambda: made.attempts > 3)

        with capture_logs() as logs:
            asyncio.run(stranger())
        assert [entry["event"] for entry in logs] == ["broker_refused"]
        assert "authori" in logs[0]["reason"].lower()


async def test_missing_credentials_are_an_outage_with_a_reason(broker: Broker, tmp_path: Path) -> None:
    """A password file that is not there yet is told with its path, and used when it comes."""
    secret = tmp_path / "later"

    with capture_logs() as logs:
        settings = MqttSettings(url=broker.url, username="x", password_file=secret)
        made = MqttClient(settings, "b", backoff=(0.02, 0.05))
        async with made.running():
            await eventually("further attempts to connect", lambda: made.attempts > 3)
            secret.write_text("word")
            await eventually("the connection", made.connected.is_set)
    assert [entry["event"] for entry in logs] == ["broker_away", "broker_connected"]
    assert str(secret) in logs[0]["reason"]


async def test_an_exception_of_on_message_ends_run(broker: Broker) -> None:
    """A raw log that cannot be written is not hidden: ``run`` raises what ``on_message`` raised."""

    def unwritable(_: Message) -> None:
        raise OSError(28, "No space left on device")

    made = MqttClient(MqttSettings(url=broker.url), "r", subscriptions=["t"], on_message=unwritable)
    task = asyncio.create_task(made.run())
    await made.connected.wait()
    await made.publish("t", b"x", qos=0)
    with pytest.raises(OSError, match="No space left"):
        await task


async def test_what_takes_long_keeps_its_connection_from_being_read(broker: Broker) -> None:
    """Until what ``on_message`` returns has ended, no further message comes; what it raises ends ``run``, and with the
    connection it is cancelled."""
    came: list[bytes] = []
    begun: list[bytes] = []
    ended: list[bytes] = []
    going = asyncio.Event()

    async def long(message: Message) -> None:
        begun.append(message.payload)
        try:
            await going.wait()
            if message.payload == b"broken":
                raise OSError(28, "No space left on device")
        finally:
            ended.append(message.payload)

    def take(message: Message) -> Coroutine[Any, Any, None] | None:
        came.append(message.payload)
        return long(message) if message.payload != b"short" else None

    made = MqttClient(MqttSettings(url=broker.url), "r", subscriptions=["t"], on_message=take, backoff=QUICK)
    task = asyncio.create_task(made.run())
    await made.connected.wait()
    async with connected(broker.url, "w") as writer:
        for payload in (b"long", b"short", b"long again"):
            await writer.publish("t", payload)
        await eventually("all three at the broker's door", lambda: sent(broker) == 3)
        assert (came, ended) == ([b"long"], [])
        going.set()
        await eventually("all three", lambda: ended == [b"long", b"long again"])
        assert came == [b"long", b"short", b"long again"]
        going.clear()
        await writer.publish("t", b"cancelled")
        await eventually("a message", lambda: begun[-1] == b"cancelled")
        made.reconnect()
        await eventually("its end", lambda: ended[-1] == b"cancelled")
        await made.connected.wait()
        going.set()
        await writer.publish("t", b"broken")
    with pytest.raises(OSError, match="No space left"):
        await task


async def test_a_session_that_begins_with_what_takes_long(broker: Broker) -> None:
    """What a session still has comes before the broker's answer to the subscription, which may then wait."""
    options: dict[str, Any] = {"subscriptions": ["t"], "session": Session(expiry=60), "backoff": QUICK}
    going = asyncio.Event()
    begun: list[bytes] = []

    async def long() -> None:
        await going.wait()

    def take(message: Message) -> Coroutine[Any, Any, None]:
        begun.append(message.payload)
        return long()

    async with connected(broker.url, "r", **options):
        pass
    async with connected(broker.url, "w") as writer:
        await writer.publish("t", b"long")
    made = MqttClient(MqttSettings(url=broker.url), "r", on_message=take, **options)
    async with made.running():
        await eventually("the message", lambda: begun)
        for _ in range(3):
            forward(asyncio.get_running_loop(), connection.CONNECT_SECONDS)
            for _ in range(10):
                await asyncio.sleep(0)
        going.set()
        await made.connected.wait()
        assert (made.attempts, begun) == (1, [b"long"])


async def test_a_large_message_and_many_small_ones(broker: Broker) -> None:
    """A message of 10 MiB, where ``max_packet`` lets it, and a burst of QoS 0 messages both arrive whole."""
    got: list[Message] = []
    big = bytes(range(256)) * (40 << 10)
    async with (
        connected(
            broker.url, "r", subscriptions=["t"], on_message=got.append, session=Session(max_packet=REGION_PACKET)
        ),
        connected(broker.url, "w") as writer,
    ):
        await writer.publish("t", big)
        for i in range(1000):
            await writer.publish("t", b"%d" % i, qos=0)
        await eventually("1001 messages", lambda: len(got) == 1001)
    assert got[0].payload == big
    assert [m.payload for m in got[1:]] == [b"%d" % i for i in range(1000)]


async def test_a_message_above_the_packet_bound(broker: Broker) -> None:
    """The broker discards a message above ``max_packet`` without a word to either side; both stay connected, and
    the next one comes. One that just fits comes, too."""
    got: list[Message] = []
    async with (
        connected(broker.url, "r", subscriptions=["t"], on_message=got.append) as reader,
        connected(broker.url, "w") as writer,
    ):
        await writer.publish("t", bytes(MAX_PACKET))
        await writer.publish("t", bytes(MAX_PACKET - 100))
        await writer.publish("t", b"next")
        await eventually("2 messages", lambda: len(got) == 2)
        assert (reader.outage, writer.outage) == ("", "")
    assert [len(m.payload) for m in got] == [MAX_PACKET - 100, 4]
    assert "Dropping too large outgoing PUBLISH for r " in broker.log()


async def test_closed_while_it_connects(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not wait for a CONNACK that may never come."""
    monkeypatch.setattr(client, "CONNECT_SECONDS", 2 * DEADLINE)
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 2 * DEADLINE)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        connecting = MqttClient(MqttSettings(f"mqtt://127.0.0.1:{silent.getsockname()[1]}"), "c")
        task = asyncio.create_task(connecting.run())
        await asyncio.sleep(0)
        await connecting.close()
        await task


async def test_two_clients_of_one_id(broker: Broker, waits: list[float]) -> None:
    """Each takes the session from the other: after a few times both suspect it, though this broker says nothing, and
    they come ever more seldom; one that stays alone is well again, and an outage of the broker is none of that."""
    settings = MqttSettings(url=broker.url)
    first, second = (MqttClient(settings, "edge-1", backoff=QUICK) for _ in range(2))
    question = "does another machine or process connect under the same client id?"
    async with first.running():
        async with second.running():
            await eventually("both to suspect it", lambda: question in first.trouble and question in second.trouble)
        assert max(waits) > QUICK[0]
        await eventually("a connection", first.connected.is_set)
        assert question in first.trouble
        broker.kill()
        await eventually("the outage", lambda: first.outage and question not in first.outage)
        assert first.taken_over == 0


async def test_a_lost_connection_of_ones_own(broker: Broker) -> None:
    """A client that comes back while the broker still has its old connection has not lost it to another."""
    async with connected(broker.url, "edge-1") as client:
        for number in range(3):
            client.reconnect()
            await eventually("the next connection", lambda n=number: client.attempts > n + 1)
            await client.connected.wait()
        assert (client.taken_over, client.trouble) == (0, "")


def test_a_bad_address_is_refused() -> None:
    """An address that is no broker's is an error at once, with the address in the text."""
    with pytest.raises(ValueError, match="http://x"):
        MqttClient(MqttSettings(url="http://x"), "a")


async def test_the_sample_configuration(tmp_path: Path) -> None:
    """packaging/mosquitto.conf with its access list: an agent reaches the landing, and only under its own name."""
    packaging = Path(__file__).parents[2] / "packaging"
    authority = Authority(tmp_path)
    cert, key = authority.issue("broker")
    broker = Broker(tmp_path / "broker", tls=(authority.ca, cert, key))
    text = (packaging / "mosquitto.conf").read_text()
    for sample, here in (
        ("listener 8883", f"listener {broker.port} 127.0.0.1"),
        ("/etc/mosquitto/certs/region-ca.pem", str(authority.ca)),
        ("/etc/mosquitto/certs/broker.pem", str(cert)),
        ("/etc/mosquitto/certs/broker.key", str(key)),
        ("/etc/mosquitto/mosquitto.acl", str(packaging / "mosquitto.acl")),
        ("/var/lib/mosquitto/", f"{broker.folder}/"),
    ):
        assert f" {sample}" in text or f"\n{sample}" in text
        text = text.replace(sample, here)
    broker.config.write_text(f"user {getpass.getuser()}\n{text}")
    broker.start()

    def settings(name: str) -> MqttSettings:
        cert, key = authority.issue(name)
        return MqttSettings(url=broker.url, ca_file=authority.ca, cert_file=cert, key_file=key)

    try:
        landed: list[Message] = []
        got: list[Message] = []
        share = ["$share/landing/vedette/v1/+/+/alerts"]
        async with (
            connected(settings("vedette-landing"), "l", subscriptions=share, on_message=landed.append) as land,
            connected(settings("vedette-publisher"), "p") as publisher,
            connected(settings("a1"), "a", subscriptions=["vedette/v1/#"], on_message=got.append) as agent,
        ):
            await agent.publish("vedette/v1/default/a1/alerts", b"mine")
            await eventually("the messages", lambda: [m.payload for m in landed] == [b"mine"])
            await land.publish("vedette/v1/default/a2/receipts", b"another's")
            await land.publish("vedette/v1/default/a1/receipts", b"receipt")
            await publisher.publish("vedette/v1/default/bundles/stable/manifest", b"manifest", retain=True)
            await eventually("the messages", lambda: [m.payload for m in got] == [b"receipt", b"manifest"])
            for topic in ("default/a2/alerts", "other/a1/alerts", "default/bundles/stable/manifest"):
                with pytest.raises(PermissionError):
                    await published(agent, f"vedette/v1/{topic}", b"not mine")
            await published(agent, "vedette/v1/default/a1/alerts", b"the last")
            await eventually("the last message", lambda: landed[-1].payload == b"the last")
            assert {message.payload for message in landed} == {b"mine", b"the last"}
    finally:
        broker.kill()
