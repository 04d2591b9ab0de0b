"""Heartbeats, numbers and dead letters: in parts of bounded size, and once, the checkpoint lost too."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.intake import batch
from spark_jobs.intake.batch import Account
from spark_jobs.jobs import ingest
from spark_jobs.tables.delta import DeltaTables
from spark_jobs.tables.schema import DEAD_LETTERS, HEARTBEATS, SEQS, Table
from spark_jobs.tables.tables import Tables, Txn, open_tables
from tests.spark_jobs.conftest import content
from tests.spark_jobs.landed import HOUR, MINUTE, NOON, arrow_schema, land
from vedette.delivery import envelope

pytestmark = pytest.mark.spark


def _beat(agent: str, at: int, **said: Any) -> dict[str, Any]:
    text = json.dumps({"state": "running", **said}).encode()
    return envelope.status_row(text, fleet="north", agent_id=agent, received_at=at, collector_id="c", topic="t")


def _run(agent: str, first: int, at: int) -> dict[str, Any]:
    return {"agent_id": agent, "fleet": "north", "log_id": "0", "first": first, "last": first + 8, "received_at": at}


def _bad(payload: bytes, at: int) -> dict[str, Any]:
    return envelope.dead_letter(payload, topic="x/alerts", reason="is not msgpack", received_at=at)


def _land(landing: Path, start: int) -> None:
    """A file of each table: two agents' heartbeats, an unusable one, numbers, equal and different garbage."""
    beats = [_beat(agent, start + n * MINUTE, n=n) for n in range(10) for agent in ("a", "b")]
    land(landing, [*beats, {**beats[0], "agent_id": ""}], table="status", schema=arrow_schema(envelope.STATUS))
    runs = [_run("a", n * 10, start + n) for n in range(9)]
    land(landing, runs, table="seqs", schema=arrow_schema(envelope.SEQS))
    bad = [_bad(b"\xff", start + n) for n in range(3)] + [_bad(bytes([n]), start) for n in range(8)]
    land(landing, bad, table="bad", schema=arrow_schema(envelope.DEAD_LETTER))


def _ingest(spark: SparkSession, tables: Tables, landing: Path, size: int = 1 << 20) -> dict[str, Account]:
    sources = ingest.landing_sources(str(landing), size)
    (landing / "alerts").mkdir(parents=True, exist_ok=True)
    return {one.name: one.account for one in ingest.take_over(spark, tables, sources)}


@pytest.mark.long
def test_a_lost_checkpoint_adds_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Three landings, taken a file a batch; then the checkpoints are deleted and all is read again in one batch, with a
    file that is new: only its rows come in, and equal garbage that came later is not taken for the first."""
    tables, landing = open_tables(str(tmp_path / "tables")), tmp_path / "landing"
    for hours in (0, 12, 13):
        _land(landing, NOON + hours * HOUR)
    first = _ingest(spark, tables, landing, size=1)
    new = {"status": (60, 0, 3), "seqs": (27, 0, 0), "bad": (33, 0, 0)}
    assert {name: (one.new, one.duplicates, one.unusable) for name, one in first.items() if name in new} == new
    before = content(tables)
    assert sum(row["rows"] for row in tables.arrow(DEAD_LETTERS, ["rows"]).to_pylist()) == 36

    shutil.rmtree(f"{tables.root}/_checkpoints")
    again = _ingest(spark, tables, landing)

    new = {"status": (0, 60, 3), "seqs": (0, 27, 0), "bad": (0, 33, 0)}
    assert {name: (one.new, one.duplicates, one.unusable) for name, one in again.items() if name in new} == new
    assert content(tables) == before

    shutil.rmtree(f"{tables.root}/_checkpoints")
    _land(landing, NOON + 14 * HOUR)
    more = _ingest(spark, tables, landing)
    assert {name: one.new for name, one in more.items()} == {"alerts": 0, "status": 20, "seqs": 9, "bad": 11}


class Crash(Exception):
    """Stands for a failure between two parts."""


@pytest.mark.long
def test_rows_are_written_in_parts(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More rows, or bytes, than the driver takes at a time are written part by part; failed between two of them and
    started again, every row is there once."""
    landing, tables = tmp_path / "landing", open_tables(str(tmp_path / "tables"))
    _land(landing, NOON)
    monkeypatch.setattr(batch, "PART_ROWS", 8)
    monkeypatch.setattr(batch, "PART_BYTES", 500)
    assert (batch._parts(0), batch._parts(9), batch._parts(9, 1001), batch._parts(10**9)) == (1, 2, 3, batch.MAX_PARTS)
    crashed: list[Txn] = []
    append = DeltaTables.append
    sizes: dict[str, list[int]] = {HEARTBEATS.name: [], SEQS.name: [], DEAD_LETTERS.name: []}

    def noted(self: DeltaTables, table: Table, rows: Any, txn: Txn | None = None) -> bool:
        if table.name in sizes and txn is not None:
            if table is HEARTBEATS and txn.version == 1 and not crashed:
                crashed.append(txn)
                raise Crash
            sizes[table.name].append(rows.count())
        return append(self, table, rows, txn)

    monkeypatch.setattr(DeltaTables, "append", noted)
    with pytest.raises(Crash):
        _ingest(spark, tables, landing)
    account = _ingest(spark, tables, landing)

    assert all(len(one) > 1 for one in sizes.values())
    assert max(sizes[HEARTBEATS.name]) < 20
    assert {name: one.new for name, one in account.items()} == {"alerts": 0, "status": 20, "seqs": 9, "bad": 11}
    held = {name: len(rows) for name, rows in content(tables).items() if name in sizes}
    assert held == {HEARTBEATS.name: 20, SEQS.name: 9, DEAD_LETTERS.name: 10}
