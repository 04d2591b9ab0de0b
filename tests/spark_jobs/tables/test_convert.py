"""Tables of plain Parquet, as an earlier release wrote them, converted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from spark_jobs.tables.arrow import arrow_schema
from spark_jobs.tables.convert import main
from spark_jobs.tables.schema import ALERTS, NOISE, RULES, WIN_5M, Table
from spark_jobs.tables.tables import open_tables

QUERY = "0c1f6a52-7d4e-4b9c-9a54-000000000001"
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def write(root: Path, table: Table, label: str, at: int, *rows: dict[str, Any], note: int | None = None) -> None:
    """One write of the old form, INT96 times and all; ``note``: what ``_txn`` says after it."""
    for row in rows:
        day = f"{table.partition}={row[table.partition]}" if table.partition else "."
        folder = root / table.name / day / f"write={label}"
        folder.mkdir(parents=True, exist_ok=True)
        columns = [field for field in arrow_schema(table.columns) if field.name in row]
        held = pa.Table.from_pylist([{**row, "written_at": at}], pa.schema([*columns, ("written_at", pa.int64())]))
        held = held.drop_columns([table.partition]) if table.partition else held
        pq.write_table(
            held, folder / f"part-{len(list(folder.iterdir()))}.parquet", use_deprecated_int96_timestamps=True
        )
    if note is not None:
        (root / table.name / "_txn").mkdir(exist_ok=True)
        (root / table.name / "_txn" / QUERY).write_text(str(note))
        (root / table.name / "_txn" / f".{QUERY}.crc").write_bytes(b"crc\0")


def window(site: str, matches: int, title: str, last: datetime) -> dict[str, Any]:
    return {"date": "2026-11-20", "window_start": NOON, "fleet": "f", "site": site, "rule_id": "r", "level": "high",
            "rule_title": title, "alerts": 1, "matches": matches, "first_time": NOON, "last_time": last}  # fmt: skip


@pytest.fixture
def old(tmp_path: Path) -> Path:
    root, later = tmp_path / "old", NOON + timedelta(seconds=1)
    write(root, WIN_5M, f"{QUERY}-000001000", 20, window("s", 3, "newer", later), window("t", 1, "t", NOON), note=1000)
    write(root, WIN_5M, f"{QUERY}-000000000", 10, window("s", 4, "older", NOON))
    write(root, WIN_5M, f"{QUERY}-000002000", 30, window("s", 100, "cut short", later))
    write(root, RULES, "00000000000000000040", 40, {"rule_id": "r", "matches": 8, "last_time": NOON})
    fields = {"agent_id": "a", "received_date": "2026-11-20", "event_time": datetime(1, 1, 1), "fields": [("k", "v")]}
    write(root, ALERTS, f"{QUERY}-000001000", 20, {**fields, "tags": ["x"], "counted_at": NOON}, note=1000)
    (root / "_checkpoints" / "alerts").mkdir(parents=True)
    (root / "_checkpoints" / "alerts" / "metadata").write_text(QUERY)
    return root


def test_every_write_is_done_again_in_its_order(old: Path, tmp_path: Path) -> None:
    """Rows of one key are merged, what was cut short is left out, the last write of a query is remembered, and its
    checkpoint is there; tables that were not there are not made."""
    new = tmp_path / "new"
    done = CliRunner().invoke(main, [str(old), str(new)])
    assert (done.exit_code, done.output) == (
        0,
        f"{new}: 4 writes converted; give this folder as --tables from now on\n",
    )
    tables = open_tables(str(new))
    rows = tables.arrow(WIN_5M, ["site", "alerts", "matches", "rule_title"]).to_pylist()
    assert sorted(tuple(row.values()) for row in rows) == [("s", 2, 7, "newer"), ("t", 1, 1, "t")]
    assert tables.arrow(RULES, ["rule_id", "matches"]).to_pylist() == [{"rule_id": "r", "matches": 8}]
    (alert,) = tables.arrow(ALERTS, ["received_date", "fields", "tags", "counted_at"]).to_pylist()
    assert alert == {"received_date": "2026-11-20", "fields": [("k", "v")], "tags": ["x"], "counted_at": NOON}
    assert (tables.version(WIN_5M, QUERY), tables.version(ALERTS, QUERY)) == (1000, 1000)
    assert (new / "_checkpoints" / "alerts" / "metadata").read_text() == QUERY
    assert tables.partitions(NOISE) == []
    assert not (new / "noise").exists()


def test_old_tables_are_refused_with_the_way_out(old: Path, tmp_path: Path) -> None:
    """No job reads or writes them; the message is the command. What exists is not overwritten."""
    with pytest.raises(ValueError, match=r"plain Parquet; convert them: python -m spark_jobs\.tables\.convert .*old"):
        open_tables(str(old))
    (tmp_path / "new").mkdir()
    done = CliRunner().invoke(main, [str(old), str(tmp_path / "new")])
    assert (done.exit_code, "new: exists" in done.output) == (1, True)
