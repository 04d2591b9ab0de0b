"""``python -m tests.spark_jobs.connected REMOTE TABLES DAY``: the jobs over tables, by Spark Connect."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from spark_jobs.__main__ import main

JOBS = ("campaigns", "baselines", "risk", "noise")


def run(remote: str, tables: str, day: str) -> None:
    """Run ``JOBS`` over ``tables`` on the server ``remote``; each prints what it prints."""
    spark = SparkSession.builder.remote(remote).getOrCreate()
    assert type(spark).__module__.startswith("pyspark.sql.connect")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    for job in JOBS:
        main.main([job, f"--tables={tables}", f"--date={day}"], standalone_mode=False, obj=spark)
    spark.stop()


if __name__ == "__main__":
    run(*sys.argv[1:])
