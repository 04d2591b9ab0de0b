"""Counts by DuckDB and counts by Spark: the same rows, whatever the alerts hold."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from spark_jobs.intake import counts
from spark_jobs.tables.arrow import arrow_schema, conform
from spark_jobs.tables.schema import ALERTS
from spark_jobs.tables.tables import Tables, open_tables
from tests.spark_jobs.landed import HOUR, MINUTE, NOON, alert

pytestmark = pytest.mark.spark

LABEL = "0123456789ab-000000003"
YEAR_1, YEAR_9999 = -62_135_596_800_000_000, 253_402_300_799_999_999


def _alert(number: int, rng: random.Random) -> dict[str, Any]:
    """Any of the fields that counts are made of: absent, empty, doubled, negative, at the ends of the calendar."""
    each = [{"kind": kind, "value": value} for kind in ("ip", "user", "host") for value in ("a", "ä€", "A")]
    odd = [None, {"kind": None, "value": "x"}, {"kind": "ip", "value": None}, {"kind": "ip", "value": ""}]
    entity = [*odd, *each]
    near = NOON + rng.randrange(-3, 3) * 5 * MINUTE + rng.choice((-1, 0, 1, 299_999_999))
    at = rng.choice((near, near, near, -near, -1, 0, YEAR_1 + rng.randrange(HOUR), YEAR_9999 - rng.randrange(HOUR)))
    return alert(
        number,
        kind=rng.choice(("detection", "fold", "fold", "correlation", None)),
        count=rng.choice((None, 0, 1, 7, -5, (1 << 63) - 1)),
        rule_id=rng.choice(("r", "s", "", None)),
        rule_title=rng.choice(("R", "it's", None)),
        level=rng.choice(("high", "low", None)),
        tags=rng.choice((None, [], ["attack.impact", None], ["attack.T1078", "attack.initial_access"])),
        host=rng.choice(("web1", "", None)),
        site=rng.choice(("plant", None)),
        fleet=rng.choice(("north", None)),
        entities=rng.choice((None, [], rng.choices(entity, k=4))),
        detected_at=NOON,
        event_time=rng.choice((at, near)),
    ) | {"counted_at": at, "batch": LABEL if rng.random() < 0.9 else "another"}


def _write(tables: Tables, rows: list[dict[str, Any]]) -> None:
    tables.append(ALERTS, conform(ALERTS, pa.Table.from_pylist(rows, arrow_schema(ALERTS.columns))))


def _sorted(rows: Any) -> list[str]:
    found = rows if isinstance(rows, pa.Table) else rows.toArrow()
    texts = [{name: str(value) for name, value in sorted(row.items())} for row in _plain(found)]
    return sorted(map(repr, texts))


def _plain(rows: pa.Table) -> list[dict[str, Any]]:
    """Times as microseconds: years beyond 9999 are none of Python's."""
    columns = [
        column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        for column in rows.columns
    ]
    found: list[dict[str, Any]] = pa.table(columns, names=rows.column_names).to_pylist()
    return found


@pytest.mark.long
def test_both_engines_count_alike(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Odd alerts of two days and another batch's among them: rules and all three tables agree, row for row."""
    rng = random.Random(7)
    tables = open_tables(str(tmp_path))
    rows = [_alert(number, rng) for number in range(1500)]
    rows += [{**row, "alert_id": f"later {n}", "received_date": "2026-11-21"} for n, row in enumerate(rows[:20])]
    _write(tables, rows)
    dates = ["2026-11-20", "2026-11-21"]
    found: list[dict[str, list[str]]] = []
    for in_process in (True, False):
        monkeypatch.setattr(type(tables), "in_process", in_process)
        with counts.counts(spark, tables, LABEL, dates) as made:
            assert isinstance(made, counts.ByDuck if in_process else counts.BySpark)
            rules = made.rules()
            assert sum(rules["rows"].to_pylist()) == sum(row["batch"] == LABEL for row in rows)
            found.append({"rules": _sorted(rules)} | {t.name: _sorted(made.of(t)) for t in counts.COUNTS})
    assert found[0] == found[1]
    assert all(len(rows) > 2 for rows in found[0].values())


def test_a_batch_without_new_alerts_counts_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """No table yet, and a table without rows of the batch: no rules."""
    tables = open_tables(str(tmp_path))
    for _ in range(2):
        with counts.counts(spark, tables, LABEL, ["2026-11-20"]) as made:
            assert made.rules().num_rows == 0
        _write(tables, [alert(1) | {"batch": "another"}])
