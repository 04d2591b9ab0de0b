"""Landed files that were met while they were copied in."""

from __future__ import annotations

import os
import shutil
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.intake import landing as intake
from spark_jobs.intake import unread
from spark_jobs.intake.landing import File
from spark_jobs.jobs import ingest
from spark_jobs.tables import storage
from spark_jobs.tables.delta import DeltaTables
from spark_jobs.tables.schema import ALERTS, DEAD_LETTERS, WIN_5M
from spark_jobs.tables.tables import Tables, open_tables
from tests.spark_jobs.conftest import ingest_alerts
from tests.spark_jobs.landed import alert, land
from tests.waits import until

pytestmark = pytest.mark.spark


def counted(tables: Tables) -> tuple[int, int]:
    """Alerts in the table, and in the counts."""
    return tables.arrow(ALERTS).num_rows, sum(tables.arrow(WIN_5M, ["alerts"])["alerts"].to_pylist())


def cut(file: Path, share: float) -> bytes:
    """Leave a share of ``file``; all that it had."""
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * share)])
    return content


def test_a_file_met_half_copied_is_read_once_it_is_whole(spark: SparkSession, tmp_path: Path) -> None:
    """Empty, then half there, then whole under the time that it had at its source, as by ``scp -p``: its alerts come in
    once, and it is not looked at again; one that stays as it was is not tried again."""
    landing, tables = tmp_path / "landing", open_tables(f"{tmp_path}/tables")
    late = land(landing, [alert(n) for n in range(4)])
    damaged = land(landing, [alert(9)])
    land(landing, [alert(8)])
    time = late.stat().st_mtime_ns
    whole = cut(late, 0)
    cut(damaged, 0.5)
    account = ingest_alerts(spark, tables, landing)
    assert (account.new, account.bad_files) == (1, 2)

    late.write_bytes(whole[: len(whole) // 2])
    account = ingest_alerts(spark, tables, landing)
    assert (account.files, account.bad_files, counted(tables)) == (1, 1, (1, 1))

    late.write_bytes(whole)
    os.utime(late, ns=(time, time))
    account = ingest_alerts(spark, tables, landing)
    assert (account.files, account.new, counted(tables)) == (1, 4, (5, 5))
    os.utime(late)
    assert ingest_alerts(spark, tables, landing).files == 0
    assert tables.arrow(DEAD_LETTERS, ["kind"])["kind"].to_pylist() == ["file"] * 3


@pytest.mark.long
def test_a_file_that_was_filled_behind_the_listing_is_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Empty when Spark listed the batch, and whole before it was missed: its alerts come in at the next look."""
    landing, tables = tmp_path / "landing", open_tables(f"{tmp_path}/tables")
    land(landing, [alert(8)])
    late = land(landing, [alert(n) for n in range(4)])
    whole, overlooked = cut(late, 0), intake.overlooked

    def filled(*batch: Any) -> list[tuple[File, str]]:
        late.write_bytes(whole)
        return overlooked(*batch)

    monkeypatch.setattr(intake, "overlooked", filled)
    assert ingest_alerts(spark, tables, landing).bad_files == 1
    assert ingest_alerts(spark, tables, landing).new == 4
    assert counted(tables) == (5, 5)


@pytest.mark.long
def test_cut_short_it_is_tried_again(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ended in the batch that met the file half, and in the one that takes it when it is whole, between alerts and
    counts: in the end all is there once."""
    landing, tables = tmp_path / "landing", open_tables(f"{tmp_path}/tables")
    late = land(landing, [alert(n) for n in range(4)])
    land(landing, [alert(8)])
    whole = cut(late, 0.5)

    def cut_short(*_: object) -> bool:
        raise RuntimeError("cut short")

    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(DeltaTables, "upsert", cut_short)
            with pytest.raises(RuntimeError, match="cut short"):
                ingest_alerts(spark, tables, landing)
        late.write_bytes(whole)
    ingest_alerts(spark, tables, landing)
    ingest_alerts(spark, tables, landing)
    assert counted(tables) == (5, 5)


@pytest.mark.long
def test_it_is_tried_again_while_ingest_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    """With ``every`` no other file needs to land for it."""
    landing, tables, stop = tmp_path / "landing", open_tables(f"{tmp_path}/tables"), threading.Event()
    late = land(landing, [alert(n) for n in range(4)])
    whole = cut(late, 0.5)
    sources = {"alerts": ingest.landing_sources(str(landing))["alerts"]}
    job = threading.Thread(target=lambda: ingest.take_over(spark, tables, sources, every=0.2, stop=stop))
    job.start()
    try:
        checkpoint = f"{tables.root}/_checkpoints/alerts"
        until("the file to be met", Path(checkpoint, unread.NAME).exists)
        late.write_bytes(whole)
        until("its alerts to be counted", lambda: counted(tables) == (4, 4))
    finally:
        stop.set()
        job.join(60)


def test_a_file_that_is_back_is_tried_again(tmp_path: Path) -> None:
    """One that was gone when it was to be read, and is there again as it had been listed; the oldest notes give way."""
    file = tmp_path / "late.parquet"
    file.write_bytes(b"whole")
    size, milliseconds = storage.stamp(str(file)) or (0, 0)
    listed = File(f"file://{file}", datetime.fromtimestamp(milliseconds / 1000, UTC), size)
    unread.note(str(tmp_path), [listed])
    assert unread.changed(str(tmp_path)) == []
    shutil.move(file, tmp_path / "away")
    unread.note(str(tmp_path), [listed])
    assert unread.changed(str(tmp_path)) == []
    shutil.move(tmp_path / "away", file)
    assert unread.changed(str(tmp_path)) == [(listed, 2)]
    unread.note(str(tmp_path), [listed._replace(path=f"/{n}") for n in range(unread.MAX_FILES)])
    assert unread.changed(str(tmp_path)) == []


@pytest.mark.parametrize("content", ["{", "[]", '{"/late.parquet": 3}', '{"/late.parquet": [1, 2]}'])
def test_damaged_notes_are_refused_by_name(tmp_path: Path, content: str) -> None:
    """Taken for none, the files in them would never be looked at again."""
    (tmp_path / unread.NAME).write_text(content)
    with pytest.raises(ValueError, match=rf"{tmp_path}/{unread.NAME}: cannot be read .*; restore it"):
        unread.changed(str(tmp_path))
