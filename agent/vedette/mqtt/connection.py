"""One connection to a broker: a paho client in the event loop, and what waits for the broker's answers.

Every connection is a paho client of its own, so nothing of an old connection can leak into a new one: packet
identifiers, half-read packets, paho's own retransmission.

paho runs without its thread: the event loop watches its socket. Only connecting (name lookup, TCP, TLS handshake) is
blocking in paho and runs in a worker thread.

Properties of received messages are not looked at: nothing here uses one, and paho takes quadratic time for them, so
that a message with 240 KB of user properties, which any publisher may send, would keep the event loop for 8 seconds.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage, MQTTv5, MQTTv311
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from vedette.model.event import MAX_EVENT
from vedette.mqtt.settings import MqttSettings

if TYPE_CHECKING:
    from vedette.mqtt.tls import ClientContext, Renewed

CONNECT_SECONDS = 10.0
"""For name lookup, TCP, TLS and for CONNACK, each."""
CLOSE_SECONDS = 2.0
"""For the last packets and DISCONNECT to be written."""
BURST_SECONDS = 0.003
"""Longest stretch of reading before the event loop gets its turn."""
ACK_SECONDS = 120.0
"""For a PUBACK: a broker that takes messages and acknowledges none, though it answers pings, is left."""
KEEPALIVE = 30
"""Seconds without a packet after which the connection is probed."""
MAX_INFLIGHT = 20
"""Published messages waiting for PUBACK, at most; the broker's Receive Maximum may lower it."""
READ_BYTES = 1 << 18
"""Read at once of a packet that may be too large."""
MAX_PACKET = 4 * MAX_EVENT
"""Bytes of a packet from the broker, at most; paho keeps a packet whole in memory."""
REGION_PACKET = 80 << 20
"""The same within a region: above what its broker takes (a bundle's 64 MiB), so that nothing is discarded there."""

UNSUPPORTED = 0x84
"""CONNACK's reason code "unsupported protocol version" (MQTT 5, 3.2.2.2); paho makes it of 3.1.1's return code 1."""
IDENTIFIABLE = "SubscriptionIdentifierAvailable"
"""Of CONNACK's properties."""
NO_SUBSCRIBERS = 0x10
"""PUBACK's reason code "no matching subscribers" (MQTT 5, 3.4.2.1)."""
TAKEN_OVER = 0x8E
"""DISCONNECT's reason code "session taken over" (MQTT 5, 3.14.2.1). An old connection of ours does not hear it: it was
dropped before the next was made."""


OnMessage = Callable[["Message"], "Coroutine[Any, Any, None] | None"]


class Message(NamedTuple):
    """A received message; ``connection`` is the number of the connection it came by."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    dup: bool
    message_id: int
    connection: int = 0
    properties: bytes = b""
    """As they came, where ``Session.apart``."""


@dataclass(frozen=True, slots=True)
class Session:
    """A session as a client asks the broker for it."""

    expiry: float = 0
    """Seconds for which the broker keeps the session without a connection."""
    receive_maximum: int = 1000
    max_packet: int = MAX_PACKET
    max_inflight: int = MAX_INFLIGHT
    clean_start: bool = False
    retained_once: bool = False
    """Retained messages come only when the broker did not know the subscription yet."""
    apart: bool = False
    """Messages say by which subscription they came (``filters.py``), where the broker speaks MQTT 5 and can."""
    unverified: bool = False
    """Without ``ca_file`` the broker's certificate is not checked: for messages that prove themselves."""
    will: tuple[str, bytes] | None = None
    """Topic and payload, retained, QoS 1."""


class _Client(Client):
    """paho's client, but for PUBLISH (MQTT 5, 3.3): properties are not taken apart, the payload is copied once."""

    apart = False

    def _handle_publish(self) -> MQTTErrorCode:
        packet = memoryview(self._in_packet["packet"])
        flags = self._in_packet["command"]
        try:
            at = 2 + int.from_bytes(packet[:2], "big")
            topic = bytes(packet[2:at])
            mid = 0
            if flags & 6:
                at, mid = at + 2, int.from_bytes(packet[at : at + 2], "big")
            size = shift = 0
            while self.protocol == MQTTv5:  # a variable byte integer (1.5.5)
                digit = packet[at]
                size |= (digit & 127) << shift
                shift += 7
                at += 1
                if digit < 128:
                    break
        except IndexError:
            return MQTTErrorCode.MQTT_ERR_PROTOCOL
        if shift > 28 or at + size > len(packet):
            return MQTTErrorCode.MQTT_ERR_PROTOCOL
        message = MQTTMessage(mid, topic)
        message.qos = flags >> 1 & 3
        message.retain = bool(flags & 1)
        message.dup = bool(flags & 8)
        if self.apart:
            message.properties = bytes(packet[at : at + size])  # type: ignore[assignment]
        message.payload = bytes(packet[at + size :])
        self._handle_on_message(message)
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def forget_packet(self) -> None:
        """Let go of what has come of the packet under way: a client that has ended goes only with its cycle."""
        self._in_packet["packet"] = bytearray()


