"""The jobs' arithmetic, literal rows in and literal rows out."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from spark_jobs import frames
from spark_jobs.batches import COUNTS
from spark_jobs.schema import LANDED_ALERT as ALERTS

pytestmark = pytest.mark.spark

_PLACED = StructType([*ALERTS.fields, StructField("landed_file", StringType()), StructField("landed_row", LongType())])


def _at(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-11-20T{text}+00:00")


def _alerts(spark: SparkSession, rows: Iterable[dict[str, Any]]) -> DataFrame:
    """Rows with what the test leaves open filled in alike."""
    common = {
        "alert_id": "a",
        "agent_id": "agent-1",
        "received_date": "2026-11-20",
        "event_time": _at("12:00:00"),
        "kind": "detection",
        "rule_id": "r",
        "rule_title": "R",
        "level": "high",
        "fleet": "f",
        "site": "s",
        "host": "h",
        "count": 1,
    }
    filled = [{**common, **row} for row in rows]
    return spark.createDataFrame([tuple(row.get(name) for name in _PLACED.names) for row in filled], _PLACED)


def test_the_first_received_copy_stays(spark: SparkSession) -> None:
    """Of copies the earliest received stays, of equals the first by file and row; another agent's is no copy."""
    rows = _alerts(
        spark,
        [
            {"received_at": _at("12:09:00"), "landed_file": "a", "landed_row": 0, "raw": "late"},
            {"received_at": _at("12:01:00"), "landed_file": "c", "landed_row": 5, "raw": "third"},
            {"received_at": _at("12:01:00"), "landed_file": "b", "landed_row": 2, "raw": "second"},
            {"received_at": _at("12:01:00"), "landed_file": "b", "landed_row": 1, "raw": "first"},
            {"received_at": None, "landed_file": "0", "landed_row": 0, "raw": "unknown"},
            {
                "received_at": _at("12:05:00"),
                "landed_file": "z",
                "landed_row": 9,
                "agent_id": "agent-2",
                "raw": "other",
            },
        ],
    )
    assert sorted(row.raw for row in frames.first_copies(rows).collect()) == ["first", "other"]


def test_what_the_table_holds_is_left_out(spark: SparkSession) -> None:
    """Known means the same agent, id and edge date; a row that shares only some of them is new."""
    known = _alerts(spark, [{"alert_id": "a"}, {"alert_id": "a"}, {"alert_id": "b"}])
    rows = _alerts(
        spark,
        [
            {"alert_id": "a", "raw": "known"},
            {"alert_id": "c", "raw": "new id"},
            {"alert_id": "a", "agent_id": "agent-2", "raw": "new agent"},
            {"alert_id": "b", "received_date": "2026-11-21", "raw": "new date"},
        ],
    )
    assert sorted(row.raw for row in frames.unseen(rows, known).collect()) == ["new agent", "new date", "new id"]


def test_windows_count_alerts_and_what_they_stand_for(spark: SparkSession) -> None:
    """A fold adds its count to the matches and is no alert; a detection and a correlation match once, whatever they
    count; windows begin at whole 5 minutes; a null host is a host."""
    rows = _alerts(
        spark,
        [
            {"event_time": _at("12:00:00")},
            {"event_time": _at("12:04:59.999999")},
            {"event_time": _at("12:04:00"), "kind": "fold", "count": 40},
            {"event_time": _at("12:04:00"), "kind": "correlation", "count": 5000},
            {"event_time": _at("12:05:00"), "host": None},
            {"event_time": _at("12:05:00"), "host": None, "count": None, "kind": None},
            {"event_time": _at("12:05:00"), "host": None, "count": None, "kind": "fold"},
            {"event_time": _at("12:05:00"), "level": "low", "count": 9},
            {"event_time": _at("12:05:00"), "level": "low", "count": -7, "kind": "fold"},
            {"event_time": _at("12:05:00"), "level": "low", "count": (1 << 63) - 1, "kind": "fold"},
            {"event_time": _at("12:05:00"), "level": "low", "count": (1 << 63) - 1, "kind": "fold"},
        ],
    )
    got = {
        (f"{r.window_start:%H:%M}", r.host, r.level): (r.alerts, r.matches, r.date)
        for r in frames.windows(rows).collect()
    }
    assert got == {
        ("12:00", "h", "high"): (3, 43, "2026-11-20"),
        ("12:05", None, "high"): (2, 3, "2026-11-20"),
        ("12:05", "h", "low"): (1, 1 + 2 * frames.MAX_COUNT, "2026-11-20"),
    }


def test_totals_add_up_over_batches(spark: SparkSession) -> None:
    """Partial counts of one window become one row, null hosts too."""
    partial = [
        (_at("12:00:00"), "f", "s", host, "r", title, "high", alerts, matches, "2026-11-20")
        for host, title, alerts, matches in [("h", "A", 1, 5), ("h", "B", 2, 3), (None, "A", 1, 1), (None, "A", 1, 1)]
    ]
    got = frames.totals(spark.createDataFrame(partial, COUNTS)).collect()
    assert sorted((r.host or "", r.rule_title, r.alerts, r.matches) for r in got) == [("", "A", 2, 2), ("h", "B", 3, 8)]


def test_rows_without_identity_or_time_are_not_whole(spark: SparkSession) -> None:
    """What cannot be told apart, placed by date or put in a window is refused; an early year is not."""
    rows = _alerts(
        spark,
        [
            {"raw": "good"},
            {"raw": "year 1", "event_time": datetime.fromisoformat("0001-01-02T00:00:00+00:00")},
            {"alert_id": None},
            {"agent_id": ""},
            {"received_date": None},
            {"received_date": "../../etc"},
            {"received_date": "2026-11-20/batch=x"},
            {"event_time": None},
        ],
    )
    assert sorted(row.raw for row in rows.where(frames.whole()).collect()) == ["good", "year 1"]
