"""Tables as plain Parquet, for where no library of a table format is available: ``TABLE/<partition>/write=<label>/``.

* A write owns the folders of its label (its ``Txn``, else the time). Writing a label again replaces what it wrote, so a
  write that is done twice leaves one copy; ``TABLE/_txn/<app>`` then notes it as done.
* **An upsert only appends**; rows of one key are merged when they are read. ``compact`` merges them for good.
* A ``replace`` or ``compact`` writes beside the table (``_staged``), notes what goes (``_replaced``), and then deletes
  and moves. Killed before the note, it has changed nothing; killed after it, it is finished by whoever opens the
  table next. It needs a file system that renames folders, so no object store.
* What this format cannot promise: a reader may see the half of a write. One job may write a table at a time.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_jobs.tables import storage
from spark_jobs.tables.arrow import select
from spark_jobs.tables.schema import Table
from spark_jobs.tables.tables import Ranges, Rows, Tables, Txn, as_frame, wanted

_WRITTEN = "written_at"
_EXTRA = [T.StructField(_WRITTEN, T.LongType()), T.StructField("write", T.StringType())]


class ParquetTables(Tables):
    """``Tables`` in folders of Parquet files."""

    many_writers = False

    def __init__(self, root: str, spark: SparkSession) -> None:
        super().__init__(root)
        self._spark = spark

    def append(self, table: Table, rows: Rows, txn: Txn | None = None) -> bool:
        done = None if txn is None else self.version(table, txn.app)
        if txn is not None and done is not None and done >= txn.version:
            return False
        self._write(table, rows, _label(txn))
        self._note(table, txn)
        return True

    def upsert(self, table: Table, rows: Rows, txn: Txn | None = None) -> bool:
        return self.append(table, rows, txn)

    def replace(
        self, table: Table, rows: Rows, partitions: Collection[str] | None = None, txn: Txn | None = None
    ) -> bool:
        done = None if txn is None else self.version(table, txn.app)
        if txn is not None and done is not None and done >= txn.version:
            return False
        frame = as_frame(self._spark, table, rows)
        if partitions is not None:
            strangers = frame.where(~F.col(str(table.partition)).isin(*partitions)).select(str(table.partition))
            if found := strangers.distinct().limit(5).collect():
                raise ValueError(f"{table.name}: rows of {', '.join(row[0] for row in found)} are not to be replaced")
        self._finish(table)
        storage.delete(self._spark, self._staged(table))
        self._write(table, frame, _label(None), self._staged(table))
        divided = [name for name in self.partitions(table) if partitions is None or name in partitions]
        above = [f"{table.partition}={name}/" for name in divided] if table.partition else [""]
        old = [
            folder + name
            for folder in above
            for name in storage.folders(self._spark, f"{self.path(table)}/{folder}")
            if name.startswith("write=")
        ]
        storage.write_text(self._spark, self._replaced(table), "\n".join(old))
        self._finish(table)
        self._note(table, txn)
        return True

    def version(self, table: Table, app: str) -> int | None:
        text = storage.read_text(self._spark, self._txn(table, app))
        return None if text is None else int(text)

    def partitions(self, table: Table) -> list[str]:
        prefix = f"{table.partition}="
        names = storage.folders(self._spark, self.path(table)) if table.partition else []
        return sorted(name.removeprefix(prefix) for name in names if name.startswith(prefix))

    def frame(
        self,
        spark: SparkSession,
        table: Table,
        since: str | None = None,
        until: str | None = None,
        *,
        only: Collection[str] | None = None,
        near: Ranges | None = None,
    ) -> DataFrame:
        self._finish(table)
        path = self.path(table)
        if table.partition is None:
            folders = [path] if storage.folders(spark, path) else []
        else:
            folders = [self._folder(table, name) for name in wanted(self.partitions(table), since, until, only)]
        if not folders:
            return spark.createDataFrame([], table.columns)
        reader = spark.read.schema(T.StructType([*table.columns.fields, *_EXTRA])).option("basePath", path)
        return _merged(table, reader.parquet(*map(storage.literal, folders)))

    def arrow(
        self,
        table: Table,
        columns: Sequence[str] | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> pa.Table:
        names = list(columns or table.names)
        return select(table, self.frame(self._spark, table, since, until).select(*names).toArrow(), names)

    def compact(self, table: Table, partitions: Collection[str] | None = None) -> None:
        if table.partition is None:
            self.replace(table, self.frame(self._spark, table))
            return
        for name in self.partitions(table):
            if partitions is None or name in partitions:
                self.replace(table, self.frame(self._spark, table, only=[name]), [name])

    def drop(self, table: Table, partitions: Collection[str]) -> None:
        for name in partitions:
            storage.delete(self._spark, self._folder(table, name))

    def vacuum(self, table: Table, hours: int = 168) -> int:
        return 0

    def _folder(self, table: Table, partition: str) -> str:
        return f"{self.path(table)}/{table.partition}={partition}"

    def _staged(self, table: Table) -> str:
        return f"{self.path(table)}/_staged"

    def _replaced(self, table: Table) -> str:
        return f"{self.path(table)}/_replaced"

    def _finish(self, table: Table) -> None:
        """Do what a ``replace`` has decided and left; each step may have been done."""
        old = storage.read_text(self._spark, self._replaced(table))
        if old is None:
            return
        for name in filter(None, old.split("\n")):
            storage.delete(self._spark, f"{self.path(table)}/{name}")
        staged = self._staged(table)
        above = [name for name in storage.folders(self._spark, staged) if "=" in name] if table.partition else [""]
        for folder in above:
            for name in storage.folders(self._spark, f"{staged}/{folder}"):
                if name.startswith("write="):
                    storage.move(self._spark, f"{staged}/{folder}/{name}", f"{self.path(table)}/{folder}/{name}")
        storage.delete(self._spark, self._replaced(table))
        storage.delete(self._spark, staged)

    def _txn(self, table: Table, app: str) -> str:
        return f"{self.path(table)}/_txn/{_safe(app)}"

    def _note(self, table: Table, txn: Txn | None) -> None:
        if txn is not None:
            storage.write_text(self._spark, self._txn(table, txn.app), str(txn.version))

    def _write(self, table: Table, rows: Rows, label: str, path: str | None = None) -> None:
        divided = [name for name in (table.partition, "write") if name]
        frame = as_frame(self._spark, table, rows).withColumn(_WRITTEN, F.lit(time.time_ns()))
        (
            frame.withColumn("write", F.lit(label))
            .hint("rebalance", *divided)
            .write.mode("overwrite")
            .option("partitionOverwriteMode", "dynamic")
            .option("compression", "zstd")
            .partitionBy(*divided)
            .parquet(path or self.path(table))
        )


def _merged(table: Table, rows: DataFrame) -> DataFrame:
    """One row a key, by the table's word."""
    if not table.keys:
        return rows.select(*table.names)
    others = [name for name in table.names if name not in (*table.keys, *table.sums, *table.lows, *table.highs)]
    newest = F.struct(*([table.newest] if table.newest else []), _WRITTEN)
    aggregates = [
        *(F.sum(name).alias(name) for name in table.sums),
        *(F.min(name).alias(name) for name in table.lows),
        *(F.max(name).alias(name) for name in table.highs),
        F.max_by(F.struct(*others, F.lit(0).alias("one")), newest).alias("last"),
    ]
    return rows.groupBy(*table.keys).agg(*aggregates).select("*", "last.*").select(*table.names)


def _label(txn: Txn | None) -> str:
    return f"{time.time_ns():020d}" if txn is None else f"{_safe(txn.app)}-{txn.version:09d}"


def _safe(app: str) -> str:
    return re.sub(r"[^A-Za-z0-9-]", "-", app)
