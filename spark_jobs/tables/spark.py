"""Tables in Delta format by Spark's own Delta library: rows stay in the executors. The same files as ``delta``.

Needs the jars of ``io.delta:delta-spark`` and the settings ``session.DELTA``; everything goes through Spark SQL, so no
Python package is needed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.tables import storage
from spark_jobs.tables.arrow import conform
from spark_jobs.tables.schema import Table
from spark_jobs.tables.tables import Rows, State, Tables, Txn, Where, as_frame, merge_condition, merge_updates, texts

_TXN = "spark.databricks.delta.write.txn"
_TXNS = "txn STRUCT<appId: STRING, version: BIGINT>"
"""Of the actions in Delta's log (its protocol, "Transaction Identifiers") the one that is asked for."""


class SparkDeltaTables(Tables):
    """``Tables`` in Delta format, written by Spark."""

    def __init__(self, root: str, spark: SparkSession | None) -> None:
        """Raises ValueError without a session."""
        super().__init__(root)
        if spark is None:
            raise ValueError("backend delta-spark needs a Spark session")
        # Spark may have a file system of its own for paths without one, which nothing public tells.
        at_home = (spark.conf.get("spark.master", "local") or "").startswith("local")
        if not at_home and storage.local(root) is not None and not root.startswith("file:"):
            raise ValueError(f"{root}: on a cluster name the file system: file://{root}, hdfs://…, s3a://…")
        self._spark = spark

    def append(self, table: Table, rows: Rows, txn: Txn | None = None) -> bool:
        return self._write(table, rows, "append", txn)

    def upsert(self, table: Table, rows: Rows, txn: Txn | None = None) -> bool:
        if self._done(table, txn):
            return False
        self._create(table)
        frame = as_frame(self._spark, table, rows)
        partitions: list[str] = []
        if table.partition is not None:
            frame = frame.persist()
            partitions = [row[0] for row in frame.select(table.partition).distinct().collect()]
        try:
            frame.createOrReplaceTempView(view := f"upsert_{table.name}")
            updates = ", ".join(f"t.{name} = {value}" for name, value in merge_updates(table).items())
            names = ", ".join(table.names)
            session = frame.sparkSession  # of a streaming batch it is one of its own, and only that one knows the view
            named = {} if txn is None else {_TXN + "AppId": txn.app, _TXN + "Version": str(txn.version)}
            with using(session, named):
                session.sql(
                    f"MERGE INTO {self._sql(table)} t USING {view} s ON {merge_condition(table, partitions)} "
                    f"WHEN MATCHED THEN UPDATE SET {updates} "
                    f"WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({', '.join(f's.{n}' for n in table.names)})"
                )
        finally:
            frame.unpersist()
        return True

    def replace(self, table: Table, rows: Rows, partitions: Collection[str] | None) -> None:
        frame = as_frame(self._spark, table, rows)
        where = None
        if partitions is not None:
            there = [row[0] for row in frame.select(str(table.partition)).distinct().collect()]
            self.check_partitions(table, there, partitions)
            where = f"{table.partition} IN ({texts(partitions)})"
        self._write(table, frame, "overwrite", None, where)

    def version(self, table: Table, app: str) -> int | None:
        if not self.exists(table):
            return None
        log = f"{self.path(table)}/_delta_log"
        newest = self._newest(table)
        checkpoint, last = -1, storage.literal(f"{log}/_last_checkpoint")
        if storage.exists(f"{log}/_last_checkpoint"):
            checkpoint = int(_first(self._spark.read.schema("version LONG").json(last)))
        commits = [storage.literal(f"{log}/{number:020}.json") for number in range(checkpoint + 1, newest + 1)]
        said = [self._spark.read.schema(_TXNS).json(commits)] if commits else []
        if checkpoint >= 0:
            said.append(
                self._spark.read.parquet(f"{storage.literal(log)}/{checkpoint:020}.checkpoint*.parquet").select("txn")
            )
        # The versions of an application rise, so the largest one is the last.
        versions = [_first(rows.where(F.col("txn.appId") == app).agg(F.max("txn.version"))) for rows in said]
        return max((int(version) for version in versions if version is not None), default=None)

    def exists(self, table: Table) -> bool:
        return storage.exists(f"{self.path(table)}/_delta_log")

    def state(self, table: Table) -> State | None:
        if not self.exists(table):
            return None
        name = str(_first(self._spark.sql(f"DESCRIBE DETAIL {self._sql(table)}").select("id")))
        return State(name, self._newest(table), self._load(self._spark, table).count())

    def partitions(self, table: Table) -> list[str]:
        if table.partition is None or not self.exists(table):
            return []
        names = self._load(self._spark, table).select(table.partition).distinct().collect()
        return sorted(row[0] for row in names)

    def read(self, spark: SparkSession, table: Table, where: Where) -> DataFrame:
        if not self.exists(table):
            return spark.createDataFrame([], table.columns)
        rows = self._load(spark, table)
        if table.partition is not None:
            partition = F.col(table.partition)
            rows = rows if where.since is None else rows.where(partition >= where.since)
            rows = rows if where.until is None else rows.where(partition <= where.until)
            rows = rows if where.only is None else rows.where(partition.isin(*where.only))
        for name, ranges in (where.near or {}).items():
            inside = F.lit(False)
            for start, end in ranges:
                inside = inside | F.col(name).between(F.lit(start), F.lit(end))
            rows = rows.where(inside)
        there = set(rows.columns)
        missing = {f.name: F.lit(None).cast(f.dataType) for f in table.columns.fields if f.name not in there}
        return rows.withColumns(missing).select(*table.names)

    def arrow(
        self,
        table: Table,
        columns: Sequence[str] | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> pa.Table:
        rows = self.frame(self._spark, table, since, until).toArrow()
        return conform(table, rows).select(list(columns or table.names))

    def compact(self, table: Table, partitions: Collection[str] | None = None) -> None:
        if self.exists(table):
            where = "" if partitions is None else f" WHERE {table.partition} IN ({texts(partitions)})"
            self._spark.sql(f"OPTIMIZE {self._sql(table)}{where}")

    def drop(self, table: Table, partitions: Collection[str]) -> None:
        if partitions and self.exists(table):
            self._spark.sql(f"DELETE FROM {self._sql(table)} WHERE {table.partition} IN ({texts(partitions)})")

    def vacuum(self, table: Table, hours: int = 168) -> int:
        if not self.exists(table):
            return 0
        with using(self._spark, {"spark.databricks.delta.retentionDurationCheck.enabled": "false"}):
            stale = self._spark.sql(f"VACUUM {self._sql(table)} RETAIN {hours} HOURS DRY RUN").count()
            self._spark.sql(f"VACUUM {self._sql(table)} RETAIN {hours} HOURS")
        return stale

    def _write(self, table: Table, rows: Rows, mode: str, txn: Txn | None, where: str | None = None) -> bool:
        if self._done(table, txn):
            return False
        self._create(table)
        writer = as_frame(self._spark, table, rows).write.format("delta").mode(mode).option("mergeSchema", "true")
        if where is not None:
            writer = writer.option("replaceWhere", where)
        if txn is not None:
            writer = writer.option("txnAppId", txn.app).option("txnVersion", str(txn.version))
        writer.save(self.path(table))
        return True

    def _done(self, table: Table, txn: Txn | None) -> bool:
        done = None if txn is None else self.version(table, txn.app)
        return txn is not None and done is not None and done >= txn.version

    def _create(self, table: Table) -> None:
        """Have the table, with every column."""
        divided = f" PARTITIONED BY ({table.partition})" if table.partition else ""
        columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in table.columns.fields)
        self._spark.sql(f"CREATE TABLE IF NOT EXISTS {self._sql(table)} ({columns}) USING delta{divided}")
        present = set(self._load(self._spark, table).columns)
        if later := [f"{f.name} {f.dataType.simpleString()}" for f in table.columns.fields if f.name not in present]:
            self._spark.sql(f"ALTER TABLE {self._sql(table)} ADD COLUMNS ({', '.join(later)})")

    def _newest(self, table: Table) -> int:
        """The table's version."""
        return int(_first(self._spark.sql(f"DESCRIBE HISTORY {self._sql(table)} LIMIT 1").select("version")))

    def _load(self, spark: SparkSession, table: Table) -> DataFrame:
        return spark.read.format("delta").load(self.path(table))

    def _sql(self, table: Table) -> str:
        return f"delta.`{self.path(table)}`"


def _first(rows: DataFrame) -> Any:
    """The first column of the first row."""
    return rows.collect()[0][0]


@contextmanager
def using(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """``settings`` in effect for a while; then the session has none for these keys."""
    for key, value in settings.items():
        session.conf.set(key, value)
    try:
        yield
    finally:
        for key in settings:
            session.conf.unset(key)
