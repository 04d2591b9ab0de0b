"""The landing's second destination: Kafka topics ``NAME.alerts``, ``NAME.status``, ``NAME.bad`` and ``NAME.seqs``.

A message is one row as a JSON object with the columns of the landed table: times as integers (UTC microseconds), bytes
as Base64. Its key is the agent's id, so that one agent's rows stay in order; rows of ``bad`` have none. ``write``
returns when every in-sync replica has all of them (``acks=all``), and raises otherwise: rows may then be there, and are
written again; none of them is sent later on its own. Needs confluent-kafka (``vedette[kafka]``).

No row is too large for long: a message has at most ``MAX_MESSAGE`` bytes. A larger row of ``bad`` or ``status`` goes
with the beginning of its payload, and ``payload_bytes`` more than its columns: the payload's true length. Any other
goes to ``bad``, as the beginning of its JSON. What the brokers refuse for its size, alone, goes to ``bad`` in ``SMALL``
bytes; only brokers that take not even that make ``write`` raise for it. The landing's folder has every row whole.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import orjson
import structlog

from vedette.delivery.envelope import MAX_VALUE, cut
from vedette.delivery.landing import TABLES
from vedette.model.counters import Log

log = structlog.get_logger()

TOPICS = "vedette"
TIMEOUT = 30.0
"""Seconds after which rows that the brokers have not confirmed are a failure."""
MAX_QUEUED = 100_000
MAX_MESSAGE = 900_000
"""Bytes of key and value: with their framing below what the library sends (1,000,000) and brokers take (1,048,588)
unless configured otherwise."""
SMALL = 16 << 10
"""The same for a row that the brokers found too large."""


class _Message(NamedTuple):
    table: str
    row: Mapping[str, Any]
    key: str | None
    value: bytes
    cut: str = ""
    """Why ``value`` is not all of ``row``; empty when it is."""


class KafkaLanding:
    """One writer into the topics; any number of them may run."""

    def __init__(self, brokers: str, topics: str = TOPICS, timeout: float = TIMEOUT) -> None:
        """``brokers``: ``HOST:PORT,…``. Makes topics that are missing, with the brokers' defaults.

        Raises ModuleNotFoundError without confluent-kafka, OSError when no broker answers in time.
        """
        from confluent_kafka import KafkaError, KafkaException, Producer
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        self.name = f"kafka {brokers}"
        self._topics, self._timeout, self._failure = topics, timeout, KafkaException
        self._too_large = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE)
        common: dict[str, str | int | float | bool] = {
            "bootstrap.servers": brokers,
            "client.id": "vedette-landing",
            "log_level": 0,
        }
        milliseconds = int(timeout * 1000)
        self._producer = Producer(
            {
                **common,
                "acks": "all",
                "enable.idempotence": True,
                "compression.type": "zstd",
                "linger.ms": 20,
                "message.timeout.ms": milliseconds,
                "queue.buffering.max.messages": MAX_QUEUED,
            }
        )
        admin = AdminClient(common)
        try:
            there = admin.list_topics(timeout=timeout).topics
            missing = [NewTopic(self._topic(table)) for table in TABLES if self._topic(table) not in there]
            for made in admin.create_topics(missing, operation_timeout=timeout).values() if missing else ():
                try:
                    made.result(timeout)
                except KafkaException as error:
                    if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                        raise
        except KafkaException as error:
            raise OSError(f"{self.name}: {error.args[0].str()}") from error

    def write(self, table: str, rows: Sequence[Mapping[str, Any]], now: int) -> str:
        """Write ``rows`` to the topic of ``table`` with ``received_at`` = ``now``; the topic. Raises OSError."""
        messages = [_message(table, {**row, "received_at": now}, MAX_MESSAGE) for row in rows]
        short = [message.cut for message in messages if message.cut]
        for message in self._send(messages):  # perhaps only together too large
            for alone in self._send([message]):
                small = _message(alone.table, alone.row, SMALL, dead_letter=True)
                if self._send([small]):
                    raise OSError(
                        f"{self.name}: {self._topic(small.table)}: refuses {len(small.value)} bytes as too large:"
                        f" let its max.message.bytes be at least {2 * SMALL}"
                    )
                short += [] if alone.cut else [small.cut or message.cut]
        topic = self._topic(table)
        if short:
            action = "the landing folder has them whole"
            log.warning(Log.KAFKA_CUT, topic=topic, rows=len(short), first=short[0], action=action)
        return topic

    def _send(self, messages: Sequence[_Message]) -> list[_Message]:
        """Send ``messages`` and wait until all are confirmed; those that brokers found too large. Raises OSError."""
        failures, large, left = list[str](), list[_Message](), 0

        def delivered(message: _Message, error: Any, _: object) -> None:
            if error is not None and error.code() in self._too_large:
                large.append(message)
            elif error is not None:
                failures.append(error.str())

        try:
            for message in messages:
                try:
                    self._produce(message, partial(delivered, message))
                except self._failure as error:
                    delivered(message, error.args[0], None)
                if failures:
                    break
            else:
                left = self._producer.flush(self._timeout + 1)
            if left or failures:
                reason = failures[0] if failures else "no answer in time"
                raise OSError(
                    f"{self.name}: {self._topic(messages[0].table)}:"
                    f" {left + len(failures)} of {len(messages)} rows not confirmed: {reason}"
                )
        except BaseException:
            self._producer.purge()
            raise
        return large

    def _produce(self, message: _Message, delivered: Any) -> None:
        while True:
            with suppress(BufferError):
                self._producer.produce(self._topic(message.table), message.value, message.key, on_delivery=delivered)
                return
            self._producer.poll(0.1)

    def _topic(self, table: str) -> str:
        return f"{self._topics}.{table}"


def _message(table: str, row: Mapping[str, Any], limit: int, *, dead_letter: bool = False) -> _Message:
    """``row`` as a message of at most ``limit`` bytes with its key. ``dead_letter``: in any case as a row of
    ``bad``."""
    key = row.get("agent_id")
    room = limit - len((key or "").encode())
    whole = orjson.dumps(row, default=_text)
    if len(whole) <= room and (table == "bad" or not dead_letter):
        return _Message(table, row, key, whole)
    why = f"too large for Kafka: {len(whole)} bytes as a row of {table}"
    if table == "bad":
        shortened = {**row, "reason": f"{row['reason']} (cut for Kafka: {len(row['payload'])} bytes in all)"}
        value = cut_to(shortened, room) or cut_to({**shortened, "topic": cut(row["topic"], MAX_VALUE)}, room)
        assert value is not None, "a topic and a reason of bounded length fit"
        return _Message(table, row, key, value, why)
    if table == "status" and not dead_letter:
        value = cut_to(row, room)
        if value is not None:
            return _Message(table, row, key, value, why)
    origin = (row.get("ingest") or {}).get("topic", "")
    row_of_bad = {"topic": origin, "reason": why, "payload": whole, "received_at": row["received_at"]}
    return _message("bad", row_of_bad, limit)._replace(cut=why)


def cut_to(row: Mapping[str, Any], limit: int) -> bytes | None:
    """``row`` as JSON of at most ``limit`` bytes: whole, or with the beginning of ``payload`` (bytes or text) that fits
    and ``payload_bytes``, its true length in bytes; None when the other columns alone are too long."""
    payload = row["payload"]
    if len(payload) <= limit:
        value = orjson.dumps(row, default=_text)
        if len(value) <= limit:
            return value
    length = len(payload) if isinstance(payload, bytes) else len(payload.encode())
    room = limit - len(orjson.dumps({**row, "payload": "", "payload_bytes": length}, default=_text))
    if room < 0:
        return None
    begin = payload[: room // 4 * 3] if isinstance(payload, bytes) else _begin(payload, room)
    return orjson.dumps({**row, "payload": begin, "payload_bytes": length}, default=_text)


def _begin(text: str, room: int) -> str:
    """The longest beginning of ``text`` that is at most ``room`` bytes of a JSON string's inside."""
    inside = orjson.dumps(text[:room])[1:-1]
    if len(inside) <= room:
        return text[:room]
    for back in range(7):  # within a character or an escape, of at most six bytes
        with suppress(orjson.JSONDecodeError):
            begin: str = orjson.loads(b'"%b"' % inside[: max(0, room - back)])
            return begin
    raise AssertionError("a JSON string's escape has at most six bytes")


def _text(value: Any) -> str:
    """What JSON has no form for: bytes."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(f"{type(value).__name__} in a landed row")
