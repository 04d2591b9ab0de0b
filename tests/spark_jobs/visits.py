"""A region's tables filled by hand with who was where by which rule, for the tests of the job ``campaigns``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import SparkSession

from spark_jobs.common.period import Period
from spark_jobs.findings.weight import held_as
from spark_jobs.jobs import campaigns
from spark_jobs.tables.arrow import arrow_schema
from spark_jobs.tables.schema import ALERTS, CAMPAIGNS, ENTITY_SITE_5M, RULES
from spark_jobs.tables.tables import open_tables

DAY = datetime(2026, 11, 20, tzinfo=UTC)
HOUR = timedelta(hours=1)
PAST = 14
"""Days up to ``DAY`` on which there have been alerts."""
TACTICS = ("reconnaissance", "initial-access", "execution", "exfiltration")

Row: TypeAlias = dict[str, Any]
Visit: TypeAlias = tuple[str, str, str, float]
"""Activity of one entity: its value, and the site, the rule and the time."""


class Region:
    """Tables filled by hand: activity is given as (value, site, rule, hours since the beginning of ``DAY``)."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.tables, self.said = spark, open_tables(str(folder)), ""
        rules = [
            {"rule_id": f"r{n}", "level": "high", "tactics": [name], "techniques": [f"T100{n}"]}
            for n, name in enumerate(TACTICS)
        ]
        self.tables.upsert(RULES, pa.Table.from_pylist(rules, _arrow(RULES, rules)))

    def alert(self, activity: Iterable[Visit], kind: str = "ip", level: str = "high") -> None:
        self.alerts([(activity, kind, level)])

    def alerts(self, activities: Iterable[tuple[Iterable[Visit], str, str]]) -> None:
        """Alerts of several: activity, kind and level of each."""
        rows = []
        for activity, kind, level in activities:
            for (value, site, rule, hours), number in Counter(activity).items():
                at = DAY + hours * HOUR
                start = at - timedelta(seconds=at.timestamp() % 300)
                rows.append(
                    {"date": f"{start:%Y-%m-%d}", "window_start": start, "kind": kind, "value": value, "fleet": "north",
                     "site": site, "rule_id": rule, "level": level, "alerts": number, "matches": number,
                     "first_time": at, "last_time": at}
                )  # fmt: skip
        self.tables.upsert(ENTITY_SITE_5M, pa.Table.from_pylist(rows, _arrow(ENTITY_SITE_5M, rows)))

    def land(self, rows: Iterable[tuple[str, str, float, list[tuple[str, str]]]]) -> None:
        """Alerts with all that they name: (site, rule, hours, entities)."""
        alerts = [
            {"agent_id": "agent-1", "alert_id": str(n), "kind": "detection", "fleet": "north", "site": site,
             "received_date": "2026-11-20", "rule_id": rule, "counted_at": DAY + hours * HOUR, "contributing": [],
             "raw_ref": {"log_id": "log", "offset": n, "length": 1},
             "entities": [{"kind": kind, "value": value} for kind, value in names]}
            for n, (site, rule, hours, names) in enumerate(rows)
        ]  # fmt: skip
        self.tables.append(ALERTS, pa.Table.from_pylist(alerts, _arrow(ALERTS, alerts)))

    def ordinary(self) -> None:
        """One alert of something else on each of the ``PAST`` days up to ``DAY``: there has been a past."""
        self.alert([("203.0.113.1", "a", "r1", -24 * day) for day in range(PAST)])

    def run(self, hours: float = 24, days: int = PAST + 2, **options: Any) -> list[Row]:
        """All campaigns, as the job leaves them when it runs ``hours`` after the beginning of ``DAY``; without what is
        held back."""
        now = DAY + hours * HOUR
        wanted = Period((now - timedelta(days=days)).date(), (now - timedelta(seconds=1)).date(), now)
        self.said = campaigns.write(self.spark, self.tables, wanted, **options)
        rows: list[Row] = self.tables.arrow(CAMPAIGNS).to_pylist()
        assert len({row["campaign_id"] for row in rows}) == len(rows)
        return sorted((row for row in rows if not held_as(row["reason"])), key=lambda row: row["first_seen"])


def _arrow(table: Any, rows: list[dict[str, Any]]) -> pa.Schema:
    whole = arrow_schema(table.columns)
    return pa.schema([field for field in whole if field.name in rows[0]])


def attack(value: str, sites: Iterable[str], begin: float, rules: int = 2) -> list[Visit]:
    """``rules`` rules at each of ``sites``, one site each two hours."""
    return [(value, site, f"r{n}", begin + 2 * m + n / 2) for m, site in enumerate(sites) for n in range(rules)]
