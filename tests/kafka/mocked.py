"""A Kafka broker in this process and without a JVM: librdkafka's own mock cluster, by ctypes.

Promises: Kafka's protocol over loopback; topics with ids and as many partitions as are asked for; consumer groups with
sessions, static members and commits. ``refusing`` answers requests of a kind with an error; ``down`` closes the
port and all connections until ``up``, and what is stored stays. SASL, TLS, a topic's limit on the size of messages and
a broker that is killed need ``tests/spark_jobs/kafka.py``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.waits import DEADLINE

HEARTBEAT = 12
"""A kind of requests, by Kafka's numbers."""
UNKNOWN_TOPIC = 3
UNKNOWN_MEMBER = 25
"""Errors, by Kafka's numbers; the second says that a session is over."""
_PRODUCER = 0
_BROKER = 1
_TEXT_BYTES = 512


def _library() -> ctypes.CDLL:
    """The one that confluent_kafka has loaded."""
    import confluent_kafka  # noqa: F401

    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.rpartition(" ")[2]
        if "librdkafka" in path:
            library = ctypes.CDLL(path)
            for function in (library.rd_kafka_conf_new, library.rd_kafka_new, library.rd_kafka_mock_cluster_new):
                function.restype = ctypes.c_void_p
            return library
    raise RuntimeError("confluent_kafka has loaded no librdkafka")


class Mocked:
    """One broker; ``address`` stays the same over ``down`` and ``up``."""

    def __init__(self) -> None:
        self._library = library = _library()
        library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        settings = ctypes.c_void_p(library.rd_kafka_conf_new())
        library.rd_kafka_conf_set(settings, b"log_level", b"0", text, _TEXT_BYTES)
        self._client = ctypes.c_void_p(library.rd_kafka_new(_PRODUCER, settings, text, _TEXT_BYTES))
        assert self._client, text.value
        self._cluster = ctypes.c_void_p(library.rd_kafka_mock_cluster_new(self._client, 1))
        assert self._cluster
        self.address: str = library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()
        self._call("set_controller_id", _BROKER)
        self._call("group_initial_rebalance_delay_ms", 0)

    def _call(self, name: str, *arguments: Any) -> int:
        return int(self._library[f"rd_kafka_mock_{name}"](self._cluster, *arguments))

    def create(self, topic: str, partitions: int = 1) -> str:
        assert self._call("topic_create", topic.encode(), partitions, 1) == 0
        return topic

    def delete(self, topic: str) -> None:
        assert self._call("topic_delete", topic.encode()) == 0

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        assert self._call("partition_delete_records", topic.encode(), partition, ctypes.c_int64(before)) == 0

    def forbid(self, topic: str, error: int) -> None:
        """Answer with ``error`` whatever is asked about a topic."""
        self._call("topic_set_error", topic.encode(), error)

    @contextmanager
    def refusing(self, request: int, error: int) -> Iterator[None]:
        """Answer requests of a kind with ``error``."""
        codes = (ctypes.c_int * 1000)(*[error] * 1000)
        self._call("push_request_errors_array", ctypes.c_int16(request), ctypes.c_size_t(len(codes)), codes)
        try:
            yield
        finally:
            self._call("clear_request_errors", ctypes.c_int16(request))

    def down(self) -> None:
        assert self._call("broker_set_down", _BROKER) == 0

    def up(self) -> None:
        assert self._call("broker_set_up", _BROKER) == 0

    def close(self) -> None:
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._client)


@contextmanager
def mocked() -> Iterator[Mocked]:
    """A broker that lives as long as the context."""
    broker = Mocked()
    try:
        yield broker
    finally:
        broker.close()


def send(address: str, topic: str, values: Sequence[bytes | None], **more: Any) -> None:
    """Produce records, and wait until the broker has all of them; ``more`` as for ``Producer.produce``."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address, "log_level": 0, "linger.ms": 5, "message.max.bytes": 5_000_000})
    refused: list[Any] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: refused.append(error) if error else None, **more)
    assert producer.flush(DEADLINE) == 0
    assert not refused


def send_header(address: str, topic: str, names: Sequence[bytes]) -> None:
    """Produce for each of ``names`` a record ``hostile`` with a header of that name; ``Producer`` takes only texts."""
    library = _library()
    settings = ctypes.c_void_p(library.rd_kafka_conf_new())
    text = ctypes.create_string_buffer(_TEXT_BYTES)
    library.rd_kafka_conf_set(settings, b"bootstrap.servers", address.encode(), text, _TEXT_BYTES)
    library.rd_kafka_conf_set(settings, b"log_level", b"0", text, _TEXT_BYTES)
    producer = ctypes.c_void_p(library.rd_kafka_new(_PRODUCER, settings, text, _TEXT_BYTES))
    assert producer, text.value
    end, of_topic, of_value, of_header = (ctypes.c_int(kind) for kind in (0, 1, 4, 9))
    try:
        for name in names:
            refused = library.rd_kafka_producev(
                producer, of_topic, ctypes.c_char_p(topic.encode()),
                of_value, ctypes.c_char_p(b"hostile"), ctypes.c_size_t(7),
                of_header, ctypes.c_char_p(name), ctypes.c_char_p(b"v"), ctypes.c_ssize_t(1), end,
            )  # fmt: skip
            assert refused == 0
        assert library.rd_kafka_flush(producer, int(DEADLINE * 1000)) == 0
    finally:
        library.rd_kafka_destroy(producer)


def committed(address: str, topic: str, group: str, partitions: int = 1) -> int:
    """The sum of the offsets that a group has committed."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": address, "group.id": group, "log_level": 0})
    try:
        places = [TopicPartition(topic, i) for i in range(partitions)]
        return sum(max(place.offset, 0) for place in consumer.committed(places, timeout=DEADLINE))
    finally:
        consumer.close()
