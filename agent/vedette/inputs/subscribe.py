"""The MQTT input: a subscription with QoS 1 and a persistent session.

Promises:

* A QoS 1 message is acknowledged only after the raw log holds it on disk. Killed at any moment, the agent gets from the
  broker again what it had not acknowledged; nothing is lost.
* A redelivery (marked DUP by the broker) that the log already holds is acknowledged, counted as a duplicate and not
  stored. What is not known to be in the log is stored with ``Flag.DUP`` (``_Seen``).
* While the raw log accepts nothing, QoS 1 messages stay with the broker: they are neither stored nor acknowledged, at
  most ``receive_maximum`` are under way, and when there is room again the input reconnects to be sent them; what comes
  before that waits behind them, so that the log has the broker's order. A QoS 0 message has no way to wait: it is
  dropped and counted.

* What leaves ``topics`` is unsubscribed: the store says which filters the session was given, also by the lives before,
  and has it on disk before the broker is asked. What is still under way by them alone is acknowledged, counted and not
  stored, until none has come for UNDER_WAY seconds.

Messages are gathered into chunks of up to CHUNK_BYTES, CHUNK_MESSAGES or CHUNK_SECONDS: each an event, its topic the
origin; a payload of several JSON events (``batches.py``) is as many, side by side under the message's identifier. An
event above MAX_EVENT is cut and flagged. One above MAX_PACKET does not come at all: the broker discards it,
and only its own log shows it (``mqtt/client.py``). Retained messages are events once per session, by MQTT 3.1.1, which
brings them at every connection, once per session and life, of the TOPICS that have had messages last.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections import OrderedDict
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from hashlib import md5
from typing import Any, NamedTuple

import structlog

from vedette.decode.codecs import Kind, builtin
from vedette.inputs.acknowledge import Acknowledgements
from vedette.inputs.base import Surroundings
from vedette.inputs.batches import Steps, at_once, events_of, joined, splitting
from vedette.inputs.condition import OPENING, WORKS, Condition, failing
from vedette.inputs.framing import Run, run_of
from vedette.inputs.push.base import SLICE, Refused
from vedette.inputs.push.pieces import check
from vedette.inputs.settings import MqttInput
from vedette.model.counters import Dropped, Log
from vedette.model.event import CHUNK_BYTES, CHUNK_SECONDS, MAX_EVENT, Chunk, Flag
from vedette.mqtt.client import MqttClient
from vedette.mqtt.connection import Message, Session
from vedette.mqtt.filters import Copies, Filters, overlapping
from vedette.system.trouble import BACKOFF, Firsts
from vedette.system.turns import in_steps

log = structlog.get_logger()

AT_ONCE = 16 << 10
"""Bytes of a message that is taken in at once; while a larger one is, in steps, the connection is not read."""
MOST_BAD = 1000
"""Events of a message that are counted as no JSON: what is wrong in so many is hardly worth the time."""
CHUNK_MESSAGES = 4096
"""In one chunk: bounds chunks of empty payloads, and the origin table's index."""
UNDER_WAY = 60.0
"""Without a message by a filter that was withdrawn, after which none is expected."""
TOPICS = 10_000
"""By MQTT 3.1.1, whose last message is known when the broker brings it again."""
LOGGED_TOPICS = 1000
"""Topics whose first payload that is cut, or is not JSON, is logged."""
IDENTIFIERS = 65535
"""Packet identifiers: 1 to this (MQTT 5, 2.2.1)."""
HALF_ROUND = IDENTIFIERS // 2
DIGEST = 16
"""Bytes of an MD5; it recognizes redeliveries, it protects nothing."""


class _Gathered(NamedTuple):
    """A message and its events as they are stored."""

    message: Message
    run: Run
    digest: bytes
    """The MD5 of what is stored: the events without what lay between them."""
    copy: bool = False
    """It is stored already, or gathered: by another of the subscriptions."""


