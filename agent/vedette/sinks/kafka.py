"""``[[sink]] type = "kafka"``: its receiver.

An alert is a record of the topic, the JSON object that other sinks send; its key is the agent's id, the rule's, or the
alert's first entity, so that what has one key stays in order; its headers are ``alert_id`` and ``level``. A row of a
statement is its JSON object, with the text of the column ``row_key`` as its key and the header ``row_id``. TAKEN: all
in-sync replicas have it (``acks=all``, an idempotent producer). What is not confirmed within ``timeout`` is LATER, and
may be there then, so that a reader may see an alert twice, under one id. REFUSED is what is too large for the topic, or
what the brokers call invalid.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import orjson
from confluent_kafka import KafkaError, KafkaException, Producer

from vedette.kafka.client import configuration, reason
from vedette.sinks.base import Answer, Outgoing, Verdict
from vedette.sinks.formats import json_line
from vedette.sinks.settings import KafkaSink
from vedette.system.ending import to_its_end

BATCH, ROW_BATCH = 500, 5000
MAX_RECORD = 16 << 20
"""Bytes that librdkafka sends: the brokers have the say (``max.message.bytes``, by default 1 MiB)."""
_NEVER = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD, KafkaError.INVALID_MSG})
"""Errors that the same alert would meet again."""


class KafkaTopic:
    """A topic, and the producer of its records."""

    batch, row_batch = BATCH, ROW_BATCH

    def __init__(self, settings: KafkaSink, version: str) -> None:
        self._settings = settings
        self._client_id = f"vedette-{settings.name}"
        self._producer: Producer | None = None
        self._said = ""
        """The last error of librdkafka's connections: it says more than that a record was not confirmed in time."""

    async def deliver(self, alerts: Sequence[Outgoing]) -> list[Answer]:
        return await to_its_end(asyncio.create_task(asyncio.to_thread(self._send, alerts)), self._purge)

    def _purge(self) -> None:
        """Give up what no broker has confirmed."""
        if self._producer is not None:
            self._producer.purge()

    async def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            await asyncio.to_thread(producer.flush, 1)

    def _send(self, alerts: Sequence[Outgoing]) -> list[Answer]:
        """In a thread: until each is confirmed or has failed."""
        try:
            producer = self._open()
        except (OSError, ValueError, KafkaException) as error:
            why = reason(error) if isinstance(error, KafkaException) else str(error)
            return [Answer(Verdict.LATER, why)] * len(alerts)
        answers = self._sent(producer, alerts)
        for i, answer in enumerate(answers):
            if (
                answer.verdict is Verdict.REFUSED and len(alerts) > 1
            ):  # brokers see a batch: perhaps only together too large
                answers[i : i + 1] = self._sent(producer, alerts[i : i + 1])
        if any(answer.verdict is Verdict.LATER for answer in answers):
            self._producer = None  # the next attempt reads passwords and certificates again
        return answers

    def _sent(self, producer: Producer, alerts: Sequence[Outgoing]) -> list[Answer]:
        topic = self._settings.topic
        answers = [Answer(Verdict.UNTRIED)] * len(alerts)
        for i, alert in enumerate(alerts):
            heard = partial(self._heard, answers, i)
            if alert.line:
                value, key = alert.line, row_key(alert.line, self._settings.row_key)
                headers: dict[str, str | bytes | None] = {"row_id": alert.id}
            else:
                value, key = json_line(alert.row), key_of(alert.row, self._settings.key)
                headers = {"alert_id": alert.id, "level": alert.row["level"]}
            try:
                producer.produce(topic, value, key, headers=headers, on_delivery=heard)
            except KafkaException as error:
                heard(error.args[0], None)
            except BufferError:
                break
        if producer.flush(self._settings.timeout + 1):
            producer.purge()
            producer.flush(1)
        return answers

    def _heard(self, answers: list[Answer], i: int, error: KafkaError | None, message: Any) -> None:
        """Note what became of a record."""
        if error is None:
            self._said = ""
            answers[i] = Answer(Verdict.TAKEN, f"{message.topic()}/{message.partition()} offset {message.offset()}")
            return
        why = reason(error)
        if error.code() in _NEVER:
            answers[i] = Answer(Verdict.REFUSED, why)
        else:
            answers[i] = Answer(Verdict.LATER, f"{why}; {self._said}" if self._said else why)

    def _error(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN or not self._said:
            self._said = reason(error)

    def _open(self) -> Producer:
        """Raises OSError and ValueError naming the file that cannot be used, KafkaException for what it holds."""
        if self._producer is None:
            self._producer = Producer(
                {
                    **configuration(self._settings, self._client_id),
                    "acks": "all",
                    "enable.idempotence": True,
                    "compression.type": "zstd",
                    "linger.ms": 5,
                    "message.timeout.ms": int(self._settings.timeout * 1000),
                    "message.max.bytes": MAX_RECORD,
                    "topic.metadata.propagation.max.ms": int(self._settings.timeout * 500),
                    "queue.buffering.max.messages": 2 * ROW_BATCH,
                    "allow.auto.create.topics": False,
                    "error_cb": self._error,
                }
            )
        return self._producer


def row_key(line: bytes, column: str) -> str | None:
    """The text of a column; None for none, and where it is NULL."""
    value = orjson.loads(line).get(column) if column else None
    return value if value is None or isinstance(value, str) else orjson.dumps(value).decode()


def key_of(row: Mapping[str, Any], key: str) -> str:
    """``agent_id``, ``rule_id``, or ``entity``: KIND:VALUE of the first, the agent's id where there is none."""
    if key == "entity":
        first = next(iter(row["entities"]), None)
        return row["agent_id"] if first is None else f"{first['kind']}:{first['value']}"
    value: str = row[key]
    return value
