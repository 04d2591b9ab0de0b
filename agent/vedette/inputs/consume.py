"""The Kafka input: a member of a consumer group, by librdkafka.

Promises:

* A record is once in the raw log of an agent, whatever happens to the agent. A chunk holds records of one partition and
  the offset behind the last of them, and both are in one frame of the raw log; a restart goes on from there
  (``FilePosition`` with the path ``kafka:INPUT:GROUP:TOPIC``, the partition as inode, the topic's id as fingerprint).
* The group's offset is committed after that is on disk, with the topic's id as its metadata. It is for others: lag is
  measured by it, and a partition that moves to another agent goes on from it. Before a partition is given up in order,
  what was read of it is on disk and committed; when one dies, the next may read again what it had not committed.
  What reaches the disk after a partition was lost is not committed for a later assignment (``Reading``): where that
  begins is committed once all that was stored before is on disk.
* **Where reading begins** says ``placement.py``: the further of the two, but for a topic that was deleted and made
  again under its name (its id differs), which is read from its start. Records that were deleted before they were read
  are counted and logged.
* Records of several partitions go in the order of their times (``aligned.py``), also where they are far behind.
* While the raw log takes nothing, the partitions are paused; the member stays in its group.
* It has the group's static membership (``group.instance.id``): an agent that is started again within the session's
  timeout has its partitions at once, and none of them moves.

A record is an event; of several JSON events (``batches.py``) it is as many. One without a value (a tombstone) is none.
librdkafka runs its own threads; what it reads ahead is bounded by QUEUE_KIB. Its calls, which wait, are made in a
thread of this input's own, one at a time, and so are its callbacks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar
from zlib import crc32

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from vedette.decode.codecs import builtin
from vedette.inputs.acknowledge import DRAIN_SECONDS, Acknowledgements
from vedette.inputs.aligned import Aligned
from vedette.inputs.base import Surroundings
from vedette.inputs.condition import OPENING, WORKS, failing
from vedette.inputs.placement import Offsets, placed
from vedette.inputs.records import Part, Place
from vedette.inputs.settings import KafkaInput
from vedette.kafka.client import REFUSED, configuration, reason
from vedette.model.counters import Dropped, Log
from vedette.model.event import Chunk, FilePosition
from vedette.system.ending import to_its_end
from vedette.system.trouble import BACKOFF, Backoff, Firsts

log = structlog.get_logger()

QUEUE_KIB = 4 << 10
"""KiB that librdkafka reads ahead, of all partitions; each answer of a broker comes on top (FETCH_BYTES)."""
FETCH_BYTES = 2 << 20
BATCH = 1000
"""Records taken at once."""
POLL_SECONDS = 0.25
"""How long a call waits for a first record: so long may a stop take."""
COMMIT_SECONDS = 1.0
"""Between two commits of the group's offsets."""
ASK_SECONDS = 10.0
"""For a broker to answer."""
LOGGED = 1000
"""Faults that are logged one by one until records come again."""

NOWHERE = -1
"""In place of an offset that the group does not have."""

T = TypeVar("T")


class Unavailable(Exception):
    """A file of the settings cannot be read, and why."""


@dataclass(slots=True, eq=False)
class Reading:
    """One partition from its assignment until it is given up or lost; a later assignment is another one."""

    topic_id: str
    next: int
    """Offset of the record that comes next."""
    durable: int
    """Offset behind the last record that is on disk; the event loop sets it, the thread commits it."""
    committed: int
    """Offset that the group has, or was sent."""


