"""What is new in the fleet, whatever times a member's alerts have."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.common.period import period
from spark_jobs.findings import newness
from spark_jobs.tables.tables import open_tables
from tests.spark_jobs.fleet import take
from tests.spark_jobs.landed import HOUR, NOON, alert

DAY = 24 * HOUR


@pytest.mark.spark
@pytest.mark.long
def test_an_old_event_time_takes_no_rule_from_the_fleet(spark: SparkSession, tmp_path: Path) -> None:
    """A member that dates an alert a month, days, or two hours before it landed hides no rule that is new at another
    site; what landed before is not new a month later."""
    tables, wanted = open_tables(str(tmp_path)), period(date(2026, 11, 20), 7)
    begins = round(wanted.start.timestamp() * 1_000_000)
    late = [
        alert(1, rule_id="month", site="forger", event_time=NOON - 30 * DAY),
        alert(2, rule_id="days", site="forger", event_time=NOON - 9 * DAY, received_at=NOON - 5 * DAY),
        alert(9, rule_id="hours", site="forger", event_time=begins - HOUR, received_at=begins + HOUR),
    ]
    before = [alert(3, rule_id="known", site="works", event_time=NOON - 30 * DAY, received_at=NOON - 30 * DAY + HOUR)]
    today = [alert(4 + number, rule_id=rule) for number, rule in enumerate(("month", "days", "hours", "known"))]
    take(spark, tables, "batch", [*late, *before, *today])
    sites = spark.createDataFrame(
        [("north", site, 30) for site in ("plant", "forger", "works")], "fleet STRING, site STRING, history_days INT"
    )
    rows = newness.write(spark, tables, wanted, sites).where("site = ''").collect()
    assert sorted(row.rule_id for row in rows) == ["days", "hours", "month"]
    assert {f"{row.started_at:%Y-%m-%d}" for row in rows} == {"2026-11-20"}
