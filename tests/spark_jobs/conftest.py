"""One Spark session for all tests of the jobs: starting it costs more than any of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from spark_jobs.session import open_session

SETTINGS = {
    # A short-lived JVM never earns back its optimising compiler: a third of the time of the default flags.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    warehouse = tmp_path_factory.mktemp("warehouse")
    session = open_session("tests", master="local[2]", settings={**SETTINGS, "spark.sql.warehouse.dir": str(warehouse)})
    yield session
    session.stop()