class _Client311(_Client):
    """Of a packet beyond ``max_packet``, which a broker of MQTT 3.1.1 does not hear of, the rest is let go."""

    max_packet = MAX_PACKET

    def _sock_recv(self, bufsize: int) -> bytes:
        del self._in_packet["packet"][self.max_packet :]
        return super()._sock_recv(min(bufsize, READ_BYTES))


class Connection:
    """``open`` it, then ``publish``, ``subscribe`` and ``ack`` until it has ``ended``; ``drop`` it in any case.

    ``on_message`` and ``on_session`` are called in the event loop; what one raises ends the connection (``failure``).
    Until what ``on_message`` returns has ended, nothing is read; with the connection it is cancelled.
    """

    def __init__(
        self,
        client_id: str,
        number: int,
        session: Session,
        on_message: OnMessage | None,
        on_session: Callable[[bool], None] | None,
        protocol: str = "5",
    ) -> None:
        self.number = number
        self.unsupported = False
        """The broker refused it for its version of MQTT."""
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Result: why."""
        self.failure: Exception | None = None
        """The exception that ``on_message`` or ``on_session`` raised."""
        self.taken_over = False
        """The broker ended it because another client came under this id."""
        self.attached = False
        """The broker can be reached, and its socket is watched."""
        self._session = session
        self._on_message = on_message
        self._on_session = on_session
        self._tls: ClientContext | None = None
        self._loop = asyncio.get_running_loop()
        self._accepted: asyncio.Future[None] = self._loop.create_future()
        self._slots = asyncio.Semaphore(session.max_inflight)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        """By packet identifier: PUBACK's reason code, those of SUBACK and UNSUBACK for each topic."""
        self._handled = 0
        self._work: asyncio.Task[None] | None = None
        self._read_again = 0.0
        self._is_5 = protocol == "5"
        self._client = client = (_Client if self._is_5 else _Client311)(
            CallbackAPIVersion.VERSION2,
            client_id=client_id,
            clean_session=None if self._is_5 else session.clean_start or not session.expiry,
            protocol=MQTTv5 if self._is_5 else MQTTv311,
            reconnect_on_failure=False,
            manual_ack=True,
        )
        if isinstance(client, _Client311):
            client.max_packet = session.max_packet
        client.max_inflight_messages_set(65535)  # ``_slots`` bounds it
        client.connect_timeout = CONNECT_SECONDS
        client.on_connect = self._connected
        client.on_disconnect = self._disconnected
        client.on_message = self._received
        client.on_publish = client.on_subscribe = client.on_unsubscribe = self._answered
        client.on_socket_close = self._detach
        client.on_socket_register_write = lambda *_: self._write(True)
        client.on_socket_unregister_write = lambda *_: self._write(False)

    async def open(self, settings: MqttSettings, tls: Renewed[ClientContext] | None) -> None:
        """Up to CONNACK. Raises ConnectionRefusedError (without ``errno`` when the broker said so), OSError,
        ValueError, TimeoutError."""
        opening = self._loop.run_in_executor(None, self._connect, settings, tls)
        try:
            await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(self._too_late)
            raise
        sock = self._client.socket()
        if sock is None:
            raise ConnectionError("the connection was lost at once")
        self.attached = True
        self._fd = sock.fileno()
        self._loop.add_reader(self._fd, self._readable)
        self._write(True)
        self._timer = self._loop.call_later(1.0, self._tick)
        async with asyncio.timeout(CONNECT_SECONDS):
            await self._accepted

    def _too_late(self, opening: asyncio.Future[None]) -> None:
        """Nobody waits for the connection any more: it ends, and why it failed is not logged by asyncio."""
        if not opening.cancelled():
            opening.exception()
        self.drop()

    def _connect(self, settings: MqttSettings, tls: Renewed[ClientContext] | None) -> None:
        """Blocking: reads the credentials, connects, shakes hands."""
        client = self._client
        session = self._session
        url = urlsplit(settings.url)
        if settings.username or settings.password_file:
            secret = settings.password_file.read_text("utf-8").strip() if settings.password_file else None
            client.username_pw_set(settings.username, secret)
        self._tls = context = tls.get() if tls is not None else None
        if context is not None:
            client.tls_set_context(context)
        if session.will is not None:
            client.will_set(*session.will, qos=1, retain=True)
        of_5: dict[str, Any] = {}
        if self._is_5:
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            properties.SessionExpiryInterval = int(session.expiry)
            properties.ReceiveMaximum = max(1, min(session.receive_maximum, 65535))
            properties.MaximumPacketSize = session.max_packet
            of_5 = {"clean_start": session.clean_start, "properties": properties}
        port = url.port or (1883 if context is None else 8883)
        try:
            client.connect(url.hostname or "", port, KEEPALIVE, **of_5)
        except BaseException:
            if context is not None:
                context.close()
            raise

    def _write(self, wanted: bool) -> None:
        # Also called from the worker thread while connecting; there is nothing to watch then.
        if self.attached and wanted:
            self._loop.add_writer(self._fd, self._writable)
        elif self.attached:
            self._loop.remove_writer(self._fd)

    def _detach(self, *_: Any) -> None:
        if self.attached:
            self.attached = False
            self._loop.remove_reader(self._fd)
            self._loop.remove_writer(self._fd)
            self._timer.cancel()
            if self._work is not None:
                self._work.cancel()

    def _readable(self) -> None:
        until = time.monotonic() + BURST_SECONDS
        while self.attached and self._work is None:
            before = self._handled
            self._client.loop_read()
            if self._handled == before or time.monotonic() > until:
                break
        sock = self._client.socket()
        if self.attached and self._work is None and isinstance(sock, ssl.SSLSocket) and sock.pending():
            self._loop.call_soon(self._readable)  # bytes that TLS has decrypted do not wake the event loop

    def _writable(self) -> None:
        self._client.loop_write()

    def _tick(self) -> None:
        self._client.loop_misc()
        if self.attached:
            self._timer = self._loop.call_later(1.0, self._tick)

    def drop(self, reason: str = "dropped") -> None:
        """End the connection without DISCONNECT."""
        self._detach()
        sock = self._client.socket()
        if sock is not None:
            sock.close()
        self._end(reason)

    async def close(self) -> None:
        """Write what is queued, DISCONNECT (the will is not sent), and end."""
        if self.attached:
            self._client.disconnect()
            await asyncio.wait([self.ended], timeout=CLOSE_SECONDS)
            self.drop("closed")
        else:
            self._end("closed")  # ``open`` does not wait for CONNACK then

    def _end(self, reason: str) -> None:
        self._client.forget_packet()
        if not self.ended.done():
            self.ended.set_result(reason)
        for answer in (self._accepted, *self._answers.values()):
            if not answer.done():
                answer.set_exception(ConnectionError(reason))
                answer.exception()  # whether or not somebody waits for it
        self._answers.clear()

    @property
    def busy(self) -> bool:
        """Whether it is not read, or was not within CONNECT_SECONDS: answers may still come."""
        return self._work is not None or self._loop.time() < self._read_again + CONNECT_SECONDS

    def _worked(self, work: asyncio.Task[None]) -> None:
        self._work = None
        self._read_again = self._loop.time()
        if not work.cancelled() and isinstance(error := work.exception(), Exception):
            self.failure = error
            self._end(str(error))
        elif self.attached:
            self._loop.add_reader(self._fd, self._readable)
            self._readable()

    def _call(self, function: Callable[[Any], Any] | None, argument: Any) -> None:
        try:
            if function is not None and (work := function(argument)) is not None:
                self._loop.remove_reader(self._fd)
                self._work = self._loop.create_task(work)
                self._work.add_done_callback(self._worked)
        except Exception as error:  # paho would be left in the middle of a packet: end here, ``run`` raises it
            self.failure = error
            self._end(str(error))

    def _connected(
        self, _client: Client, _data: Any, flags: ConnectFlags, reason: ReasonCode, properties: Properties | None
    ) -> None:
        self._handled += 1
        if self._accepted.done():
            return
        if reason.is_failure:
            self.unsupported = self._is_5 and reason.value == UNSUPPORTED
            self._accepted.set_exception(ConnectionRefusedError(str(reason)))
            return
        self._client.apart = self._session.apart and self._is_5 and getattr(properties, IDENTIFIABLE, 1) == 1
        limit = getattr(properties, "ReceiveMaximum", 65535)
        self._slots = asyncio.Semaphore(min(self._session.max_inflight, limit))
        self._accepted.set_result(None)
        self._call(self._on_session, flags.session_present)

    def _disconnected(
        self, _client: Client, _data: Any, flags: DisconnectFlags, reason: ReasonCode, _properties: Properties | None
    ) -> None:
        if flags.is_disconnect_packet_from_server and reason.value == TAKEN_OVER:
            self.taken_over = True
            self._end("another machine or process took the session over: it connected under the same client id")
            return
        by = "the broker ended the connection" if flags.is_disconnect_packet_from_server else "connection lost"
        failure = self._tls.wrapped.failure if self._tls is not None and self._tls.wrapped is not None else ""
        if self._tls is not None and not failure and not self._accepted.done():
            by = f"{by} right after the TLS handshake (does the broker accept our certificate?)"
        elif self._is_5 and not self._accepted.done():
            by = f"{by} without an answer (if the broker speaks MQTT 3.1.1 alone, say so by protocol)"
        self._end(f"{by}: {failure or reason}")

    def _received(self, _client: Client, _data: Any, message: MQTTMessage) -> None:
        self._handled += 1
        topic = message._topic.decode("utf-8", "replace")
        if not self.ended.done():
            payload = bytes(message.payload)
            raw: Any = message.properties or b""
            received = Message(topic, payload, message.qos, message.retain, message.dup, message.mid, self.number, raw)
            self._call(self._on_message, received)

    def _answer(self, mid: int) -> asyncio.Future[Any]:
        """Return the broker's answer to the packet ``mid``, to come; ConnectionError when none does."""
        self._answers[mid] = answer = self._loop.create_future()
        return answer

    def _answered(self, _client: Client, _data: Any, mid: int, reason: Any, _properties: Any) -> None:
        self._handled += 1
        answer = self._answers.pop(mid, None)
        if answer is not None and not answer.done():
            answer.set_result(reason)

    def subscribe(self, topics: list[str]) -> asyncio.Future[list[ReasonCode]]:
        """Gives the broker's answer for each of ``topics``, of which ``Session.apart`` takes one. Raises
        ConnectionError."""
        options = SubscribeOptions(qos=1, retainHandling=1 if self._session.retained_once else 0)
        properties = None
        if self._client.apart:
            from vedette.mqtt.filters import identifier

            properties = Properties(PacketTypes.SUBSCRIBE)  # type: ignore[no-untyped-call]
            (properties.SubscriptionIdentifier,) = map(identifier, topics)
        wanted: Any = [(topic, options if self._is_5 else 1) for topic in topics]
        _, mid = self._client.subscribe(wanted, properties=properties)
        if mid is None:
            raise ConnectionError("connection lost")
        return self._answer(mid)

    def unsubscribe(self, topics: list[str]) -> asyncio.Future[list[ReasonCode]]:
        """Gives the broker's answer, of MQTT 5 for each of ``topics``. Raises ConnectionError."""
        _, mid = self._client.unsubscribe(topics)
        if mid is None:
            raise ConnectionError("connection lost")
        return self._answer(mid)

    async def publish(self, topic: str, payload: bytes, *, qos: int, retain: bool) -> bool:
        """Publish a message, as ``MqttClient.publish`` says."""
        async with self._slots:
            if self.ended.done():
                raise ConnectionError("connection lost")
            info = self._client.publish(topic, payload, qos=qos, retain=retain)
            if info.rc != 0:
                raise ConnectionError(f"cannot publish: error {info.rc}")
            if qos == 0:
                return True
            try:
                async with asyncio.timeout(ACK_SECONDS):
                    reason = await self._answer(info.mid)
            except TimeoutError as error:
                self.drop(f"the broker acknowledged nothing for {ACK_SECONDS:g} s")
                raise ConnectionError("the broker does not acknowledge") from error
        if reason.is_failure:
            raise PermissionError(f"the broker refuses a message on {topic}: {reason}")
        return bool(reason.value != NO_SUBSCRIBERS)

    def ack(self, message: Message) -> None:
        """PUBACK for a QoS 1 message of this connection; any other's is left: the broker sends it again."""
        if message.qos == 1 and message.connection == self.number:
            self._client.ack(message.message_id, 1)