class _Seen:
    """Whether a message that comes again is one that is stored. 1.5 MiB, flat.

    For each packet identifier there is a digest of the topic and payload that were stored last under it, and the
    running number of that message. A broker numbers its messages in turn, round and round, and sends again, in order,
    what it holds unacknowledged; messages are stored and acknowledged in that order, too. So first those come that are
    stored: the last of them, as many as were not acknowledged. Then those that are not: each has all before it stored
    or gathered, and so the stored one with its identifier is a round behind. Entries less than half a round behind are
    therefore the first copy, older ones are not looked at. That leaves half a round for what was stored and not
    acknowledged (``receive_maximum`` does not bound it: ``mqtt/client.py``), and half for the gathered and for numbers
    that the broker gave to messages it then discarded. More than that unacknowledged are stored twice, flagged.

    Where the numbers do not go on, another session has begun: what was before is not looked at.
    """

    def __init__(self) -> None:
        self._digests = bytearray((IDENTIFIERS + 1) * DIGEST)
        self._numbers = array("Q", bytes((IDENTIFIERS + 1) * 8))
        self._last_id = 0
        self._count = 0
        self._forgotten = 0

    def forget(self) -> None:
        """Packet identifiers start from 1 again."""
        self._forgotten = self._count

    @staticmethod
    def _key(topic: str, digest: bytes) -> bytes:
        return md5(topic.encode("utf-8", "replace") + b"\0" + digest, usedforsecurity=False).digest()

    def add(self, message_id: int, topic: str, digest: bytes) -> None:
        """A message was stored."""
        if not 0 < (message_id - self._last_id) % IDENTIFIERS <= HALF_ROUND:
            self.forget()
        start = message_id * DIGEST
        self._digests[start : start + DIGEST] = self._key(topic, digest)
        self._count += 1
        self._numbers[message_id] = self._count
        self._last_id = message_id

    def has(self, message_id: int, topic: str, digest: bytes) -> bool:
        """Whether this message, come again, is a stored one."""
        if self._numbers[message_id] <= max(self._forgotten, self._count - HALF_ROUND):
            return False
        start = message_id * DIGEST
        return self._digests[start : start + DIGEST] == self._key(topic, digest)


