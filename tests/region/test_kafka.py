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
from vedette.delivery.envelope import dead_letter, decode_row, encode, landed, status_row
from vedette.region.kafka import MAX_MESSAGE, SMALL, KafkaLanding, cut_to

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
        known = consumer.list_topics(topic, timeout=20).topics[topic].partitions
        got: list[dict[str, Any]] = []
        for number in known:
            place = confluent.TopicPartition(topic, number)
            low, high = consumer.get_watermark_offsets(place, timeout=20)
            consumer.assign([confluent.TopicPartition(topic, number, low)])
            deadline = time.monotonic() + 20
            while low < high:
                assert time.monotonic() < deadline
                message = consumer.poll(1)
                if message is not None:
                    assert message.error() is None
                    got.append(orjson.loads(message.value()))
                    low = message.offset() + 1
        return got
    finally:
        consumer.close()


def made(seq: int, **more: Any) -> dict[str, Any]:
    return {**landed(decode_row(encode(alert(seq))), received_at=0, collector_id="c", topic=f"t{seq}"), **more}


def beat(payload: bytes) -> dict[str, Any]:
    return status_row(payload, fleet="f1", agent_id="a1", received_at=0, collector_id="c", topic="t")


@needs_broker
def test_large_rows_are_cut_and_stop_nothing(brokers: str) -> None:
    """Rows beyond what a message may have: ``bad`` and ``status`` go with the beginning of their payload and its true
    length, others as ``bad``; the rows beside them go as they are, and it is told once."""
    writer = KafkaLanding(brokers, "large", timeout=20)
    payload = bytes(range(256)) * 20_000
    text = orjson.dumps({"state": "running", "seq_high": 7, "more": '\x01"é' * 100_000})
    with capture_logs() as logs:
        row = dead_letter(b"small", topic="t", reason="is not msgpack", received_at=0)
        bad = [row, {**row, "payload": payload}]
        assert writer.write("bad", bad, NOW) == "large.bad"
        writer.write("status", [beat(b'{"state": "lost"}'), beat(text)], NOW)
        writer.write("alerts", [made(1), made(2, raw="x" * 3_000_000), made(3)], NOW)

    small, *rest = sorted(messages(brokers, "large.bad"), key=lambda row: len(row["payload"]))
    assert (small["payload"], "payload_bytes" in small) == (base64.b64encode(b"small").decode(), False)
    assert len(rest) == 2
    (cut,) = [row for row in rest if row["reason"].startswith("is not msgpack")]
    begin = base64.b64decode(cut["payload"])
    assert payload.startswith(begin)
    assert 600_000 < len(begin) < MAX_MESSAGE
    assert cut["payload_bytes"] == len(payload)
    assert f"{len(payload)} bytes" in cut["reason"]
    (letter,) = [row for row in rest if row is not cut]
    assert (letter["topic"], letter["received_at"]) == ("t2", NOW)
    assert "too large for Kafka" in letter["reason"]
    assert b'"seq":2,' in base64.b64decode(letter["payload"])
    assert letter["payload_bytes"] > 3_000_000
    assert {row["seq"] for row in messages(brokers, "large.alerts")} == {1, 3}

    lost, running = sorted(messages(brokers, "large.status"), key=lambda row: len(row["payload"]))
    assert (lost["payload"], lost["state"]) == ('{"state": "lost"}', "lost")
    assert (running["state"], running["seq_high"], running["payload_bytes"]) == ("running", 7, len(text))
    assert text.decode().startswith(running["payload"])
    assert len(running["payload"]) > 100_000
    assert [(entry["event"], entry["rows"]) for entry in logs] == [("kafka_cut", 1)] * 3


