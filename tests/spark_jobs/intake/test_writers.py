"""Names of who has begun to write: none stays when nothing is left to be done under it. Without Spark."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.intake import unread
from spark_jobs.intake.batch import Account, Work
from spark_jobs.intake.landing import File
from spark_jobs.intake.sources import Batch, Source
from spark_jobs.intake.stream import Stream, take_batch, take_changed
from spark_jobs.tables import manifest, storage
from spark_jobs.tables.arrow import arrow_schema
from spark_jobs.tables.schema import ALERTS
from spark_jobs.tables.tables import Tables, open_tables

AT = datetime(2026, 11, 20, 12, tzinfo=UTC)
SPARK: Any = None


class Killed(BaseException):
    """Stands for the end of the process."""


class Nothing(Source):
    """Batches without rows."""

    def ready(self, spark: SparkSession) -> bool:
        return True

    def stream(self, spark: SparkSession) -> DataFrame:
        raise NotImplementedError  # a batch is never streamed here

    def batch(self, spark: SparkSession, frame: DataFrame, number: int, checkpoint: str) -> Batch:
        return Batch(SPARK, "row")

    def files(self, spark: SparkSession, files: Any) -> Batch:
        return Batch(SPARK, "row", tuple(files))


def append(work: Work, batch: Batch) -> Account:
    """The batch is in the tables."""
    work.tables.append(ALERTS, arrow_schema(ALERTS.columns).empty_table(), work.txn)
    return Account()


def die(*_: Any) -> NoReturn:
    raise Killed


def half(work: Work, batch: Batch) -> NoReturn:
    append(work, batch)
    die()


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return open_tables(f"{tmp_path}/tables")


@pytest.fixture
def stream() -> Stream:
    return Stream("alerts", Nothing(), append, (ALERTS,))


@pytest.fixture
def late(tmp_path: Path, checkpoint: str) -> Path:
    """A file that could not be read, and has changed since."""
    file = tmp_path / "late.parquet"
    file.write_bytes(b"whole")
    unread.note(checkpoint, [File(f"file:{file}", AT, 1)])
    return file


@pytest.fixture
def checkpoint(tables: Tables) -> str:
    return f"{tables.root}/_checkpoints/alerts"


def take(tables: Tables, stream: Stream, query: str, number: int, checkpoint: str) -> None:
    take_batch(Work(SPARK, tables, query, number), stream, SPARK, checkpoint)


def writers(tables: Tables) -> list[str]:
    return manifest.read(tables.root).writers


@pytest.mark.parametrize("end", ["settle", "forget"])
def test_a_file_killed_at_its_end_is_done_to_it(
    tables: Tables, stream: Stream, checkpoint: str, late: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """Before the tables are noted, and after the file is forgotten: the next run leaves no name."""
    forget = unread.forget
    with monkeypatch.context() as patch:
        if end == "settle":
            patch.setattr(storage, "settle", die)
        else:
            patch.setattr(unread, "forget", lambda *about: die(forget(*about)))
        with pytest.raises(Killed):
            take_changed(SPARK, tables, stream, checkpoint)
    take_changed(SPARK, tables, stream, checkpoint)
    assert (writers(tables), unread.changed(checkpoint)) == ([], [])


@pytest.mark.parametrize("fate", ["gone", "as it was noted", "not noted"])
def test_a_file_that_is_not_tried_again_is_withdrawn(
    tables: Tables, stream: Stream, checkpoint: str, late: Path, fate: str
) -> None:
    """Killed before any of it was in the tables."""
    stream.take = die
    with pytest.raises(Killed):
        take_changed(SPARK, tables, stream, checkpoint)
    assert writers(tables) == [f"alerts {late}"]
    if fate == "gone":
        late.unlink()
    elif fate == "not noted":
        Path(checkpoint, unread.NAME).unlink()
    else:
        unread.note(checkpoint, [file for file, _ in unread.changed(checkpoint)])
    take_changed(SPARK, tables, stream, checkpoint)
    assert writers(tables) == []


@pytest.mark.parametrize("fate", ["gone", "not noted"])
def test_a_file_that_is_in_by_half_is_said(
    tables: Tables, stream: Stream, checkpoint: str, late: Path, fate: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Killed between alerts and counts: upkeep stays held off, and the log says once what to do."""
    stream.take = half
    with pytest.raises(Killed):
        take_changed(SPARK, tables, stream, checkpoint)
    (late if fate == "gone" else Path(checkpoint, unread.NAME)).unlink()
    with caplog.at_level(logging.ERROR):
        for _ in range(2):
            take_changed(SPARK, tables, stream, checkpoint)
    assert writers(tables) == [f"alerts {late}"]
    assert caplog.text.count(f"vedette-spark reconcile --tables {tables.root} --landing DIR") == 1


def test_a_note_that_is_full_stays_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of files that gave way to others upkeep knows by that alone: one that is read makes no room."""
    monkeypatch.setattr(unread, "MAX_FILES", 2)
    for number in range(3):
        file = tmp_path / f"{number}.parquet"
        file.write_bytes(b"whole")
        unread.note(str(tmp_path), [File(f"file:{file}", AT, 1)])
    for file, _ in unread.changed(str(tmp_path)):
        unread.forget(str(tmp_path), file)
    assert unread.changed(str(tmp_path)) == []
    assert len(unread.tries(str(tmp_path))) == 2
