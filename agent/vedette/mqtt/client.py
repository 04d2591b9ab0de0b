"""MQTT 5 for asyncio: one client that stays connected (the only import of paho).

Promises:

* ``run`` connects, and connects again with back-off (1 to 30 s, with jitter) whenever the broker is away, at start and
  later; an outage is logged once, with its reason. Only an exception of ``on_message`` ends it.
* ``publish`` resolves on the broker's PUBACK and never retries: what was not acknowledged when the connection ended
  raises ConnectionError, and the caller decides; without PUBACK for ``ACK_SECONDS`` the connection ends. PUBACK is not
  delivery: see ``delivery/uplink.py``.
* A received QoS 1 message is acknowledged only by ``ack``. Without it the broker sends it again, marked ``dup``, on
  the next connection, and at most ``receive_maximum`` of them are under way: this is the back-pressure. (Mosquitto
  2.0.11 sends several for each PUBACK while it has more, so that far more get under way; none without PUBACKs.)
* No packet above ``max_packet`` comes (CONNECT's Maximum Packet Size): the broker discards a larger message, and only
  its own log says so. Mosquitto 2.0.11 then goes on counting a QoS 1 message as under way until the connection ends:
  after ``receive_maximum`` of them in a row no more come. A ``message_size_limit`` in the broker below ``max_packet``
  keeps such messages out altogether.

Every connection is a paho client of its own, so nothing of an old connection can leak into a new one: packet
identifiers, half-read packets, paho's own retransmission. The session (subscriptions, unacknowledged messages) lives in
the broker under ``client_id`` for ``Session.expiry`` seconds.

``mqtts://`` is TLS 1.2 or newer with the broker's certificate and name checked, and a client certificate where one is
given (``tls.py``). A broker that is not who it should be, or that refuses our certificate, is an outage like any other:
logged with its reason, tried again.

Properties of received messages are not looked at: nothing here uses one, and paho takes quadratic time for them, so
that a message with 240 KB of user properties, which any publisher may send, would keep the event loop for 8 seconds.

paho runs without its thread: the event loop watches its socket. Only connecting (name lookup, TCP, TLS handshake) is
blocking in paho and runs in a worker thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import structlog
from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage, MQTTv5, topic_matches_sub
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from vedette.model.counters import Log
from vedette.model.event import MAX_EVENT
from vedette.mqtt.settings import MqttSettings
from vedette.mqtt.tls import ClientContext, Renewed, client_context, expiry
from vedette.mqtt.tls import reason as tls_reason
from vedette.system.backoff import BACKOFF, Backoff

log = structlog.get_logger()

CONNECT_SECONDS = 10.0
"""For name lookup, TCP, TLS and for CONNACK, each."""
CLOSE_SECONDS = 2.0
"""For the last packets and DISCONNECT to be written."""
BURST_SECONDS = 0.003
"""Longest stretch of reading before the event loop gets its turn."""
ACK_SECONDS = 120.0
"""For a PUBACK: a broker that takes messages and acknowledges none, though it answers pings, is left and tried anew."""
STEADY_SECONDS = 10.0
"""A connection that lived this long starts the back-off anew; two clients of one id do not hammer the broker."""
MAX_INFLIGHT = 20
"""Published messages waiting for PUBACK, at most; the broker's Receive Maximum may lower it."""
MAX_PACKET = 4 * MAX_EVENT
"""Bytes of a packet from the broker, at most; paho keeps a packet whole in memory."""
REGION_PACKET = 80 << 20
"""The same within a region: above what its broker takes (a bundle's 64 MiB), so that nothing is discarded there."""

NO_SUBSCRIBERS = 0x10
"""PUBACK's reason code "no matching subscribers" (MQTT 5, 3.4.2.1)."""


