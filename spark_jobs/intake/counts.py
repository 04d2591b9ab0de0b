"""The counts of a batch, made of what ``alerts`` holds under its label: by DuckDB where this process reads the table's
files itself, else by Spark. Both run the statements of ``sums``.

Either way the table is read once. DuckDB puts what does not fit into ``duck.MEMORY`` into a temporary folder.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.intake import frames, texts
from spark_jobs.intake.published import Listed
from spark_jobs.tables import sums
from spark_jobs.tables.schema import ALERTS, ENTITY_SITE_5M, HOST_1H, WIN_5M, Table
from spark_jobs.tables.tables import Rows, Tables, Where

COUNTS = (HOST_1H, ENTITY_SITE_5M, WIN_5M)
"""The tables that are made of alerts and their rules (``sums.rows_of``). ``maintain`` compares the last one only: where
that is right, so are those written before it."""


@contextmanager
def counts(spark: SparkSession, tables: Tables, label: str, dates: Collection[str]) -> Iterator[ByDuck | BySpark]:
    """The counts of the batch ``label``, whose rows lie in the partitions ``dates``: first ``rules``, which are few;
    if there are any, then the rows ``of`` each of ``COUNTS``."""
    near = {"batch": [(label, label)]}
    if tables.in_process:
        # Only this way needs the libraries.
        from spark_jobs.tables.delta import DeltaTables
        from spark_jobs.tables.duck import database, view

        assert isinstance(tables, DeltaTables)
        with database() as duck:
            view(duck, "written", tables, ALERTS, Where(only=dates, near=near))
            yield ByDuck(duck, label)
        return
    rows = tables.frame(spark, ALERTS, only=dates, near=near)
    counted = frames.counted(rows.where(F.col("batch") == label)).persist()
    try:
        yield BySpark(spark, counted)
    finally:
        counted.unpersist()


def counted_from(spark: SparkSession, tables: Tables, first: date, last: date) -> DataFrame:
    """All alerts that are counted on these days, whenever they were received."""
    start = datetime(first.year, first.month, first.day, tzinfo=UTC)
    end = datetime(last.year, last.month, last.day, tzinfo=UTC) + timedelta(days=1)
    # Not by day of receipt: that is the edge's, and an agent's clock may stand at 1970.
    alerts = tables.frame(spark, ALERTS, near={"counted_at": [(start, end)]})
    return alerts.where((F.col("counted_at") >= F.lit(start)) & (F.col("counted_at") < F.lit(end)))


class BySpark:
    """Of a frame of ``frames.counted`` rows."""

    def __init__(self, spark: SparkSession, counted: DataFrame) -> None:
        self._spark, self._counted = spark, counted

    def rules(self, former: pa.Table | None = None, listed: Listed | None = None) -> pa.Table:
        rules = texts.resolved(frames.rule_texts(self._counted).toArrow(), former, listed)
        if rules.num_rows:
            self._rules = self._spark.createDataFrame(rules)
        return rules

    def of(self, table: Table) -> Rows:
        return frames.rows_of(table, self._counted, self._rules)


class ByDuck:
    """Of the view ``written`` in a database."""

    def __init__(self, duck: Any, label: str) -> None:
        self._duck = duck
        those = f"(SELECT * FROM written WHERE batch = '{label}') AS w"
        duck.execute(f"CREATE TEMP TABLE counted AS {sums.counted(those)}")

    def rules(self, former: pa.Table | None = None, listed: Listed | None = None) -> pa.Table:
        named = self._duck.sql(sums.rule_texts("counted", sums.DUCK)).to_arrow_table()
        rules = texts.resolved(named, former, listed)
        self._duck.register("rules", rules.select(["rule_id", "rule_title"]))
        return rules

    def of(self, table: Table) -> Rows:
        return self._duck.sql(sums.rows_of(table, "counted", "rules", sums.DUCK)).to_arrow_table()
