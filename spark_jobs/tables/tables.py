"""The one way in and out of the tables of ``schema``: append, upsert, replace, and read, exactly once.

* **A write is a transaction of one table.** It is there whole or not at all, and readers see the one before until then.
  An upsert under a ``Txn`` may be two: what it adds to windows that are there, then windows that are new. Cut short
  between them, the same upsert does the second one, by the backend that began it.
* **Exactly once by name.** A write may carry a ``Txn``: an application's name (of a streaming query: its id) and a
  number that rises. A write whose number is not above the table's last one of that application has been done already:
  it changes nothing and returns False. So a job writes its tables one after the other, each under the same ``Txn``,
  and after a crash writes all of them again. Take the name from the query's checkpoint, never from the job: numbers of
  a new checkpoint begin at 0 and would be taken for done.
* **What an upsert does with a key that is there** is the table's word (``Table.sums``, ``lows``,
  ``newest``), the same in every backend. Each key may come once in the rows of one upsert.
* **Additive schemas.** Rows may lack columns of the table (they become null) and a table on disk may have columns that
  this version does not know (they stay, null in new rows). A column of another type is refused.

Delta is the one format; ``BACKENDS`` lists who writes it. Several jobs may write one table at a time; a write that
loses a race is done again on what the other one left.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from pkgutil import resolve_name
from typing import ClassVar, NamedTuple, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from spark_jobs.tables.arrow import conform
from spark_jobs.tables.schema import Table

Rows: TypeAlias = DataFrame | pa.Table
Ranges: TypeAlias = Mapping[str, Sequence[tuple[datetime, datetime]] | Sequence[tuple[str, str]]]
"""Column -> ranges, both ends included: rows outside of all of them are not wanted, but may be given."""

BACKENDS: Mapping[str, str] = {
    "delta": "spark_jobs.tables.delta:DeltaTables",
    "delta-spark": "spark_jobs.tables.spark:SparkDeltaTables",
}
"""Name -> class: ``delta`` by deltalake in this process (the default), ``delta-spark`` by Spark, for clusters. Each
reads what the other one wrote."""


class Txn(NamedTuple):
    """The name of a write: ``version`` rises with each write of ``app`` to a table."""

    app: str
    version: int


class State(NamedTuple):
    """A table as it stands: ``id`` is its own from its first write on, ``version`` rises with each write."""

    id: str
    version: int
    rows: int


class Where(NamedTuple):
    """What a read asks for: partitions from ``since`` to ``until`` (both included), or those in ``only``; ``near``
    spares the reading of files in which no row lies in a range, the rows of others are all given."""

    since: str | None = None
    until: str | None = None
    only: Collection[str] | None = None
    near: Ranges | None = None

    def partitions(self, names: Collection[str]) -> list[str]:
        """Those of ``names`` that are asked for, ascending."""
        return sorted(
            name
            for name in names
            if (self.since is None or name >= self.since)
            and (self.until is None or name <= self.until)
            and (self.only is None or name in self.only)
        )


class Tables(ABC):
    """The tables under one folder (any URL that the backend can write)."""

    in_process: ClassVar[bool] = False
    """Whether this process reads and writes the files itself, as Arrow tables, without Spark: what is handed over as
    such a table is written as it is, and ``dataset`` can be asked for."""

    def __init__(self, root: str, spark: SparkSession | None = None) -> None:
        self.root = root.rstrip("/")

    def path(self, table: Table) -> str:
        return f"{self.root}/{table.name}"

    @abstractmethod
    def append(self, table: Table, rows: Rows, txn: Txn | None = None) -> bool:
        """Add ``rows``; False when ``txn`` had been done. The table is made when there is none."""

    @abstractmethod
    def upsert(self, table: Table, rows: Rows, txn: Txn | None = None) -> bool:
        """Add ``rows`` whose key is new and merge the others into theirs; False when ``txn`` had been done."""

    @abstractmethod
    def replace(self, table: Table, rows: Rows, partitions: Collection[str] | None) -> None:
        """Make ``rows`` all there is in ``partitions`` (None: in the table).

        Raises ValueError when a row lies in another partition.
        """

    @staticmethod
    def check_partitions(table: Table, there: Collection[str], partitions: Collection[str]) -> None:
        if strangers := sorted(set(there) - set(partitions))[:5]:
            raise ValueError(f"{table.name}: rows of {', '.join(strangers)} are outside the partitions to replace")

    @abstractmethod
    def version(self, table: Table, app: str) -> int | None:
        """The number of ``app``'s last write; None when it has written nothing."""

    @abstractmethod
    def exists(self, table: Table) -> bool:
        """Whether the table has been written, if only without rows."""

    @abstractmethod
    def state(self, table: Table) -> State | None:
        """How the table stands; None when there is none."""

    @abstractmethod
    def partitions(self, table: Table) -> list[str]:
        """Partitions that hold files, ascending; empty when there is no table."""

    @abstractmethod
    def read(self, spark: SparkSession, table: Table, where: Where) -> DataFrame:
        """Rows as they are now; empty, with the table's columns, when there is no table."""

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
        """``read``, as ``Where`` has it."""
        return self.read(spark, table, Where(since, until, only, near))

    @abstractmethod
    def arrow(
        self,
        table: Table,
        columns: Sequence[str] | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> pa.Table:
        """The same as one Arrow table in this process: for what is small."""

    @abstractmethod
    def compact(self, table: Table, partitions: Collection[str] | None = None) -> None:
        """Write the many small files of ``partitions`` (None: all) as few large ones; the rows stay as they are."""

    @abstractmethod
    def drop(self, table: Table, partitions: Collection[str]) -> None:
        """Forget ``partitions``; their files go with the next ``vacuum``."""

    @abstractmethod
    def vacuum(self, table: Table, hours: int = 168) -> int:
        """Delete files that no reader of the last ``hours`` can still need; how many."""


def open_tables(root: str, backend: str = "delta", *, spark: SparkSession | None = None) -> Tables:
    """The tables under ``root``; the backend ``delta-spark`` needs ``spark``.

    Raises ValueError for an unknown backend, ImportError when a library is missing.
    """
    if backend not in BACKENDS:
        raise ValueError(f"backend: expects one of {', '.join(BACKENDS)}, not {backend!r}")
    tables: Tables = resolve_name(BACKENDS[backend])(root, spark)
    return tables


def as_frame(spark: SparkSession, table: Table, rows: Rows) -> DataFrame:
    """``rows`` as a Spark frame with exactly the table's columns: absent ones null, text keys never null.

    Raises ValueError naming a column that the table does not have.
    """
    if isinstance(rows, pa.Table):
        rows = spark.createDataFrame(conform(table, rows), table.columns)
    if unknown := [name for name in rows.columns if name not in table.names]:
        raise ValueError(f"{table.name}: has no column {', '.join(unknown)}")
    columns = []
    for field in table.columns.fields:
        column = F.col(field.name) if field.name in rows.columns else F.lit(None)
        column = column.cast(field.dataType)
        if field.name in (*table.keys, table.partition) and field.dataType == StringType():
            column = F.coalesce(column, F.lit(""))
        columns.append(column.alias(field.name))
    return rows.select(*columns)


def merge_condition(table: Table, partitions: Collection[str]) -> str:
    """SQL: when a row ``s`` of an upsert and a row ``t`` of the table are the same; only in ``partitions``, if any."""
    conditions = [f"t.{key} = s.{key}" for key in table.keys]
    if partitions:
        conditions.append(f"t.{table.partition} IN ({texts(partitions)})")
    return " AND ".join(conditions)


def merge_updates(table: Table) -> dict[str, str]:
    """SQL: what every other column of ``t`` becomes when ``s`` is merged into it."""
    newer = "true" if table.newest is None else f"(t.{table.newest} IS NULL OR s.{table.newest} >= t.{table.newest})"
    updates = {}
    for name in table.names:
        if name in table.keys:
            continue
        if name in table.sums:
            updates[name] = f"coalesce(t.{name}, 0) + coalesce(s.{name}, 0)"
        elif name in table.lows:
            updates[name] = f"CASE WHEN s.{name} IS NULL OR t.{name} <= s.{name} THEN t.{name} ELSE s.{name} END"
        elif name == table.newest:
            updates[name] = f"CASE WHEN s.{name} IS NULL OR t.{name} >= s.{name} THEN t.{name} ELSE s.{name} END"
        else:
            updates[name] = f"CASE WHEN {newer} THEN s.{name} ELSE t.{name} END"
    return updates


def texts(values: Collection[str]) -> str:
    """SQL: a list of texts."""
    return ", ".join("'" + value.replace("'", "''") + "'" for value in sorted(values))
