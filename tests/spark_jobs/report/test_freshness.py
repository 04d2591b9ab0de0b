"""The first line of a report: whether its counts agree with alerts, and how fresh its data are."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from spark_jobs.common.period import period
from spark_jobs.jobs.report import figures
from spark_jobs.report import page, text
from spark_jobs.report.headline import Report, cards, look_first
from spark_jobs.tables.arrow import arrow_schema
from spark_jobs.tables.ask import open_reader
from spark_jobs.tables.schema import AGENTS, HEARTBEATS, RULES, RUNS, SEQS, WIN_5M, Table
from spark_jobs.tables.tables import Tables, open_tables
from tests.spark_jobs.fleet import take
from tests.spark_jobs.landed import DAY, HOUR, NOON, alert

AT = datetime.fromtimestamp(NOON / 1e6, UTC)


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return open_tables(str(tmp_path / "tables"))


def seen(tables: Tables, now: datetime, days: int = 1) -> Report:
    """The report as it is at ``now``."""
    reader = open_reader(tables, None)
    try:
        return figures(reader, period(date.fromisoformat(DAY), days, now))
    finally:
        reader.close()


def first_line(report: Report) -> str:
    return text.text(report).splitlines()[0]


def fill(tables: Tables, table: Table, **row: Any) -> None:
    schema = arrow_schema(table.columns)
    tables.append(table, pa.Table.from_pylist([row], pa.schema([field for field in schema if field.name in row])))


def note(tables: Tables, job: str, at: datetime, *, failed: bool = False, **row: Any) -> None:
    """That ``all`` began the job ``at`` this time."""
    if not failed:
        row["succeeded_at"] = at
    fill(tables, RUNS, job=job, started_at=at, error="no space left" if failed else "", **row)


def beat(tables: Tables, agent: str, at: datetime) -> None:
    fill(tables, HEARTBEATS, date=DAY, fleet="north", agent_id=agent, received_at=at)
    fill(tables, AGENTS, fleet="north", agent_id=agent, state="running", last_seen=at)


def test_agents_that_nobody_heard_are_not_called_well(tables: Tables) -> None:
    """All last heard two hours ago: no "0 agents in trouble", on no screen; heard a minute ago: that; never in these
    days: not that either."""
    for number in range(3):
        beat(tables, f"agent-{number}", AT)
    late = seen(tables, AT + timedelta(hours=2))
    assert "agents heard up to 12:00" in first_line(late)
    for shown in (text.text(late), page.html(late)):
        assert "in trouble<" not in shown
        assert "none of 3 agents heard since 20 Nov 12:00" in shown
    card = next(card for card in cards(late) if card.anchor == "agents")
    assert (card.number, card.name, card.note, card.severe) == (3, "agents not heard", "since 20 Nov 12:00", True)
    fresh = seen(tables, AT + timedelta(minutes=1))
    card = next(card for card in cards(fresh) if card.anchor == "agents")
    assert (card.number, card.name, card.note, card.severe) == (0, "agents in trouble", "of 3", False)
    assert "agents" not in [pointer.kind for pointer in look_first(fresh)]
    reader = open_reader(tables, None)
    never = figures(reader, period(date.fromisoformat(DAY) + timedelta(days=2), 1))
    reader.close()
    assert ("agents not heard", "in these days") in [(card.name, card.note) for card in cards(never)]


def test_how_fresh_the_data_are(tables: Tables) -> None:
    """Newest alert, last heartbeat, last run of a job, those that failed or are behind, with their day where it is
    another."""
    assert first_line(seen(tables, AT)) == (
        "Vedette report, Friday, 20 November 2026 (UTC): counts agree with alerts; no alerts yet, no agent heard yet, "
        "no run of jobs noted"
    )
    beat(tables, "agent-1", AT - timedelta(days=2))
    note(tables, "report", AT)
    note(tables, "noise", AT - timedelta(hours=40))
    said = first_line(seen(tables, AT + timedelta(hours=2)))
    assert said.endswith("no alerts yet, agents heard up to 18 Nov 12:00, jobs run up to 12:00")
    note(tables, "campaigns", AT, failed=True, succeeded_at=AT - timedelta(hours=3))
    note(tables, "risk", AT, failed=True)
    note(tables, "coverage", AT - timedelta(days=3))
    said = first_line(seen(tables, AT + timedelta(hours=2)))
    assert said.endswith(
        "jobs run up to 12:00, failed: campaigns (run up to 09:00), risk (not yet done), "
        "behind: coverage (run up to 17 Nov 12:00)"
    )


def test_a_long_run_of_all_jobs_is_not_behind(tables: Tables) -> None:
    """Nor is a job named for ever that nobody runs any more, whether its last run failed or not."""
    note(tables, "ingest", AT - timedelta(hours=30))
    note(tables, "campaigns", AT - timedelta(hours=29))
    note(tables, "noise", AT - timedelta(days=8))
    note(tables, "coverage", AT - timedelta(days=8), failed=True)
    note(tables, "report", AT)
    assert first_line(seen(tables, AT)).endswith("jobs run up to 12:00")


def test_an_alert_dated_ahead_is_no_fresh_data(tables: Tables) -> None:
    """A host whose clock is most of a day ahead does not hide a landing that stands still."""
    fill(tables, RULES, rule_id="rule-a", last_time=AT + timedelta(hours=20))
    assert "alerts up to 12:05, " in first_line(seen(tables, AT + timedelta(minutes=5)))
    for minutes in (1, 2):
        fill(tables, SEQS, date=DAY, fleet="north", agent_id="a", received_at=AT + timedelta(minutes=minutes))
    assert "alerts up to 12:02, " in first_line(seen(tables, AT + timedelta(hours=5)))


def test_a_day_that_has_outlived_its_alerts(tables: Tables) -> None:
    """Its counts stay, and nothing is to be reconciled."""
    start = datetime.fromisoformat(f"{DAY}T00:00:00Z")
    fill(tables, WIN_5M, date=DAY, window_start=start, alerts=11, matches=11)
    assert "counts agree with alerts" in first_line(seen(tables, AT))


@pytest.mark.spark
def test_counts_that_differ_from_alerts_are_said(spark: SparkSession, tables: Tables) -> None:
    """A fold and a late alert among them, they agree; with a day of counts dropped or an alert counted twice the first
    line says which days and how many, and so does the page."""
    rows = [*(alert(n) for n in range(5)), alert(5, kind="fold", count=7), alert(6, event_time=NOON - 24 * HOUR)]
    take(spark, tables, "batch", rows)
    week = seen(tables, AT, days=7)
    assert "counts agree with alerts; alerts up to 12:00, " in first_line(week)
    twice = tables.arrow(WIN_5M, since=DAY)
    tables.upsert(WIN_5M, twice.set_column(twice.column_names.index("alerts"), "alerts", pa.array([0])))
    said = first_line(seen(tables, AT, days=7))
    assert f"COUNTS DIFFER from alerts on 1 day ({DAY}: 12 matches, 24 counted)" in said
    tables.drop(WIN_5M, ["2026-11-19", DAY])
    report = seen(tables, AT, days=7)
    assert "COUNTS DIFFER from alerts on 2 days (2026-11-19: 1 alert, 0 counted)" in first_line(report)
    assert "<b>COUNTS DIFFER" in page.html(report)