class Message(NamedTuple):
    """A received message; ``connection`` is the number of the connection it came by."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    dup: bool
    message_id: int
    connection: int = 0


class _Client(Client):
    """paho's client, but for PUBLISH (MQTT 5, 3.3): properties are passed over, the payload is copied once."""

    def _handle_publish(self) -> MQTTErrorCode:
        packet, flags = memoryview(self._in_packet["packet"]), self._in_packet["command"]
        try:
            at = 2 + int.from_bytes(packet[:2], "big")
            topic, mid = bytes(packet[2:at]), 0
            if flags & 6:
                at, mid = at + 2, int.from_bytes(packet[at : at + 2], "big")
            size = shift = 0
            while True:  # a variable byte integer (1.5.5)
                digit = packet[at]
                size, shift, at = size | (digit & 127) << shift, shift + 7, at + 1
                if digit < 128:
                    break
        except IndexError:
            return MQTTErrorCode.MQTT_ERR_PROTOCOL
        if shift > 28 or at + size > len(packet):
            return MQTTErrorCode.MQTT_ERR_PROTOCOL
        message = MQTTMessage(mid, topic)
        message.qos, message.retain, message.dup = flags >> 1 & 3, bool(flags & 1), bool(flags & 8)
        message.payload = bytes(packet[at + size :])
        self._handle_on_message(message)
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def forget_packet(self) -> None:
        """Let go of what has come of the packet under way: a client that has ended goes only with its cycle."""
        self._in_packet["packet"] = bytearray()


class _Connection:
    """One connection: a paho client, its socket in the event loop, and what waits for the broker's answer."""

    def __init__(
        self,
        client: _Client,
        number: int,
        on_message: Callable[[Message], None] | None,
        on_session: Callable[[bool], None] | None,
        max_inflight: int,
    ) -> None:
        self.client = client
        self.number = number
        self.tls: ClientContext | None = None
        self.loop = asyncio.get_running_loop()
        self.accepted: asyncio.Future[bool] = self.loop.create_future()
        """Result: the broker had this session; or ConnectionRefusedError."""
        self.ended: asyncio.Future[str] = self.loop.create_future()
        """Result: why."""
        self.failure: Exception | None = None
        """What ``on_message`` or ``on_session`` raised."""
        self.slots = asyncio.Semaphore(max_inflight)
        self.max_inflight = max_inflight
        self.waiting: dict[int, asyncio.Future[Any]] = {}
        """PUBACKs by packet identifier: a ReasonCode."""
        self.subscribing: dict[int, asyncio.Future[Any]] = {}
        """SUBACKs by packet identifier: a ReasonCode per topic."""
        self.attached = False
        self.handled = 0
        self.on_message = on_message
        self.on_session = on_session
        client.on_connect = self._connected
        client.on_disconnect = self._disconnected
        client.on_message = self._received
        client.on_publish = self._acknowledged
        client.on_subscribe = self._subscribed
        client.on_socket_close = self._detach
        client.on_socket_register_write = lambda *_: self._write(True)
        client.on_socket_unregister_write = lambda *_: self._write(False)

    def attach(self) -> None:
        """Watch the socket that paho has opened."""
        sock = self.client.socket()
        if sock is None:
            raise ConnectionError("the connection was lost at once")
        self.attached = True
        self.fd = sock.fileno()
        self.loop.add_reader(self.fd, self._readable)
        self._write(True)
        self.timer = self.loop.call_later(1.0, self._tick)

    def _write(self, wanted: bool) -> None:
        # Also called from the worker thread while connecting; there is nothing to watch then.
        if self.attached and wanted:
            self.loop.add_writer(self.fd, self._writable)
        elif self.attached:
            self.loop.remove_writer(self.fd)

    def _detach(self, *_: Any) -> None:
        if self.attached:
            self.attached = False
            self.loop.remove_reader(self.fd)
            self.loop.remove_writer(self.fd)
            self.timer.cancel()

    def _readable(self) -> None:
        until = time.monotonic() + BURST_SECONDS
        while self.attached:
            before = self.handled
            self.client.loop_read()
            if self.handled == before or time.monotonic() > until:
                break
        sock = self.client.socket()
        if self.attached and isinstance(sock, ssl.SSLSocket) and sock.pending():
            self.loop.call_soon(self._readable)  # bytes that TLS has decrypted do not wake the event loop

    def _writable(self) -> None:
        self.client.loop_write()

    def _tick(self) -> None:
        self.client.loop_misc()
        if self.attached:
            self.timer = self.loop.call_later(1.0, self._tick)

    def drop(self, reason: str = "dropped") -> None:
        """End the connection without DISCONNECT."""
        self._detach()
        sock = self.client.socket()
        if sock is not None:
            sock.close()
        self._end(reason)

    def _end(self, reason: str) -> None:
        self.client.forget_packet()
        if not self.ended.done():
            self.ended.set_result(reason)
        if not self.accepted.done():
            self.accepted.set_exception(ConnectionError(reason))
            self.accepted.exception()  # whether or not somebody waits for it
        for answer in (*self.waiting.values(), *self.subscribing.values()):
            if not answer.done():
                answer.set_exception(ConnectionError(reason))
        self.waiting.clear()
        self.subscribing.clear()

    def _call(self, function: Callable[[Any], None], argument: Any) -> None:
        try:
            function(argument)
        except Exception as error:  # paho would be left in the middle of a packet: end here, ``run`` raises it
            self.failure = error
            self._end(str(error))

    def _connected(
        self, _client: Client, _data: Any, flags: ConnectFlags, reason: ReasonCode, properties: Properties | None
    ) -> None:
        self.handled += 1
        if self.accepted.done():
            return
        if reason.is_failure:
            self.accepted.set_exception(ConnectionRefusedError(str(reason)))
            return
        limit = getattr(properties, "ReceiveMaximum", 65535)
        self.max_inflight = min(self.max_inflight, limit)
        self.slots = asyncio.Semaphore(self.max_inflight)
        self.accepted.set_result(flags.session_present)
        if self.on_session is not None:
            self._call(self.on_session, flags.session_present)

    def _disconnected(
        self, _client: Client, _data: Any, flags: DisconnectFlags, reason: ReasonCode, _properties: Properties | None
    ) -> None:
        by = "the broker ended the connection" if flags.is_disconnect_packet_from_server else "connection lost"
        failure = self.tls.wrapped.failure if self.tls is not None and self.tls.wrapped is not None else ""
        if self.tls is not None and not failure and not self.accepted.done():
            by = f"{by} right after the TLS handshake (does the broker accept our certificate?)"
        self._end(f"{by}: {failure or reason}")

    def _received(self, _client: Client, _data: Any, message: MQTTMessage) -> None:
        self.handled += 1
        try:
            topic = message.topic
        except UnicodeDecodeError:
            topic = "\ufffd"
        if self.on_message is not None and not self.ended.done():
            payload = bytes(message.payload)
            received = Message(topic, payload, message.qos, message.retain, message.dup, message.mid, self.number)
            self._call(self.on_message, received)

    def _acknowledged(self, _client: Client, _data: Any, mid: int, reason: ReasonCode, _properties: Any) -> None:
        self.handled += 1
        future = self.waiting.pop(mid, None)
        if future is not None and not future.done():
            future.set_result(reason)

    def _subscribed(self, _client: Client, _data: Any, mid: int, reasons: list[ReasonCode], _properties: Any) -> None:
        self.handled += 1
        future = self.subscribing.pop(mid, None)
        if future is not None and not future.done():
            future.set_result(reasons)


