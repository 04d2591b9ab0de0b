"""One Spark session for all tests of the jobs: starting it costs more than any of them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from spark_jobs.__main__ import main
from spark_jobs.common.session import DELTA, open_session
from spark_jobs.intake.batch import Account
from spark_jobs.jobs import ingest
from spark_jobs.tables import storage
from spark_jobs.tables.schema import TABLES
from spark_jobs.tables.tables import Tables, open_tables
from tests.spark_jobs.landed import HOUR, NOON, alert, land

SETTINGS = {
    # A short-lived JVM never earns back its optimising compiler: a third of the time of the default flags; nor the
    # checks of classes that come from the very jars of the installation. The code cache of that compiler alone, 48 MB,
    # is full after a hundred tests, and emptying it again and again takes a tenth of the time. A heap and a space for
    # classes that grow bit by bit are collected whole at each step.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions "
    "-XX:-BytecodeVerificationRemote -XX:ReservedCodeCacheSize=240m -Xms1g -XX:MetaspaceSize=256m",
    "spark.sql.shuffle.partitions": "2",
    # Nor do plans over a few rows earn back their compilation: another quarter.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Nor is there anything to adapt to in a few rows: a seventh. Results do not depend on it; `make bench-spark`,
    # `make demo` and `make demo-sites` run with it.
    "spark.sql.adaptive.enabled": "false",
    # A megabyte, read by each task, to spare a join the rows that are not there.
    "spark.sql.optimizer.runtime.bloomFilter.enabled": "false",
    # What is kept for a web page that is not shown fills the heap, and collecting it takes longer from test to test.
    "spark.driver.memory": "2g",
    "spark.sql.ui.retainedExecutions": "2",
    "spark.ui.retainedJobs": "10",
    "spark.ui.retainedStages": "10",
    "spark.ui.retainedTasks": "100",
}


LONG = "VEDETTE_CRASH_KILLS" in os.environ
"""``make test-crash``: every case in every table format, and every kill, in place of the ones that say most."""

ROOT = Path(__file__).parents[2]
JARS = sorted((ROOT / "build" / "jars" / "spark").glob("*.jar"))
"""Delta and Kafka for Spark, put there by ``tools/jars.sh``; tests that need them skip without."""


@pytest.fixture(scope="session", autouse=True)
def unsettled() -> Iterator[None]:
    """Without syncing every disk of this host after each batch: no test in this process takes its power away. Those
    that kill start processes of their own, which do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "settle", lambda path: None)
        yield


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    warehouse = tmp_path_factory.mktemp("warehouse")
    settings = {**SETTINGS, "spark.sql.warehouse.dir": str(warehouse)}
    if JARS:
        # One partition for Delta's own bookkeeping in place of fifty: its tables here have a few files.
        delta = {**DELTA, "spark.databricks.delta.snapshotPartitions": "1"}
        settings |= {**delta, "spark.jars": ",".join(map(str, JARS))}
    session = open_session("tests", master="local[2]", settings=settings)
    yield session
    session.stop()


def run(spark: SparkSession | None, *words: object) -> str:
    """The command line ``words``, in ``spark`` where there is one; what it prints. Raises what the job raises."""
    said: str = main.main([str(word) for word in words], standalone_mode=False, obj=spark)
    return said


@pytest.fixture(scope="session")
def whole(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``landing``: two days, a fold among each; ``tables``: taken of it in two batches; ``before``: as these were after
    the first."""
    folder = tmp_path_factory.mktemp("whole")
    for half in (0, 1):
        at = NOON + half * 24 * HOUR
        times = {"event_time": at, "detected_at": at}
        rows = [alert(10 * half + n, rule_id=f"r{n % 3}", tags=["attack.t1003"], **times) for n in range(10)]
        land(folder / "landing", [*rows, alert(90 + half, kind="fold", count=5, **times)])
        said = run(spark, "ingest", f"--landing={folder}/landing", f"--tables={folder}/tables")
        assert said == "ingest: alerts: 1 file, 11 rows: 11 new, 0 duplicates"
        if not half:
            shutil.copytree(folder / "tables", folder / "before")
    return folder


class Calm(NamedTuple):
    """A landing, and what the tables hold after a run that nothing disturbed."""

    landing: Path
    content: dict[str, list[str]]


@pytest.fixture(scope="session")
def calm(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Calm:
    """Three files that share half of their alerts with the one before, over two edge dates, taken one a batch; rows
    that no table can hold among them."""
    folder = tmp_path_factory.mktemp("calm")
    for first in (0, 10, 20):
        rows = [alert(i, detected_at=NOON + (i % 2) * 24 * HOUR) for i in range(first, first + 20)]
        land(folder / "landing", [*rows, alert(99, agent_id=None, raw=str(first))])
    tables = open_tables(str(folder / "tables"))
    account = ingest_alerts(spark, tables, folder / "landing", bytes_per_batch=1)
    assert (account.batches, account.new, account.duplicates, account.unusable) == (3, 40, 20, 3)
    return Calm(folder / "landing", content(tables))


def ingest_alerts(spark: SparkSession, tables: Tables, landing: Path, bytes_per_batch: int = 1 << 20) -> Account:
    """Take over the landed alerts only; what became of them."""
    sources = ingest.landing_sources(str(landing), bytes_per_batch)
    return ingest.take_over(spark, tables, {"alerts": sources["alerts"]})[0].account


def content(tables: Tables) -> dict[str, list[str]]:
    """Every row of every table in full, sorted; of a batch's label the number, not the query's id."""
    contents = {}
    for name, table in TABLES.items():
        rows = tables.arrow(table).to_pylist()
        for row in rows:
            if "batch" in row:
                row["batch"] = row["batch"].partition("-")[2]
        contents[name] = sorted(repr(row) for row in rows)
    return contents
