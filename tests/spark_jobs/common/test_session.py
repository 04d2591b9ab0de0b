"""The Spark session: what a local one needs set."""

from __future__ import annotations

import sys

import pytest
from pyspark.sql import SparkSession


@pytest.mark.spark
def test_workers_are_this_python(spark: SparkSession) -> None:
    """The first ``python3`` on the path may be of another version, which Spark refuses in the middle of a job."""
    assert spark.sparkContext.pythonExec == sys.executable
