"""Bounds of a file's times, from commits and from a checkpoint, and the files that they leave out."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from deltalake import DeltaTable

from spark_jobs.tables.delta import DeltaTables
from spark_jobs.tables.schema import ALERTS
from spark_jobs.tables.tables import Where
from tests.console.made import row, write_alerts
from tests.spark_jobs.landed import NOON
from vedette_console.data.catalog import Catalog


def test_bounds_are_those_of_the_rows(tmp_path: Path) -> None:
    """Of a column that is none of the first 32, too; the upper one may be a millisecond too large."""
    write_alerts(DeltaTables(str(tmp_path)), [row(1), row(2, event_time=NOON + 5_000_123)])
    (file,) = Catalog(str(tmp_path)).files(ALERTS)
    low, high = file.bounds["counted_at"]
    assert low == NOON + 1_000_000
    assert NOON + 5_000_123 <= high <= NOON + 5_002_000


def test_a_checkpoint_has_what_commits_no_longer_have(tmp_path: Path) -> None:
    """When old commits are gone, the bounds are those that they had."""
    tables = DeltaTables(str(tmp_path))
    for number in range(3):
        write_alerts(tables, [row(number)])
    before = sorted(str(file.bounds) for file in Catalog(tables.root).files(ALERTS))
    DeltaTable(str(tmp_path / "alerts")).create_checkpoint()
    write_alerts(tables, [row(9)])
    for name in ("00000000000000000000.json", "00000000000000000001.json"):
        (tmp_path / "alerts" / "_delta_log" / name).unlink()
    after = sorted(str(file.bounds) for file in Catalog(tables.root).files(ALERTS))
    assert set(before) < set(after)
    assert len(after) == 4


def test_files_are_left_out_by_their_times(tmp_path: Path) -> None:
    """A question about a second is asked of the file alone that has rows of it."""
    tables = DeltaTables(str(tmp_path))
    for minute in range(3):
        write_alerts(tables, [row(minute, event_time=NOON + minute * 60_000_000)])
    catalog = Catalog(tables.root)
    second = datetime.fromtimestamp(NOON / 1e6 + 60, UTC)
    (file,) = catalog.files(ALERTS, Where(near={"counted_at": [(second, second)]}))
    assert file.bounds["counted_at"][0] == NOON + 60_000_000
    assert len(catalog.files(ALERTS)) == 3
