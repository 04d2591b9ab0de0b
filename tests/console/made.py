"""Tables without Spark, for tests of the console: alerts as ingest writes them, and their counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pyarrow as pa

from spark_jobs.common.attack import of_tags
from spark_jobs.tables import sums
from spark_jobs.tables.arrow import arrow_schema
from spark_jobs.tables.delta import DeltaTables
from spark_jobs.tables.schema import AGENTS, ALERTS, ENTITY_SITE_5M, HEARTBEATS, HOST_1H, RULES, WIN_5M, Table
from tests.spark_jobs.landed import alert

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def row(number: int, **changes: Any) -> dict[str, Any]:
    """Alert ``number`` of ``landed.alert`` as the table has it."""
    landed = alert(number, **changes)
    landed.setdefault("counted_at", landed["event_time"])
    return landed


def rows_of(table: Table, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Rows as Arrow; what they lack is null."""
    return pa.Table.from_pylist([dict(row) for row in rows], arrow_schema(table.columns))


def write_alerts(tables: DeltaTables, rows: Iterable[Mapping[str, Any]]) -> None:
    """Append alerts, a file for each day of receipt, and count them."""
    added = rows_of(ALERTS, rows)
    tables.append(ALERTS, added)
    count(tables, added)


def count(tables: DeltaTables, added: pa.Table) -> None:
    """Add ``added`` alerts to the tables of counts, as ingest does."""
    with duckdb.connect() as duck:
        duck.execute("SET TimeZone = 'UTC'")
        duck.register("added", added)
        duck.execute(f"CREATE TEMP TABLE counted AS {sums.counted('added AS w')}")
        named = duck.sql(
            """SELECT rule_id, arg_max(rule_title, counted_at) AS rule_title, arg_max(level, counted_at) AS level,
            arg_max(tags, counted_at) AS tags, count(*) AS alerts, count(*) AS matches, min(counted_at) AS first_time,
            max(counted_at) AS last_time FROM added WHERE rule_id IS NOT NULL GROUP BY 1"""
        ).to_arrow_table()
        fired = []
        for row in named.to_pylist():
            tactics, techniques = of_tags(row["tags"])
            fired.append({**row, "tactics": tactics, "techniques": techniques})
        titles = rows_of(RULES, fired)
        tables.upsert(RULES, titles)
        duck.register("known", titles.select(["rule_id", "rule_title", "level"]))
        for table in (HOST_1H, ENTITY_SITE_5M, WIN_5M):
            tables.upsert(table, duck.sql(sums.rows_of(table, "counted", "known", sums.DUCK)).to_arrow_table())


def agent(agent_id: str, at: datetime, **changes: Any) -> dict[str, Any]:
    """An agent's account, heard at ``at``."""
    return {
        "fleet": "north", "agent_id": agent_id, "site": "plant", "state": "running", "version": "0.1.0",
        "bundle": "demo-1", "plan_digest": "p1", "seq_high": 9, "received": 100, "stored": 100, "judged": 99,
        "backlog": 1, "dropped": 0, "lost": 0, "alerts_made": 9, "alerts_receipted": 9, "in_outbox": 0,
        "lag_seconds": 0.5, "dead_rules": 0, "identity_broken": [], "first_seen": at - timedelta(days=9),
        "last_seen": at, **changes,
    }  # fmt: skip


def beat(agent_id: str, at: datetime, payload: str, **changes: Any) -> dict[str, Any]:
    """A heartbeat with the JSON ``payload``."""
    return {
        "agent_id": agent_id, "fleet": "north", "site": "plant", "state": "running", "version": "0.1.0",
        "bundle": "demo-1", "plan_digest": "p1", "seq_high": 9, "payload": payload, "received_at": at,
        "date": f"{at:%Y-%m-%d}", **changes,
    }  # fmt: skip


def write_agents(tables: DeltaTables, rows: Iterable[Mapping[str, Any]], beats: Iterable[Mapping[str, Any]]) -> None:
    tables.upsert(AGENTS, rows_of(AGENTS, rows))
    tables.append(HEARTBEATS, rows_of(HEARTBEATS, beats))
