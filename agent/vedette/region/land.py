"""The landing service of the region: from the broker's topics to Parquet files, then receipts.

Delivery, in this order for every message:

1. received, not acknowledged: the broker keeps it (shared subscription, persistent session of ``session_expiry``);
   what is no message of an agent's, or beyond its bounds (``delivery/envelope.py``), is refused;
2. decoded into rows, a batch at a time and one message of each agent in turn, so that an agent that sends much delays
   no other's; what was refused, cannot be read, or names another agent or fleet than its topic, becomes a row of
   ``bad``: in a thread, since a refused message may have REGION_PACKET bytes;
3. all rows written, synced and renamed into place (``delivery/landing.py``), and if so set, confirmed by Kafka
   (``region/kafka.py``);
4. PUBACK; then a receipt of the seqs to each agent.

A row is at the site that the region knows of its member, where it knows one (``region/whereabouts.py``);
``stated_site`` is then the other site that the agent states, and the log says so, once an agent.

A heartbeat that shows that two machines have its agent's id (``region/sightings.py``) lands with that as ``notes`` in
its payload; the landing's log says it once.

With each batch goes a row of ``seqs`` for each run of seqs in it, after the alerts themselves: by them
``region/gaps.py`` finds what no landing has, also when several share an agent's alerts.

Killed anywhere, the broker or the agent sends again what lacks its acknowledgement: rows may be landed twice, under
the same ``alert_id``, but never lost. Fleet and agent are the topic's, which the broker's access list has checked.

``bad`` takes at most ``DEAD_LETTERS`` of an agent in ``DEAD_LETTERS_SECONDS``. What it sends beyond is acknowledged
unread, so that neither disk nor other agents pay for a flood; it has no receipt, so an alert among it that is good
comes again.

An alert in ``bad`` is receipted as well where its seq can be read: it is on the region's disk, and the agent would send
it for ever.

Receipts are signed where the landing has a key (``delivery/receipts.py``), and say by which dictionaries agents may
compress (``delivery/batch.py``), and for how long they are asked to wait.

A landing folder that cannot be written: logged once, retried with back-off, nothing acknowledged. Meanwhile up to
``HELD_BYTES`` of further messages are kept in memory, not decoded; beyond that they are left with the broker, and
fetched by a reconnect when the folder works again. Several landings may share the folder and the subscription, each
with its own ``client_id``, which must stay the same over restarts: it names the session.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from vedette.delivery.batch import DICTIONARIES, split_batch
from vedette.delivery.envelope import (
    MAX_DEAD_LETTER,
    MAX_MESSAGE,
    dead_letter,
    decode_row,
    landed,
    seq_of,
    status_row,
)
from vedette.delivery.landing import TABLES, LandingFolder
from vedette.delivery.receipts import MAX_RANGES, pack_receipt, ranges
from vedette.delivery.topics import ROOT, agent_topic, parse
from vedette.model.counters import Log
from vedette.mqtt.client import MqttClient
from vedette.mqtt.connection import REGION_PACKET, Message, Session
from vedette.mqtt.settings import MqttSettings
from vedette.region.kafka import TOPICS, KafkaLanding
from vedette.region.sightings import Sightings
from vedette.region.whereabouts import Whereabouts
from vedette.system import foreign
from vedette.system.trouble import BACKOFF, Backoff
from vedette.system.wallclock import WallClock
from vedette.system.within import is_name

log = structlog.get_logger()

SHARED = (f"{ROOT}/+/+/alerts", f"{ROOT}/+/+/status")
"""What all landings of a group share."""
HELD_BYTES = 64 << 20
"""Of messages in memory, at most."""
OVERSIZED_BYTES = REGION_PACKET
"""The same for messages over ``MAX_MESSAGE``, until they are cut down."""
_ALERT_ID = re.compile(r"[0-9a-f]{32}")
BATCH_BYTES = 8 << 20
"""Of messages after which a batch is written early, and decoded at a time: rows take up to 25 times their bytes."""
ITEM_BYTES = 256
"""What each message and each alert in it takes in memory beside its bytes."""
MAX_RECEIPTS = 1_000_000
"""Seqs whose receipt could not be sent yet; beyond that the oldest agents' are forgotten and sent again by them."""
DEAD_LETTERS, DEAD_LETTERS_SECONDS = 100, 60.0
"""Rows of ``bad`` for one agent, and for how long."""
STOP_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class LandingSettings:
    """What ``vedette region land`` is given; times in seconds."""

    broker: MqttSettings
    folder: Path
    client_id: str = "vedette-landing"
    """Also ``ingest.collector_id``."""
    group: str = "landing"
    """Of the shared subscription: letters, digits, ``. _ -``."""
    _: KW_ONLY
    max_rows: int = 10_000
    max_seconds: float = 5.0
    session_expiry: float = 14 * 86400.0
    receive_maximum: int = 2000
    backoff: tuple[float, float] = BACKOFF
    kafka: str = ""
    """``HOST:PORT,…``: every row goes to Kafka, too (``region/kafka.py``); empty: to the folder only."""
    kafka_topics: str = TOPICS
    receipt_key: Ed25519PrivateKey | None = None
    """Signs receipts; None: they are not signed."""
    resend_after: float = 0.0
    """What agents are asked to wait for a receipt at least; 0: twice ``max_seconds`` where that is over a minute."""
    members: Path | None = None
    """The region's folder, or one with a copy of its members.json: at which site who is; None: as agents state it."""


