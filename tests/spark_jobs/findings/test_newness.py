"""What is new in the fleet, whatever times a member's alerts have."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.common.period import period
from spark_jobs.findings import newness
from spark_jobs.tables.schema import RULES
from spark_jobs.tables.tables import open_tables
from tests.spark_jobs.fleet import take
from tests.spark_jobs.landed import HOUR, NOON, alert

DAY = 24 * HOUR


@pytest.mark.spark
@pytest.mark.long
def test_an_old_event_time_takes_no_rule_from_the_fleet(spark: SparkSession, tmp_path: Path) -> None:
    """A member that dates an alert a month, or two days, before it landed hides no rule that is new at another site;
    what landed in its time is not new a month later."""
    tables = open_tables(str(tmp_path))
    late = [
        alert(1, rule_id="month", site="forger", event_time=NOON - 30 * DAY),
        alert(2, rule_id="days", site="forger", event_time=NOON - 9 * DAY, received_at=NOON - 7 * DAY),
    ]
    before = [alert(3, rule_id="known", site="works", event_time=NOON - 30 * DAY, received_at=NOON - 30 * DAY + HOUR)]
    today = [alert(4 + number, rule_id=rule) for number, rule in enumerate(("month", "days", "known"))]
    take(spark, tables, "batch", [*late, *before, *today])
    last = date(2026, 11, 20)
    assert {row["rule_id"]: row["first_time"] < row["prompt_time"] for row in tables.arrow(RULES).to_pylist()} == {
        "month": True, "days": True, "known": False,
    }  # fmt: skip
    sites = spark.createDataFrame(
        [("north", site, 30) for site in ("plant", "forger", "works")], "fleet STRING, site STRING, history_days INT"
    )
    rows = newness.write(spark, tables, period(last, 7), sites).where("site = ''").collect()
    assert sorted(row.rule_id for row in rows) == ["days", "month"]
    assert {f"{row.started_at:%Y-%m-%d}" for row in rows} == {"2026-11-20"}
