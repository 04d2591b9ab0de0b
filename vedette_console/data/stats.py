"""Between which times the rows of a table's files lie, as its Delta log has it.

deltalake gives the statistics of a table's first 32 columns only, and ``counted_at`` comes after them. So the log is
read here: commits (``N.json``), and the newest checkpoint for what has no commit any more. What is known of a file does
not change, as files do not; a commit is read once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq
from pyarrow.fs import FileSelector, FileSystem

from spark_jobs.tables import storage
from spark_jobs.tables.delta import uri

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = 1000
"""Microseconds; the log keeps times to the millisecond, cut off."""

_COMMIT = re.compile(r"[0-9]{20}\.json")
_CHECKPOINT = re.compile(r"[0-9]{20}\.checkpoint(\.[0-9.]+)?\.parquet")

Bounds = dict[str, tuple[int, int]]
"""Column -> smallest and largest time in microseconds, the latter up to a millisecond too large."""


class Statistics:
    """Of the files of one table, by their paths in the table's folder."""

    def __init__(self, path: str, columns: Collection[str]) -> None:
        self._url, self._columns = f"{uri(path)}/_delta_log", columns
        self._read: set[str] = set()
        self._known: dict[str, Bounds] = {}

    def of(self, paths: Collection[str]) -> dict[str, Bounds]:
        """What is known of ``paths``: of a file of which the log says nothing, nothing. Forgets all others."""
        missing = {unquote(path) for path in paths} - self._known.keys()
        if missing:
            for path, bounds in self._logged(missing):
                self._known[path] = bounds
        wanted = {unquote(path): path for path in paths}
        self._known = {path: self._known.get(path, {}) for path in wanted}
        return {given: self._known[path] for path, given in wanted.items()}

    def _logged(self, missing: set[str]) -> Iterator[tuple[str, Bounds]]:
        """Files that the log adds: the newest commits first, then the newest checkpoint, until none is ``missing``."""
        system, folder = storage.file_system(self._url), storage.inside(self._url)
        names = [one.base_name for one in system.get_file_info(FileSelector(folder))]
        left = set(missing)
        for name in sorted((one for one in names if _COMMIT.fullmatch(one)), reverse=True):
            if name in self._read:
                continue
            self._read.add(name)
            for path, bounds in self._commit(system, f"{folder}/{name}"):
                left.discard(path)
                if path in missing:
                    yield path, bounds
            if not left:
                return
        checkpoints = sorted(one for one in names if _CHECKPOINT.fullmatch(one))
        for name in [one for one in checkpoints if one[:20] == checkpoints[-1][:20]]:
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
        found = json.loads(stats or "{}") or {}
        lows, highs = found.get("minValues") or {}, found.get("maxValues") or {}
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
    at = at.replace(tzinfo=UTC) if at.tzinfo is None else at
    return (at - EPOCH) // timedelta(microseconds=1)
