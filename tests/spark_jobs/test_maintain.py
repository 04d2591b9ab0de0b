"""Upkeep: exact, compact, forgetful where told to be, and never of what has not been taken over."""

from __future__ import annotations

import logging
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_jobs import storage
from spark_jobs.__main__ import parse, work
from spark_jobs.maintain import expired
from spark_jobs.schema import ALERTS, ENTITY_SITE_5M, HOST_1H, WIN_5M
from spark_jobs.tables import Tables, open_tables
from tests.spark_jobs.conftest import ingest_alerts
from tests.spark_jobs.landed import HOUR, NOON, alert, land

pytestmark = pytest.mark.spark

DAY = 24 * HOUR
YESTERDAY = NOON - DAY


@pytest.fixture
def region(spark: SparkSession, tmp_path: Path) -> tuple[Path, Tables]:
    """A landing of three days and the tables that ingest has made of it, in several batches."""
    for day in (0, 1, 2):
        at = NOON - (3 - day) * DAY
        for part in (0, 1):
            rows = [
                alert(
                    day * 100 + part * 10 + n, event_time=at + n, detected_at=at + n, received_at=at + 5, host=f"h{n}"
                )
                for n in range(10)
            ]
            land(tmp_path / "landing", rows)
    tables = open_tables(str(tmp_path / "tables"))
    ingest_alerts(spark, tables, tmp_path / "landing", bytes_per_batch=1)
    return tmp_path / "landing", tables


def upkeep(spark: SparkSession, tables: Tables, *options: str) -> str:
    said = parse(["maintain", f"--tables={tables.root}", "--date=2026-11-19", *options])
    return work(spark, said, None)  # type: ignore[arg-type]


def content(tables: Tables) -> dict[str, list[str]]:
    every = (ALERTS, WIN_5M, ENTITY_SITE_5M, HOST_1H)
    return {table.name: sorted(map(repr, tables.arrow(table).to_pylist())) for table in every}


def test_what_is_in_order_stays_as_it_is(spark: SparkSession, region: tuple[Path, Tables]) -> None:
    """The same rows in fewer files; the old files go when no reader can need them."""
    _, tables = region
    before = content(tables)
    files = sorted(Path(tables.path(ALERTS)).rglob("*.parquet"))
    assert len(files) == 6
    said = upkeep(spark, tables)
    assert "removed" not in said
    assert "anew" not in said
    assert content(tables) == before
    assert set(files) < set(Path(tables.path(ALERTS)).rglob("*.parquet"))
    tables.vacuum(ALERTS, 0)
    assert len(list(Path(tables.path(ALERTS)).rglob("*.parquet"))) == 3


def test_copies_go_and_counts_are_made_anew(spark: SparkSession, region: tuple[Path, Tables]) -> None:
    """Alerts doubled behind ingest's back are single again, and the counts, doubled as well, agree with them."""
    _, tables = region
    before = content(tables)
    twice = tables.frame(spark, ALERTS, "2026-11-18", "2026-11-18").limit(7)
    later = twice.withColumn("received_at", F.col("received_at") + F.expr("INTERVAL 1 HOUR"))
    tables.append(ALERTS, later.withColumn("batch", F.lit("again")))
    wrong = tables.frame(spark, WIN_5M, "2026-11-18", "2026-11-18").limit(1).toArrow()
    tables.upsert(WIN_5M, wrong)
    assert content(tables) != before
    said = upkeep(spark, tables)
    assert said.startswith("maintain: 7 copies of 2026-11-18 removed, counts of 2026-11-18 made anew, ")
    assert content(tables) == before
    assert "removed" not in upkeep(spark, tables)


def test_counts_of_late_alerts_are_compared_as_well(spark: SparkSession, region: tuple[Path, Tables]) -> None:
    """An alert received days after its event counts on the event's day, there and in the comparison."""
    landing, tables = region
    land(landing, [alert(900, event_time=NOON - 2 * DAY, detected_at=NOON, received_at=NOON + 5)])
    ingest_alerts(spark, tables, landing)
    assert "anew" not in upkeep(spark, tables)
    tables.drop(WIN_5M, ["2026-11-18"])
    assert "counts of 2026-11-18 made anew" in upkeep(spark, tables)
    by_day: Counter[str] = Counter()
    for row in tables.arrow(WIN_5M).to_pylist():
        by_day[row["date"]] += row["alerts"]
    assert by_day == {"2026-11-17": 20, "2026-11-18": 21, "2026-11-19": 20}


def test_a_running_ingest_is_not_disturbed(
    spark: SparkSession, region: tuple[Path, Tables], caplog: pytest.LogCaptureFixture
) -> None:
    """While ingest holds the tables, they are compacted and not rewritten; a second upkeep is refused."""
    _, tables = region
    tables.drop(WIN_5M, ["2026-11-18"])
    with storage.one_writer(spark, tables.root, "ingest"):
        assert "tables compacted" in upkeep(spark, tables)
    assert tables.partitions(WIN_5M) == ["2026-11-17", "2026-11-19"]
    assert "ingest is running" in caplog.text
    with storage.one_writer(spark, tables.root, "maintain"), pytest.raises(BlockingIOError, match="another maintain"):
        upkeep(spark, tables)


def test_days_are_forgotten_by_table(spark: SparkSession, region: tuple[Path, Tables]) -> None:
    """Only those of the tables named, and only older ones; dead letters without a date are no day."""
    _, tables = region
    assert "1 days of host_1h forgotten" in upkeep(spark, tables, "--keep=host_1h=2", "--keep=win_5m=30")
    assert tables.partitions(HOST_1H) == ["2026-11-18", "2026-11-19"]
    assert len(tables.partitions(WIN_5M)) == 3
    last = datetime(2026, 11, 19, tzinfo=UTC).date()
    assert expired(["0000-00-00", "2026-11-17", "2026-11-18", "2026-11-19"], last, 2) == ["2026-11-17"]


def test_the_landing_is_cleaned_of_what_was_taken_over(
    spark: SparkSession, region: tuple[Path, Tables], caplog: pytest.LogCaptureFixture
) -> None:
    """A day whose files ingest has had is deleted; one with a file that it has not is kept until it has."""
    landing, tables = region
    days = landing / "alerts"
    late = land(landing, [alert(950, event_time=NOON - 3 * DAY, detected_at=NOON, received_at=NOON - 3 * DAY)])
    with caplog.at_level(logging.WARNING):
        said = upkeep(spark, tables, f"--landing={landing}", "--landing-days=1")
    assert "1 days of the landing deleted" in said
    assert sorted(day.name for day in days.iterdir()) == ["dt=2026-11-17", "dt=2026-11-19"]
    assert late.exists()
    assert "has not taken over 1 of its files" in caplog.text
    ingest_alerts(spark, tables, landing)
    upkeep(spark, tables, f"--landing={landing}", "--landing-days=1")
    assert sorted(day.name for day in days.iterdir()) == ["dt=2026-11-19"]
    assert ingest_alerts(spark, tables, landing).rows == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--landing=l", "go together"),
        ("--date=today", "has not ended"),
        ("--keep=agents=3", "no table of days: 'agents'"),
        ("--keep=alerts=0", "expects a number from 1"),
    ],
)
def test_wrong_upkeep_is_refused(arguments: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2 and why."""
    with pytest.raises(SystemExit) as ended:
        parse(["maintain", "--tables=t", *arguments.split()])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
