"""Queries and their files: which are looked at, which are started, and where Spark's account of them lies."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.intake import landing, unread
from spark_jobs.intake.batch import Account, Work
from spark_jobs.intake.sources import Batch, LandingSource
from spark_jobs.intake.stream import Stream, run_all, take_changed
from spark_jobs.jobs import ingest, maintain
from spark_jobs.tables import manifest
from spark_jobs.tables.arrow import arrow_schema
from spark_jobs.tables.schema import ALERTS, LANDED_ALERT
from spark_jobs.tables.tables import open_tables
from tests.spark_jobs.landed import alert, land, place

pytestmark = pytest.mark.spark

AT = datetime(2026, 11, 20, 12, tzinfo=UTC)


def test_bad_files_are_found_by_halves(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two bad files among 32 cost far fewer looks than there are files, and good ones alone cost one."""
    files = [landing.File(f"file:{land(tmp_path, [alert(n)])}", AT) for n in range(30)]
    looks: list[int] = []
    read = landing.read

    def noted(spark: SparkSession, paths: Any, schema: Any) -> DataFrame:
        looks.append(len(paths))
        return read(spark, paths, schema)

    monkeypatch.setattr(landing, "read", noted)
    assert landing.damaged(spark, files, LANDED_ALERT) == {}
    assert looks == [30]
    looks.clear()
    bad = [landing.File(f"file:{place(tmp_path, b'garbage', at=AT)}", AT), landing.File(f"file:{tmp_path}/none", AT)]
    found = landing.damaged(spark, [*files[:7], bad[0], *files[7:], bad[1]], LANDED_ALERT)
    assert set(found) == set(bad)
    assert found[bad[0]].startswith("is not a Parquet file")
    assert found[bad[1]] == "is gone"
    assert len(looks) < 20


def test_after_the_signal_no_other_query_begins(spark: SparkSession, tmp_path: Path) -> None:
    """Told to stop during the first stream, a run to the end of what is there does not begin the second."""
    land(tmp_path, [alert(1)])
    land(tmp_path, [alert(1)], table="second")
    stop, taken = Event(), []

    def take(work: Work, batch: Batch) -> Account:
        taken.append(batch.rows.count())
        stop.set()
        return Account()

    tables = open_tables(str(tmp_path / "tables"))
    streams = [Stream(name, LandingSource(f"{tmp_path}/{name}", LANDED_ALERT, 1), take, (ALERTS,))
               for name in ("alerts", "second")]  # fmt: skip
    run_all(spark, tables, streams, str(tmp_path / "checkpoints"), stop=stop)
    assert taken == [1]
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["alerts"]


def test_a_file_that_fails_again_stops_no_stream(spark: SparkSession, tmp_path: Path) -> None:
    """Its note stays, and what has landed is taken; when some of it is in the tables, the run ends, as the rest has to
    follow before anything else."""
    land(tmp_path, [alert(1)])
    late = landing.File(f"file:{land(tmp_path / 'elsewhere', [alert(2)])}", AT, 1)
    checkpoint, tables, taken = f"{tmp_path}/checkpoints/alerts", open_tables(f"{tmp_path}/tables"), []
    unread.note(checkpoint, [late])
    begins = False

    def take(work: Work, batch: Batch) -> Account:
        if batch.files[0].path == late.path:
            if begins:
                tables.append(ALERTS, arrow_schema(ALERTS.columns).empty_table(), work.txn)
            raise OSError("unavailable")
        taken.append(batch.rows.count())
        return Account()

    def run() -> None:
        source = LandingSource(f"{tmp_path}/alerts", LANDED_ALERT, 1)
        run_all(spark, tables, [Stream("alerts", source, take, (ALERTS,))], f"{tmp_path}/checkpoints")

    run()
    assert taken == [1]
    assert [(file.path, tries) for file, tries in unread.changed(checkpoint)] == [(late.path, 1)]
    assert manifest.read(tables.root).writers == []
    begins = True
    with pytest.raises(OSError, match="unavailable"):
        run()
    assert manifest.read(tables.root).writers == [f"alerts {late.name}"]


def test_a_file_tried_again_hides_no_batch_that_was_cut_short(spark: SparkSession, tmp_path: Path) -> None:
    """Who wrote the batch stays noted until that very batch is done."""
    land(tmp_path, [alert(1)])
    late = landing.File(f"file:{land(tmp_path / 'elsewhere', [alert(2)])}", AT, 1)
    checkpoint, tables = f"{tmp_path}/checkpoints/alerts", open_tables(f"{tmp_path}/tables")

    def take(work: Work, batch: Batch) -> Account:
        if batch.files[0].path != late.path:
            raise OSError("unavailable")
        return Account()

    stream = Stream("alerts", LandingSource(f"{tmp_path}/alerts", LANDED_ALERT, 1), take, (ALERTS,))
    with pytest.raises(OSError, match="unavailable"):
        run_all(spark, tables, [stream], f"{tmp_path}/checkpoints")
    cut_short = manifest.read(tables.root).writers
    assert maintain.interrupted(tables, str(tmp_path)) == ["alerts"]
    unread.note(checkpoint, [late])
    take_changed(spark, tables, stream, checkpoint)
    assert (stream.account.batches, unread.changed(checkpoint)) == (1, [])
    assert manifest.read(tables.root).writers == cut_short


def test_files_and_kafka_have_checkpoints_of_their_own(spark: SparkSession, tmp_path: Path) -> None:
    """So that a region can move from one to the other; upkeep sees an interrupted batch of either."""
    files = ingest.landing_sources(str(tmp_path))
    kafka = ingest.kafka_sources("localhost:1")
    names = [one.kind + name for given in (files, kafka) for name, one in given.items()]
    assert len(set(names)) == 8
    tables = open_tables(f"{tmp_path}/tables")
    assert maintain.interrupted(tables, str(tmp_path)) == []
    for name in names:
        (tmp_path / name / "offsets").mkdir(parents=True)
        (tmp_path / name / "offsets" / "0").touch()
    assert maintain.interrupted(tables, str(tmp_path)) == sorted(names)
    (tmp_path / "kafka-alerts" / "commits").mkdir()
    (tmp_path / "kafka-alerts" / "commits" / "0").touch()
    assert "kafka-alerts" not in maintain.interrupted(tables, str(tmp_path))
    with suppress(RuntimeError), manifest.writing(tables, "kafka-alerts:other query", ()):
        raise RuntimeError
    assert "kafka-alerts" in maintain.interrupted(tables, str(tmp_path))
