"""Fleets of activity filled by hand, side by side in one region, and what the job ``baselines`` says of them.

A run plans for seconds whatever there is to judge, and judges each site by itself: so the cases of a file are fleets of
one region, and share its runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import SparkSession

from spark_jobs.common.period import Period
from spark_jobs.intake.enrich import Lookups
from spark_jobs.jobs import baselines
from spark_jobs.tables.arrow import arrow_schema
from spark_jobs.tables.schema import ANOMALIES, ENTITY_SITE_5M, RULES, WIN_5M, Table
from spark_jobs.tables.tables import Tables, open_tables

MONDAY = datetime(2026, 11, 2, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)

Row: TypeAlias = dict[str, Any]


def _upsert(tables: Tables, table: Table, rows: Iterable[Row]) -> None:
    """Add ``rows``; of those that share their key one, with the sums and the span of all."""
    whole: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        stored = whole.setdefault(tuple(row[key] for key in table.keys), row)
        if stored is not row:
            stored |= {name: stored[name] + row[name] for name in table.sums if name in row}
            stored |= {name: min(stored[name], row[name]) for name in table.lows}
            stored |= {"last_time": max(stored["last_time"], row["last_time"])}
    if whole:
        tables.upsert(table, arrow(table, list(whole.values())))


def arrow(table: Table, rows: list[Row]) -> pa.Table:
    kinds = [field for field in arrow_schema(table.columns) if field.name in rows[0]]
    return pa.Table.from_pylist(rows, pa.schema(kinds))


class Case:
    """A fleet of its own, with rules and users of its own, filled by hand."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows: dict[str, list[Row]] = {table.name: [] for table in (WIN_5M, ENTITY_SITE_5M, RULES)}

    def match(
        self,
        rows: Iterable[tuple[str, str, float, int]],
        level: str = "low",
        user: str = "",
        kind: str = "user",
        alerts: int = 1,
    ) -> None:
        """Activity, as (site, rule, hours since ``MONDAY``, matches)."""
        for site, rule, hours, matches in rows:
            at, rule_id = MONDAY + hours * HOUR, self._own(rule)
            row = {"date": f"{at:%Y-%m-%d}", "window_start": at, "fleet": self.name, "site": site, "rule_id": rule_id,
                   "level": level, "alerts": alerts, "matches": matches, "first_time": at, "last_time": at}  # fmt: skip
            self.rows["win_5m"].append({**row, "rule_title": rule_id.upper()})
            times = dict.fromkeys(("first_time", "last_time", "first_landed"), at)
            about = {"rule_id": rule_id, "rule_title": rule_id.upper(), **times}
            self.rows["rules"].append(about)
            if user:
                self.rows["entity_site_5m"].append({**row, "kind": kind, "value": self._own(user)})

    def people(self, rows: Iterable[Row]) -> None:
        for row in rows:
            own = {name: self._own(row[name]) for name in ("value", "rule_id")}
            self.rows["entity_site_5m"].append({**row, "fleet": self.name, **own})

    def of(self, rows: Iterable[Row]) -> list[Row]:
        """Those of ``rows`` that are about this fleet, with the names that it was filled with."""
        mark = f"{self.name}:"
        names = ("rule_id", "entity_value", "value")
        mine = [
            row for row in rows if row["fleet"] == self.name or any(mark in (row.get(name) or "") for name in names)
        ]
        return [row | {name: row[name].removeprefix(mark) for name in names if row.get(name)} for row in mine]

    def _own(self, name: str) -> str:
        return f"{self.name}:{name}"


FILLS: dict[int, list[tuple[str, Callable[[Case], None]]]] = {run: [] for run in (1, 2, 3, 4, 5)}
"""By run what it finds that the one before it did not."""


def filled(fill: Callable[[Case], None], *, by: int = 1) -> Any:
    """Of a test: its fleet is filled so before run ``by``."""

    def mark(test: Any) -> Any:
        FILLS[by].append((test.__name__, fill))
        return test

    return mark


class Region:
    """The tables of all cases, and what each run said of them."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.tables, self.runs = spark, open_tables(str(folder / "tables")), 0
        self.lookups = Lookups(str(folder / "lookups"))

    def run(self, first: int, days: int = 7, until: float | None = None, weeks: int = 4) -> list[Row]:
        """Judge ``days`` days from day ``first`` since ``MONDAY`` on; the anomalies in order."""
        self.runs += 1
        for table in (WIN_5M, RULES, ENTITY_SITE_5M):
            rows: list[Row] = []
            for name, fill in FILLS[self.runs]:
                fill(case := Case(name))
                rows += case.rows[table.name]
            _upsert(self.tables, table, rows)
        start = (MONDAY + first * DAY).date()
        now = MONDAY + until * HOUR if until else MONDAY + (first + days) * DAY
        wanted = Period(start, start + timedelta(days=days - 1), now)
        baselines.write(self.spark, self.tables, wanted, weeks, self.lookups)
        anomalies: list[Row] = self.tables.arrow(ANOMALIES).to_pylist()
        assert len({row["anomaly_id"] for row in anomalies}) == len(anomalies)
        return sorted(anomalies, key=lambda row: (row["started_at"], row["kind"], row["fleet"], row["site"]))
