"""The uplink over MQTT: alerts out, receipts in, heartbeats, and whatever else the region sends down.

Delivery: PUBACK is not delivery, since a broker may lose what it acknowledged. An alert leaves the outbox only on the
landing's receipt. PUBACK paces sending: at most ``max_inflight`` batches are under way. Sent again is:

* a batch lost with the connection, or that the broker had no subscriber for: as soon as it can be sent;
* what the broker acknowledged and no receipt came for within ``resend_after``, or what a landing asks for in its
  receipts where that is more, up to MOST_ASKED: not compressed;
* everything without a receipt after a restart of the agent, and after the broker lost our session (it then lost
  more than that).

It is sent again under the same ``alert_id``, and the region drops doubles.

A receipt takes alerts out of the outbox, so it is believed only as far as it can be true. It must be for this outbox's
numbering; with ``receipt_keys`` one of them must have signed it (``delivery/receipts.py``), else it is as good as the
broker's access list over TLS. Authenticated receipts are believed for every alert that was sent, before the agent's
start, too: they wait in the broker's session. Without either anybody may have sent them, so they are believed only for
alerts that the broker has acknowledged in this life; what a refused receipt was for is sent again.

Batches are compressed (``delivery/batch.py``) once a receipt has said by which dictionaries its landing can read them.
A receipt of a former landing, which says nothing, ends that for ``resend_after``: another may share its subscription,
and what a former one cannot read has no receipt and goes again as it was.

The status topic is retained: a heartbeat at every connection and every ``heartbeat`` seconds, and as last will
``{"state": "lost"}``.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
import structlog

from vedette.config.settings import UNAUTHENTICATED
from vedette.delivery.envelope import BATCH_BYTES, pack_batch
from vedette.delivery.queue import Source
from vedette.delivery.receipts import common, joined, unpack_receipt
from vedette.delivery.topics import agent_topic
from vedette.model.counters import Log
from vedette.mqtt.client import MqttClient
from vedette.mqtt.connection import MAX_INFLIGHT, REGION_PACKET, Message, Session
from vedette.system.trouble import BACKOFF, Backoff

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

log = structlog.get_logger()

BATCH_ALERTS = 200
SESSION_EXPIRY = 7 * 86400
"""Seconds for which the broker keeps receipts for an agent that is away."""
IDLE_SECONDS = 1.0
"""Longest wait before looking for alerts whose receipt is overdue."""
LEAST_SECONDS = 0.1
"""Shortest ``heartbeat``."""
MOST_ASKED = 3600.0
"""Seconds: of a landing's wish; so long it also counts, unless it is repeated, against a lesser one."""
MERGE = 100
"""Sent ranges are remembered in steps of ``resend_after / MERGE``: so many of them at most, besides gaps."""

Handler = Callable[[Message], None]


class _Run(NamedTuple):
    """Alerts ``first`` to ``last`` were acknowledged by the broker at ``at`` (monotonic seconds)."""

    at: float
    first: int
    last: int


