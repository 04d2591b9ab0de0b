"""The landing's way into Kafka, by a real broker: what a topic does not take stops nothing."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import orjson
import pytest
from structlog.testing import capture_logs

from tests.delivery.kit import alert
from tests.spark_jobs import kafka
from tests.waits import DEADLINE, pauses
from vedette.delivery.envelope import dead_letter, decode_row, encode, landed, status_row
from vedette.region.kafka import KEPT, LEAST, KafkaLanding

confluent = pytest.importorskip("confluent_kafka", reason="needs confluent-kafka: pip install 'vedette[kafka]'")

NOW = 1_795_228_874_000_000
needs_broker = pytest.mark.skipif(not kafka.JARS.exists(), reason="no jars in build/jars: run tools/jars.sh")
pytestmark = pytest.mark.peer


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with kafka.kafka(tmp_path_factory.mktemp("kafka")) as address:
        yield address


def messages(brokers: str, topic: str) -> list[dict[str, Any]]:
    """All that ``topic`` holds."""
    consumer = confluent.Consumer({"bootstrap.servers": brokers, "group.id": "t", "log_level": 0})
    try:
        known = consumer.list_topics(topic, timeout=DEADLINE).topics[topic].partitions
        got: list[dict[str, Any]] = []
        for number in known:
            place = confluent.TopicPartition(topic, number)
            low, high = consumer.get_watermark_offsets(place, timeout=DEADLINE)
            consumer.assign([confluent.TopicPartition(topic, number, low)])
            while low < high:
                message = consumer.poll(1)
                if message is not None:
                    assert message.error() is None
                    got.append(orjson.loads(message.value()))
                    low = message.offset() + 1
        return got
    finally:
        consumer.close()


def landed_row(seq: int, **more: Any) -> dict[str, Any]:
    return {**landed(decode_row(encode(alert(seq))), received_at=0, collector_id="c", topic=f"t{seq}"), **more}


def beat(payload: bytes) -> dict[str, Any]:
    return status_row(payload, fleet="f1", agent_id="a1", received_at=0, collector_id="c", topic="t")


@needs_broker
def test_large_rows_are_cut_and_stop_nothing(brokers: str) -> None:
    """Rows beyond what a message may have go to ``bad``, as the beginning of their payload or their JSON; the rows
    beside them go as they are, and it is logged once a write."""
    writer = KafkaLanding(brokers, "large", timeout=DEADLINE)
    payload = bytes(range(256)) * 20_000
    text = orjson.dumps({"state": "running", "seq_high": 7, "more": '\x01"é' * 100_000})
    with capture_logs() as logs:
        row = dead_letter(b"small", topic="t", reason="is not msgpack", received_at=0)
        assert writer.write("bad", [row, {**row, "payload": payload}], NOW) == "large.bad"
        writer.write("status", [beat(b'{"state": "lost"}'), beat(text)], NOW)
        writer.write("alerts", [landed_row(1), landed_row(2, raw="x" * 3_000_000), landed_row(3)], NOW)

    bad = {row["reason"]: row for row in messages(brokers, "large.bad")}
    assert base64.b64decode(bad.pop("is not msgpack")["payload"]) == b"small"
    assert {row["received_at"] for row in bad.values()} == {NOW}
    assert len(bad) == 3
    alerts, status, again = (
        next(row for reason, row in bad.items() if f"as a row of {table}" in reason)
        for table in ("alerts", "status", "bad")
    )
    assert again["reason"].startswith("is not msgpack (too large for Kafka: ")
    assert base64.b64decode(again["payload"]) == payload[:KEPT]
    assert (alerts["topic"], status["topic"]) == ("t2", "t")
    assert b'"seq":2,' in base64.b64decode(alerts["payload"])
    assert b'"seq_high":7,' in base64.b64decode(status["payload"])
    assert {row["seq"] for row in messages(brokers, "large.alerts")} == {1, 3}
    assert [row["state"] for row in messages(brokers, "large.status")] == ["lost"]
    assert [(entry["event"], entry["rows"]) for entry in logs] == [("kafka_cut", 1)] * 3


@needs_broker
def test_a_topic_that_takes_less(brokers: str) -> None:
    """Where the brokers take less than we send, what is too large alone goes as a row of ``bad``; what was only
    together too large goes row by row."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    limit = {"max.message.bytes": "60000"}
    new = [NewTopic(f"less.{table}", 1, config=limit) for table in ("alerts", "bad")]
    admin = AdminClient({"bootstrap.servers": brokers})
    for done in admin.create_topics(new).values():
        done.result(DEADLINE)
    writer = KafkaLanding(brokers, "less", timeout=DEADLINE)
    noise = [base64.b64encode(_noise(size)).decode() for size in (30_000, 40_000, 200_000)]
    rows = [landed_row(seq, raw=text) for seq, text in enumerate(noise, 1)]
    with capture_logs() as logs:
        writer.write("alerts", rows, NOW)
        writer.write("bad", [{"topic": "t", "reason": "r", "payload": _noise(300_000), "received_at": 0}], NOW)
    assert {row["seq"] for row in messages(brokers, "less.alerts")} == {1, 2}
    bad = messages(brokers, "less.bad")
    assert len(bad) == 2
    assert {row["topic"] for row in bad} == {"t", "t3"}
    assert all(len(orjson.dumps(row)) <= LEAST for row in bad)
    assert [entry["rows"] for entry in logs if entry["event"] == "kafka_cut"] == [1, 1]


def _noise(size: int) -> bytes:
    """What zstd cannot make smaller."""
    from hashlib import shake_256

    return shake_256(b"noise").digest(size)


@needs_broker
def test_rows_of_a_failed_write_do_not_come_later(brokers: str) -> None:
    """A topic that is gone is an OSError; once it is there again, the retry writes each row once."""
    # Over 3 s: each write to a topic that is gone is given up only after its three seconds.
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    writer = KafkaLanding(brokers, "gone", timeout=3)
    writer.write("seqs", [{"agent_id": "a", "first": 0}], NOW)
    admin = AdminClient({"bootstrap.servers": brokers})
    admin.delete_topics(["gone.seqs"])["gone.seqs"].result(DEADLINE)
    rows = [{"agent_id": "a", "first": n} for n in range(50)]
    with suppress(OSError):
        for _ in pauses():  # for a moment a broker may take rows of a topic that is gone
            writer.write("seqs", rows[:1], NOW)
    for _ in range(2):
        with pytest.raises(OSError, match=r"gone\.seqs"):
            writer.write("seqs", rows, NOW)
    admin.create_topics([NewTopic("gone.seqs", 1)])["gone.seqs"].result(DEADLINE)
    for pause in pauses():
        try:
            writer.write("seqs", rows, NOW)
            break
        except OSError:
            time.sleep(pause)
    assert sorted(row["first"] for row in messages(brokers, "gone.seqs")) == list(range(50))
