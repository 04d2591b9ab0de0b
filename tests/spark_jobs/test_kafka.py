"""Kafka for real: the landing writes to a broker, Spark ingests from it, in the format of a cluster as well."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.intake.batch import Account
from spark_jobs.jobs import ingest
from spark_jobs.tables.schema import AGENTS, ALERTS, DEAD_LETTERS, HEARTBEATS, SEQS, TABLES, WIN_5M, Table
from spark_jobs.tables.tables import Tables, open_tables
from tests.broker import own_port
from tests.spark_jobs import kafka, killed
from tests.spark_jobs.conftest import JARS, LONG, content, ingest_alerts
from tests.spark_jobs.landed import NOON, alert, land
from vedette.delivery import envelope
from vedette.region.kafka import KEPT

confluent = pytest.importorskip("confluent_kafka", reason="needs confluent-kafka: pip install 'vedette[kafka]'")

pytestmark = [
    pytest.mark.spark,
    pytest.mark.peer,
    pytest.mark.skipif(not JARS or not kafka.JARS.exists(), reason="no jars in build/jars: run tools/jars.sh"),
]


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with kafka.kafka(tmp_path_factory.mktemp("kafka")) as address:
        yield address


def take(spark: SparkSession, tables: Tables, brokers: str, topics: str, *only: str) -> dict[str, Account]:
    """Take over what is in the topics, or in those of ``only`` these streams; what became of it by stream."""
    sources = ingest.kafka_sources(brokers, topics)
    done = ingest.take_over(spark, tables, {name: sources[name] for name in only or sources})
    return {one.name: one.account for one in done}


def without_batch(tables: Tables, table: Table) -> list[str]:
    """Rows without what tells one run from another."""
    names = [name for name in table.names if name not in ("batch", "ingest", "received_at")]
    return sorted(repr(row) for row in tables.arrow(table, names).to_pylist())


@pytest.mark.long
def test_kafka_gives_the_tables_that_the_landing_gives(spark: SparkSession, brokers: str, tmp_path: Path) -> None:
    """Rows of every landed column through the real writer and a real broker, copies and garbage among them: the tables
    equal those of the same rows through files, and a second run goes on where the first ended. What is too large for a
    message is there, cut."""
    from vedette.region.kafka import KafkaLanding

    about = {"parent_id": "p", "kind": "fold", "count": 7, "flags": ["cut"], "host": None, "first_time": NOON - 5,
             "contributing": [{"rule_id": "r", "event_time": -5,
                               "raw_ref": {"log_id": "ab", "offset": 1 << 40, "length": 7}}]}  # fmt: skip
    rows = [*(alert(n, received_at=NOON) for n in range(20)), alert(20, **about, received_at=NOON)]
    writer = KafkaLanding(brokers, "one")
    writer.write("alerts", [*rows[:15], *rows[:5]], NOON)
    writer.write("alerts", rows[10:], NOON)
    writer.write("status", [_beat("agent-1")], NOON)
    writer.write("bad", [envelope.dead_letter(b"\xff\x00", topic="t", reason="is not msgpack", received_at=0)], NOON)
    run = {"agent_id": "agent-1", "fleet": "north", "log_id": "0", "first": 1, "last": 20}
    writer.write("seqs", [run], NOON)
    writer.write("bad", [{"topic": "t", "reason": "r", "payload": bytes(3_000_000), "received_at": 0}], NOON)
    writer.write("status", [_beat("agent-2", b'{"state": "running", "more": "%b"}' % (b"x" * 1_000_000))], NOON)
    producer = confluent.Producer({"bootstrap.servers": brokers})
    for garbage in (b"\xff\xfe", b"[]", b'{"seq": "seven"}', b'{"agent_id": "a"}', b"{}"):
        producer.produce("one.alerts", garbage)
    producer.flush(30)

    tables = open_tables(str(tmp_path / "tables"))
    accounts = take(spark, tables, brokers, "one")

    assert (accounts["alerts"].new, accounts["alerts"].duplicates, accounts["alerts"].unusable) == (21, 10, 5)
    land(tmp_path / "landing", rows)
    files = open_tables(str(tmp_path / "files"))
    ingest_alerts(spark, files, tmp_path / "landing")
    for table in (ALERTS, WIN_5M):
        assert without_batch(tables, table) == without_batch(files, table)
    letters = tables.arrow(DEAD_LETTERS).to_pylist()
    large = {one["reason"]: one for one in letters if len(one["payload"]) > 100}
    letters = [one for one in letters if one["reason"] not in large]
    of_bad, of_status = sorted(large)
    assert of_bad.startswith("r (too large for Kafka: 4")
    assert of_status.startswith("too large for Kafka: 1")
    assert bytes(large[of_bad]["payload"]) == bytes(KEPT)
    assert b'"agent_id":"agent-2"' in large[of_status]["payload"].replace(b": ", b":")
    assert {(one["kind"], bytes(one["payload"])) for one in letters} == {
        ("message", b"\xff\xfe"),
        ("message", b"[]"),
        ("message", b'{"seq": "seven"}'),
        ("message", b'{"agent_id": "a"}'),
        ("message", b"{}"),
        ("message", b"\xff\x00"),
    }
    assert (tables.arrow(HEARTBEATS).num_rows, tables.arrow(SEQS).num_rows) == (1, 1)
    assert [(one["agent_id"], one["state"]) for one in tables.arrow(AGENTS).to_pylist()] == [("agent-1", "running")]

    writer.write("alerts", [alert(1), alert(30)], NOON)
    assert (take(spark, tables, brokers, "one", "alerts")["alerts"].new, tables.arrow(ALERTS).num_rows) == (1, 22)


def _beat(agent: str, payload: bytes = b'{"state": "running"}') -> dict[str, Any]:
    about = {"fleet": "north", "agent_id": agent, "collector_id": "c", "topic": "t"}
    return envelope.status_row(payload, received_at=NOON, **about)


@pytest.mark.skipif(not LONG, reason="takes a minute: make test-crash")
def test_kafka_into_delta_by_spark(spark: SparkSession, brokers: str, tmp_path: Path) -> None:
    """The way of a cluster, from Kafka into tables that Spark itself writes: row for row what the default gives, and
    the default reads them."""
    from vedette.region.kafka import KafkaLanding

    writer = KafkaLanding(brokers, "two")
    writer.write("alerts", [*(alert(n) for n in range(10)), *(alert(n) for n in range(5))], NOON)
    writer.write("status", [_beat("agent-1")], NOON)
    by_spark = open_tables(str(tmp_path / "spark"), "delta-spark", spark=spark)
    default = open_tables(str(tmp_path / "default"))
    for tables in (by_spark, default):
        assert take(spark, tables, brokers, "two")["alerts"].new == 10
    same = open_tables(by_spark.root)
    for table in TABLES.values():
        assert without_batch(by_spark, table) == without_batch(default, table) == without_batch(same, table), table.name
    writer.write("alerts", [alert(n) for n in range(8, 12)], NOON)
    assert take(spark, by_spark, brokers, "two", "alerts")["alerts"].new == 2


@pytest.mark.skipif(not LONG, reason="takes a minute: make test-crash")
def test_killed_while_it_reads_kafka(spark: SparkSession, brokers: str, tmp_path: Path) -> None:
    """Killed with a batch written and not committed, and at a random moment of the next, started again: row for row the
    tables of a run that nothing disturbed."""
    from vedette.region.kafka import KafkaLanding

    writer = KafkaLanding(brokers, "three")
    for first in (0, 40, 80):
        writer.write("alerts", [alert(n, agent_id=f"agent-{n % 7}") for n in range(first, first + 60)], NOON)
    words = ["--kafka", brokers, "--kafka-topics", "three", "--rows-per-batch", "50"]
    calm = open_tables(str(tmp_path / "calm"))
    sources = {"alerts": ingest.kafka_sources(brokers, "three", 50)["alerts"]}
    account = ingest.take_over(spark, calm, sources)[0].account
    assert (account.batches >= 3, account.new, account.duplicates) == (True, 140, 40)

    job = killed.start(tmp_path / "killed", words, point=killed.COMMIT)
    assert job.wait(killed.LIMIT) == -signal.SIGKILL
    killed.kill_in_batch(killed.start(tmp_path / "killed", words), tmp_path / "killed", 2, random.uniform(0, 2))
    tables = open_tables(str(tmp_path / "killed"))
    ingest.take_over(spark, tables, sources)
    assert content(tables) == content(calm)


def test_no_broker_is_said() -> None:
    """A landing whose Kafka does not answer says so within its time."""
    from vedette.region.kafka import KafkaLanding

    address = f"127.0.0.1:{own_port()}"
    with pytest.raises(OSError, match=f"kafka {address}"):
        KafkaLanding(address, timeout=1)