class MqttUplink:
    """``[uplink] type = "mqtt"``; see the module's text."""

    def __init__(
        self,
        source: Source,
        *,
        backoff: tuple[float, float] = BACKOFF,
        max_inflight: int = MAX_INFLIGHT,
    ) -> None:
        """``max_inflight``: batches under way, at most."""
        settings, agent, outbox, self._counters, self._status, _ = source
        self._settings, self._outbox = settings, outbox
        self._asked, self._asked_until = 0.0, 0.0
        self._max_inflight = max_inflight
        self._interval = max(settings.heartbeat, LEAST_SECONDS)
        self._backoff = backoff
        self._alerts, self._receipts, self._status_topic, self._replies = (
            agent_topic(agent.fleet, agent.id, leaf) for leaf in ("alerts", "receipts", "status", "replies")
        )
        self._routes: dict[str, Handler] = {self._receipts: self._receipt}
        self._keys = _public_keys(settings.receipt_keys)
        self._authenticated = settings.receipts != UNAUTHENTICATED
        self._former = outbox.account().next_seq - 1
        """The highest seq that may have been sent before this life."""
        self._after = 0
        """The highest seq taken from the outbox in this life."""
        self._acknowledged: list[tuple[int, int]] = []
        """What the broker has acknowledged in this life, as ascending receipt ranges."""
        self._again: deque[tuple[int, int]] = deque()
        """Receipt ranges to send again, before anything new."""
        self._sent: deque[_Run] = deque()
        """Acknowledged by the broker, oldest first; whether a receipt came is seen in the outbox."""
        self._press: Callable[[bytes], bytes] | None = None
        """Compresses a batch for the landings that were heard last; None: they read plain ones only."""
        self._plain_until = 0.0
        """When (monotonic seconds) that of a former landing is past."""
        self._plain_to = 0
        """The highest seq that goes again for want of a receipt."""
        self._flying: set[asyncio.Task[None]] = set()
        self._refusals = Backoff(backoff)
        self._not_before = 0.0
        """When the next batch may go (monotonic seconds), since one was refused; those that were under way with it are
        no further failures."""
        self._refused: dict[str, str] = {}
        """By topic why the broker refuses what is published there, until it takes something."""
        self._oldest = 0
        """The least seq without a receipt, as of the last look; 0: there was none."""
        self._waited = 0.0
        """Seconds with a connection for which that has been the least."""
        self._looked = 0.0
        """When (monotonic seconds) that was looked at last."""
        self._beat = asyncio.Event()
        self._received: asyncio.Queue[Message] = asyncio.Queue()  # bounded by the receive maximum
        self._had_session = False
        will = orjson.dumps({"agent_id": agent.id, "fleet": agent.fleet, "site": agent.site, "state": "lost"})
        self.client = MqttClient(
            settings.broker,
            f"vedette-{agent.fleet}-{agent.id}",
            subscriptions=list(self._routes),
            on_message=self._message,
            on_session=self._session,
            backoff=backoff,
            session=Session(
                expiry=SESSION_EXPIRY,
                max_packet=REGION_PACKET,
                max_inflight=max_inflight,
                will=(self._status_topic, will),
            ),
        )

    @property
    def _resend_after(self) -> float:
        return max(self._settings.resend_after, self._asked)

    def state(self) -> dict[str, Any]:
        client = self.client
        refused = {**self._refused, **client.refused}
        self._look()
        return {
            "type": "mqtt",
            "broker": self._settings.broker.url,
            "connected": client.connected.is_set(),
            **({"reason": client.trouble} if client.trouble else {}),
            **({"protocol": client.downgraded} if client.downgraded else {}),
            **({"taken_over": client.taken_over} if client.taken_over else {}),
            **({"refused": refused} if refused else {}),
            **({"unanswered": int(self._waited)} if self._waited > 2 * self._resend_after else {}),
            "receipts": self._settings.receipts,
            "compressed": self._press is not None,
            "resend_after": self._resend_after,
        }

    def _look(self) -> None:
        """Count how long the oldest alert waits for its receipt. It alone tells: a broker may acknowledge nothing, and
        receipts for what is not in the outbox any more may come without end."""
        now, oldest = time.monotonic(), next((seq for seq, _ in self._outbox.pending(0, 1)), 0)
        if oldest != self._oldest:
            self._oldest, self._waited = oldest, 0.0
        elif oldest and self.client.connected.is_set():
            self._waited += min(now - self._looked, self._interval)  # nobody may have looked while it was away
        self._looked = now

    async def run(self) -> None:
        """Send and receive until ``stop`` or cancelled. Raises OSError of the store, and what a handler raised."""
        await self.client.run_with(self._send(), self._heartbeat(), self._settle())

    async def stop(self, deadline: float) -> None:
        """Send what the outbox holds unsent and wait for PUBACKs, at most ``deadline`` seconds; a last heartbeat, and
        ``run`` returns. What is not sent, or has no receipt yet, stays in the outbox."""
        until = time.monotonic() + deadline
        self._outbox.wake()
        while self.client.connected.is_set() and time.monotonic() < until and not self._refusals.failing:
            if not (self._flying or self._again or self._outbox.pending(self._after, 1)):
                break
            await asyncio.sleep(0.01)
        with suppress(OSError):  # the last will stands
            async with asyncio.timeout(max(0.1, until - time.monotonic())):
                await self.client.publish(self._status_topic, self._status(), retain=True)
        await self.client.close()

    def subscribe(self, topic: str, handler: Handler) -> None:
        """A further subscription of this connection, now and whenever it is made again; retained messages come each
        time. ``topic`` may end in ``/+``.

        ``handler`` is called in the event loop for every message, which is acknowledged when it returns; what it raises
        ends ``run``.
        """
        self._routes[topic] = handler
        self.client.subscribe(topic)

    def unsubscribe(self, topic: str) -> None:
        """Withdraw a subscription."""
        if self._routes.pop(topic, None) is not None:
            self.client.unsubscribe(topic)

    async def reply(self, data: bytes) -> bool:
        """Send a part of an answer to an operator; False: nobody listens. Raises ConnectionError, PermissionError."""
        return await self.client.publish(self._replies, data)

    def _session(self, present: bool) -> None:
        if not present and self._had_session:
            self._again.extend((run.first, run.last) for run in self._sent)
            self._sent.clear()
        self._had_session = True
        self._beat.set()

    def _message(self, message: Message) -> None:
        handler = self._routes.get(message.topic) or self._routes.get(message.topic.rpartition("/")[0] + "/+")
        if handler is not None:
            handler(message)
        if handler != self._receipt:  # acknowledged when the outbox has it on disk
            self.client.ack(message)

    def _receipt(self, message: Message) -> None:
        self._received.put_nowait(message)

    async def _settle(self) -> None:
        """Receipts to the outbox, those that came together in one transaction."""
        while True:
            messages = [await self._received.get()]
            while not self._received.empty():
                messages.append(self._received.get_nowait())
            by_log: dict[str, list[tuple[int, int]]] = {}
            for message in messages:
                try:
                    receipt = unpack_receipt(message.payload, message.topic, self._keys)
                    by_log.setdefault(receipt.log_id, []).extend(self._credible(message, receipt.ranges))
                    self._agree(receipt.dictionaries, min(receipt.resend_after, MOST_ASKED))
                except ValueError as error:
                    self._ignore(message, str(error))
            for log_id, pairs in by_log.items():
                await self._outbox.receipt(pairs, log_id)
            for message in messages:
                self.client.ack(message)

    def _agree(self, dictionaries: Sequence[int], resend_after: float) -> None:
        """Compress what follows for a landing that knows ``dictionaries``, and wait ``resend_after`` for it."""
        now = time.monotonic()
        if resend_after >= self._asked or now >= self._asked_until:
            self._asked, self._asked_until = resend_after, now + MOST_ASKED
        if not dictionaries:
            self._press, self._plain_until = None, now + self._resend_after
        elif now >= self._plain_until:
            from vedette.delivery.batch import press

            self._press = press(dictionaries)

    def _credible(self, message: Message, pairs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """``pairs`` as far as they can be true: see the module's text."""
        sent = [(0, max(self._after, self._former))] if self._authenticated else self._acknowledged
        claimed = joined(pairs)
        credible = common(claimed, sent)
        if credible != claimed:
            state = "sent" if self._authenticated else "acknowledged by the broker"
            self._ignore(message, f"it names alerts up to seq {claimed[-1][1]}, not all of which were {state}")
        return credible

    def _ignore(self, message: Message, reason: str) -> None:
        self._counters.totals["receipts_refused"] += 1
        log.warning(Log.RECEIPT_INVALID, topic=message.topic, reason=reason, action="ignored")

    async def _heartbeat(self) -> None:
        while True:
            await self.client.connected.wait()
            self._beat.clear()
            try:
                await self.client.publish(self._status_topic, self._status(), retain=True)
                self._refused.pop(self._status_topic, None)
                async with asyncio.timeout(self._interval):
                    await self._beat.wait()
            except PermissionError as error:
                self._refused[self._status_topic] = str(error)
                self._report(str(error))
                await asyncio.sleep(self._backoff[1])
            except TimeoutError:
                pass  # time for the next
            except ConnectionError:
                await asyncio.sleep(self._backoff[0])

    async def _send(self) -> None:
        while True:
            await self.client.connected.wait()
            await asyncio.sleep(self._not_before - time.monotonic())
            batch = self._next()
            if not batch:
                await self._outbox.more(min(IDLE_SECONDS, self._resend_after / 4))
                continue
            task = asyncio.create_task(self._publish(batch))
            self._flying.add(task)
            task.add_done_callback(self._flying.discard)
            limit = 1 if self._refusals.failing else self._max_inflight  # one batch shows whether it is over
            while len(self._flying) >= limit:
                await asyncio.wait(self._flying, return_when=asyncio.FIRST_COMPLETED)

    def _next(self) -> list[tuple[int, bytes]]:
        """The next batch, of what goes again or of what is new; empty when there is none."""
        now = time.monotonic()
        while self._sent and self._sent[0].at + self._resend_after <= now:
            _, first, last = self._sent.popleft()
            self._again.append((first, last))
            self._plain_to = max(self._plain_to, last)
        while self._again:
            first, last = self._again.popleft()
            batch = [entry for entry in self._take(first - 1) if entry[0] <= last]
            if batch:
                if batch[-1][0] < last:
                    self._again.appendleft((batch[-1][0] + 1, last))
                return batch
        batch = self._take(self._after)
        if batch:
            self._after = batch[-1][0]
        return batch

    def _take(self, after: int) -> list[tuple[int, bytes]]:
        return self._outbox.pending(after, BATCH_ALERTS, BATCH_BYTES)

    async def _publish(self, batch: list[tuple[int, bytes]]) -> None:
        first, last, began = batch[0][0], batch[-1][0], time.monotonic()
        plain = payload = pack_batch(self._outbox.log_id, [data for _, data in batch])
        if self._press is not None and first > self._plain_to:
            payload = self._press(plain)
        try:
            acknowledged = await self.client.publish(self._alerts, payload)
        except ConnectionError:
            self._again.append((first, last))  # the client logs why
            return
        except OSError as error:
            self._fail(str(error), first, last, began)
            return
        self._counters.totals["alerts_sent"] += len(batch)
        self._counters.totals["bytes_sent"] += len(payload)
        self._counters.totals["bytes_saved"] += len(plain) - len(payload)
        if not acknowledged:
            reason = "the broker has no subscriber for alerts: has `vedette region land` ever run?"
            self._fail(reason, first, last, began)
            return
        self._acknowledged = joined([*self._acknowledged, (first, last)])
        self._refusals.reset()
        self._refused.pop(self._alerts, None)
        now = time.monotonic()
        if self._sent and self._sent[-1].last + 1 == first:
            newest = self._sent[-1]
            if now - newest.at < self._resend_after / MERGE:
                self._sent[-1] = newest._replace(last=last)
                return
        self._sent.append(_Run(now, first, last))

    def _fail(self, reason: str, first: int, last: int, began: float) -> None:
        """What the broker refuses goes again after a while; logged once until something gets through."""
        self._again.appendleft((first, last))
        self._refused[self._alerts] = reason
        self._report(reason)
        if began >= self._not_before:
            self._not_before = time.monotonic() + self._refusals.failed()

    def _report(self, reason: str) -> None:
        if not self._refusals.failing:
            about = {"broker": self._settings.broker.url, "topic": self._alerts, "reason": reason}
            log.error(Log.UPLINK_FAILED, **about, action="alerts stay in the outbox; retrying")


def _public_keys(texts: Sequence[str]) -> list[Ed25519PublicKey]:
    """Return the keys of ``receipt_keys``; cryptography is loaded with the first."""
    if not texts:
        return []
    from vedette.bundle.seal import public_key

    return [public_key(text) for text in texts]