@needs_broker
def test_a_topic_that_takes_less(brokers: str) -> None:
    """Where the brokers take less than we send, what is too large alone goes as a small row of ``bad``; what was only
    together too large goes row by row."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    limit = {"max.message.bytes": "60000"}
    new = [NewTopic(f"less.{table}", 1, config=limit) for table in ("alerts", "bad")]
    admin = AdminClient({"bootstrap.servers": brokers})
    for done in admin.create_topics(new).values():
        done.result(30)
    writer = KafkaLanding(brokers, "less", timeout=20)
    noise = [base64.b64encode(_noise(size)).decode() for size in (30_000, 40_000, 200_000)]
    rows = [made(seq, raw=text) for seq, text in enumerate(noise, 1)]
    with capture_logs() as logs:
        writer.write("alerts", rows, NOW)
        writer.write("bad", [{"topic": "t", "reason": "r", "payload": _noise(300_000), "received_at": 0}], NOW)
    assert {row["seq"] for row in messages(brokers, "less.alerts")} == {1, 2}
    bad = messages(brokers, "less.bad")
    assert len(bad) == 2
    assert {row["topic"] for row in bad} == {"t", "t3"}
    assert all(len(orjson.dumps(row)) <= SMALL < row["payload_bytes"] for row in bad)
    assert [entry["rows"] for entry in logs if entry["event"] == "kafka_cut"] == [1, 1]


def _noise(size: int) -> bytes:
    """What zstd cannot make smaller."""
    from hashlib import shake_256

    return shake_256(b"noise").digest(size)


@needs_broker
def test_rows_of_a_failed_write_do_not_come_later(brokers: str) -> None:
    """A topic that is gone is an OSError; once it is there again, the retry writes each row once."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    writer = KafkaLanding(brokers, "gone", timeout=3)
    writer.write("seqs", [{"agent_id": "a", "first": 0}], NOW)
    admin = AdminClient({"bootstrap.servers": brokers})
    admin.delete_topics(["gone.seqs"])["gone.seqs"].result(30)
    rows = [{"agent_id": "a", "first": n} for n in range(50)]
    deadline = time.monotonic() + 60
    with suppress(OSError):
        while time.monotonic() < deadline:  # for a moment a broker may take rows of a topic that is gone
            writer.write("seqs", rows[:1], NOW)
    for _ in range(2):
        with pytest.raises(OSError, match=r"gone\.seqs"):
            writer.write("seqs", rows, NOW)
    admin.create_topics([NewTopic("gone.seqs", 1)])["gone.seqs"].result(30)
    deadline = time.monotonic() + 60
    while True:
        try:
            writer.write("seqs", rows, NOW)
            break
        except OSError:
            assert time.monotonic() < deadline
    assert sorted(row["first"] for row in messages(brokers, "gone.seqs")) == list(range(50))


@pytest.mark.parametrize(
    "payload", [b"x" * 5000, 'é\x01"\\' * 1000, "\x01" * 900 + "a" * 9000, "a" * 9000 + "\x01" * 900, b"", ""]
)
@pytest.mark.parametrize("limit", [100, 101, 102, 103, 1000, 3000, 60_000])
def test_a_row_within_a_limit(payload: bytes | str, limit: int) -> None:
    """A cut row fits, holds a beginning of its payload that is no shorter than it must be by a third, and its length;
    one that fits is untouched; one whose other columns alone are too long is none."""
    row = {"agent_id": "a", "payload": payload}
    whole = cut_to(row, 1 << 20)
    assert whole is not None
    assert "payload_bytes" not in orjson.loads(whole)
    value = cut_to(row, limit)
    assert value is not None
    if len(whole) <= limit:
        assert value == whole
        return
    assert len(value) <= limit
    document = orjson.loads(value)
    data = payload if isinstance(payload, bytes) else payload.encode()
    kept = base64.b64decode(document["payload"]) if isinstance(payload, bytes) else document["payload"].encode()
    assert data.startswith(kept)
    assert document["payload_bytes"] == len(data)
    assert len(value) > limit * 2 // 3 - 8 or limit < 110
    assert cut_to({**row, "site": "s" * limit}, limit) is None
