"""The landing's second destination: Kafka topics ``NAME.alerts``, ``NAME.status``, ``NAME.bad`` and ``NAME.seqs``.

A message is one row as a JSON object with the columns of the landed table: times as integers (UTC microseconds), bytes
as Base64. Its key is the agent's id, so that one agent's rows stay in order; rows of ``bad`` have none. ``write``
returns when every in-sync replica has all of them (``acks=all``), and raises otherwise: rows may then be there, and are
written again. Needs confluent-kafka (``vedette[kafka]``).
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from vedette.outbox.landing import TABLES

TOPICS = "vedette"
TIMEOUT = 30.0
"""Seconds after which rows that the brokers have not confirmed are a failure."""
MAX_QUEUED = 100_000


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
        topic, failures = self._topic(table), list[str]()

        def told(error: Any, _: object) -> None:
            if error is not None:
                failures.append(error.str())

        try:
            for row in rows:
                value = orjson.dumps({**row, "received_at": now}, default=_text)
                key = row.get("agent_id")
                while True:
                    try:
                        self._producer.produce(topic, value, key, on_delivery=told)
                        break
                    except BufferError:
                        self._producer.poll(0.1)
            left = self._producer.flush(self._timeout + 1)
        except self._failure as error:
            raise OSError(f"{self.name}: {topic}: {error.args[0].str()}") from error
        if left or failures:
            self._producer.purge()
            reason = failures[0] if failures else "no answer in time"
            raise OSError(f"{self.name}: {topic}: {left + len(failures)} of {len(rows)} rows not confirmed: {reason}")
        return topic

    def _topic(self, table: str) -> str:
        return f"{self._topics}.{table}"


def _text(value: Any) -> str:
    """What JSON has no form for: bytes."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(f"{type(value).__name__} in a landed row")
