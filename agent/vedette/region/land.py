"""The landing service of the region: from the broker's topics to Parquet files, then receipts.

Delivery, in this order for every message:

1. received, not acknowledged: the broker keeps it (shared subscription, persistent session of ``session_expiry``);
2. decoded into rows; what cannot be read, or names another agent or fleet than its topic, becomes a row of ``bad``;
3. all rows written, synced and renamed into place (``outbox/landing.py``), and if so set, confirmed by Kafka
   (``region/kafka.py``);
4. PUBACK; then a receipt of the seqs to each agent.

With each batch goes a row of ``seqs`` for each run of seqs in it, after the alerts themselves: by them
``region/gaps.py`` finds what no landing has, also when several share an agent's alerts.

Killed anywhere, the broker or the agent sends again what lacks its acknowledgement: rows may be landed twice, under
the same ``alert_id``, but never lost. Fleet and agent are the topic's, which the broker's access list has checked.

An alert in ``bad`` is receipted as well where its seq can be read: it is on the region's disk, and the agent would send
it for ever.

A landing folder that cannot be written: said once, tried again with back-off, nothing acknowledged. Meanwhile up to
``HELD_BYTES`` of further messages are kept in memory; beyond that they are left with the broker, and fetched by a
reconnect when the folder works again. Several landings may share the folder and the subscription, each with its own
``client_id``, which must stay the same over restarts: the session hangs on it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgpack
import structlog

from vedette.config import MqttSettings
from vedette.mqtt import BACKOFF, REGION_PACKET, Message, MqttClient
from vedette.outbox.envelope import bad_row, decode_row, landed, pack_receipt, ranges, split_batch, status_row
from vedette.outbox.landing import TABLES, LandingFolder
from vedette.outbox.topics import ROOT, agent_topic, parse
from vedette.region.kafka import TOPICS, KafkaLanding
from vedette.report import Log
from vedette.wallclock import WallClock

log = structlog.get_logger()

SHARED = (f"{ROOT}/+/+/alerts", f"{ROOT}/+/+/status")
"""What all landings of a group share."""
HELD_BYTES = 64 << 20
"""Of payloads in memory, at most."""
BATCH_BYTES = 16 << 20
"""Payload bytes after which a batch is written early."""
MAX_RECEIPTS = 1_000_000
"""Seqs whose receipt could not be sent yet; beyond that the oldest agents' are forgotten and sent again by them."""
STOP_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class LandingSettings:
    """What ``vedette region land`` is told; times in seconds."""

    broker: MqttSettings
    folder: Path
    client_id: str = "vedette-landing"
    """Also ``ingest.collector_id``."""
    group: str = "landing"
    """Of the shared subscription: letters, digits, ``. _ -``."""
    max_rows: int = 10_000
    max_seconds: float = 5.0
    session_expiry: float = 14 * 86400.0
    receive_maximum: int = 2000
    backoff: tuple[float, float] = BACKOFF
    kafka: str = ""
    """``HOST:PORT,…``: every row goes to Kafka, too (``region/kafka.py``); empty: to the folder only."""
    kafka_topics: str = TOPICS


class _Writer(NamedTuple):
    """Where rows go: a name for people, and what writes (table, rows, now) so that they stay, or raises OSError."""

    name: str
    write: Callable[[str, Sequence[Mapping[str, Any]], int], Path | str]


@dataclass(slots=True)
class _Batch:
    """Rows on their way to disk, and whom to tell then."""

    rows: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {table: [] for table in TABLES})
    messages: list[Message] = field(default_factory=list)
    seqs: dict[tuple[str, str, str], list[int]] = field(default_factory=dict)
    """By fleet, agent and log_id."""
    bytes: int = 0
    first_bad: str = ""

    def __len__(self) -> int:
        return sum(map(len, self.rows.values()))


