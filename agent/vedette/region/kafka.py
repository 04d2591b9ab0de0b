"""The landing's second destination: Kafka topics ``NAME.alerts``, ``NAME.status``, ``NAME.bad`` and ``NAME.seqs``.

A message is one row as a JSON object with the columns of the landed table: times as integers (UTC microseconds), bytes
as Base64. Its key is the agent's id, so that one agent's rows stay in order; rows of ``bad`` have none. ``write``
returns when every in-sync replica has all of them (``acks=all``), and raises otherwise: rows may then be there, and are
written again; none of them is sent later on its own. Needs confluent-kafka (``vedette[kafka]``).

No row is too large for long: one of more than ``MAX_MESSAGE`` bytes, or that the brokers refuse for its size alone,
goes to ``bad``, as the first ``KEPT`` bytes of its payload or of its JSON; only brokers that take not even that make
``write`` raise for it. The landing's folder has every row whole.
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
KEPT = 12 << 10
"""Bytes of a row that is too large, in the row of ``bad`` that goes in its place."""
LEAST = 32 << 10
"""What a topic must take in one message: such a row as JSON."""


class _Message(NamedTuple):
    table: str
    row: Mapping[str, Any]
    value: bytes

    @property
    def size(self) -> int:
        return len(self.value) + len((self.row.get("agent_id") or "").encode())


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
            for creation in admin.create_topics(missing, operation_timeout=timeout).values() if missing else ():
                try:
                    creation.result(timeout)
                except KafkaException as error:
                    if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                        raise
        except KafkaException as error:
            raise OSError(f"{self.name}: {error.args[0].str()}") from error

    def write(self, table: str, rows: Sequence[Mapping[str, Any]], now: int) -> str:
        """Write ``rows`` to the topic of ``table`` with ``received_at`` = ``now``; the topic. Raises OSError."""
        messages = [_message(table, {**row, "received_at": now}) for row in rows]
        large = [message for message in messages if message.size > MAX_MESSAGE]
        refused = self._send([message for message in messages if message.size <= MAX_MESSAGE])
        large += [message for single in refused for message in self._send([single])]  # perhaps only together too large
        letters = [_letter(message) for message in large]
        for letter in letters:
            if self._send([letter]):
                raise OSError(
                    f"{self.name}: {self._topic(letter.table)}: refuses {letter.size} bytes as too large:"
                    f" let its max.message.bytes be at least {LEAST}"
                )
        topic = self._topic(table)
        if letters:
            action, first = "the landing folder has them whole", letters[0].row["reason"]
            log.warning(Log.KAFKA_CUT, topic=topic, rows=len(letters), first=first, action=action)
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
                key = message.row.get("agent_id")
                self._producer.produce(self._topic(message.table), message.value, key, on_delivery=delivered)
                return
            self._producer.poll(0.1)

    def _topic(self, table: str) -> str:
        return f"{self._topics}.{table}"


def _message(table: str, row: Mapping[str, Any]) -> _Message:
    return _Message(table, row, orjson.dumps(row, default=_text))


def _letter(message: _Message) -> _Message:
    """The row of ``bad`` that goes in place of a message that is too large."""
    row, of_bad = message.row, message.table == "bad"
    why = f"too large for Kafka: {len(message.value)} bytes as a row of {message.table}"
    letter = {
        "topic": cut(row["topic"] if of_bad else (row.get("ingest") or {}).get("topic", ""), MAX_VALUE),
        "reason": f"{row['reason']} ({why})" if of_bad else why,
        "payload": (row["payload"] if of_bad else message.value)[:KEPT],
        "received_at": row["received_at"],
    }
    return _message("bad", letter)


def _text(value: Any) -> str:
    """What JSON has no form for: bytes."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(f"{type(value).__name__} in a landed row")
