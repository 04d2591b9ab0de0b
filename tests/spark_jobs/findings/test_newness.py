"""What is new in the fleet, whatever times a member's alerts have."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.common.period import period
from spark_jobs.findings import newness
from spark_jobs.jobs import baselines
from spark_jobs.tables.schema import ANOMALIES
from spark_jobs.tables.tables import open_tables
from tests.spark_jobs.fleet import take
from tests.spark_jobs.landed import HOUR, MINUTE, NOON, alert

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
    rows = newness.write(spark, tables, wanted, sites, lambda rows, _: rows).where("site = ''").collect()
    assert sorted(row.rule_id for row in rows) == ["days", "hours", "month"]
    assert {f"{row.started_at:%Y-%m-%d}" for row in rows} == {"2026-11-20"}


@pytest.mark.spark
@pytest.mark.long
def test_a_trial_of_ones_own_is_neither_new_nor_loud(spark: SparkSession, tmp_path: Path) -> None:
    """Of a red team and of somebody else who do the same beside each other, each by a rule, an account and a device of
    their own, the other's alone are told; what both do is as much as the other did."""
    tables, wanted = open_tables(str(tmp_path)), period(date(2026, 11, 20), 1)
    daily = [alert(day, rule_id="usual", event_time=NOON - day * DAY) for day in range(10)]
    hit = {"kind": "ip", "value": "192.0.2.9", "indicator": "192.0.2.9", "source": "own", "threat": "exercise"}

    def happen(first: int, rule: str, user: str, intel: list[dict[str, str]]) -> list[dict[str, object]]:
        names = [{"kind": "user", "value": user}]
        return [
            alert(first + n, rule_id=rule, entities=names, intel=intel, event_time=NOON + n * MINUTE) for n in range(50)
        ]

    red = [*happen(100, "red", "red", [hit]), *happen(200, "both", "red", [hit])]
    take(spark, tables, "batch", [*daily, *red, *happen(300, "other", "eve", []), *happen(400, "both", "eve", [])])
    baselines.write(spark, tables, wanted)
    rows = tables.arrow(ANOMALIES).to_pylist()
    assert sorted((row["kind"], row["rule_id"] or row["entity_value"], row["observed"]) for row in rows) == [
        ("burst", "both", 50), ("burst", "other", 50), ("new_entity", "eve", 100), ("new_rule", "both", 50),
        ("new_rule", "other", 50),
    ]  # fmt: skip


@pytest.mark.spark
@pytest.mark.long
def test_a_change_of_rules_comes_after_what_one_host_has(spark: SparkSession, tmp_path: Path) -> None:
    """A rule of a high level that comes to every host of every site within two days is behind one of a medium level
    that names one host, and so is one that comes to all hosts of one site; a higher level is before a lower one."""
    tables, wanted = open_tables(str(tmp_path)), period(date(2026, 11, 20), 1)
    hosts = [(f"s{site}", f"h{site}-{host}") for site in range(12) for host in range(8)]
    names = [{"kind": "ip", "value": "203.0.113.9"}]
    daily = [(day, place, "usual", "low") for day in range(10) for place in hosts]
    everywhere = [(hour / 24, place, "everywhere", "high") for hour in range(6) for place in hosts]
    site = [(0.1, place, "site", "high") for place in hosts[:8]]
    single = [(0.1, hosts[9], "single", "medium"), (0.1, hosts[9], "high", "high")]
    happened = enumerate([*daily, *everywhere, *site, *single])
    rows = [
        alert(number, rule_id=rule, rule_title=rule, level=level, site=at, host=host, entities=names,
              event_time=NOON - round(days * DAY))
        for number, (days, (at, host), rule, level) in happened
    ]  # fmt: skip
    take(spark, tables, "batch", [{**row, "received_at": row["event_time"] + HOUR} for row in rows])
    baselines.write(spark, tables, wanted)
    told = [row for row in tables.arrow(ANOMALIES).to_pylist() if row["kind"] == "new_rule"]
    assert [row["rule_id"] for row in sorted(told, key=lambda row: -row["score"])] == [
        "high", "single", "site", "everywhere",
    ]  # fmt: skip
