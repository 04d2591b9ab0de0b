"""Which files each table has, by its Delta log, for all readers at once.

A log is read once and then followed: at most once in ``FRESH`` seconds it is asked what was added. A table that is not
there has no files. One that was made anew, or whose files a vacuum took away, is found out by whoever reads it:
``forget`` makes the next question look from the beginning.
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
from vedette_console.data.stats import Statistics

FRESH = 1.0
"""Seconds for which what is known of a log is taken for new."""


@dataclass(slots=True)
class _Known:
    """What is known of a table; ``there`` None: it is not there."""

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
        self._known: dict[str, _Known] = {}

    def files(self, table: Table, where: Where | None = None) -> list[DataFile]:
        """Those in which rows of ``where`` may be; bounds are of all columns with times."""
        found = self._look(table).files
        return [one for one in found if where is None or one.wanted(where)]

    def version(self, table: Table) -> int:
        """Rises with each write; -1 when there is no such table."""
        return self._look(table).version

    def days(self, table: Table) -> list[str]:
        """The partitions that have files, ascending."""
        return sorted({one.partition for one in self._look(table).files if one.partition})

    def versions(self, tables: Sequence[Table]) -> tuple[int, ...]:
        return tuple(self.version(table) for table in tables)

    def moved(self, table: Table) -> None:
        """This process has written ``table``: look at its log at once."""
        self._look(table).looked = float("-inf")

    def forget(self) -> None:
        """Read all logs from the beginning the next time."""
        with self._lock:
            self._known.clear()

    def _look(self, table: Table) -> _Known:
        with self._lock:
            known = self._known.setdefault(table.name, _Known(Lock()))
        with known.lock:
            now = time.monotonic()
            if now - known.looked >= FRESH:
                _follow(known, table, self.tables.path(table))
                known.looked = now
        return known


def _follow(known: _Known, table: Table, path: str) -> None:
    """Bring ``known`` to what the log of the table at ``path`` says now."""
    where = uri(path)
    if not DeltaTable.is_deltatable(where):
        known.there, known.version, known.files, known.statistics = None, -1, (), None
        return
    if known.there is None or known.statistics is None:
        times = [field.name for field in table.columns.fields if isinstance(field.dataType, TimestampType)]
        known.there, known.statistics = DeltaTable(where), Statistics(path, times)
    else:
        known.there.update_incremental()
    version = known.there.version()
    if version != known.version:
        files = data_files(known.there, table, ())
        parts = 2 if table.partition else 1
        names = ["/".join(one.path.rsplit("/", parts)[-parts:]) for one in files]
        bounds = known.statistics.of(names)
        known.files = tuple(one._replace(bounds=bounds[name]) for one, name in zip(files, names, strict=True))
        known.version = version
