"""A lookup joined to a DataFrame, by the same file and the same code as on the edge (``vedette/lookup``).

The file goes to each executor once and is mapped there; a batch of rows is looked up in one call from Spark. What is a
key, which row is the first, and when a row holds is what ``docs/lookups.md`` says.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from pyspark import SparkFiles
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

if TYPE_CHECKING:
    from vedette.lookup.table import Lookup

TYPES: dict[str, tuple[T.DataType, pa.DataType]] = {
    "text": (T.StringType(), pa.string()),
    "int": (T.LongType(), pa.int64()),
    "float": (T.DoubleType(), pa.float64()),
    "bool": (T.BooleanType(), pa.bool_()),
    "time": (T.TimestampType(), pa.timestamp("us", tz="UTC")),
}
"""Of a lookup's columns, in Spark and in Arrow."""

_SENT: dict[tuple[str, str], TemporaryDirectory[str]] = {}
"""By application and version the folder from which executors take a file: its name says what it holds."""


def join(
    frame: DataFrame,
    path: str | Path,
    *,
    on: str,
    index: str = "",
    columns: Sequence[str] = (),
    at: str = "",
    how: Literal["left", "inner"] = "left",
    matches: Literal["first", "all"] = "first",
    prefix: str = "",
) -> DataFrame:
    """``frame`` with the ``columns`` (empty: all) of the lookup in ``path``, their names behind ``prefix``.

    ``on``: the column that is the key of ``index`` (empty: the lookup's first). ``at``: a column of timestamps, or of
    UTC microseconds; only rows that hold then are taken. ``matches``: the ``first`` row, as ``Lookup.get``, or ``all``:
    a row of the frame for each. ``how``: whether rows without one stay, with nulls. Raises ValueError for a column or
    an index that does not exist, LookupRefused for a file that is no lookup, OSError.
    """
    from vedette.lookup.table import Lookup

    path = Path(path)
    with Lookup.open(path) as lookup:
        types = {column.name: column.type for column in lookup.columns}
        indexes = [key.name for key in lookup.indexes]
        try:
            lookup.index(index := index or indexes[0])
        except KeyError:
            raise ValueError(f"{path}: no key {index}; there are {', '.join(indexes)}") from None
        wanted = [*(columns or types)]
        version, places = lookup.version, [[*types].index(name) for name in wanted if name in types]
    for name in wanted:
        if name not in types:
            raise ValueError(f"{path}: no column {name}; there are {', '.join(types)}")
    for name in (on, *([at] if at else [])):
        if name not in frame.columns:
            raise ValueError(f"no column {name}; there are {', '.join(frame.columns)}")
    fields = [T.StructField(prefix + name, TYPES[types[name]][0]) for name in wanted]
    if twice := {field.name for field in fields} & set(frame.columns):
        raise ValueError(f"the frame has a column {min(twice)} already: give a prefix")
    sent = _send(frame.sparkSession, path, version)
    more = [(prefix + name, TYPES[types[name]][1]) for name in wanted]
    work = _joining(sent, index, on, at, [*zip(places, more, strict=True)], how == "inner", matches == "all")
    return frame.mapInArrow(work, T.StructType([*frame.schema.fields, *fields]))


def _send(spark: SparkSession, path: Path, version: str) -> str:
    """The name under which executors find the file."""
    name = f"{version}.vlookup"
    if (key := (spark.sparkContext.applicationId, version)) not in _SENT:
        folder = TemporaryDirectory(prefix="vedette-lookup-")
        target = Path(folder.name, name)
        try:
            os.link(path.resolve(), target)
        except OSError:  # another disk
            shutil.copyfile(path, target)
        spark.sparkContext.addFile(str(target))
        _SENT[key] = folder
    return name


@lru_cache(maxsize=8)
def _opened(name: str) -> Lookup:
    """On an executor, once for a worker."""
    from vedette.lookup.table import Lookup

    return Lookup.open(Path(SparkFiles.get(name)))


def _joining(
    name: str, index: str, on: str, at: str, places: list[tuple[int, tuple[str, pa.DataType]]], inner: bool, every: bool
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For ``mapInArrow``. ``places``: of each column wanted its place in the lookup's rows, its name and type."""
    names = [column for _, (column, _) in places]

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        lookup = _opened(name)
        for batch in batches:
            keys = batch.column(on).to_pylist()
            times = _micros(batch.column(at)) if at else [None] * len(keys)
            numbers, rows = list[int](), list[Any]()
            for number, (key, time) in enumerate(zip(keys, times, strict=True)):
                matching: list[Any] = lookup.all(index, key, time) if every else [lookup.get(index, key, time)]
                matching = [row for row in matching if row is not None] or ([] if inner else [None])
                numbers += [number] * len(matching)
                rows += matching
            left = batch.take(pa.array(numbers, pa.int64()))
            more = [
                pa.array([None if row is None else row[place] for row in rows], pa.int64()).cast(kind)
                if pa.types.is_timestamp(kind)
                else pa.array([None if row is None else row[place] for row in rows], kind)
                for place, (_, kind) in places
            ]
            yield pa.RecordBatch.from_arrays([*left.columns, *more], names=[*left.schema.names, *names])

    return work


def _micros(times: pa.Array) -> list[int | None]:
    """UTC microseconds."""
    if pa.types.is_timestamp(times.type):
        times = times.cast(pa.timestamp("us", times.type.tz)).cast(pa.int64())
    micros: list[int | None] = times.to_pylist()
    return micros
