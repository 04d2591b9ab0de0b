"""The files of each table, and between which times their rows lie, by its Delta log, for all readers at once.

A log is read once and then followed: at most once in ``FRESH`` seconds it is asked what was added. A table that is not
there has no files. One that was made anew, or whose files a vacuum took away, is found out by whoever reads it:
``forget`` makes the next question look from the beginning.

deltalake gives the statistics of a table's first 32 columns only, also where ``dataSkippingStatsColumns`` names others
and the log has them, and ``counted_at`` comes after them. So commits (``N.json``) are read here, and the newest
checkpoint for what has no commit any more. What is known of a file does not change, as files do not; a commit is read
once.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Lock
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyarrow.fs import FileSelector, FileSystem
from pyspark.sql.types import TimestampType

from spark_jobs.tables import storage
from spark_jobs.tables.delta import DataFile, DeltaTables, data_files, uri
from spark_jobs.tables.schema import Table
from spark_jobs.tables.tables import Where
from vedette.model.times import micros

MILLISECOND = 1000
"""Microseconds; the log keeps times to the millisecond, cut off."""

_COMMIT = re.compile(r"[0-9]{20}\.json")
_CHECKPOINT = re.compile(r"[0-9]{20}\.checkpoint(\.[0-9.]+)?\.parquet")

Bounds = dict[str, tuple[int, int]]
"""Column -> smallest and largest time in microseconds, the latter up to a millisecond too large."""


class Statistics:
    """Bounds of the files of one table, by their paths in the table's folder."""

    def __init__(self, path: str, columns: Collection[str]) -> None:
        self._url, self._columns = f"{uri(path)}/_delta_log", columns
        self._read: set[str] = set()
        self._bounds_of: dict[str, Bounds] = {}

    def of(self, paths: Collection[str]) -> dict[str, Bounds]:
        """The bounds of ``paths``: none of a file of which the log says nothing. Forgets all others."""
        missing = {unquote(path) for path in paths} - self._bounds_of.keys()
        if missing:
            for path, bounds in self._logged(missing):
                self._bounds_of[path] = bounds
        wanted = {unquote(path): path for path in paths}
        self._bounds_of = {path: self._bounds_of.get(path, {}) for path in wanted}
        return {name: self._bounds_of[path] for path, name in wanted.items()}

    def _logged(self, missing: set[str]) -> Iterator[tuple[str, Bounds]]:
        """Files that the log adds: the newest commits first, then the newest checkpoint, until none is ``missing``."""
        system, folder = storage.file_system(self._url), storage.inside(self._url)
        names = [file.base_name for file in system.get_file_info(FileSelector(folder))]
        left = set(missing)
        for name in sorted(filter(_COMMIT.fullmatch, names), reverse=True):
            if name in self._read:
                continue
            self._read.add(name)
            for path, bounds in self._commit(system, f"{folder}/{name}"):
                left.discard(path)
                if path in missing:
                    yield path, bounds
            if not left:
                return
        checkpoints = sorted(filter(_CHECKPOINT.fullmatch, names))
        for name in [name for name in checkpoints if name[:20] == checkpoints[-1][:20]]:
            for path, bounds in self._checkpoint(system, f"{folder}/{name}"):
                if path in left:
                    yield path, bounds

    def _commit(self, system: FileSystem, path: str) -> Iterator[tuple[str, Bounds]]:
        with system.open_input_stream(path) as file:
            for line in file.read().splitlines():
                added = json.loads(line).get("add") if b'"add"' in line else None
                if added:
                    yield unquote(added["path"]), self._bounds(added.get("stats"))

    def _checkpoint(self, system: FileSystem, path: str) -> Iterator[tuple[str, Bounds]]:
        with system.open_input_file(path) as file:
            rows = pq.ParquetFile(file).read(columns=["add.path", "add.stats"])["add"].to_pylist()
        for added in rows:
            if added and added.get("path"):
                yield unquote(added["path"]), self._bounds(added.get("stats"))

    def _bounds(self, stats: str | None) -> Bounds:
        values = json.loads(stats or "{}") or {}
        lows, highs = values.get("minValues") or {}, values.get("maxValues") or {}
        bounds = {}
        for column in self._columns:
            low, high = _micros(lows.get(column)), _micros(highs.get(column))
            if low is not None and high is not None:
                bounds[column] = (low, high + MILLISECOND)
        return bounds


def _micros(text: Any) -> int | None:
    """A time of the log; None for one beyond the calendar."""
    try:
        at = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return micros(at if at.tzinfo else at.replace(tzinfo=UTC))


FRESH = 1.0
"""Seconds for which what is known of a log is taken for new."""


@dataclass(slots=True)
class _Entry:
    """A table as its log had it last; ``there`` None: it is not there."""

    lock: Lock
    there: DeltaTable | None = None
    looked: float = float("-inf")
    version: int = -1
    files: tuple[DataFile, ...] = ()
    statistics: Statistics | None = None


class Catalog:
    """The files of the tables under ``root``. Any thread may ask."""

    def __init__(self, root: str) -> None:
        """Raises ValueError for a folder that the library cannot read."""
        self.tables = DeltaTables(root)
        self._lock = Lock()
        self._entries: dict[str, _Entry] = {}

    def files(self, table: Table, where: Where | None = None) -> list[DataFile]:
        """Those in which rows of ``where`` may be; bounds are of all columns with times."""
        return [file for file in self._look(table).files if where is None or file.wanted(where)]

    def version(self, table: Table) -> int:
        """Rises with each write; -1 when there is no such table."""
        return self._look(table).version

    def days(self, table: Table) -> list[str]:
        """The partitions that have files, ascending."""
        return sorted({file.partition for file in self._look(table).files if file.partition})

    def versions(self, tables: Sequence[Table]) -> tuple[int, ...]:
        return tuple(self.version(table) for table in tables)

    def moved(self, table: Table) -> None:
        """This process has written ``table``: look at its log at once."""
        self._look(table).looked = float("-inf")

    def forget(self) -> None:
        """Read all logs from the beginning the next time."""
        with self._lock:
            self._entries.clear()

    def _look(self, table: Table) -> _Entry:
        with self._lock:
            entry = self._entries.setdefault(table.name, _Entry(Lock()))
        with entry.lock:
            now = time.monotonic()
            if now - entry.looked >= FRESH:
                _follow(entry, table, self.tables.path(table))
                entry.looked = now
        return entry


def _follow(entry: _Entry, table: Table, path: str) -> None:
    """Bring ``entry`` to what the log of the table at ``path`` says now."""
    where = uri(path)
    if not DeltaTable.is_deltatable(where):
        entry.there, entry.version, entry.files, entry.statistics = None, -1, (), None
        return
    if entry.there is None or entry.statistics is None:
        times = [field.name for field in table.columns.fields if isinstance(field.dataType, TimestampType)]
        entry.there, entry.statistics = DeltaTable(where), Statistics(path, times)
    else:
        entry.there.update_incremental()
    version = entry.there.version()
    if version != entry.version:
        files = data_files(entry.there, table, ())
        parts = 2 if table.partition else 1
        names = ["/".join(file.path.rsplit("/", parts)[-parts:]) for file in files]
        bounds = entry.statistics.of(names)
        entry.files = tuple(file._replace(bounds=bounds[name]) for file, name in zip(files, names, strict=True))
        entry.version = version