class _Received(NamedTuple):
    """One message, taken apart and not decoded, and what it takes in memory."""

    message: Message
    """Without its payload, unless it is refused."""
    fleet: str
    agent_id: str
    log_id: str
    parts: Sequence[bytes]
    """Alerts; or one heartbeat, when ``log_id`` is empty."""
    refused: str
    """Why its payload becomes a row of ``bad``; else empty."""
    size: int
    oversized: int
    """Bytes of a payload over ``MAX_MESSAGE``, which count apart."""


@dataclass(slots=True)
class _Batch:
    """Rows on their way to disk, and who gets a receipt then."""

    rows: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {table: [] for table in TABLES})
    messages: list[Message] = field(default_factory=list)
    seqs: dict[tuple[str, str, str], list[int]] = field(default_factory=dict)
    """By fleet, agent and log_id."""


class Landing:
    """One landing service; ``run`` until ``stop``. ``landed`` counts rows on disk by table."""

    def __init__(self, settings: LandingSettings, *, clock: Callable[[], int] | None = None) -> None:
        """Raises ValueError for a group that cannot stand in a subscription, and with OSError for ``members``."""
        if not is_name(settings.group):
            raise ValueError(f"group: expects letters, digits, '.', '_' or '-', not {settings.group!r}")
        self.settings = settings
        self.landed = dict.fromkeys(TABLES, 0)
        self._clock = clock or WallClock()  # what Spark takes for the time of receipt does not run backwards
        self._waiting: dict[tuple[str, str], deque[_Received]] = {}
        """By fleet and agent, in whose turn it is."""
        self.held = self._parts = self._messages = 0
        """Bytes of messages in memory; of them waiting: parts, messages."""
        self._oversized = 0
        """Bytes of oversized messages in memory."""
        self._bytes = 0
        self._dead_letters: dict[tuple[str, str], int] = {}
        """Rows of ``bad`` by fleet and agent, since ``_since``."""
        self._since = time.monotonic()
        self._came = asyncio.Event()
        self._full = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._left_behind = False
        self._stopping = False
        self._sightings = Sightings()
        self._whereabouts = Whereabouts(settings.members)
        self._elsewhere: set[tuple[str, str]] = set()
        """Fleet and id of members that stated another site than theirs: no more than are enrolled."""
        longest = 2 * settings.max_seconds
        self._asks = ceil(settings.resend_after or (longest if longest > 60 else 0))
        self._receipts: dict[tuple[str, str], set[int]] = {}
        self._owed = asyncio.Event()
        self.client = MqttClient(
            settings.broker,
            settings.client_id,
            subscriptions=[f"$share/{settings.group}/{topic}" for topic in SHARED],
            on_message=self._received,
            backoff=settings.backoff,
            session=Session(
                expiry=settings.session_expiry, receive_maximum=settings.receive_maximum, max_packet=REGION_PACKET
            ),
        )

    async def run(self) -> None:
        """Land until ``stop`` or cancelled."""
        broker = self.settings.broker.url
        if self.settings.receipt_key is None and not broker.startswith("mqtts:"):
            reason = (
                "receipts are neither signed (--receipt-key) nor sent over TLS: who can publish here can forge them"
            )
            log.warning(Log.RECEIPTS_UNAUTHENTICATED, broker=broker, reason=reason)
        folder = await asyncio.to_thread(LandingFolder, self.settings.folder, self.settings.client_id)
        writers: list[LandingFolder | KafkaLanding] = [folder]
        if self.settings.kafka:
            writers.append(await asyncio.to_thread(KafkaLanding, self.settings.kafka, self.settings.kafka_topics))
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
        if self._stopping or self.held > HELD_BYTES:
            self._left_behind = True  # not acknowledged: the broker keeps it
            return
        if self._dead_letters and time.monotonic() - self._since > DEAD_LETTERS_SECONDS:
            self._dead_letters.clear()
        if self._dead_letters and self._ignored(_sender(message.topic)):
            self.client.ack(message)
            return
        if len(message.payload) > MAX_MESSAGE and self._oversized + len(message.payload) > OVERSIZED_BYTES:
            self._left_behind = True
            return
        received = _taken_apart(message)
        self._oversized += received.oversized
        if received.refused:
            self._count_dead_letter((received.fleet, received.agent_id), message.topic)
        self._waiting.setdefault((received.fleet, received.agent_id), deque()).append(received)
        self.held += received.size
        self._count(received, 1)
        self._idle.clear()
        self._came.set()
        half = self.settings.receive_maximum // 2
        enough = self._parts >= self.settings.max_rows or self._bytes >= BATCH_BYTES or self._messages >= half
        if enough or self._oversized:
            self._full.set()

    def _ignored(self, sender: tuple[str, str]) -> bool:
        return self._dead_letters.get(sender, 0) >= DEAD_LETTERS

    def _count(self, received: _Received, sign: int) -> None:
        """``received`` waits (1), or no longer (-1)."""
        self._parts += sign * (len(received.parts) or 1)
        self._bytes += sign * received.size
        self._messages += sign

    def _next(self) -> list[_Received]:
        """What goes into the next batch: a message of each agent in turn, until it is large enough."""
        taken: list[_Received] = []
        rows = size = 0
        while self._waiting and rows < self.settings.max_rows and size < BATCH_BYTES:
            agent = next(iter(self._waiting))
            queue = self._waiting.pop(agent)
            received = queue.popleft()
            if queue:
                self._waiting[agent] = queue
            self._count(received, -1)
            taken.append(received)
            rows, size = rows + (len(received.parts) or 1), size + received.size
        return taken

    def _decode(self, taken: Sequence[_Received]) -> _Batch:
        """The rows of ``taken``; called in a thread."""
        batch = _Batch()
        self._whereabouts.look()
        for received in taken:
            topic = received.message.topic
            about: dict[str, Any] = {"received_at": 0, "collector_id": self.settings.client_id, "topic": topic}
            named: dict[str, Any] = {"agent_id": received.agent_id, "fleet": received.fleet}
            sender = received.fleet, received.agent_id
            numbering = (*sender, received.log_id)
            if received.refused:
                payload = received.message.payload
                batch.rows["bad"].append(dead_letter(payload, topic=topic, reason=received.refused, received_at=0))
            seqs = batch.seqs.setdefault(numbering, []) if received.log_id else []
            for data in received.parts:
                if self._ignored(sender):
                    break
                try:
                    if not received.log_id:
                        batch.rows["status"].append(self._placed(self._noted(status_row(data, **named, **about))))
                        continue
                    row = decode_row(data)
                    for key, name in named.items():
                        if row[key] != name:
                            raise ValueError(f"{key}: {row[key]!r} is not the topic's {name!r}")
                    if not _ALERT_ID.fullmatch(row["alert_id"]):
                        raise ValueError(f"alert_id: expects 32 hex digits, not {row['alert_id'][:80]!r}")
                    seqs.append(row["seq"])
                    batch.rows["alerts"].append(self._placed(landed(row, **about)))
                except Exception as error:  # what nobody foresaw is kept as well, and ends nothing
                    reason = str(error) if isinstance(error, ValueError) else repr(error)
                    self._count_dead_letter(sender, topic)
                    batch.rows["bad"].append(dead_letter(data, topic=topic, reason=reason, received_at=0))
                    seq = seq_of(data) if received.log_id else None
                    if seq is not None:
                        seqs.append(seq)
        return batch

    def _noted(self, row: dict[str, Any]) -> dict[str, Any]:
        """A row of ``STATUS``, with what is known of its agent's machines. Raises ValueError."""
        document, agent = foreign.read(row["payload"], cut=True), (row["fleet"], row["agent_id"])
        note, begins = self._sightings.heard(agent, document, self._clock())
        if begins:
            action = "give each machine an agent id of its own; see docs/install.md, Images and copies"
            log.warning(Log.AGENT_TWICE, fleet=agent[0], agent=agent[1], reason=note, action=action)
        if not note:
            return row
        try:
            noted = {**foreign.read(row["payload"]), "notes": [note]}
        except ValueError:  # it nests too deep: it lands as it came, and the log has the note
            return row
        return {**row, "payload": orjson.dumps(noted).decode()}

    def _placed(self, row: dict[str, Any]) -> dict[str, Any]:
        """A row of ``LANDED_ALERT`` or ``STATUS``, at the site of its agent."""
        fleet, agent = row["fleet"], row["agent_id"]
        place = self._whereabouts.place(fleet, agent, row["site"])
        if place.stated is not None and (fleet, agent) not in self._elsewhere:
            self._elsewhere.add((fleet, agent))
            action = "set [agent] site on its host; if it has moved: vedette member move"
            log.warning(Log.SITE_DIFFERS, fleet=fleet, agent=agent, site=place.site, stated=place.stated, action=action)
        return {**row, "site": place.site, "stated_site": place.stated}

    def _count_dead_letter(self, sender: tuple[str, str], topic: str) -> None:
        """One more row of ``bad``, of a sender that is not ignored yet."""
        if not self._dead_letters:
            self._since = time.monotonic()
        self._dead_letters[sender] = self._dead_letters.get(sender, 0) + 1
        if self._ignored(sender):
            reason = f"{DEAD_LETTERS} messages or alerts that cannot be read"
            action = f"its messages are acknowledged unread for up to {DEAD_LETTERS_SECONDS:g} s; see the table bad"
            log.warning(Log.SENDER_IGNORED, topic=topic, reason=reason, action=action)

    async def _write(self, writers: Sequence[LandingFolder | KafkaLanding]) -> None:
        while True:
            await self._came.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(self.settings.max_seconds):
                    await self._full.wait()
            taken = self._next()
            if self._waiting:
                self._full.set()
            else:
                self._came.clear()
                if not self._stopping:
                    self._full.clear()
            batch = await asyncio.to_thread(self._decode, taken)
            self._oversized -= sum(received.oversized for received in taken)
            size = sum(received.size for received in taken)
            messages = [received.message._replace(payload=b"") for received in taken]
            del taken
            await self._until_landed(writers, batch)
            for i, message in enumerate(messages):
                self.client.ack(message)
                if i % 500 == 499:
                    await asyncio.sleep(0)
            self._owe(batch)
            self.held -= size
            if not self._waiting:
                self._idle.set()
            if self._left_behind and not self._stopping:
                self._left_behind = False
                await asyncio.sleep(0.1)  # the acknowledgements go out first
                self.client.reconnect()

    async def _until_landed(self, writers: Sequence[LandingFolder | KafkaLanding], batch: _Batch) -> None:
        backoff = Backoff(self.settings.backoff)
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
                if not backoff.failing:
                    action = "retrying; nothing is acknowledged meanwhile: make the folder writable or Kafka reachable"
                    log.error(Log.LANDING_FAILED, folder=todo[0][0].name, reason=str(error), action=action)
                await asyncio.sleep(backoff.failed())
        if bad := batch.rows["bad"]:
            first = "{topic}: {reason}".format_map(bad[0])
            log.warning(Log.PAYLOAD_UNDECODABLE, rows=len(bad), first=first, action="kept in the table bad")

    def _owe(self, batch: _Batch) -> None:
        for (fleet, agent_id, log_id), seqs in batch.seqs.items():
            if seqs:
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
        runs = ranges(seqs)
        try:
            for start in range(0, len(runs), MAX_RANGES):
                some = runs[start : start + MAX_RANGES]
                receipt = pack_receipt(log_id, some, topic, self.settings.receipt_key, sorted(DICTIONARIES), self._asks)
                await self.client.publish(topic, receipt)
        except ConnectionError:
            self._receipts.setdefault(key, set()).update(seqs)
        except OSError as error:
            action = "allow this landing to publish receipts in the broker's access list; the agent sends them again"
            broker = self.settings.broker.url
            log.error(Log.BROKER_REFUSED, broker=broker, topic=topic, reason=str(error), action=action)


