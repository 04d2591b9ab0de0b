"""One Spark session for all tests of the jobs: starting it costs more than any of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from spark_jobs import counts
from spark_jobs.batches import Tables
from spark_jobs.session import open_session
from tests.spark_jobs.landed import HOUR, NOON, alert, land

SETTINGS = {
    # A short-lived JVM never earns back its optimising compiler: a third of the time of the default flags.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
    # Nor do plans over a few rows earn back their compilation: another quarter.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    warehouse = tmp_path_factory.mktemp("warehouse")
    session = open_session("tests", master="local[2]", settings={**SETTINGS, "spark.sql.warehouse.dir": str(warehouse)})
    yield session
    session.stop()


class Calm(NamedTuple):
    """A landing, and what the tables hold after a run that nothing disturbed."""

    landing: Path
    content: dict[str, list[str]]


@pytest.fixture(scope="session")
def calm(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Calm:
    """Three files that share half of their alerts with the one before, over two edge dates, taken one a batch."""
    folder = tmp_path_factory.mktemp("calm")
    for first in (0, 10, 20):
        rows = [alert(i, detected_at=NOON + (i % 2) * 24 * HOUR) for i in range(first, first + 20)]
        land(folder / "landing", rows)
    account = counts.run(spark, str(folder / "landing"), str(folder / "tables"), files_per_batch=1)
    assert (account.batches, account.new, account.duplicates) == (3, 40, 20)
    return Calm(folder / "landing", content(Tables(str(folder / "tables")), spark))


def content(tables: Tables, spark: SparkSession) -> dict[str, list[str]]:
    """Every row of the alerts and the counts in full, sorted; of a batch's label the number, not the query's id."""
    found = {}
    for name, table in (("alerts", tables.alerts), ("counts", tables.counts)):
        rows = table.read(spark).selectExpr("to_json(struct(*)) AS row", "batch").collect()
        found[name] = sorted(row.row.replace(row.batch.partition("-")[0], "query") for row in rows)
    return found
