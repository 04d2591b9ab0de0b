"""Tables in Delta format by ``deltalake`` (Rust): no jars, one process writes, Spark reads the Parquet files it names.

Rows of a write pass through the driver as Arrow, so a write is to be bounded by whoever cuts the batches. The log is
the table: ``_delta_log`` names the files, their smallest and largest values, and the last ``Txn`` of each application.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import CommitProperties, DeltaTable, Field, Transaction, WriterProperties, write_deltalake
from deltalake.exceptions import CommitFailedError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import TimestampType

from spark_jobs.tables import storage
from spark_jobs.tables.arrow import arrow_schema, conform
from spark_jobs.tables.schema import Table
from spark_jobs.tables.storage import bare
from spark_jobs.tables.tables import Rows, State, Tables, Txn, Where, merge_condition, merge_updates, texts

MAX_TRIES = 8
"""Attempts of a write that other writers get in the way of."""

FULL = 1 << 18
"""Rows of a file to which no upsert adds later windows."""

MAX_END = (1 << 63) - 1
"""After which no window lies."""

_WRITER = WriterProperties(compression="ZSTD", compression_level=1, max_row_group_size=65_536)
_NOT_HELD = re.compile(r"[\[\]^|\\\x00-\x1f]|%[0-9A-Fa-f]{2}")
"""What deltalake takes in no path."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"