class MqttSubscription:
    """One ``[[input]] type = "mqtt"``; see the module's text.

    ``recent`` is what the raw log's tail holds of this input: packet identifier, topic and MD5 of the payload as it was
    stored (``rawlog.read.recent_messages``).
    """

    def __init__(
        self,
        settings: MqttInput,
        agent: Surroundings,
        *,
        recent: Iterable[tuple[int, str, bytes]] = (),
        backoff: tuple[float, float] = BACKOFF,
    ) -> None:
        self.settings = settings
        self._agent = agent
        self._codec = settings.codec
        self._batches = builtin(self._codec).kinds <= {Kind.MQTT, Kind.JSON}
        self._seen = _Seen()
        self._copies = Copies()
        for message_id, topic, digest in recent:
            if message_id:
                self._seen.add(message_id, topic, digest)
        self._gathered: list[_Gathered] = []
        self._bytes = 0
        self._since = 0
        self._came = asyncio.Event()
        self._waiting = asyncio.Event()
        self._logged = Firsts(LOGGED_TOPICS)
        self._stopping = False
        client_id = f"vedette-{agent.agent_id}-{settings.name}"
        self._remembered = f"mqtt:{settings.name}"
        self._session = f"{client_id} {settings.broker.url}"
        self._filters: list[str] = (agent.recall(self._remembered) or {}).get(self._session, [])
        """What the session has been given."""
        earlier = {*self._filters}.difference(settings.topics)
        self._wanted = Filters(settings.topics)
        self._earlier = Filters(earlier) if earlier else None
        """What was withdrawn, while something may be under way by it."""
        self._unwanted_at = 0.0
        """Monotonic: when something was, or might have been."""
        self._last: OrderedDict[int, tuple[int, bytes]] = OrderedDict()
        """By MQTT 3.1.1, by topic: the connection that last brought a retained message, the digest of the last one."""
        self.client = MqttClient(
            settings.broker,
            client_id,
            subscriptions=settings.topics,
            on_message=self.received,
            on_session=self.session,
            backoff=backoff,
            session=Session(
                expiry=settings.session_expiry,
                receive_maximum=settings.receive_maximum,
                retained_once=True,
                apart=overlapping((*settings.topics, *earlier)),
            ),
        )
        self.client.unwanted |= earlier
        self.client.on_filters = self._remember
        self._acknowledgements = Acknowledgements(agent.intake, self.client.ack)  # bounded by receive_maximum

    @property
    def condition(self) -> Condition:
        if self.client.connected.is_set():
            refused = next((f"{topic}: {reason}" for topic, reason in self.client.refused.items()), "")
            return failing(refused) if refused else WORKS._replace(reason=self.client.downgraded)
        return failing(f"{self.settings.broker.url}: {self.client.outage}") if self.client.outage else OPENING

    async def run(self) -> None:
        """Receive until ``stop`` or cancelled; raises OSError when the raw log cannot be written."""
        await self.client.run_with(self._hand_over(), self._acknowledgements.run(), self._refetch())

    async def stop(self) -> None:
        """Store what was gathered, acknowledge what gets on disk in time, disconnect; ends ``run``."""
        self._stopping = True
        self.flush()
        await self._acknowledgements.drain()
        await self.client.close()

    def bound(self, descriptors: int) -> None:
        """One connection is all it has."""

    def session(self, present: bool) -> None:
        """A connection begins; ``present``: the broker still has the session."""
        self.flush()  # what came by the connection before is known when its redelivery comes
        if not present:
            self._seen.forget()
            self._last.clear()

    async def _remember(self) -> None:
        """Which filters the session has, before it is given more."""
        self._unwanted_at = time.monotonic()
        filters = sorted({*self.settings.topics, *self.client.unwanted})
        if filters != self._filters:
            with suppress(OSError):
                sessions = self._agent.recall(self._remembered) or {}
                await self._agent.remember(self._remembered, sessions | {self._session: filters})
                self._filters = filters

    def _is_wanted(self, topic: str) -> bool:
        """A broker may give a topic another name than its filter has: what only earlier ones cover is unwanted."""
        if self._earlier is None or not self._earlier.cover(topic):
            return True
        now = time.monotonic()
        if not self.client.unwanted and now > self._unwanted_at + UNDER_WAY:
            self._earlier = None
        elif not self._wanted.cover(topic):
            self._unwanted_at = now
            return False
        return True

    def _brought_again(self, message: Message, digest: bytes) -> bool:
        """Whether a SUBSCRIBE of MQTT 3.1.1 brings what came by a connection before."""
        if self.client.protocol == "5":
            return False
        connection, newest = self._last.pop(hash(message.topic), (0, b""))
        self._last[hash(message.topic)] = message.connection if message.retain else connection, digest
        if len(self._last) > TOPICS:
            self._last.popitem(last=False)
        return message.retain and newest == digest and connection != message.connection

    def received(self, message: Message) -> Coroutine[Any, Any, None] | None:
        """A message of the connection; what a large one takes."""
        if self._stopping:
            return None  # not acknowledged: the broker keeps it
        if message.qos and self._waiting.is_set():
            return None  # comes again after the one that was left with the broker
        name = self.settings.name
        if not self._is_wanted(message.topic):
            self._agent.counters.drop(name, Dropped.UNWANTED)
            self._agent.counters.bytes_in[name] += len(message.payload)
            self._acknowledgements.owe([message._replace(payload=b"")])
            return None
        if not self._agent.intake.accepting():
            if message.qos and self.settings.session_expiry:
                self._waiting.set()
                return None
            self._agent.counters.drop(name, Dropped.DISK_FULL)
            self._agent.counters.bytes_in[name] += len(message.payload)
            self.client.ack(message)
            return None
        if len(message.payload) > AT_ONCE:
            return in_steps(self._take(message))
        at_once(self._take(message))
        return None

    def _take(self, message: Message) -> Steps[None]:
        name = self.settings.name
        batch = (yield from splitting(message.payload, texts=False)) if self._batches else None
        run = batch or run_of([message.payload or b"\n"])
        came = _Gathered(message, run, md5(run.data, usedforsecurity=False).digest())
        again = message.dup and self._seen.has(message.message_id, message.topic, came.digest)
        if again or self._brought_again(message, came.digest):
            self._agent.counters.drop(name, Dropped.DUPLICATE, len(came.run.ends or ()))
            self._agent.counters.bytes_in[name] += len(came.run.data)
            # Its first copy may not be on disk yet.
            self._acknowledgements.owe([message._replace(payload=b"")])
            return
        if self._copies.is_copy(message.topic, came.digest, message.properties):
            self._agent.counters.drop(name, Dropped.DUPLICATE, len(came.run.ends or ()))
            self._agent.counters.bytes_in[name] += len(came.run.data)
            came = came._replace(copy=True)
        if came.run.marks:
            reason = f"{len(message.payload)} bytes, of an event {MAX_EVENT} are kept"
            self._log(Log.EVENT_CUT, message.topic, reason, "cut")
        if not self._gathered:
            self._since = self._agent.clock()
            self._came.set()
        self._gathered.append(came)  # no step after it was asked about: its connection may end in each
        self._bytes += len(came.run.data) + len(message.topic)
        if self._bytes >= CHUNK_BYTES or len(self._gathered) >= CHUNK_MESSAGES:
            self.flush()
        if not came.copy and (batch is None or message.payload[:1] == b"{"):  # no JSON in an array is not counted
            yield from self._check_json(came.run, message.topic)

    def _check_json(self, run: Run, topic: str) -> Steps[None]:
        """Count the events that should be JSON and are not, and those that are cut; ``MOST_BAD`` at most."""
        bad = 0
        for i, event in enumerate(events_of(run)):
            if self._codec == "json" or event[:1] in (b"{", b"["):
                try:
                    yield from check(event)
                except Refused as refused:
                    self._log(Log.PAYLOAD_UNDECODABLE, topic, refused.reason, "kept and evaluated as text")
                    bad += 1
                    if bad == MOST_BAD:
                        break
            if i % SLICE == 0:
                yield []
        self._agent.counters.totals["decode_failed"] += bad

    def _log(self, event: Log, topic: str, reason: str, action: str) -> None:
        """The first of a topic."""
        if self._logged.add((event, hash(topic))):  # it may have 64 KiB
            action += "; further ones of this topic are only counted"
            log.warning(event, input=self.settings.name, topic=topic, reason=reason, action=action)

    async def _hand_over(self) -> None:
        while True:
            await self._came.wait()
            self._came.clear()
            await asyncio.sleep(CHUNK_SECONDS)
            self.flush()

    def flush(self) -> None:
        """Store what was gathered; raises OSError, and the messages are then not acknowledged."""
        if not self._gathered:
            return
        gathered = self._gathered
        self._gathered = []
        self._bytes = 0
        chunk = self._chunk(gathered)
        offset = None if chunk is None else self._agent.deliver(chunk)
        self._acknowledgements.owe([came.message._replace(payload=b"") for came in gathered], offset)

    def _chunk(self, gathered: list[_Gathered]) -> Chunk | None:
        """None when all of them are copies."""
        runs: list[Run] = []
        marks: list[tuple[int, int]] = []
        size = 0
        origin_of = array("H")
        ids = array("H")
        topics: dict[str, int] = {}
        for came in gathered:
            message = came.message
            run = came.run
            if message.qos:
                self._seen.add(message.message_id, message.topic, came.digest)
            if came.copy:
                continue
            runs.append(run._replace(marks=()))
            of_run = {0: int(Flag.DUP)} if message.dup else {}
            of_run |= {at: bits | of_run.get(0, 0) for at, bits in run.marks}
            marks += ((size + at, bits) for at, bits in of_run.items())
            size += len(run.data)
            origin = topics.setdefault(message.topic, len(topics))
            origin_of.extend(array("H", [origin]) * len(run.ends or ()))
            ids.extend(array("H", [message.message_id if message.qos else 0]) * len(run.ends or ()))
        whole = joined(runs)
        if whole is None:
            return None
        return Chunk(
            self.settings.name,
            self._codec,
            self._since,
            whole.data,
            ends=whole.ends,
            origins=tuple(topics),
            origin_of=origin_of,
            marks=tuple(marks),
            message_ids=ids,
        )

    async def _refetch(self) -> None:
        """After a time without room: make the broker send again what was left with it."""
        while True:
            await self._waiting.wait()
            await self._agent.intake.ready()
            self._waiting.clear()
            self.client.reconnect()
