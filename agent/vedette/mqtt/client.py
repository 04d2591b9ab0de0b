"""MQTT 5 for asyncio, or 3.1.1 where a broker refuses 5: one client that stays connected.

Promises:

* ``run`` connects, and connects again with back-off (1 to 30 s, with jitter) whenever the broker is away, at start and
  later; an outage is logged once, with its reason. Only an exception of ``on_message`` ends it.
* A session that another client takes over is no outage of the broker: two machines have one id, and take the session
  from each other for as long as both run. It is logged once as what it is, and counted (``taken_over``). A broker that
  closes the connection without a word (Mosquitto 2.0.11 does) leaves a suspicion: after ``BRIEF`` connections in a row
  that it took and that ended within ``BRIEF_SECONDS`` the reason says so.
* ``publish`` resolves on the broker's PUBACK and never retries: what was not acknowledged when the connection ended
  raises ConnectionError, and the caller decides; without PUBACK for ``ACK_SECONDS`` the connection ends. PUBACK is not
  delivery: see ``delivery/uplink.py``.
* A received QoS 1 message is acknowledged only by ``ack``. Without it the broker sends it again, marked ``dup``, on
  the next connection, and at most ``receive_maximum`` of them are under way: this is the back-pressure. (Mosquitto
  2.0.11 sends several for each PUBACK while it has more, so that far more get under way; none without PUBACKs.)
* By 3.1.1 a session has no expiry but the broker's, SUBSCRIBE brings retained messages at every connection (it is sent
  for what the session has, too: a broker that was restored has an older one), no PUBACK says that nobody subscribes,
  and what a packet has beyond ``max_packet`` is cut off as it comes.
* By 5 no packet above ``max_packet`` comes (CONNECT's Maximum Packet Size): the broker discards a larger message, and
  only its own log says so. Mosquitto 2.0.11 then goes on counting a QoS 1 message as under way until the connection
  ends: after ``receive_maximum`` of them in a row no more come. A ``message_size_limit`` in the broker below
  ``max_packet`` keeps such messages out altogether.

The session (subscriptions, unacknowledged messages) lives in the broker under ``client_id`` for ``Session.expiry``
seconds.

``mqtts://`` is TLS 1.2 or newer with the broker's certificate and name checked (but for ``Session.unverified``), and a
client certificate where one is given (``tls.py``). A broker that is not who it should be, or that refuses our
certificate, is an outage like any other: logged with its reason, tried again.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from vedette.model.counters import Log
from vedette.mqtt.connection import CONNECT_SECONDS, Connection, Message, OnMessage, Session
from vedette.mqtt.settings import MqttSettings
from vedette.system.trouble import BACKOFF, Backoff, Trouble

if TYPE_CHECKING:
    from vedette.mqtt.tls import ClientContext, Renewed

log = structlog.get_logger()

STEADY_SECONDS = 10.0
"""A connection that lived this long resets the back-off; two clients of one id do not hammer the broker."""
BRIEF = 3
BRIEF_SECONDS = 60.0

DEFAULT_SESSION = Session()


class MqttClient:
    """A client that stays connected; see the module's text.

    ``on_message`` is called in the event loop and must not block; what takes long it returns (``Connection``).
    ``connected`` is set while connected and subscribed.
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
        on_message: OnMessage | None = None,
        on_session: Callable[[bool], None] | None = None,
        backoff: tuple[float, float] = BACKOFF,
    ) -> None:
        for mistake in settings.mistakes():
            raise ValueError(f"broker{mistake}")
        self.settings = settings
        self.client_id = client_id
        self.connected = asyncio.Event()
        self.protocol = settings.protocol
        """Of the connection, or of the last attempt."""
        self.outage = ""
        """Why the last connection, or the last attempt, ended."""
        self.refused: dict[str, str] = {}
        """By topic why the broker takes no subscription."""
        self.taken_over = 0
        """Connections that ended since another client came under this id, as the broker said."""
        self._brief = 0
        """Connections in a row that ended soon."""
        self._since = 0.0
        """Monotonic: when the last one was made."""
        self._tls = _tls(settings, session) if settings.url.startswith("mqtts:") else None
        self._topics: dict[str, None] = dict.fromkeys(subscriptions)
        self.unwanted: set[str] = set()
        """Topics that the session may have and nobody wants: they are withdrawn once it is connected."""
        self.on_filters: Callable[[], Coroutine[Any, Any, None]] | None = None
        """Awaited before the session is given filters or loses some, and when the broker has confirmed all of it."""
        self._in_session: set[str] = set()
        """Topics that the session has, as the broker has answered by this connection."""
        self._on_message = on_message
        self._on_session = on_session
        self._session = session
        self._backoff = Backoff(backoff)
        self._connection: Connection | None = None
        self.attempts = 0
        """Connections begun."""
        self._closing = asyncio.Event()
        self._again = False

    def _why(self, error: Exception) -> str:
        """Return why no connection came about, for people."""
        if self._tls is None:
            return str(error) or type(error).__name__
        from vedette.mqtt.tls import reason

        return reason(error)

    def _expiry(self) -> str:
        """Return a remark that our own certificate is no longer, or not yet, good; else empty."""
        if self._tls is None:
            return ""
        from vedette.mqtt.tls import expiry

        return expiry(self.settings.cert_file)

    async def run(self) -> None:
        """Stay connected until cancelled or ``close``; raises only what ``on_message`` or ``on_session`` raised."""
        logged = Trouble()
        while not self._closing.is_set():
            self._again = False
            started = False
            self.attempts += 1
            connection = self._connection = Connection(
                self.client_id, self.attempts, self._session, self._on_message, self._begins, self.protocol
            )
            try:
                await connection.open(self.settings, self._tls)
                started = True
                self._since = time.monotonic()
                if logged.reason != Log.BROKER_TAKEN_OVER:
                    logged.ends()
                reason = await self._until_end(connection)
                event = Log.BROKER_AWAY
            except ConnectionRefusedError as error:
                # CONNACK with a reason is for the operator; a refused TCP connection is an ordinary outage.
                reason = str(error)
                event = Log.BROKER_AWAY if error.errno else Log.BROKER_REFUSED
            except (OSError, ValueError, TimeoutError) as error:
                reason = self._why(error)
                event = Log.BROKER_AWAY
            finally:
                self.connected.clear()
                self._connection = None
                connection.drop()
            if connection.failure is not None:
                raise connection.failure
            self.protocol = "3.1.1" if connection.unsupported else self.settings.protocol
            if connection.unsupported:
                continue
            if connection.taken_over:
                event = Log.BROKER_TAKEN_OVER
                self.taken_over += 1
            if self._closing.is_set() or self._again:
                self.outage = reason
                continue
            lived = time.monotonic() - self._since
            self._brief = self._brief + 1 if started and lived < BRIEF_SECONDS else 0
            if self._brief >= BRIEF and not connection.taken_over:
                reason += f"; so ended {self._brief} connections soon after they were made: does another machine or"
                reason += " process connect under the same client id?"
            self.outage = reason
            if started and lived > BRIEF_SECONDS:
                logged.ends()
            if logged.begins(event):
                if remark := self._expiry():
                    reason = f"{reason}; {remark}"
                action = "give each an id of its own; retrying" if event == Log.BROKER_TAKEN_OVER else "retrying"
                log.warning(event, broker=self.settings.url, client_id=self.client_id, reason=reason, action=action)
            if started and lived > STEADY_SECONDS:
                self._backoff.reset()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._backoff.failed()):
                    await self._closing.wait()

    def _begins(self, present: bool) -> None:
        if not present:
            self.unwanted.clear()
        if self._on_session is not None:
            self._on_session(present)

    @property
    def downgraded(self) -> str:
        """That and why it is connected by an older protocol than it asked for; else empty."""
        return "" if self.protocol == self.settings.protocol else "by MQTT 3.1.1, since the broker refuses MQTT 5"

    @property
    def trouble(self) -> str:
        """Why it is not connected, or connected again and again; empty: all is well."""
        lately = self._brief >= BRIEF and time.monotonic() - self._since < BRIEF_SECONDS
        return self.outage if lately or not self.connected.is_set() else ""

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

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """``run`` beside the block; closed after it."""
        task = asyncio.create_task(self.run())
        try:
            yield
        finally:
            await self.close()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _until_end(self, connection: Connection) -> str:
        """Subscribe and wait for the end of the connection; returns why it ended."""
        if self._closing.is_set():
            return "closed"
        self._in_session.clear()
        if self.on_filters is not None:
            await self.on_filters()
        refused: set[str] = set()
        """Withdrawals: the next connection tries again."""
        # A message that comes meanwhile may ask for more topics, or for fewer.
        while True:
            if gone := [*(self.unwanted - refused)]:
                await self._answered(connection, self._withdraw(connection, gone))
                refused.update(self.unwanted.intersection(gone))
            elif wanted := [topic for topic in self._topics if topic not in self._in_session]:
                if self._session.apart:
                    wanted = wanted[:1]
                await self._answered(connection, self._subscribe(connection, wanted))
                self._in_session.update(self._topics.keys() & wanted)
            else:
                break
        about = {"broker": self.settings.url, "client_id": self.client_id}
        if self.protocol == self.settings.protocol:
            log.info(Log.BROKER_CONNECTED, **about)
        else:
            log.warning(Log.BROKER_CONNECTED, **about, reason=self.downgraded)
        self.connected.set()
        if self.on_filters is not None:
            await self.on_filters()
        return await connection.ended

    @staticmethod
    async def _answered(connection: Connection, answer: asyncio.Future[list[Any]]) -> None:
        while not (await asyncio.wait([answer], timeout=CONNECT_SECONDS))[0]:
            if not connection.busy:
                raise TimeoutError
        answer.result()

    def _subscribe(self, connection: Connection, topics: list[str]) -> asyncio.Future[list[Any]]:
        answer = connection.subscribe(topics)
        answer.add_done_callback(partial(self._subscribed, topics))
        return answer

    def _subscribed(self, topics: list[str], answer: asyncio.Future[list[Any]]) -> None:
        if answer.cancelled() or answer.exception() is not None:
            return  # the connection ended; the next one subscribes again
        for topic, reason in zip(topics, answer.result(), strict=True):
            self.refused.pop(topic, None)
            if reason.is_failure:
                self.refused[topic] = str(reason)
                about = {"broker": self.settings.url, "client_id": self.client_id, "topic": topic}
                action = "allow this subscription in the broker's access list"
                log.error(Log.BROKER_REFUSED, **about, reason=str(reason), action=action)

    def subscribe(self, topic: str) -> None:
        """Add a subscription, now and on every further connection."""
        self._topics[topic] = None
        self.unwanted.discard(topic)
        if self._connection is not None and self.connected.is_set():
            with contextlib.suppress(ConnectionError):  # the next one subscribes
                self._subscribe(self._connection, [topic])

    def unsubscribe(self, topic: str) -> None:
        """Withdraw a subscription, now or at the next connection."""
        self.refused.pop(topic, None)
        self._in_session.discard(topic)
        if self._topics.pop(topic, "") is None:
            self.unwanted.add(topic)
            if self._connection is not None and self.connected.is_set():
                with contextlib.suppress(ConnectionError):
                    self._withdraw(self._connection, [topic])

    def _withdraw(self, connection: Connection, topics: list[str]) -> asyncio.Future[list[Any]]:
        answer = connection.unsubscribe(topics)
        answer.add_done_callback(partial(self._withdrawn, topics))
        return answer

    def _withdrawn(self, topics: list[str], answer: asyncio.Future[list[Any]]) -> None:
        if answer.cancelled() or answer.exception() is not None or any(reason.is_failure for reason in answer.result()):
            return  # the next connection tries again
        self.unwanted.difference_update(topics)

    async def publish(self, topic: str, payload: bytes, *, qos: int = 1, retain: bool = False) -> bool:
        """Publish; returns on PUBACK (QoS 0: when queued). Waits while ``max_inflight`` messages are under way.

        False when the broker answered that it has no subscriber for the message (and so dropped it).

        Raises ConnectionError when not connected, or when the connection ends before PUBACK; PermissionError when the
        broker refuses the message (its access list, a quota).
        """
        if self._connection is None or not self.connected.is_set():
            raise ConnectionError(f"not connected to {self.settings.url}")
        return await self._connection.publish(topic, payload, qos=qos, retain=retain)

    def ack(self, message: Message) -> None:
        """PUBACK for a received QoS 1 message; nothing when its connection has ended: the broker sends it again."""
        if self._connection is not None:
            self._connection.ack(message)

    def reconnect(self) -> None:
        """Drop the connection and reconnect at once: the broker then resends what was not acknowledged."""
        if self._connection is not None:
            self._again = True
            self.connected.clear()
            self._connection.drop("reconnecting")

    @contextlib.asynccontextmanager
    async def within(self, seconds: float | None, what: str) -> AsyncIterator[None]:
        """For a body that may take so long, or has limits of its own (None). Raises ConnectionError when it takes
        longer, which says that it cannot ``what`` ("publish by", …) the broker, and why."""
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError as error:
            reason = self.outage or "no answer in time"
            raise ConnectionError(f"cannot {what} the broker {self.settings.url}: {reason}") from error

    async def close(self) -> None:
        """Write what is queued, DISCONNECT (the will is not sent), and let ``run`` return."""
        self._closing.set()
        if self._connection is not None:
            await self._connection.close()


def _tls(settings: MqttSettings, session: Session) -> Renewed[ClientContext]:
    """Return the context of connections by TLS, whose module a client without goes without."""
    from vedette.mqtt.tls import Renewed, client_context

    files = (settings.ca_file, settings.cert_file, settings.key_file)
    return Renewed(partial(client_context, *files, unverified=session.unverified), files)
