"""The real job process under kill -9: at the worst moments, and at random ones.

The short form takes the last point of a batch and a moment of the next one. The long form (``make test-crash``) takes
every point, and a tenth of its kills at random.
Of failures within a batch ``test_ingest`` has a short form, in this process.
"""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.tables import manifest
from spark_jobs.tables.schema import ALERTS, WIN_5M
from spark_jobs.tables.tables import open_tables
from tests.spark_jobs.conftest import Calm, content, ingest_alerts
from tests.spark_jobs.killed import COMMIT, LIMIT, kill_in_batch, start
from tests.spark_jobs.landed import alert, land

pytestmark = [pytest.mark.spark, pytest.mark.long]

KILLS = int(os.environ.get("VEDETTE_CRASH_KILLS", "0")) // 10
POINTS = ["alerts", "win_5m", "entity_site_5m", "host_1h", "rules", "dead_letters", COMMIT]
"""The table after whose write the job is killed."""


def _source(calm: Calm) -> list[str]:
    return ["--landing", str(calm.landing), "--bytes-per-batch", "1"]


def _assert_as_undisturbed(spark: SparkSession, calm: Calm, tables: Path) -> None:
    there = open_tables(str(tables))
    manifest.check(there, whole=True)
    ingest_alerts(spark, there, calm.landing, bytes_per_batch=1)
    assert content(there) == calm.content


@pytest.mark.parametrize("point", POINTS if KILLS else [COMMIT])
def test_killed_between_its_output_and_sparks_commit(
    spark: SparkSession, calm: Calm, tmp_path: Path, point: str
) -> None:
    """A batch written in part, or whole and never committed, is replayed, the next one killed at any moment, and the
    tables equal an undisturbed run's row for row."""
    job = start(tmp_path, _source(calm), point=point)
    assert job.wait(LIMIT) == -signal.SIGKILL
    assert {file.name for file in (tmp_path / "_checkpoints/alerts/commits").glob("[0-9]*")} == {"0"}
    written = open_tables(str(tmp_path)).arrow(ALERTS, ["batch"])["batch"].to_pylist()
    assert {label.partition("-")[2] for label in written} == {"000000000", "000000001"}
    if not KILLS:
        kill_in_batch(start(tmp_path, _source(calm)), tmp_path, 2, random.uniform(0, 3))

    _assert_as_undisturbed(spark, calm, tmp_path)


def test_a_file_that_is_tried_again_killed_between_alerts_and_counts(tmp_path: Path) -> None:
    """Met half, and then whole: killed when its alerts are in and not counted, with upkeep before it is tried once
    more, each is counted once, and nobody is noted as writing."""
    tables, words = tmp_path / "tables", ["--landing", str(tmp_path / "landing")]
    late = land(tmp_path / "landing", [alert(n) for n in range(4)])
    land(tmp_path / "landing", [alert(8)])
    whole = late.read_bytes()
    late.write_bytes(whole[:-9])
    assert start(tables, words).wait(LIMIT) == 0
    late.write_bytes(whole)
    assert start(tables, words, point="alerts").wait(LIMIT) == -signal.SIGKILL
    there = open_tables(str(tables))
    assert (there.arrow(ALERTS).num_rows, manifest.read(there.root).writers) == (5, [f"alerts {late}"])
    assert start(tables, [*words, "--date=2026-11-20", "--landing-days=1"], job="maintain").wait(LIMIT) == 0
    assert start(tables, words).wait(LIMIT) == 0
    assert sum(there.arrow(WIN_5M, ["alerts"])["alerts"].to_pylist()) == 5
    assert manifest.read(there.root).writers == []


@pytest.mark.skipif(not KILLS, reason="one such kill is in the test above: make test-crash")
def test_killed_at_random(spark: SparkSession, calm: Calm, tmp_path: Path) -> None:
    """Wherever kills fall while batches are being written, the tables equal an undisturbed run's row for row."""
    for number in range(KILLS):
        tables = tmp_path / str(number)
        for batch in (0, 1):
            kill_in_batch(start(tables, _source(calm)), tables, batch, random.uniform(0, 3))
        _assert_as_undisturbed(spark, calm, tables)