@dataclass(frozen=True, slots=True)
class Session:
    """What a client asks of the broker."""

    expiry: float = 0
    """Seconds for which the broker keeps the session without a connection."""
    receive_maximum: int = 1000
    max_packet: int = MAX_PACKET
    max_inflight: int = MAX_INFLIGHT
    clean_start: bool = False
    retained_once: bool = False
    """Retained messages come only when the broker did not know the subscription yet."""
    will: tuple[str, bytes] | None = None
    """Topic and payload, retained, QoS 1."""


DEFAULT_SESSION = Session()


class MqttClient:
    """A client that stays connected; see the module's text.

    ``on_message`` is called in the event loop and must not block. ``connected`` is set while connected and subscribed.
    ``on_session(present)`` is called at every connection, before the first message, with whether the broker still had
    the session.
    """

    def __init__(
        self,
        settings: MqttSettings,
        client_id: str,
        *,
        session: Session = DEFAULT_SESSION,
        subscriptions: Sequence[str] = (),
        on_message: Callable[[Message], None] | None = None,
        on_session: Callable[[bool], None] | None = None,
        backoff: tuple[float, float] = BACKOFF,
    ) -> None:
        url = urlsplit(settings.url)
        if url.scheme not in ("mqtt", "mqtts") or not url.hostname:
            raise ValueError(
                f'the broker\'s address must be "mqtt://host:port" or "mqtts://host:port": {settings.url!r}'
            )
        self.settings = settings
        self.client_id = client_id
        self.connected = asyncio.Event()
        self.outage = ""
        """Why the last connection, or the last attempt, ended."""
        self._host: str = url.hostname
        self._port = url.port or (8883 if url.scheme == "mqtts" else 1883)
        files = (settings.ca_file, settings.cert_file, settings.key_file)
        self._tls = Renewed(partial(client_context, *files), files) if url.scheme == "mqtts" else None
        self._topics: dict[str, None] = dict.fromkeys(subscriptions)
        self._on_message = on_message
        self._on_session = on_session
        self._session = session
        self._backoff = Backoff(backoff)
        self._connection: _Connection | None = None
        self._number = 0
        self._closing = asyncio.Event()
        self._again = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Stay connected until cancelled or ``close``; raises only what ``on_message`` or ``on_session`` raised."""
        logged: Log | None = None
        while not self._closing.is_set():
            self._again = False
            started = None
            try:
                fresh = await self._connect()
                started, logged = time.monotonic(), None
                reason, event = await self._until_end(fresh), Log.BROKER_AWAY
            except ConnectionRefusedError as error:
                # CONNACK with a reason is for the operator; a refused TCP connection is an ordinary outage.
                reason, event = str(error), Log.BROKER_AWAY if error.errno else Log.BROKER_REFUSED
            except (OSError, ValueError, TimeoutError) as error:
                reason, event = tls_reason(error), Log.BROKER_AWAY
            finally:
                self.connected.clear()
                connection, self._connection = self._connection, None
                if connection is not None:
                    connection.drop()
            if connection is not None and connection.failure is not None:
                raise connection.failure
            self.outage = reason
            if self._closing.is_set() or self._again:
                continue
            if logged != event:
                logged = event
                if self._tls is not None and (remark := expiry(self.settings.cert_file)):
                    reason = f"{reason}; {remark}"
                log.warning(event, broker=self.settings.url, client_id=self.client_id, reason=reason, action="retrying")
            if started is not None and time.monotonic() - started > STEADY_SECONDS:
                self._backoff.reset()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._backoff.failed()):
                    await self._closing.wait()

    async def run_with(self, *loops: Coroutine[Any, Any, None]) -> None:
        """``run`` beside an input's own loops: when one ends all are ended, and what it raised is raised."""
        tasks = [asyncio.create_task(part) for part in (self.run(), *loops)]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _connect(self) -> _Connection:
        """Open a connection up to CONNACK; raises OSError, ValueError, TimeoutError."""
        self._number += 1
        client = _Client(
            CallbackAPIVersion.VERSION2,
            client_id=self.client_id,
            protocol=MQTTv5,
            reconnect_on_failure=False,
            manual_ack=True,
        )
        client.max_inflight_messages_set(65535)  # ``slots`` bounds it
        client.connect_timeout = CONNECT_SECONDS
        connection = _Connection(client, self._number, self._on_message, self._on_session, self._session.max_inflight)
        opening = asyncio.get_running_loop().run_in_executor(None, self._open, connection)
        try:
            await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(lambda _: connection.drop())
            raise
        self._connection = connection
        connection.attach()
        async with asyncio.timeout(CONNECT_SECONDS):
            await connection.accepted
        return connection

    def _open(self, connection: _Connection) -> None:
        """Blocking: reads the credentials, connects, shakes hands."""
        settings, client = self.settings, connection.client
        if settings.username or settings.password_file:
            secret = settings.password_file.read_text("utf-8").strip() if settings.password_file else None
            client.username_pw_set(settings.username, secret)
        tls = connection.tls = self._tls.get() if self._tls is not None else None
        if tls is not None:
            client.tls_set_context(tls)
        if self._session.will is not None:
            client.will_set(*self._session.will, qos=1, retain=True)
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = int(self._session.expiry)
        properties.ReceiveMaximum = max(1, min(self._session.receive_maximum, 65535))
        properties.MaximumPacketSize = self._session.max_packet
        keepalive = max(5, int(settings.keepalive))
        try:
            client.connect(
                self._host, self._port, keepalive, clean_start=self._session.clean_start, properties=properties
            )
        except BaseException:
            if tls is not None:
                tls.close()
            raise

    async def _until_end(self, connection: _Connection) -> str:
        """Subscribe and wait for the end of the connection; returns why it ended."""
        if self._closing.is_set():
            return "closed"
        subscribed: set[str] = set()
        while wanted := [topic for topic in self._topics if topic not in subscribed]:
            # A retained message that came with the first ones may have asked for more.
            await self._send_subscribe(connection, wanted)
            subscribed.update(wanted)
        log.info(Log.BROKER_CONNECTED, broker=self.settings.url, client_id=self.client_id)
        self.connected.set()
        return await connection.ended

    async def _send_subscribe(self, connection: _Connection, topics: list[str]) -> None:
        options = SubscribeOptions(qos=1, retainHandling=1 if self._session.retained_once else 0)
        _, mid = connection.client.subscribe([(topic, options) for topic in topics])
        if mid is None:
            raise ConnectionError("connection lost")
        answer: asyncio.Future[list[ReasonCode]] = connection.loop.create_future()
        connection.subscribing[mid] = answer
        async with asyncio.timeout(CONNECT_SECONDS):
            reasons = await answer
        for topic, reason in zip(topics, reasons, strict=True):
            if reason.is_failure:
                log.error(
                    Log.BROKER_REFUSED,
                    broker=self.settings.url,
                    client_id=self.client_id,
                    topic=topic,
                    reason=str(reason),
                    action="allow this subscription in the broker's access list",
                )

    def subscribe(self, topic: str) -> None:
        """Add a subscription, now and on every further connection."""
        self._topics[topic] = None
        if self._connection is not None and self.connected.is_set():
            self._later(self._send_subscribe(self._connection, [topic]))

    def unsubscribe(self, topic: str) -> None:
        """Withdraw a subscription."""
        if self._topics.pop(topic, "") is None and self._connection is not None and self.connected.is_set():
            self._connection.client.unsubscribe(topic)

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        async def guarded() -> None:
            with contextlib.suppress(OSError, TimeoutError):  # the connection ended; the next one subscribes anew
                await work

        task = asyncio.create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def publish(self, topic: str, payload: bytes, *, qos: int = 1, retain: bool = False) -> bool:
        """Publish; returns on PUBACK (QoS 0: when queued). Waits while ``max_inflight`` messages are under way.

        False when the broker answered that it has no subscriber for the message (and so dropped it).

        Raises ConnectionError when not connected, or when the connection ends before PUBACK; PermissionError when the
        broker refuses the message (its access list, a quota).
        """
        connection = self._connection
        if connection is None or not self.connected.is_set():
            raise ConnectionError(f"not connected to {self.settings.url}")
        async with connection.slots:
            if connection.ended.done():
                raise ConnectionError("connection lost")
            info = connection.client.publish(topic, payload, qos=qos, retain=retain)
            if info.rc != 0:
                raise ConnectionError(f"cannot publish: error {info.rc}")
            if qos == 0:
                return True
            answer: asyncio.Future[ReasonCode] = connection.loop.create_future()
            connection.waiting[info.mid] = answer
            try:
                async with asyncio.timeout(ACK_SECONDS):
                    reason = await answer
            except TimeoutError as error:
                connection.drop(f"the broker acknowledged nothing for {ACK_SECONDS:g} s")
                raise ConnectionError("the broker does not acknowledge") from error
        if reason.is_failure:
            raise PermissionError(f"the broker refuses a message on {topic}: {reason}")
        return bool(reason.value != NO_SUBSCRIBERS)

    def ack(self, message: Message) -> None:
        """PUBACK for a received QoS 1 message; nothing when its connection has ended: the broker sends it again."""
        connection = self._connection
        if message.qos == 1 and connection is not None and connection.number == message.connection:
            connection.client.ack(message.message_id, 1)

    def reconnect(self) -> None:
        """Drop the connection and connect anew at once: the broker then resends what was not acknowledged."""
        if self._connection is not None:
            self._again = True
            self.connected.clear()
            self._connection.drop("reconnecting")

    async def close(self) -> None:
        """Write what is queued, DISCONNECT (the will is not sent), and let ``run`` return."""
        self._closing.set()
        connection = self._connection
        if connection is None or connection.ended.done():
            return
        connection.client.disconnect()
        await asyncio.wait([connection.ended], timeout=CLOSE_SECONDS)
        connection.drop("closed")


def topic_matches(topic_filter: str, topic: str) -> bool:
    """Whether a subscription to ``topic_filter`` brings ``topic`` (MQTT 5, 4.7)."""
    return bool(topic_matches_sub(topic_filter, topic))
