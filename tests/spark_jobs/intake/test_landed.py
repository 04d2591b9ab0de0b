"""Rows read by place without Spark: those that Spark gives, or none."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_jobs.intake import frames, landed, sources
from spark_jobs.intake.landing import read
from spark_jobs.tables.schema import ALERTS, LANDED_ALERT
from spark_jobs.tables.tables import open_tables
from tests.spark_jobs.conftest import content, ingest_alerts
from tests.spark_jobs.landed import ALERTS as COLUMNS
from tests.spark_jobs.landed import NOON, alert, land, place

pytestmark = pytest.mark.spark

AT = datetime(2026, 11, 20, 12, tzinfo=UTC)


def _full(number: int) -> dict[str, Any]:
    """An alert with something in every nested column."""
    raw = {"log_id": "ab", "offset": number, "length": 7}
    return alert(
        number,
        contributing=[{"rule_id": "r", "event_time": NOON - 5, "raw_ref": raw}, {"rule_id": None}],
        group_by={"a": "1", "b": None},
        flags=["cut"],
        first_time=-1,
        fields=None if number % 3 else {"ä": "\x00"},
    )


def _read(spark: SparkSession, files: list[Path], some: str = "true") -> tuple[pa.Table | None, list[dict[str, Any]]]:
    """Rows that fit ``some`` of ``files``, by this module and by Spark."""
    rows = read(spark, [f"file:{file}" for file in files], LANDED_ALERT).where(some)
    places = rows.select(frames.file(), "position", (F.col("position") * 2).alias("twice")).toArrow()
    origins = {row.file: row.origin for row in rows.select(frames.file(), "origin").distinct().collect()}
    found = landed.rows(places, origins, LANDED_ALERT)
    plain = rows.selectExpr(*LANDED_ALERT.names, "position * 2 AS twice").toArrow().to_pylist()
    return found, plain


def _sorted(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(map(repr, rows))


def test_rows_by_place_are_those_of_spark(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of several row groups, odd names, missing and further columns: every third row, and none, and all."""
    monkeypatch.setattr(landed, "ROWS", 7)
    rows = [_full(number) for number in range(50)]
    files = [land(tmp_path, rows[:20], name="odd [1]{2}%20 ä#?.parquet"), land(tmp_path, rows[20:30])]
    pq.write_table(pa.Table.from_pylist(rows[30:], COLUMNS), files[1].with_name("c.parquet"), row_group_size=3)
    files.append(files[1].with_name("c.parquet"))
    fewer = pa.Table.from_pylist(rows[:9], COLUMNS).drop_columns(["bundle", "contributing", "ingest"])
    files.append(place(tmp_path, fewer.append_column("mood", pa.array([{"deep": ["unknown"]}] * 9)), at=AT))
    for some in ("position % 3 = 1", "false", "true"):
        found, plain = _read(spark, files, some)
        assert found is not None
        assert _sorted(found.to_pylist()) == _sorted(plain)


@pytest.mark.parametrize("odd", ["type", "case", "struct", "twice", "damaged", "gone", "remote", "beyond"])
def test_what_spark_would_read_otherwise_is_left_to_it(spark: SparkSession, tmp_path: Path, odd: str) -> None:
    """Columns of another type or another case, damaged and missing files, places elsewhere or beyond a file's end:
    nothing is given."""
    plain = pa.Table.from_pylist([_full(0)], COLUMNS)
    names, columns = plain.column_names, plain.columns
    if odd == "type":
        columns[names.index("count")] = columns[names.index("count")].cast(pa.int32())
    elif odd == "case":
        names[names.index("count")] = "Count"
    elif odd == "struct":
        columns[names.index("raw_ref")] = pa.chunked_array([pa.array([{"log_id": "ab"}])])
    elif odd == "twice":
        names, columns = [*names, "SITE"], [*columns, columns[names.index("site")]]
    file = place(tmp_path, pa.table(columns, names=names), at=AT)
    origin = f"{'hdfs' if odd == 'remote' else 'file'}://{file}"
    if odd == "damaged":
        file.write_bytes(file.read_bytes()[:-20])
    elif odd == "gone":
        file.unlink()
    position = int(odd == "beyond")
    assert landed.rows(pa.table({"file": [1], "position": [position]}), {1: origin}, LANDED_ALERT) is None
    assert landed.rows(pa.table({"file": [2], "position": [0]}), {1: origin}, LANDED_ALERT) is None


@pytest.mark.long
def test_tables_are_the_same_either_way(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A landing of plain files and of one that only Spark can read, lookups none: batches go either way, and the tables
    equal those of rows that all went through Spark."""
    land(tmp_path / "landing", [_full(n) for n in range(20)])
    land(tmp_path / "landing", [*(_full(n) for n in range(10, 30)), alert(99, agent_id=None)])
    narrow = pa.Table.from_pylist([_full(40)], COLUMNS)
    count = narrow.column_names.index("count")
    narrow = narrow.set_column(count, "count", narrow["count"].cast(pa.int32()))
    place(tmp_path / "landing", narrow, at=AT)
    given: list[bool] = []
    rows = landed.rows

    def noted(*arguments: Any) -> pa.Table | None:
        found = rows(*arguments)
        given.append(found is not None)
        return found

    monkeypatch.setattr(landed, "rows", noted)
    found = []
    for local in (True, False):
        if not local:
            monkeypatch.setattr(sources.Batch, "local", False)
        tables = open_tables(str(tmp_path / f"tables-{local}"))
        account = ingest_alerts(spark, tables, tmp_path / "landing", bytes_per_batch=1)
        assert (account.new, account.duplicates, account.unusable) == (31, 10, 1)
        found.append(content(tables))
    assert given == [True, True, False]
    assert found[0] == found[1]
    assert len(found[0][ALERTS.name]) == 31
