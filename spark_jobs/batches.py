"""A table: Parquet in ``PATH/<date column>=YYYY-MM-DD/batch=<label>/``, written a batch at a time.

* A batch owns the folders of its label, and a label is written by one batch only: the streaming query's id and the
  number of its micro-batch. Writing a label again replaces what it wrote before, so a batch that is replayed after a
  crash leaves one copy of its rows, whatever part of the first attempt was on disk.
* A folder appears by rename when its files are whole; Spark's staging folders begin with a dot and are read by nobody.
* Rows are never changed by a later batch: a table grows by files. Readers name the dates they want, so that the cost
  of a read follows those days and not the age of the table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from spark_jobs import storage
from spark_jobs.schema import _LONG, _STRING, _TIME, LANDED_ALERT, _struct

COUNTS = _struct(
    window_start=_TIME,
    fleet=_STRING,
    site=_STRING,
    host=_STRING,
    rule_id=_STRING,
    rule_title=_STRING,
    level=_STRING,
    alerts=_LONG,
    matches=_LONG,
    date=_STRING,
)
"""Counts of one batch in one 5-minute window of event time; sum over batches. ``alerts`` are alerts proper (a fold is
none), ``matches`` how often the rule matched: an alert stands for one match, of a correlation, too, and a fold for as
many as its ``count``. ``date`` is that of the window."""

BAD_FILES = _struct(path=_STRING, reason=_STRING, rows=_LONG, date=_STRING)
"""A landed file, or ``rows`` of it (null: all of it), that the alerts table does not hold. ``date`` is the file's."""

DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


@dataclass(frozen=True, slots=True)
class Table:
    """One table; ``date`` names the column it is divided by, a string ``YYYY-MM-DD``."""

    path: str
    schema: StructType
    date: str

    def dates(self, spark: SparkSession) -> list[str]:
        """The dates for which there are rows, ascending."""
        prefix = f"{self.date}="
        names = (name.removeprefix(prefix) for name in storage.folders(spark, self.path) if name.startswith(prefix))
        return [name for name in names if DATE.fullmatch(name)]

    def read(self, spark: SparkSession, wanted: Callable[[str], bool] = lambda date: True) -> DataFrame:
        """Rows of the dates that are ``wanted``: the schema's columns and ``batch``."""
        return self._open(spark, [self._folder(date) for date in self.dates(spark) if wanted(date)])

    def read_batch(self, spark: SparkSession, batch: str, dates: Iterable[str]) -> DataFrame:
        """Rows of one batch on ``dates``, without a look at the other batches' folders."""
        folders = (f"{self._folder(date)}/batch={batch}" for date in sorted(dates))
        return self._open(spark, [folder for folder in folders if storage.exists(spark, folder)])

    def _folder(self, date: str) -> str:
        return f"{self.path}/{self.date}={date}"

    def _open(self, spark: SparkSession, folders: list[str]) -> DataFrame:
        schema = StructType([*self.schema.fields, StructField("batch", StringType())])
        if not folders:
            return spark.createDataFrame([], schema)
        rows = spark.read.schema(schema).option("basePath", self.path).parquet(*map(storage.literal, folders))
        return rows.select(*schema.names)

    def write(self, rows: DataFrame, batch: str) -> None:
        """Make ``rows`` the rows of ``batch`` on each date they have."""
        (
            rows.select(*self.schema.names)
            .withColumn("batch", F.lit(batch))
            .hint("rebalance", self.date)
            .write.mode("overwrite")
            .option("partitionOverwriteMode", "dynamic")
            .option("compression", "zstd")
            .partitionBy(self.date, "batch")
            .parquet(self.path)
        )


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables under one folder."""

    root: str

    @property
    def alerts(self) -> Table:
        """Every alert once."""
        return Table(f"{self.root}/alerts", LANDED_ALERT, "received_date")

    @property
    def counts(self) -> Table:
        """Partial counts per 5 minutes; ``counts.totals`` adds them up."""
        return Table(f"{self.root}/counts_5m", COUNTS, "date")

    @property
    def bad_files(self) -> Table:
        """What of the landing could not be taken over, and why."""
        return Table(f"{self.root}/bad_files", BAD_FILES, "date")