class KafkaConsumer:
    """One ``kafka`` input; see the module's text."""

    def __init__(self, settings: KafkaInput, agent: Surroundings, backoff: tuple[float, float] = BACKOFF) -> None:
        self._settings = settings
        self._client_id = f"vedette-{agent.agent_id}-{settings.name}"
        self._agent = agent
        # A member that comes again is given the partitions that it had, also where it asks for other topics.
        self._instance = f"{self._client_id}-{crc32(repr(settings.topics).encode()):08x}"
        self._backoff = Backoff(backoff)
        self._kinds = builtin(settings.codec).kinds
        self._headers = frozenset(settings.headers)
        self._path = f"kafka:{settings.name}:{settings.group}:"
        self._left = {
            (position.path.removeprefix(self._path), position.inode): position
            for position in agent.positions()
            if position.path.startswith(self._path)
        }
        """Where reading was left, by what is stored."""
        self._reading: dict[Place, Reading] = {}
        """The partitions that are assigned; changed by the thread only."""
        self._aligned: Aligned[Reading, Any] = Aligned()
        """Records that wait for older ones of other partitions."""
        self._more = False
        """Some need not wait for what the brokers send."""
        self._committed = self._looked = 0.0
        self._paused = False
        self._acknowledgements: Acknowledgements[tuple[Reading, int]] = Acknowledgements(agent.intake, self._on_disk)
        self._consumer: Consumer | None = None
        self._reported = Firsts(LOGGED)
        """Faults that were logged since records came."""
        self._headless = Firsts(LOGGED)
        """Topics with headers that cannot be read."""
        self.condition = OPENING
        self._away = False
        """Something was wrong since records or an answer came."""
        self._loop: asyncio.AbstractEventLoop
        self._thread: ThreadPoolExecutor
        self._ended = asyncio.Event()
        self._stopping = self._running = False

    async def run(self) -> None:
        """Read until cancelled or stopped. Raises OSError when the raw log cannot be written."""
        if self._ended.is_set():
            return
        self._running = True
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"kafka-{self._settings.name}")
        self._acknowledgements.start()
        try:
            while not self._stopping:
                try:
                    await self._consume()
                except (KafkaException, Unavailable) as error:
                    self._failed(error)
                    await self._in_thread(self._close)
                    await self._wait(self._backoff.failed())
            await self._acknowledgements.drain()
        finally:
            try:
                await self._in_thread(self._close)
            finally:
                try:
                    await self._acknowledgements.stop()
                finally:
                    self._thread.shutdown()
                    self._ended.set()

    async def stop(self) -> None:
        """Ends ``run``, which returns. What was not handed over is read again at the next start."""
        self._stopping = True
        if self._running:
            await self._ended.wait()
        self._ended.set()

    def bound(self, descriptors: int) -> None:
        """A connection to each broker is all it has."""

    async def _wait(self, seconds: float) -> None:
        end = self._loop.time() + seconds
        while not self._stopping and self._loop.time() < end:
            await asyncio.sleep(min(POLL_SECONDS, seconds))

    async def _in_thread(self, function: Callable[[], T]) -> T:
        """``function``, whose end is waited for also when this is cancelled."""
        return await to_its_end(self._loop.run_in_executor(self._thread, function))

    async def _consume(self) -> None:
        """Read until stopped; raises KafkaException when it must begin again."""
        await self._in_thread(self._open)
        while not self._stopping:
            if self._paused is self._agent.intake.accepting():
                await self._in_thread(self._pause)
            parts = await self._in_thread(self._take)
            for reading, part in parts:
                if part.headless:
                    self._without_headers(part)
                for chunk, until in part.chunks(self._settings, self._agent.clock()):
                    self._store(reading, part.place, chunk, until)
                    await asyncio.sleep(0)

    def _without_headers(self, part: Part) -> None:
        self._agent.counters.totals["decode_failed"] += part.headless
        topic = part.place[0]
        if self._headless.add(topic):
            log.warning(
                Log.PAYLOAD_UNDECODABLE, input=self._settings.name, topic=topic,
                reason="a record's headers cannot be read: a name is not UTF-8",
                action="kept and evaluated without its headers; further ones of this topic are only counted",
            )  # fmt: skip

    def _store(self, reading: Reading, place: Place, chunk: Chunk | None, until: int) -> None:
        topic, partition = place
        offset = None
        if chunk is not None:
            position = FilePosition(self._path + topic, partition, reading.topic_id, until)
            chunk = Chunk(
                chunk.input, chunk.codec, chunk.received_at, chunk.data, chunk.ends, chunk.origins, chunk.origin_of,
                chunk.marks, file=position,
            )  # fmt: skip
            offset = self._agent.deliver(chunk)
            self._left[place] = position
        self._acknowledgements.owe([(reading, until)], offset)

    def _on_disk(self, read: tuple[Reading, int]) -> None:
        reading, until = read
        reading.durable = until

    # --- in the thread

    def _open(self) -> None:
        self._reading.clear()
        self._aligned = Aligned()
        self._paused = False
        self._looked = time.monotonic()
        settings = self._settings
        timeout = int(settings.session_timeout * 1000)
        consumer = Consumer(
            {
                **self._configuration(),
                "group.id": settings.group,
                "group.instance.id": self._instance,
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": timeout,
                "heartbeat.interval.ms": min(timeout // 3, 10_000),
                "max.poll.interval.ms": max(timeout, 300_000),
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "queued.max.messages.kbytes": QUEUE_KIB,
                "fetch.max.bytes": FETCH_BYTES,
                "max.partition.fetch.bytes": FETCH_BYTES // 4,
                "topic.metadata.refresh.interval.ms": 30_000,
                "allow.auto.create.topics": False,
                **({} if any("__" in topic for topic in settings.topics) else {"topic.blacklist": "^__"}),
                "socket.timeout.ms": int(ASK_SECONDS * 1000),
                "error_cb": self._error,
                "on_commit": self._not_committed,
            }
        )
        self._consumer = consumer
        consumer.subscribe(list(settings.topics), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)

    def _configuration(self) -> dict[str, Any]:
        try:
            return configuration(self._settings, self._client_id)
        except (OSError, ValueError) as error:
            raise Unavailable(str(error)) from error

    def _close(self) -> None:
        if self._consumer is not None:
            consumer, self._consumer = self._consumer, None
            with suppress(KafkaException):
                self._commit(consumer, wait=True)
            with suppress(KafkaException, RuntimeError):
                consumer.close()
            self._reading.clear()

    def _pause(self) -> None:
        assert self._consumer is not None
        self._paused = not self._paused
        assigned = self._consumer.assignment()
        (self._consumer.pause if self._paused else self._consumer.resume)(assigned)
        for reading in self._reading.values():
            self._aligned.begin(reading)

    def _take(self) -> list[tuple[Reading, Part]]:
        """Return the records that go next, by partition; nothing more is asked for while some wait for nobody."""
        consumer = self._consumer
        assert consumer is not None
        now = time.monotonic()
        if now > self._committed + COMMIT_SECONDS:
            self._commit(consumer)
            self._committed = now
        if now > self._looked + self._settings.look:
            self._looked = now
            self._look()
        if not self._more:
            self._receive(consumer)
        parts = []
        for reading, messages in {} if self._paused else self._aligned.take(now).items():
            part = Part((messages[0].topic(), messages[0].partition()))
            for message in messages:
                part.add(message, self._kinds, self._settings.key, self._headers)
            parts.append((reading, part))
        self._more = bool(parts and self._aligned)
        return parts

    def _receive(self, consumer: Consumer) -> None:
        first = consumer.poll(POLL_SECONDS)
        if first is None and self._away and self._reading:
            self._ask_again(consumer)
        latest = self._agent.clock() // 1000  # no sender's time holds its record back for longer
        message: Any
        for message in () if first is None else (first, *consumer.consume(BATCH - 1, 0)):
            reading = self._reading.get((message.topic(), message.partition()))
            if (error := message.error()) is not None:
                if error.code() != KafkaError._PARTITION_EOF:
                    self._problem(error)
                elif reading is not None:
                    self._aligned.reached_end(reading)
                continue
            offset = message.offset()
            if reading is None or offset < reading.next:  # of a partition that was taken away, or read already
                continue
            reading.next = offset + 1
            time_of = min(message.timestamp()[1], latest)
            self._aligned.add(reading, time_of, len(message.value() or b""), message)
            self._backoff.reset()
            self._works()

    def _commit(self, consumer: Consumer, *, wait: bool = False) -> None:
        """``wait``: until the broker has answered, unless none does."""
        offsets = []
        for place, reading in self._reading.items():
            durable = reading.durable
            if durable != reading.committed:
                reading.committed = durable
                offsets.append(TopicPartition(*place, durable, metadata=reading.topic_id))
        if not offsets:
            return
        try:
            if wait and not self._reported:
                consumer.commit(offsets=offsets, asynchronous=False)
            else:
                consumer.commit(offsets=offsets, asynchronous=True)
        except KafkaException as error:
            self._not_committed(error.args[0], offsets)

    def _not_committed(self, error: KafkaError | None, offsets: list[TopicPartition]) -> None:
        """Others see older offsets until the next commit; ours are in the raw log."""
        for place in offsets:
            reading = self._reading.get((place.topic, place.partition))
            if reading is not None and (error is not None or place.error is not None):
                reading.committed = NOWHERE

    def _error(self, error: KafkaError) -> None:
        """A broker cannot be reached, or does not believe us."""
        self._away = True
        if error.code() != KafkaError._ALL_BROKERS_DOWN or not self._reported:  # mostly the reason was logged before
            self._report(
                Log.BROKER_REFUSED if error.code() in REFUSED else Log.BROKER_AWAY, error.code(), reason(error)
            )

    def _problem(self, error: KafkaError) -> None:
        """Report an error in place of a record. Raises KafkaException where the consumer must begin again."""
        if error.fatal() or error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError._FENCED):
            raise KafkaException(error)
        self._error(error)

    def _failed(self, error: Exception) -> None:
        if isinstance(error, KafkaException):
            if error.args[0].code() != KafkaError._AUTO_OFFSET_RESET:  # placing it again says what was lost
                self._error(error.args[0])
        else:
            self._report(Log.BROKER_AWAY, str(error), str(error))

    def _report(self, event: Log, about: Hashable, why: str) -> None:
        """Once for each ``about``, until records come again."""
        self.condition = failing(why)
        if self._reported.add(about):
            name = self._settings.name
            servers = self._settings.servers
            log.warning(event, input=name, broker=servers, reason=why, action="retrying")

    def _works(self) -> None:
        self.condition = WORKS
        self._away = False
        self._reported.clear()

    def _ask_again(self, consumer: Consumer) -> None:
        """Whether a broker answers again, which no record of a quiet topic shows."""
        with suppress(KafkaException):
            consumer.list_topics(next(iter(self._reading))[0], timeout=POLL_SECONDS)
            self._works()

    # --- the group

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Begin to read partitions. Raises KafkaException when a broker does not answer."""
        begun = []
        try:
            ids = self._topic_ids({partition.topic for partition in partitions})
            for partition in consumer.committed(partitions, timeout=ASK_SECONDS):
                place = (partition.topic, partition.partition)
                low, high = consumer.get_watermark_offsets(TopicPartition(*place), timeout=ASK_SECONDS)
                of = partition.metadata
                now = ids[partition.topic]
                ours = partition.offset >= 0 and (not of or not now or of == now)  # else it is of an old topic
                offsets = Offsets(now, partition.offset if ours else NOWHERE, low, high)
                begin = placed(self._left.get(place), offsets, from_start=self._settings.from_start)
                if begin.reason:
                    self._gap(place, begin.lost, begin.reason)
                    self._left[place] = FilePosition(
                        self._path + partition.topic, partition.partition, now, begin.offset
                    )
                begun.append(TopicPartition(*place, begin.offset))
                reading = Reading(now, begin.offset, offsets.committed, offsets.committed)
                self._reading[place] = reading
                self._aligned.begin(reading)
                # A kill before the first record leaves no hole, and what is gone is counted once. What lies before the
                # beginning may be on its way to the disk still.
                self._loop.call_soon_threadsafe(self._acknowledgements.owe, [(reading, begin.offset)])
        finally:  # the group must have its answer, also where what follows begins again
            consumer.incremental_assign(begun)
        if self._paused and begun:
            consumer.pause(begun)
        self._works()
        if begun:
            names = [f"{partition.topic}/{partition.partition}" for partition in begun]
            log.info(
                Log.BROKER_CONNECTED, input=self._settings.name, broker=self._settings.servers,
                partitions=len(names), first=sorted(names)[:10],
            )  # fmt: skip

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Give partitions up: what was read of them is on disk and committed before another agent goes on."""
        with suppress(TimeoutError, RuntimeError):  # else it reads some again; a stop has waited already
            if not self._stopping:
                work = asyncio.run_coroutine_threadsafe(self._acknowledgements.drain(), self._loop)
                work.result(DRAIN_SECONDS + 1)
        self._commit(consumer, wait=True)
        self._lost(consumer, partitions)

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Partitions are another's already."""
        for partition in partitions:
            if reading := self._reading.pop((partition.topic, partition.partition), None):
                self._aligned.drop(reading)
        consumer.incremental_unassign(partitions)

    def _topic_ids(self, topics: set[str]) -> dict[str, str]:
        """By topic its id, empty where the broker has none (before Kafka 2.8) or does not say."""
        ids = dict.fromkeys(topics, "")
        if topics:
            admin = AdminClient(self._configuration())
            for topic, work in admin.describe_topics(TopicCollection([*topics]), request_timeout=ASK_SECONDS).items():
                with suppress(KafkaException, TimeoutError):
                    ids[topic] = str(work.result(ASK_SECONDS + 1).topic_id)
        return ids

    def _look(self) -> None:
        """Whether a topic that is read has been made again. Raises KafkaException, so that it is read again."""
        with suppress(Unavailable):
            ids = self._topic_ids({topic for topic, _ in self._reading})
            for (topic, _), reading in self._reading.items():
                if ids[topic] and reading.topic_id != ids[topic]:
                    raise KafkaException(KafkaError(KafkaError._AUTO_OFFSET_RESET, f"{topic} has been made again"))

    def _gap(self, place: Place, lost: int, why: str) -> None:
        """Records are gone that were not read."""
        name = self._settings.name
        self._agent.counters.totals["kafka_gaps"] += 1
        if lost:
            self._agent.counters.drop(name, Dropped.VACUUMED, lost)
        log.warning(Log.KAFKA_GAP, input=name, topic=place[0], partition=place[1], records=lost, reason=why)