class Landing:
    """One landing service; ``run`` until ``stop``. ``landed`` counts rows on disk by table."""

    def __init__(self, settings: LandingSettings, *, clock: Callable[[], int] | None = None) -> None:
        """Raises ValueError for a group that cannot stand in a subscription."""
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,128}", settings.group):
            raise ValueError(f"group: expects letters, digits, '.', '_' or '-', not {settings.group!r}")
        self.settings = settings
        self.landed = dict.fromkeys(TABLES, 0)
        self._clock = clock or WallClock()  # what Spark takes for the time of receipt does not run backwards
        self._batch = _Batch()
        self._held = 0
        self._came = asyncio.Event()
        self._full = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._set_aside = False
        self._stopping = False
        self._receipts: dict[tuple[str, str], set[int]] = {}
        self._owed = asyncio.Event()
        self.client = MqttClient(
            settings.broker,
            settings.client_id,
            subscriptions=[f"$share/{settings.group}/{topic}" for topic in SHARED],
            on_message=self._received,
            session_expiry=settings.session_expiry,
            receive_maximum=settings.receive_maximum,
            max_packet=REGION_PACKET,
            backoff=settings.backoff,
        )

    async def run(self) -> None:
        """Land until ``stop`` or cancelled."""
        folder = await asyncio.to_thread(LandingFolder, self.settings.folder, self.settings.client_id)
        writers: list[_Writer] = [_Writer(str(self.settings.folder), folder.write)]
        if self.settings.kafka:
            kafka = await asyncio.to_thread(KafkaLanding, self.settings.kafka, self.settings.kafka_topics)
            writers.append(_Writer(kafka.name, kafka.write))
        await self.client.run_with(self._write(writers), self._send_receipts())

    async def stop(self) -> None:
        """Take no more, land what is in memory, send receipts, disconnect: at most STOP_SECONDS."""
        self._stopping = True
        self._full.set()
        with suppress(TimeoutError):  # not acknowledged: the broker sends it again
            async with asyncio.timeout(STOP_SECONDS):
                await self._idle.wait()
                while self._receipts and self.client.connected.is_set():
                    await asyncio.sleep(0.01)
        await self.client.close()

    def _received(self, message: Message) -> None:
        if self._stopping or self._held > HELD_BYTES:
            self._set_aside = True  # not acknowledged: the broker keeps it
            return
        batch = self._batch
        try:
            fleet, agent_id, leaf = parse(message.topic)
            if leaf == "alerts":
                self._alerts(message, fleet, agent_id)
            else:
                row = status_row(message.payload, fleet=fleet, agent_id=agent_id, **self._about(message))
                batch.rows["status"].append(row)
        except ValueError as error:
            self._bad(message.payload, message.topic, str(error))
        batch.messages.append(message._replace(payload=b""))
        batch.bytes += len(message.payload)
        self._held += len(message.payload)
        self._idle.clear()
        self._came.set()
        half = self.settings.receive_maximum // 2
        if len(batch) >= self.settings.max_rows or batch.bytes >= BATCH_BYTES or len(batch.messages) >= half:
            self._full.set()

    def _alerts(self, message: Message, fleet: str, agent_id: str) -> None:
        """The alerts of one message; raises ValueError when it is no batch."""
        log_id, alerts = split_batch(message.payload)
        seqs = self._batch.seqs.setdefault((fleet, agent_id, log_id), [])
        for data in alerts:
            try:
                row = decode_row(data)
                for key, named in (("agent_id", agent_id), ("fleet", fleet)):
                    if row[key] != named:
                        raise ValueError(f"{key}: {row[key]!r} is not the topic's {named!r}")
                seqs.append(row["seq"])
                self._batch.rows["alerts"].append(landed(row, **self._about(message)))
            except ValueError as error:
                self._bad(data, message.topic, str(error))
                seq = _seq(data)
                if seq is not None:
                    seqs.append(seq)

    def _about(self, message: Message) -> dict[str, Any]:
        """Who received a row; when is filled in at the moment of writing."""
        return {"received_at": 0, "collector_id": self.settings.client_id, "topic": message.topic}

    def _bad(self, payload: bytes, topic: str, reason: str) -> None:
        self._batch.rows["bad"].append(bad_row(payload, topic=topic, reason=reason, received_at=0))
        self._batch.first_bad = self._batch.first_bad or f"{topic}: {reason}"

    async def _write(self, writers: list[_Writer]) -> None:
        while True:
            await self._came.wait()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._full.wait(), self.settings.max_seconds)
            batch, self._batch = self._batch, _Batch()
            self._came.clear()
            if not self._stopping:
                self._full.clear()
            await self._until_landed(writers, batch)
            for i, message in enumerate(batch.messages):
                self.client.ack(message)
                if i % 500 == 499:
                    await asyncio.sleep(0)
            self._owe(batch)
            self._held -= batch.bytes
            if not self._batch.messages:
                self._idle.set()
            if self._set_aside and not self._stopping:
                self._set_aside = False
                await asyncio.sleep(0.1)  # the acknowledgements go out first
                self.client.reconnect()

    async def _until_landed(self, writers: list[_Writer], batch: _Batch) -> None:
        delay, failing = self.settings.backoff[0], False
        for (fleet, agent_id, log_id), seqs in batch.seqs.items():
            about = {"agent_id": agent_id, "fleet": fleet, "log_id": log_id}
            batch.rows["seqs"] += [{**about, "first": first, "last": last} for first, last in ranges(seqs)]
        todo = [(writer, table) for writer in writers for table, rows in batch.rows.items() if rows]
        while True:
            try:
                while todo:
                    writer, table = todo[0]
                    rows = batch.rows[table]
                    place = await asyncio.to_thread(writer.write, table, rows, self._clock())
                    self.landed[table] += len(rows) if writer is writers[0] else 0
                    log.info(Log.LANDED, table=table, rows=len(rows), file=str(place))
                    del todo[0]
                break
            except OSError as error:
                if not failing:
                    log.error(
                        Log.LANDING_FAILED,
                        folder=todo[0][0].name,
                        reason=str(error),
                        action="nothing is acknowledged, the broker keeps it; "
                        "make the folder writable or Kafka reachable: retrying",
                    )
                failing = True
                await asyncio.sleep(delay)
                delay = min(delay * 2, self.settings.backoff[1])
        if batch.rows["bad"]:
            log.warning(
                Log.PAYLOAD_UNDECODABLE,
                rows=len(batch.rows["bad"]),
                first=batch.first_bad,
                action="kept in the table bad",
            )

    def _owe(self, batch: _Batch) -> None:
        for (fleet, agent_id, log_id), seqs in batch.seqs.items():
            key = agent_topic(fleet, agent_id, "receipts"), log_id
            self._receipts.setdefault(key, set()).update(seqs)
        while len(self._receipts) > 1 and sum(map(len, self._receipts.values())) > MAX_RECEIPTS:
            del self._receipts[next(iter(self._receipts))]
        if self._receipts:
            self._owed.set()

    async def _send_receipts(self) -> None:
        while True:
            await self._owed.wait()
            await self.client.connected.wait()
            self._owed.clear()
            await asyncio.gather(*(self._send_receipt(key) for key in list(self._receipts)))
            if self._receipts:
                self._owed.set()
                await asyncio.sleep(0.05)

    async def _send_receipt(self, key: tuple[str, str]) -> None:
        topic, log_id = key
        seqs = self._receipts.pop(key)
        runs = ranges(list(seqs))
        try:
            for start in range(0, len(runs), 1000):
                await self.client.publish(topic, pack_receipt(log_id, runs[start : start + 1000]))
        except ConnectionError:
            self._receipts.setdefault(key, set()).update(seqs)
        except OSError as error:
            action = "allow this landing to publish receipts in the broker's access list; the agent sends them again"
            log.error(
                Log.BROKER_REFUSED, broker=self.settings.broker.url, topic=topic, reason=str(error), action=action
            )


def _seq(data: bytes) -> int | None:
    """The seq of an alert that cannot be read otherwise; None when not even that can be."""
    try:
        seq = msgpack.unpackb(data)["seq"]
    except Exception:  # whatever msgpack or a foreign shape raises
        return None
    return seq if type(seq) is int and 0 <= seq < 1 << 63 else None


async def land(settings: LandingSettings, stop: asyncio.Event) -> None:
    """Run a landing service until ``stop`` is set, then end it in order."""
    service = Landing(settings)
    task = asyncio.create_task(service.run())
    waiting = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            await service.stop()
        await task
    finally:
        waiting.cancel()
        task.cancel()
        await asyncio.gather(task, waiting, return_exceptions=True)