class DeltaTables(Tables):
    """``Tables`` in Delta format, written by deltalake."""

    in_process = True

    def __init__(self, root: str, spark: SparkSession | None = None) -> None:
        """Raises ValueError for a folder that the library cannot write to."""
        super().__init__(root)
        if "://" not in root and (wrong := _NOT_HELD.search(os.path.abspath(root))):
            raise ValueError(f"{root}: deltalake accepts no {wrong[0]!r} in a path; choose another folder")

    def append(self, table: Table, rows: Rows, txn: Txn | None = None) -> bool:
        return self._once(table, txn, lambda there: self._write(table, _arrow(table, rows), "append", txn))

    def upsert(self, table: Table, rows: Rows, txn: Txn | None = None) -> bool:
        """A merge rewrites each file that it changes, so all windows of a day would end up in one file, rewritten by
        every upsert of that day. Once the file with the last window is ``FULL``, later windows get a new file: the
        others are merged first, in a transaction of its own that also records where they end."""
        source: list[pa.Table] = []

        def merge(there: DeltaTable | None) -> None:
            if not source:
                source.append(_arrow(table, rows))
                _check_keys(table, source[0])
            if there is None:
                self._write(table, source[0], "append", txn)
                return
            left = source[0]
            before = txn and Txn(f"{txn.app}/before", txn.version)
            if before and (later := _later(table, there, left, before)):
                if not _done(there, before):
                    _merge(table, there, left.filter(pc.invert(later.rows)), before, *later.ends)
                    there = DeltaTable(uri(self.path(table)))
                left = left.filter(later.rows)
            _merge(table, there, left, *([txn] if txn else []))

        return self._once(table, txn, merge)

    def replace(self, table: Table, rows: Rows, partitions: Collection[str] | None) -> None:
        data = _arrow(table, rows)
        where = None
        if partitions is not None:
            self.check_partitions(table, pc.unique(data[table.partition]).to_pylist(), partitions)
            where = f"{table.partition} IN ({texts(partitions)})"

        def write(there: DeltaTable | None) -> None:
            if there is None:
                self._write(table, data, "append", None)
            else:
                self._write(table, data, "overwrite", None, where)

        self._once(table, None, write)

    def version(self, table: Table, app: str) -> int | None:
        there = self._open(table)
        return None if there is None else there.transaction_version(app)

    def exists(self, table: Table) -> bool:
        return DeltaTable.is_deltatable(uri(self.path(table)))

    def state(self, table: Table) -> State | None:
        there = self._open(table)
        if there is None:
            return None
        rows = pc.sum(pa.table(there.get_add_actions(flatten=True))["num_records"]).as_py()
        return State(str(there.metadata().id), there.version(), rows or 0)

    def partitions(self, table: Table) -> list[str]:
        there = self._open(table)
        if there is None or table.partition is None:
            return []
        return sorted({row[table.partition] for row in there.partitions()})

    def read(self, spark: SparkSession, table: Table, where: Where) -> DataFrame:
        files = self._files(table, where)
        if not files:
            return spark.createDataFrame([], table.columns)
        reader = spark.read.schema(table.columns).option("basePath", self.path(table))
        return reader.parquet(*map(storage.literal, files)).select(*table.names)

    def arrow(
        self,
        table: Table,
        columns: Sequence[str] | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> pa.Table:
        return self.dataset(table, Where(since, until)).to_table(columns=list(columns or table.names))

    def dataset(self, table: Table, where: Where) -> ds.Dataset:
        """The rows that ``read`` gives, for whoever reads them piece by piece without Spark."""
        return self.dataset_of(table, self._files(table, where))

    def dataset_of(self, table: Table, files: Sequence[str]) -> ds.Dataset:
        """The rows of these data files of ``table``, paths as ``DataFile`` has them."""
        schema = arrow_schema(table.columns)
        if not files:
            return ds.dataset(schema.empty_table())
        # deltalake's own dataset at times aborts the process at its end; pyarrow's file systems do not.
        filesystem = storage.file_system(uri(self.path(table)))
        paths = [storage.inside(uri(file)) for file in files]
        return ds.FileSystemDataset.from_paths(
            paths,
            schema=schema,
            format=ds.ParquetFileFormat(),
            filesystem=filesystem,
            partitions=[_expression(table, path) for path in paths] if table.partition else None,
        )

    def compact(self, table: Table, partitions: Collection[str] | None = None) -> None:
        def work(there: DeltaTable | None) -> None:
            if there is not None:
                filters: Any = None if partitions is None else [(table.partition, "in", sorted(partitions))]
                there.optimize.compact(partition_filters=filters, writer_properties=_WRITER)

        self._once(table, None, work)

    def drop(self, table: Table, partitions: Collection[str]) -> None:
        def work(there: DeltaTable | None) -> None:
            if there is not None and partitions:
                there.delete(f"{table.partition} IN ({texts(partitions)})")

        self._once(table, None, work)

    def vacuum(self, table: Table, hours: int = 168) -> int:
        there = self._open(table)
        if there is None:
            return 0
        return len(there.vacuum(hours, dry_run=False, enforce_retention_duration=False))

    def _open(self, table: Table) -> DeltaTable | None:
        where = uri(self.path(table))
        return DeltaTable(where) if DeltaTable.is_deltatable(where) else None

    def _once(self, table: Table, txn: Txn | None, work: Callable[[DeltaTable | None], None]) -> bool:
        """Do ``work`` on the table as it is, again after a lost race; False when ``txn`` had been done."""
        for attempt in range(1, MAX_TRIES + 1):
            there = self._open(table)
            if txn is not None and there is not None and _done(there, txn):
                return False
            try:
                work(there)
            except CommitFailedError:
                if attempt == MAX_TRIES:
                    raise
                time.sleep(0.1 * 2**attempt)
            else:
                return True
        raise AssertionError("unreachable")

    def _write(self, table: Table, rows: pa.Table, mode: Any, txn: Txn | None, predicate: str | None = None) -> None:
        write_deltalake(
            uri(self.path(table)),
            rows,
            mode=mode,
            predicate=predicate,
            schema_mode="merge",
            partition_by=[table.partition] if table.partition else None,
            configuration=_configuration(table),
            writer_properties=_WRITER,
            commit_properties=_commit(*([txn] if txn else [])),
        )

    def _files(self, table: Table, where: Where) -> list[str]:
        there = self._open(table)
        if there is None:
            return []
        return [file.path for file in data_files(there, table, where.near or ()) if file.wanted(where)]


class DataFile(NamedTuple):
    """A file of a table as it stands in the log: ``bounds`` are the smallest and largest value of the columns asked
    for, times in microseconds, None where the log does not say."""

    path: str
    """On this host a path, else a URL."""
    partition: str | None
    rows: int
    bounds: Mapping[str, tuple[Any, Any]]

    def wanted(self, where: Where) -> bool:
        """Whether rows of it may be asked for."""
        if self.partition is not None and not where.partitions((self.partition,)):
            return False
        return all(
            _touches([_span(interval) for interval in ranges], *self.bounds[column])
            for column, ranges in (where.near or {}).items()
            if column in self.bounds
        )


def data_files(there: DeltaTable, table: Table, columns: Collection[str]) -> list[DataFile]:
    """The files of the version of ``table`` that ``there`` is at, with bounds of ``columns``."""
    actions = pa.table(there.get_add_actions(flatten=True))
    count = actions.num_rows
    names: list[Any] = [None] * count
    if table.partition is not None:
        # A file without a value of the partition belongs to no day that anybody asks for.
        names = actions[f"partition.{table.partition}"].to_pylist()
    bounds = {
        column: list(zip(_numbers(actions[f"min.{column}"]), _numbers(actions[f"max.{column}"]), strict=True))
        for column in columns
        if f"min.{column}" in actions.column_names and f"max.{column}" in actions.column_names
    }
    rows = actions["num_records"].to_pylist()
    root = there.table_uri.rstrip("/")
    return [
        DataFile(
            _place(f"{root}/{path}"), names[n], rows[n] or 0, {column: values[n] for column, values in bounds.items()}
        )
        for n, path in enumerate(actions["path"].to_pylist())
        if table.partition is None or names[n] is not None
    ]


def _touches(ranges: Sequence[tuple[Any, Any]], low: Any, high: Any) -> bool:
    """Whether a file with values from ``low`` to ``high`` may hold one in ``ranges``."""
    return low is None or high is None or any(start <= high and low <= end for start, end in ranges)


def _span(bounds: tuple[Any, Any]) -> tuple[Any, Any]:
    """A range as ``_numbers`` gives values, wider by the millisecond to which the log keeps times."""
    if not isinstance(bounds[0], datetime):
        return bounds
    start, end = ((time - _EPOCH) // timedelta(microseconds=1) for time in bounds)
    return start - 1000, end + 1000


def _numbers(values: pa.ChunkedArray) -> list[Any]:
    """Values of a column of the log; times as microseconds, because years beyond 9999 are no ``datetime``."""
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("us", tz=values.type.tz)).cast(pa.int64())
    numbers: list[Any] = values.to_pylist()
    return numbers


def _arrow(table: Table, rows: Rows) -> pa.Table:
    return conform(table, rows if isinstance(rows, pa.Table) else rows.toArrow())


def _merge(table: Table, there: DeltaTable, source: pa.Table, *txns: Txn) -> None:
    """MERGE ``source`` into the table."""
    if source.num_rows == 0 and not txns:
        return
    present = {field.name for field in there.schema().fields}
    if later := [field for field in source.schema if field.name not in present]:
        # An update speaks of the target's columns, so they are there before it.
        there.alter.add_columns([Field.from_arrow(field) for field in later])
    partitions = pc.unique(source[table.partition]).to_pylist() if table.partition else []
    (
        there.merge(
            source,
            merge_condition(table, partitions) + _near(table, source),
            source_alias="s",
            target_alias="t",
            merge_schema=True,
            writer_properties=_WRITER,
            commit_properties=_commit(*txns),
        )
        .when_matched_update(merge_updates(table))
        .when_not_matched_insert({name: f"s.{name}" for name in table.names})
        .execute()
    )


def _window(table: Table) -> str | None:
    """The time by which the rows of a day come, if it is among the keys."""
    times = (key for key in table.keys if isinstance(table.columns[key].dataType, TimestampType))
    return None if table.partition is None else next(times, None)


def _near(table: Table, source: pa.Table) -> str:
    """SQL: in which windows of which partitions a row ``t`` may be that ``source`` changes, so that files without such
    are not read."""
    if (window := _window(table)) is None or source.num_rows == 0:
        return ""
    by_day = source.group_by(str(table.partition)).aggregate([(window, "min"), (window, "max")])
    spans = (
        f"t.{table.partition} IN ({texts([day])}) AND t.{window} BETWEEN '{first.isoformat()}' AND '{last.isoformat()}'"
        for day, first, last in zip(*(column.to_pylist() for column in by_day.columns), strict=True)
    )
    return f" AND (({') OR ('.join(spans)}))"


class Later(NamedTuple):
    """``rows``: of each row of an upsert, whether it lies after what is there. ``ends``: after what, by partition, as a
    transaction's version, so that the upsert can be cut short in between."""

    rows: pa.Array
    ends: list[Txn]


def _later(table: Table, there: DeltaTable, source: pa.Table, before: Txn) -> Later | None:
    """The rows of ``source`` whose window is after all in their partition, where the file with the last one is
    ``FULL``; where ``before`` has been done, those that it left. None when these are none, or all."""
    if (window := _window(table)) is None:
        return None
    days = pc.unique(source[table.partition]).to_pylist()
    names = {day: f"{before.app}/{day}" for day in days}
    if _done(there, before):
        ends = {day: there.transaction_version(name) for day, name in names.items()}
    else:
        ends = dict.fromkeys(days, None) | _ends(table, there, window, days)
    day, time = source[table.partition], source[window].cast(pa.int64())
    rows = reduce(
        pc.or_,
        (pc.and_(pc.equal(day, name), pc.greater(time, end)) for name, end in ends.items() if end is not None),
        pa.scalar(False),
    )
    if not pc.any(rows).as_py() or pc.all(rows).as_py():
        return None
    return Later(rows, [Txn(names[day], MAX_END if end is None else end) for day, end in ends.items()])


def _ends(table: Table, there: DeltaTable, window: str, days: Collection[str]) -> dict[str, int]:
    """The last ``window`` of each of these partitions, microseconds, where the file that holds it is ``FULL``."""
    ends: dict[str, tuple[int, int]] = {}
    for file in data_files(there, table, [window]):
        if (day := file.partition) is not None and day in days:
            end = file.bounds.get(window, (None, None))[1]
            # The log keeps times to the millisecond. What it does not tell may be anything.
            newest = (MAX_END if end is None else end + 1000, file.rows)
            ends[day] = max(newest, ends.get(day, newest))
    return {day: end for day, (end, rows) in ends.items() if rows >= FULL}


def _done(there: DeltaTable, txn: Txn) -> bool:
    version = there.transaction_version(txn.app)
    return version is not None and version >= txn.version


def _check_keys(table: Table, rows: pa.Table) -> None:
    different = rows.select(list(table.keys)).group_by(list(table.keys)).aggregate([]).num_rows
    if different != rows.num_rows:
        raise ValueError(f"{table.name}: {rows.num_rows - different} rows have a key that another row has, too")


def _commit(*txns: Txn) -> CommitProperties | None:
    return CommitProperties(app_transactions=[Transaction(*txn) for txn in txns]) if txns else None


def _configuration(table: Table) -> dict[str, str | None]:
    """Statistics for what reads are pruned by: times and keys, not long texts."""
    names = [
        field.name
        for field in table.columns.fields
        if field.name != table.partition
        and (isinstance(field.dataType, TimestampType) or field.name in (*table.keys, "batch"))
    ]
    return {"delta.dataSkippingStatsColumns": ",".join(names), "delta.checkpointInterval": "50"}


def uri(path: str) -> str:
    """The URL of a path as ``--tables`` gives it."""
    return path if "://" in path else Path(os.path.abspath(path)).as_uri()


def _place(uri: str) -> str:
    """The path of a file on this host, the URL of another."""
    return bare(uri, encoded=True) if uri.startswith("file:") else uri


def _expression(table: Table, path: str) -> ds.Expression:
    """The value of the partition column in the file at ``path``."""
    mark = f"/{table.partition}="
    value = unquote(path.rpartition(mark)[2].partition("/")[0])
    return ds.field(table.partition) == (value if value != NO_PARTITION else "")