def _sender(topic: str) -> tuple[str, str]:
    """Fleet and agent; empty for what is no agent's topic."""
    with suppress(ValueError):
        return parse(topic)[:2]
    return "", ""


def _taken_apart(message: Message) -> _Received:
    fleet = agent_id = log_id = refused = ""
    parts: Sequence[bytes] = ()
    size = len(message.payload)
    try:
        fleet, agent_id, leaf = parse(message.topic)
        if not is_name(fleet) or not is_name(agent_id):
            raise ValueError(f"a fleet or an agent whose name begins with a dot: {message.topic[:200]!r}")
        if size > MAX_MESSAGE:
            raise ValueError(f"{size} bytes, at most {MAX_MESSAGE}")
        if leaf == "alerts":
            log_id, parts = split_batch(message.payload)
        else:
            parts = (message.payload,)
        message = message._replace(payload=b"")
    except Exception as error:  # see ``_decode``
        refused = (str(error) if isinstance(error, ValueError) else repr(error)) or "no message of an agent"
    oversized = size if size > MAX_MESSAGE else 0
    waiting = (MAX_DEAD_LETTER if oversized else sum(map(len, parts)) or size) + ITEM_BYTES * (1 + len(parts))
    return _Received(message, fleet, agent_id, log_id, parts, refused, waiting, oversized)


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
