"""The real job process under kill -9: at the worst moment, and at random ones."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs import counts
from spark_jobs.tables import Tables
from tests.spark_jobs.conftest import SETTINGS
from tests.spark_jobs.landed import HOUR, NOON, alert, land
from tests.spark_jobs.test_counts import content

pytestmark = [pytest.mark.spark, pytest.mark.crash]

ROOT = Path(__file__).parents[2]

DIE_BEFORE_COMMIT = """
import os, signal, sys
from spark_jobs import __main__, counts

take = counts.take_batch

def take_and_die(*batch):
    take(*batch)
    if batch[2].endswith("1"):
        os.killpg(0, signal.SIGKILL)

counts.take_batch = take_and_die
__main__.main(sys.argv[1:])
"""


def _start(landing: Path, tables: Path, *program: str) -> subprocess.Popen[bytes]:
    """The counts job, one file a batch, in a process group of its own."""
    settings = [word for key, value in SETTINGS.items() for word in ("--conf", f"{key}={value}")]
    job = [
        "counts",
        "--landing",
        str(landing),
        "--tables",
        str(tables),
        "--files-per-batch",
        "1",
        "--master",
        "local[2]",
    ]
    return subprocess.Popen(
        [sys.executable, *program, *job, *settings],
        cwd=ROOT,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=open("/tmp/sx/kill.log","wb"),
    )


def _fill(landing: Path, files: int) -> None:
    """Files that share half of their alerts with the one before, over two edge dates."""
    for file in range(files):
        first = file * 10
        land(landing, [alert(i, detected_at=NOON + (i % 2) * 24 * HOUR) for i in range(first, first + 20)])


def _assert_as_undisturbed(spark: SparkSession, landing: Path, tables: Path, calm: Path) -> None:
    counts.run(spark, str(landing), str(tables), files_per_batch=1)
    counts.run(spark, str(landing), str(calm), files_per_batch=1)
    ours, theirs = Tables(str(tables)), Tables(str(calm))
    assert content(ours.alerts, spark) == content(theirs.alerts, spark)
    assert content(ours.counts, spark) == content(theirs.counts, spark)


def test_killed_between_its_output_and_sparks_commit(spark: SparkSession, tmp_path: Path) -> None:
    """A batch written whole and never committed is replayed, and the tables equal an undisturbed run's row for row."""
    landing, tables = tmp_path / "landing", tmp_path / "tables"
    _fill(landing, 3)
    job = _start(landing, tables, "-c", DIE_BEFORE_COMMIT)
    assert job.wait(120) == -signal.SIGKILL
    commits = {file.name for file in (tables / "_checkpoints/counts/commits").glob("[0-9]*")}
    assert commits == {"0"}
    assert list((tables / "alerts").glob("received_date=*/batch=*-000000001/*.parquet"))

    _assert_as_undisturbed(spark, landing, tables, tmp_path / "calm")


def test_killed_at_random(spark: SparkSession, tmp_path: Path) -> None:
    """Wherever two kills fall while batches are being written, the tables equal an undisturbed run's row for row."""
    landing, tables = tmp_path / "landing", tmp_path / "tables"
    _fill(landing, 5)
    for kill in range(2):
        job = _start(landing, tables, "-m", "spark_jobs")
        _await_batch(job, tables, kill + 1)
        time.sleep(random.uniform(0, 1.5))
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()

    _assert_as_undisturbed(spark, landing, tables, tmp_path / "calm")


def _await_batch(job: subprocess.Popen[bytes], tables: Path, number: int) -> None:
    """Until Spark has planned micro-batch ``number``."""
    deadline = time.monotonic() + 120
    while not (tables / f"_checkpoints/counts/offsets/{number}").exists():
        assert job.poll() is None, "the job ended before it was killed"
        assert time.monotonic() < deadline, "no batch in 120 s"
        time.sleep(0.02)
