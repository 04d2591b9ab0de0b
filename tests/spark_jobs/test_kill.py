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

from spark_jobs.schema import ALERTS
from spark_jobs.tables import open_tables
from tests.spark_jobs.conftest import SETTINGS, Calm, content, ingest_alerts

pytestmark = [pytest.mark.spark, pytest.mark.crash]

ROOT = Path(__file__).parents[2]

DIE_BEFORE_COMMIT = """
import os, signal, sys
from spark_jobs import __main__, stream

take = stream.take_batch

def take_and_die(work, *rest):
    account = take(work, *rest)
    if work.number == 1:
        os.killpg(0, signal.SIGKILL)
    return account

stream.take_batch = take_and_die
__main__.main(sys.argv[1:])
"""


def _start(landing: Path, tables: Path, *program: str) -> subprocess.Popen[bytes]:
    """The job, one file a batch, in a process group of its own."""
    settings = [word for key, value in SETTINGS.items() for word in ("--conf", f"{key}={value}")]
    job = [
        "ingest",
        "--landing",
        str(landing),
        "--tables",
        str(tables),
        "--bytes-per-batch",
        "1",
        "--master",
        "local[2]",
    ]
    return subprocess.Popen(
        [sys.executable, *program, *job, *settings],
        cwd=ROOT,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _assert_as_undisturbed(spark: SparkSession, calm: Calm, tables: Path) -> None:
    there = open_tables(str(tables))
    ingest_alerts(spark, there, calm.landing, bytes_per_batch=1)
    assert content(there) == calm.content


def test_killed_between_its_output_and_sparks_commit(spark: SparkSession, calm: Calm, tmp_path: Path) -> None:
    """A batch written whole and never committed is replayed, and the tables equal an undisturbed run's row for row."""
    job = _start(calm.landing, tmp_path, "-c", DIE_BEFORE_COMMIT)
    assert job.wait(120) == -signal.SIGKILL
    assert {file.name for file in (tmp_path / "_checkpoints/alerts/commits").glob("[0-9]*")} == {"0"}
    written = open_tables(str(tmp_path)).arrow(ALERTS, ["batch"])["batch"].to_pylist()
    assert {label.partition("-")[2] for label in written} == {"000000000", "000000001"}

    _assert_as_undisturbed(spark, calm, tmp_path)


def test_killed_at_random(spark: SparkSession, calm: Calm, tmp_path: Path) -> None:
    """Wherever two kills fall while batches are being written, the tables equal an undisturbed run's row for row."""
    for batch in (0, 1):
        job = _start(calm.landing, tmp_path, "-m", "spark_jobs")
        _await_batch(job, tmp_path, batch)
        time.sleep(random.uniform(0, 2))
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()

    _assert_as_undisturbed(spark, calm, tmp_path)


def _await_batch(job: subprocess.Popen[bytes], tables: Path, number: int) -> None:
    """Until Spark has planned micro-batch ``number``."""
    deadline = time.monotonic() + 120
    while not (tables / f"_checkpoints/alerts/offsets/{number}").exists():
        assert job.poll() is None, "the job ended before it was killed"
        assert time.monotonic() < deadline, "no batch in 120 s"
        time.sleep(0.02)
