"""One command for every job that is due: what is run, when again, and that no job stops another."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
import pytest
from pyspark.sql import SparkSession

from spark_jobs.common.session import LOCAL, untuned
from spark_jobs.jobs.all import COMMANDS, DAY, HOUR, NAMES, due, run_due, with_lookups
from spark_jobs.jobs.job import Job
from spark_jobs.tables.schema import ALERTS, RUNS
from spark_jobs.tables.tables import open_tables
from tests.spark_jobs.conftest import run
from tests.spark_jobs.landed import alert, land

AT = datetime(2026, 11, 20, 12, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("succeeded", "often", "is_due"),
    [
        (None, DAY, True),
        (AT, None, True),
        (AT - timedelta(minutes=29), HOUR, False),
        (AT - timedelta(minutes=31), HOUR, True),  # another hour has begun, if not a whole one passed
        (AT - timedelta(hours=12), DAY, False),
        (AT - timedelta(hours=13), DAY, True),
    ],
)
def test_due_once_in_each_hour_or_day(succeeded: datetime | None, often: timedelta | None, is_due: bool) -> None:
    """Of UTC: a timer that comes a second early does not skip one."""
    assert due(succeeded, often, AT) is is_due


@pytest.mark.spark
def test_every_job_runs_and_none_stops_another(spark: SparkSession, tmp_path: Path) -> None:
    """In one session: the rules cannot be read, so coverage fails and is tried again; the others are done, and a job of
    the day is not done twice."""
    land(tmp_path / "landing", [alert(1), alert(2)])
    began = datetime.now(UTC).timestamp()
    words = [
        "all",
        f"--landing={tmp_path}/landing",
        f"--tables={tmp_path}/tables",
        f"--lookups={tmp_path}/lookups",  # neither is there on a fresh host, nor is the page's folder
        f"--html={tmp_path}/www/day.html",
    ]
    with pytest.raises(click.ClickException, match=r"^1 of 8 jobs failed: coverage: .*/nowhere: no such rules"):
        run(spark, *words, f"--rules={tmp_path}/nowhere")
    tables = open_tables(str(tmp_path / "tables"))
    assert tables.arrow(ALERTS).num_rows == 2
    assert (tmp_path / "www" / "day.html").read_text().endswith("</html>\n")
    rows = {row["job"]: row for row in tables.arrow(RUNS).to_pylist()}
    assert set(rows) == set(NAMES)
    assert {name for name, row in rows.items() if row["succeeded_at"] is None} == {"coverage"}
    assert "no such rules" in rows["coverage"]["error"]
    again = set(run(spark, *words, "--skip=ingest").removeprefix("all: ").split(", "))
    spans = {command.name: often.total_seconds() for command, often in COMMANDS if often is not None}
    ended = datetime.now(UTC).timestamp()
    due_again = {name for name, span in spans.items() if began // span != ended // span}  # a full hour came in between
    assert {"report"} <= again <= {"report", *due_again}


def test_every_job_that_takes_lookups_is_given_them() -> None:
    """The time zones of the lookup sites are the baselines' as well."""
    words = with_lookups({name: ["--x"] for name in NAMES}, "/lookups")
    took = {name for name, mine in words.items() if mine == ["--x", "--lookups", "/lookups"]}
    assert took == {"ingest", "campaigns", "baselines", "risk"}
    assert all(words == ["--x"] for words in with_lookups({name: ["--x"] for name in NAMES}, None).values())


def test_a_job_that_is_to_stop_begins_no_other(tmp_path: Path) -> None:
    """After the signal nothing is begun, without a JVM."""
    job = Job("all", str(tmp_path), "delta", None, {}, None)
    job.stop.set()
    assert run_due(job, {name: [] for name in NAMES}, force=True) == ({}, [])


def test_every_job_of_the_region_is_run_or_for_a_person() -> None:
    """Those that are not run by ``all`` answer a person's question."""
    from spark_jobs.__main__ import JOBS

    assert {job.name for job in JOBS} - {command.name for command, _ in COMMANDS} == {
        "all",
        "export",
        "backtest",
        "filters",
        "quality",
        "triage",
        "notify",
        "reconcile",
        "views",
    }


def test_a_local_master_of_spark_submit_is_tuned_as_well() -> None:
    """What the command line does not give is set; on a cluster nothing is."""
    assert "spark.sql.shuffle.partitions" in untuned({"spark.master": "local[2]"})
    properties = {**LOCAL, "spark.master": "local[2]"}
    assert untuned(properties) == []
    assert untuned({"spark.master": "spark://spark:7077"}) == []
