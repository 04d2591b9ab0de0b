"""The files of each table, and between which times their rows lie, by its Delta log, for all readers at once.

A log is read once and then followed: at most once in ``FRESH`` seconds it is asked what was added. A table that is not
there has no files. One that was made anew, or whose files a vacuum took away, is found out by whoever reads it:
``forget`` makes the next question look from the beginning.

Bounds are those of the log, of all times: ``dataSkippingStatsColumns`` names them (``spark_jobs/tables/delta.py``).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock

from deltalake import DeltaTable
from pyspark.sql.types import TimestampType

from spark_jobs.tables.delta import DataFile, DeltaTables, data_files, uri
from spark_jobs.tables.schema import Table
from spark_jobs.tables.tables import Where

MILLISECOND = 1000
"""Microseconds; the log keeps times to the millisecond, cut off."""
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


class Catalog:
    """The files of the tables under ``root``. Any thread may ask."""

    def __init__(self, root: str) -> None:
        """Raises ValueError for a folder that the library cannot read."""
        self.tables = DeltaTables(root)
        self._lock = Lock()
        self._entries: dict[str, _Entry] = {}

    def files(self, table: Table, where: Where | None = None) -> list[DataFile]:
        """Those in which rows of ``where`` may be, with bounds of all times in microseconds, the upper one up to a
        millisecond too large."""
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
        entry.there, entry.version, entry.files = None, -1, ()
        return
    if entry.there is None:
        entry.there = DeltaTable(where)
    else:
        entry.there.update_incremental()
    version = entry.there.version()
    if version != entry.version:
        times = [field.name for field in table.columns.fields if isinstance(field.dataType, TimestampType)]
        entry.files = tuple(_widened(file) for file in data_files(entry.there, table, times))
        entry.version = version


def _widened(file: DataFile) -> DataFile:
    """``file`` with upper bounds as late as they may be, without the bounds that the log does not have."""
    bounds = {
        column: (low, high + MILLISECOND)
        for column, (low, high) in file.bounds.items()
        if low is not None and high is not None
    }
    return file._replace(bounds=bounds)
