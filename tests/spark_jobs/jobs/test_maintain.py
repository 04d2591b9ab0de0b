"""Upkeep: exact, compact, forgetful where told to be, and never of what has not been taken over."""

from __future__ import annotations

import json
import logging
import shutil
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_jobs.common.period import period
from spark_jobs.intake import frames, unread
from spark_jobs.intake.counts import COUNTS
from spark_jobs.jobs import ingest, maintain
from spark_jobs.jobs.maintain import clean, exact, expired
from spark_jobs.tables import manifest, storage
from spark_jobs.tables.delta import DeltaTables
from spark_jobs.tables.schema import ALERTS, ENTITY_SITE_5M, HOST_1H, RULES, WIN_5M
from spark_jobs.tables.tables import Tables, open_tables
from tests.spark_jobs.conftest import ingest_alerts, run
from tests.spark_jobs.fleet import take
from tests.spark_jobs.landed import HOUR, NOON, alert, land
from tests.waits import until

pytestmark = pytest.mark.spark

DAY = 24 * HOUR
YESTERDAY = NOON - DAY
THE_18TH = ("--date=2026-11-18", "--days=1")


@pytest.fixture(scope="module")
def once(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    tables = open_tables(str(tmp_path_factory.mktemp("once")))
    for number, rows in enumerate(_parts()):
        take(spark, tables, f"batch-{number}", rows)
    return tables


@pytest.fixture
def tables(once: Tables, tmp_path: Path) -> Tables:
    """A copy of the tables of three days, in four batches, two of them of the second day."""
    shutil.copytree(once.root, tmp_path / "tables")
    return open_tables(str(tmp_path / "tables"))


def _parts() -> Iterator[list[dict[str, Any]]]:
    """Twenty alerts on each of three days, those of the second in two parts."""
    for day, parts in enumerate(([range(20)], [range(10), range(10, 20)], [range(20)])):
        at = NOON - (3 - day) * DAY
        for part in parts:
            yield [
                alert(day * 100 + n, event_time=at + n, detected_at=at + n, received_at=at + 5, host=f"h{n % 10}")
                for n in part
            ]


def _region(spark: SparkSession, tmp_path: Path) -> tuple[Path, Tables]:
    """A landing of ``_parts``, and its tables."""
    for rows in _parts():
        land(tmp_path / "landing", rows)
    tables = open_tables(str(tmp_path / "tables"))
    ingest_alerts(spark, tables, tmp_path / "landing")
    return tmp_path / "landing", tables


def upkeep(spark: SparkSession, tables: Tables, *options: str) -> str:
    return run(spark, "maintain", f"--tables={tables.root}", "--date=2026-11-19", *options)


def content(tables: Tables) -> dict[str, list[str]]:
    every = (ALERTS, WIN_5M, ENTITY_SITE_5M, HOST_1H)
    return {table.name: sorted(map(repr, tables.arrow(table).to_pylist())) for table in every}


@pytest.mark.long
def test_what_is_in_order_stays_as_it_is(spark: SparkSession, tables: Tables) -> None:
    """The same rows in fewer files; the old files go when no reader can need them."""
    before = content(tables)
    files = sorted(Path(tables.path(ALERTS)).rglob("*.parquet"))
    assert len(files) == 4
    said = upkeep(spark, tables)
    assert "removed" not in said
    assert "rebuilt" not in said
    assert content(tables) == before
    assert set(files) < set(Path(tables.path(ALERTS)).rglob("*.parquet"))
    tables.vacuum(ALERTS, 0)
    assert len(list(Path(tables.path(ALERTS)).rglob("*.parquet"))) == 3


def _double(spark: SparkSession, tables: Tables) -> None:
    """Seven alerts twice, behind ingest's back, and a count of each table doubled."""
    twice = tables.frame(spark, ALERTS, "2026-11-18", "2026-11-18").limit(7)
    later = twice.withColumn("received_at", F.col("received_at") + F.expr("INTERVAL 1 HOUR"))
    tables.append(ALERTS, later.withColumn("batch", F.lit("again")))
    for table in COUNTS:
        tables.upsert(table, tables.frame(spark, table, "2026-11-18", "2026-11-18").limit(1).toArrow())


@pytest.mark.long
def test_copies_go_and_counts_are_rebuilt(spark: SparkSession, tables: Tables) -> None:
    """Alerts doubled behind ingest's back are single again, and the counts, doubled as well, agree with them."""
    before = content(tables)
    _double(spark, tables)
    assert content(tables) != before
    said = upkeep(spark, tables, *THE_18TH)
    assert said.startswith("maintain: 7 copies of 2026-11-18 removed, counts of 2026-11-18 rebuilt, ")
    assert content(tables) == before
    assert exact(spark, tables, period(date(2026, 11, 18), 1)) == []


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("writes", [1, *(pytest.param(writes, marks=pytest.mark.long) for writes in (2, 3))])
def test_upkeep_killed_between_any_two_writes_is_done_again(
    spark: SparkSession, tables: Tables, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """Ended when the copies are gone and no count, or one, or two, is rebuilt: the next run makes all of it right."""
    before, replace, left = content(tables), DeltaTables.replace, iter(range(writes))
    _double(spark, tables)

    def killed(self: DeltaTables, *arguments: Any) -> bool:
        if next(left, None) is None:
            raise Killed
        return replace(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(DeltaTables, "replace", killed)
        with pytest.raises(Killed):
            upkeep(spark, tables, *THE_18TH)
    assert content(tables) != before
    assert "counts of 2026-11-18 rebuilt" in upkeep(spark, tables, *THE_18TH)
    assert content(tables) == before


@pytest.mark.long
def test_counts_of_late_alerts_are_compared_as_well(
    spark: SparkSession, tables: Tables, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An alert received days after its event counts on the event's day, there and in the comparison; a day of more
    alerts than --max-rewrite is not counted again."""
    land(tmp_path / "landing", [alert(900, event_time=NOON - 2 * DAY, detected_at=NOON, received_at=NOON + 5)])
    ingest_alerts(spark, tables, tmp_path / "landing")
    assert exact(spark, tables, period(date(2026, 11, 19), 3)) == []
    tables.drop(WIN_5M, ["2026-11-18"])
    assert exact(spark, tables, period(date(2026, 11, 18), 1), max_rewrite=20) == []
    assert "differ from its 21 alerts, too many to count again" in caplog.text
    assert "counts of 2026-11-18 rebuilt" in upkeep(spark, tables, *THE_18TH)
    by_day: Counter[str] = Counter()
    for row in tables.arrow(WIN_5M).to_pylist():
        by_day[row["date"]] += row["alerts"]
    assert by_day == {"2026-11-17": 20, "2026-11-18": 21, "2026-11-19": 20}


@pytest.mark.long
def test_copies_are_taken_out_of_the_counts_of_older_days(
    spark: SparkSession, tables: Tables, caplog: pytest.LogCaptureFixture
) -> None:
    """Copies received on the day gone over, of events of days before it: the counts of one are rebuilt, those of the
    other, of which retention has dropped alerts, stay."""
    day = tables.frame(spark, ALERTS, "2026-11-19", "2026-11-19").limit(1).withColumn("host", F.lit("late"))
    recent, old = (
        day.withColumns({"alert_id": F.lit(f"{days}"), "counted_at": F.col("counted_at") - timedelta(days=days)})
        for days in (2, 9)
    )
    late = recent.unionByName(old).persist()
    counted, rules = frames.counted(late), tables.frame(spark, RULES)

    def take(batch: str) -> None:
        tables.append(ALERTS, late.withColumn("batch", F.lit(batch)))
        for table in COUNTS:
            tables.upsert(table, frames.rows_of(table, counted, rules))

    take("first")
    manifest.dropping(tables.root, "alerts", "2026-11-10")
    before = content(tables)
    take("twice")
    said = exact(spark, tables, period(date(2026, 11, 19), 1))
    late.unpersist()
    assert said == ["2 copies of 2026-11-19 removed", "counts of 2026-11-17 rebuilt"]
    assert "counts of 2026-11-10 are kept" in caplog.text
    after = content(tables)
    assert after["alerts"] == before["alerts"]
    for name in ("win_5m", "entity_site_5m", "host_1h"):
        stay = [[row for row in found[name] if "2026-11-10" not in row] for found in (before, after)]
        assert stay[0] == stay[1]
    assert after["win_5m"] != before["win_5m"]


def test_a_failed_comparison_keeps_no_small_files(
    spark: SparkSession, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When counts cannot be compared, the day is compacted and old ones are dropped all the same, and the job
    fails."""
    monkeypatch.setattr(maintain, "unequal", _broken)
    with pytest.raises(RuntimeError, match="cut short"):
        upkeep(spark, tables, *THE_18TH, "--keep=host_1h=1")
    assert tables.partitions(HOST_1H) == ["2026-11-18", "2026-11-19"]
    assert len(tables.frame(spark, ALERTS, "2026-11-18", "2026-11-18").inputFiles()) == 1


def test_a_running_ingest_is_not_disturbed(
    spark: SparkSession, tables: Tables, caplog: pytest.LogCaptureFixture
) -> None:
    """While ingest holds the tables, they are compacted and not rewritten; a second upkeep is refused."""
    tables.drop(WIN_5M, ["2026-11-18"])
    with storage.one_writer(tables.root, "ingest"):
        assert "tables compacted" in upkeep(spark, tables, *THE_18TH)
    assert tables.partitions(WIN_5M) == ["2026-11-17", "2026-11-19"]
    assert "ingest is running" in caplog.text
    with storage.one_writer(tables.root, "maintain"), pytest.raises(BlockingIOError, match="another maintain"):
        upkeep(spark, tables)


@pytest.mark.long
def test_alerts_of_an_agent_without_a_clock_are_kept_and_counted(
    spark: SparkSession, tables: Tables, tmp_path: Path
) -> None:
    """Received in 1970 by the edge's own date: counted when they landed, in the comparison as well, and dropped by
    when they landed."""
    landing = tmp_path / "landing"
    late = {"event_time": 60, "detected_at": 60, "received_at": YESTERDAY}
    land(landing, [alert(960, **late), alert(961, **{**late, "event_time": YESTERDAY})])
    assert ingest_alerts(spark, tables, landing).odd_times == 1
    before = content(tables)
    assert tables.partitions(ALERTS)[0] == "1970-01-01"
    said = upkeep(spark, tables, "--days=1", "--keep=alerts=2")
    assert "rebuilt" not in said
    assert "1 day of alerts dropped" in said
    assert tables.partitions(ALERTS) == ["1970-01-01", "2026-11-18", "2026-11-19"]
    assert content(tables)["win_5m"] == before["win_5m"]


@pytest.mark.long
def test_what_lands_late_lowers_no_count(spark: SparkSession, tables: Tables, tmp_path: Path) -> None:
    """An alert of a day that retention took: neither the counts of that day, nor, where these were taken as well, the
    sums of ``rules``; nor those of a day on which an alert that it took was counted, being of the evening before."""
    midnight = NOON - 2 * DAY - 12 * HOUR
    evening = {"detected_at": midnight - 1, "received_at": midnight - 1}
    late = {"detected_at": NOON, "received_at": NOON + 5}
    landing = tmp_path / "landing"
    land(landing, [alert(970, event_time=midnight + 1, **evening)])
    ingest_alerts(spark, tables, landing)
    upkeep(spark, tables, "--days=1", "--keep=alerts=2")
    assert tables.partitions(ALERTS) == ["2026-11-18", "2026-11-19"]
    land(landing, [alert(971, event_time=NOON - 3 * DAY, **late)])
    ingest_alerts(spark, tables, landing)
    before = content(tables)
    assert "rebuilt" not in upkeep(spark, tables, "--days=3")
    assert content(tables) == before

    upkeep(spark, tables, "--days=1", "--keep=win_5m=2")
    land(landing, [alert(972, event_time=NOON - 3 * DAY, **late)])
    ingest_alerts(spark, tables, landing)
    upkeep(spark, tables, "--days=1")
    assert tables.partitions(WIN_5M)[0] == "2026-11-17"
    assert sum(tables.arrow(RULES)["alerts"].to_pylist()) == 63


def test_nothing_is_lost_beside_a_running_ingest(spark: SparkSession, tmp_path: Path) -> None:
    """Files land in old days and new ones while ingest and upkeep run at the same time, the landing's clean-up
    included: every alert is there once, and counted once."""
    landing, tables, stop = tmp_path / "landing", open_tables(str(tmp_path / "tables")), Event()
    (landing / "alerts").mkdir(parents=True)
    sources = {"alerts": ingest.landing_sources(str(landing))["alerts"]}
    job = Thread(target=lambda: ingest.take_over(spark, tables, sources, every=0.2, stop=stop))
    job.start()

    def land_more(first: int) -> None:
        for n in range(first, first + 4):
            at = NOON - (1 + n % 3) * DAY
            rows = [alert(10 * n + m, event_time=at + m, detected_at=at + m, received_at=at + 5) for m in range(10)]
            land(landing, rows)

    try:
        land_more(0)
        until("the first batch to be counted", lambda: tables.version(WIN_5M, _query(tables)) is not None)
        writer = Thread(target=land_more, args=(4,))
        writer.start()
        said = upkeep(spark, tables, f"--landing={landing}", "--landing-days=1", "--vacuum-hours=1")
        writer.join()
        until("all alerts", lambda: tables.arrow(ALERTS, ["alert_id"]).num_rows == 80)
    finally:
        stop.set()
        job.join(60)
    ingest_alerts(spark, tables, landing)
    assert "tables compacted" in said
    assert len(set(tables.arrow(ALERTS, ["alert_id"])["alert_id"].to_pylist())) == 80
    assert sum(tables.arrow(WIN_5M, ["matches"])["matches"].to_pylist()) == 80
    clean(spark, str(landing), f"{tables.root}/_checkpoints", date(2026, 11, 19))
    assert [day.name for day in (landing / "alerts").iterdir()] == ["dt=2026-11-19"]


def _query(tables: Tables) -> str:
    metadata = Path(tables.root) / "_checkpoints/alerts/metadata"
    return str(json.loads(metadata.read_text())["id"]) if metadata.exists() else ""


def test_after_an_interrupted_ingest_counts_are_left_alone(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alerts of a batch whose counts are still to come are not counted by upkeep: ingest, run again, counts them, and
    once."""
    at, landing = YESTERDAY - DAY, tmp_path / "landing"
    tables = open_tables(str(tmp_path / "tables"))
    land(landing, [alert(n, event_time=at + n, detected_at=at + n, received_at=at + 5) for n in range(10)])
    with monkeypatch.context() as patch:
        patch.setattr(type(tables), "upsert", _broken)
        with pytest.raises(RuntimeError, match="cut short"):
            ingest_alerts(spark, tables, landing)
    assert tables.arrow(ALERTS).num_rows == 10
    said = upkeep(spark, tables, *THE_18TH)
    assert "ingest was interrupted" in caplog.text
    assert "rebuilt" not in said
    assert "compacted" in said
    assert tables.partitions(WIN_5M) == []
    ingest_alerts(spark, tables, landing)
    assert sum(tables.arrow(WIN_5M, ["matches"])["matches"].to_pylist()) == 10
    caplog.clear()
    assert "tables compacted" in upkeep(spark, tables, *THE_18TH)
    assert "interrupted" not in caplog.text
    assert (tables.arrow(ALERTS).num_rows, ingest_alerts(spark, tables, landing).rows) == (10, 0)


@pytest.mark.long
def test_beside_a_file_to_be_tried_again_counts_are_left_alone(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Met half, and cut short when it was taken whole, between alerts and counts: upkeep counts none of its alerts, and
    ingest each once."""
    at, landing = YESTERDAY - DAY, tmp_path / "landing"
    tables = open_tables(str(tmp_path / "tables"))
    rows = [alert(n, event_time=at + n, detected_at=at + n, received_at=at + 5) for n in range(10)]
    late = land(landing, rows[1:])
    land(landing, rows[:1])
    whole = late.read_bytes()
    late.write_bytes(whole[:-9])
    assert ingest_alerts(spark, tables, landing).bad_files == 1
    late.write_bytes(whole)
    with monkeypatch.context() as patch:
        patch.setattr(type(tables), "upsert", _broken)
        with pytest.raises(RuntimeError, match="cut short"):
            ingest_alerts(spark, tables, landing)
    assert tables.arrow(ALERTS).num_rows == 10
    assert "rebuilt" not in upkeep(spark, tables, *THE_18TH)
    assert "ingest was interrupted (alerts)" in caplog.text
    ingest_alerts(spark, tables, landing)
    assert sum(tables.arrow(WIN_5M, ["matches"])["matches"].to_pylist()) == 10
    assert exact(spark, tables, period(date(2026, 11, 18), 1)) == []


def _broken(*_: object) -> bool:
    raise RuntimeError("cut short")


def test_days_are_dropped_by_table(spark: SparkSession, tables: Tables) -> None:
    """Only those of the tables named, and only older ones; dead letters without a date are no day."""
    assert "1 day of host_1h dropped" in upkeep(spark, tables, "--days=1", "--keep=host_1h=2", "--keep=win_5m=30")
    assert tables.partitions(HOST_1H) == ["2026-11-18", "2026-11-19"]
    assert len(tables.partitions(WIN_5M)) == 3
    last = datetime(2026, 11, 19, tzinfo=UTC).date()
    assert expired(["0000-00-00", "2026-11-17", "2026-11-18", "2026-11-19"], last, 2) == ["2026-11-17"]


def test_the_landing_is_cleaned_of_what_was_taken_over(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A day whose files ingest has had is deleted; one with a file that it has not is kept until it has."""
    landing, tables = _region(spark, tmp_path)
    days, until = landing / "alerts", date(2026, 11, 19)
    note = days / "dt=2026-11-17" / "hh=12" / "note.txt"
    note.write_text("not the landing's")
    (note.parent / "half.parquet.tmp").write_bytes(b"half a file")
    late = land(landing, [alert(950, event_time=NOON - 3 * DAY, detected_at=NOON, received_at=NOON - 3 * DAY)])
    with caplog.at_level(logging.WARNING):
        assert clean(spark, str(landing), f"{tables.root}/_checkpoints", until) == 1
    assert sorted(day.name for day in days.iterdir()) == ["dt=2026-11-17", "dt=2026-11-19"]
    assert late.exists()
    assert "has not taken over 1 of its files" in caplog.text
    ingest_alerts(spark, tables, landing)
    assert clean(spark, str(landing), f"{tables.root}/_checkpoints", until) == 0
    assert [file for file in days.glob("dt=2026-11-17/**/*") if file.is_file()] == [note]
    note.unlink()
    assert clean(spark, str(landing), f"{tables.root}/_checkpoints", until) == 1
    assert sorted(day.name for day in days.iterdir()) == ["dt=2026-11-19"]
    assert ingest_alerts(spark, tables, landing).rows == 0


@pytest.mark.long
def test_what_could_not_be_read_stays_in_the_landing(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its alerts are in no table: of a day that is deleted it alone is left, and comes in once it is whole. Where more
    could not be read than is noted, no day is deleted."""
    landing, tables = _region(spark, tmp_path)
    at = NOON - 3 * DAY
    late = land(landing, [alert(950, event_time=at, detected_at=at, received_at=at)])
    whole = late.read_bytes()
    late.write_bytes(whole[:-9])
    assert ingest_alerts(spark, tables, landing).bad_files == 1
    with monkeypatch.context() as patch:
        patch.setattr(unread, "MAX_FILES", 1)
        checkpoints = f"{tables.root}/_checkpoints"
        assert clean(spark, str(landing), checkpoints, date(2026, 11, 19)) == 0
        assert "ingest could not read 1 files, and maybe more; all days are kept" in caplog.text
    upkeep(spark, tables, "--days=1", f"--landing={landing}", "--landing-days=1")
    assert f"{late}: ingest could not read it; kept" in caplog.text
    assert list((landing / "alerts").glob("dt=2026-11-1[78]/**/*.parquet")) == [late]
    late.write_bytes(whole)
    assert ingest_alerts(spark, tables, landing).new == 1
    assert clean(spark, str(landing), f"{tables.root}/_checkpoints", date(2026, 11, 19)) == 1
    assert not late.exists()
