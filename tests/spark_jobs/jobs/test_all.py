"""One command for every job that is due: what is run, when again, and that no job stops another."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
import pytest
from pyspark.sql import SparkSession

from spark_jobs.common.session import LOCAL, untuned
from spark_jobs.jobs.all import COMMANDS, DAY, HOUR, NAMES, due, run_due, with_lookups
from spark_jobs.jobs.job import SMALL_BYTES, Job
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
    with pytest.raises(click.ClickException, match=r"^1 of 9 jobs failed: coverage: .*/nowhere: no such rules"):
        run(spark, *words, f"--rules={tmp_path}/nowhere")
    tables = open_tables(str(tmp_path / "tables"))
    assert tables.arrow(ALERTS).num_rows == 2
    assert (tmp_path / "www" / "day.html").read_text().endswith("</html>\n")
    rows = {row["job"]: row for row in tables.arrow(RUNS).to_pylist()}
    assert set(rows) == set(NAMES)
    assert {name for name, row in rows.items() if row["succeeded_at"] is None} == {"coverage"}
    assert "no such rules" in rows["coverage"]["error"]
    assert {name: row["inputs"] for name, row in rows.items() if row["inputs"]} == {
        **dict.fromkeys(("campaigns", "baselines", "risk"), f"lookups {tmp_path}/lookups"),
        "ingest": f"landing {tmp_path}/landing, lookups {tmp_path}/lookups",
        "coverage": f"rules {tmp_path}/nowhere",
    }
    said = run(spark, "report", f"--tables={tmp_path}/tables")
    assert re.search(rf"^Jobs: .*baselines \d\d:\d\d \(lookups {tmp_path}/lookups\)", said, re.M)
    assert "failed: coverage (not yet done)" in said
    assert "not run" not in said
    with pytest.raises(FileNotFoundError, match=r"/nowhere: no such rules"):
        run(spark, "coverage", f"--tables={tmp_path}/tables")
    ran, _, rest = (
        run(spark, *words, "--skip=ingest").removeprefix("all: ").partition("; not coverage, for want of rules: ")
    )
    assert rest.startswith("name --rules, or ")
    again = {name.partition(" ")[0] for name in ran.split(", ")}
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
        "views",
    }


def test_what_is_little_starts_quickly(tmp_path: Path) -> None:
    """A job that ends, over few rows and little that has landed since ingest last took some; one that stays does not,
    nor one that reads a landing again."""
    tables, landing, commits = (
        tmp_path / "tables",
        tmp_path / "landing",
        tmp_path / "tables" / "_checkpoints/alerts/commits",
    )
    commits.mkdir(parents=True)

    def small(*, landed: int = 0, ends: bool = True, backend: str = "delta") -> bool:
        land(landing, [alert(1)])
        with open(landing / "large.parquet", "wb") as file:
            file.truncate(landed)
        return Job("all", str(tables), backend, None, {}, None, str(landing), ends).small()

    assert small()
    assert not small(ends=False)
    assert not small(backend="delta-spark")
    assert not small(landed=SMALL_BYTES)
    (commits / "0").touch()
    os.utime(commits / "0", (2e9, 2e9))
    assert small(landed=SMALL_BYTES)


def test_a_local_master_of_spark_submit_is_tuned_as_well() -> None:
    """What the command line does not give is set; on a cluster nothing is."""
    assert "spark.sql.shuffle.partitions" in untuned({"spark.master": "local[2]"})
    properties = {**LOCAL, "spark.master": "local[2]"}
    assert untuned(properties) == []
    assert untuned({"spark.master": "spark://spark:7077"}) == []
