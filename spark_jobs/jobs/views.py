"""The job ``views``: SQL by which other programs read the tables, by Spark's catalogs, Trino or DuckDB.

Printed, not run: whoever may change a catalog runs it there. The tables stay where they are; a catalog gets their
names, and views over them with what dashboards ask for, in SQL that all of these engines share. Times are UTC.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import click

from spark_jobs.jobs.job import Job, Value, spark_job
from spark_jobs.report.triage import MADE
from spark_jobs.tables.schema import (
    AGENTS,
    ANOMALIES,
    CAMPAIGNS,
    COVERAGE,
    NOISE,
    RISK,
    TABLES,
    TRIAGE,
    WIN_5M,
    Table,
)
from spark_jobs.tables.tables import texts


class View(NamedTuple):
    """``sql`` with ``{NAME}`` for each of the tables ``of``, which must be there."""

    of: tuple[Table, ...]
    sql: str


_DECISION = "coalesce(t.decision, 'new') AS decision, t.assignee, t.decision_reason, t.author, t.decided_at"
_DECIDED = f"""LEFT JOIN (
    SELECT finding_id, state AS decision, assignee, reason AS decision_reason, author, updated_at AS decided_at FROM (
        SELECT *, row_number() OVER (PARTITION BY finding_id ORDER BY updated_at DESC) AS place FROM {{triage}}
        WHERE {MADE}) d
    WHERE place = 1 AND (expires_at IS NULL OR expires_at > current_timestamp)) t ON t.finding_id = f."""

VIEWS: Mapping[str, View] = {
    "alerts_hourly": View(
        (WIN_5M,),
        """SELECT date_trunc('hour', window_start) AS hour, fleet, site, rule_id, max(rule_title) AS rule_title, level,
    sum(alerts) AS alerts, sum(matches) AS matches
FROM {win_5m} GROUP BY date_trunc('hour', window_start), fleet, site, rule_id, level""",
    ),
    "agents_now": View(
        (AGENTS,),
        """SELECT fleet, agent_id, site, state, version, bundle, last_seen, lag_seconds, in_outbox, dropped, lost
FROM {agents}""",
    ),
    "campaigns_now": View(
        (CAMPAIGNS, TRIAGE),
        f"""SELECT f.campaign_id, f.kind, f.value, f.first_seen, f.last_seen, f.state, f.stage, f.level, f.score,
    f.alerts, f.reason, {_DECISION}
FROM {{campaigns}} f {_DECIDED}campaign_id
WHERE f.score > 0""",
    ),
    "anomalies_now": View(
        (ANOMALIES, TRIAGE),
        f"""SELECT f.anomaly_id, f.kind, f.fleet, f.site, f.rule_id, f.started_at, f.ended_at, f.observed, f.median,
    f.score, f.level, f.reason, {_DECISION}
FROM {{anomalies}} f {_DECIDED}anomaly_id""",
    ),
    "risk_now": View(
        (RISK, TRIAGE),
        f"""SELECT f.risk_id, f.kind, f.value, f.scope, f.score, f.threshold, f.over, f.level, f.rules, f.tactics,
    f.days, f.first_seen, f.last_seen, f.reason, {_DECISION}
FROM {{risk}} f {_DECIDED}risk_id
WHERE f.as_of = (SELECT max(as_of) FROM {{risk}})""",
    ),
    "noise_now": View(
        (NOISE,),
        """SELECT rule_id, rule_title, level, matches, share, share_suppressed, score, reason
FROM {noise} WHERE as_of = (SELECT max(as_of) FROM {noise})""",
    ),
    "techniques_now": View(
        (COVERAGE,),
        """SELECT technique, count(*) AS rules, sum(CASE WHEN alerts = 0 THEN 1 ELSE 0 END) AS silent_rules,
    sum(alerts) AS alerts, max(last_seen) AS last_seen
FROM {coverage} WHERE as_of = (SELECT max(as_of) FROM {coverage}) AND technique <> '' GROUP BY technique""",
    ),
}
"""By name. ``docs/tables.md`` says what they are for."""


class Dialect(NamedTuple):
    """Statements of an engine; ``{schema}``, ``{name}`` and ``{path}`` are filled in."""

    head: str
    table: str


DIALECTS: Mapping[str, Dialect] = {
    "spark": Dialect(
        "CREATE SCHEMA IF NOT EXISTS {schema};",
        "CREATE TABLE IF NOT EXISTS {schema}.{name} USING DELTA LOCATION {path};",
    ),
    "trino": Dialect(
        "CREATE SCHEMA IF NOT EXISTS {schema};",
        "CALL {catalog}system.register_table("
        "schema_name => '{last}', table_name => '{name}', table_location => {path});",
    ),
    "duckdb": Dialect(
        "INSTALL delta; LOAD delta; CREATE SCHEMA IF NOT EXISTS {schema};",
        "CREATE OR REPLACE VIEW {schema}.{name} AS SELECT * FROM delta_scan({path});",
    ),
}
"""``spark`` is for any catalog of Spark: its own, a Hive metastore, Unity."""


def _schema(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?", text, re.ASCII):
        raise ValueError(f"expects SCHEMA or CATALOG.SCHEMA, not {text!r}")
    return text


PARTS = ("all", "tables", "views")


@spark_job()
@click.option("--dialect", type=click.Choice(tuple(DIALECTS)), required=True, help="Whose SQL.")
@click.option("--schema", type=Value("schema", _schema), default="vedette", show_default=True,
              metavar="[CATALOG.]SCHEMA", help="Where the names go.")  # fmt: skip
@click.option("--only", "part", type=click.Choice(PARTS), default="all", show_default=True,
              help="Names of the tables, or views over them; Trino refuses a table that it knows.")  # fmt: skip
def views(job: Job, dialect: str, schema: str, part: str) -> str:
    """Print SQL that makes the tables known to Spark's catalogs, Trino or DuckDB.

    Example: vedette-spark views --tables tables --dialect duckdb
    """
    there = [table for table in TABLES.values() if job.tables.exists(table)]
    if not there:
        raise ValueError(f"{job.root}: has no tables yet")
    return "\n".join(statements(dialect, schema, {table.name: job.tables.path(table) for table in there}, part))


def statements(dialect: str, schema: str, paths: Mapping[str, str], part: str = "all") -> list[str]:
    """The statements of ``part`` (of ``PARTS``), in order, for the tables with ``paths``; views that need another table
    are left out. Those of ``views`` can be run any number of times, those of ``tables`` in Spark and DuckDB as well."""
    of, (catalog, _, last) = DIALECTS[dialect], schema.rpartition(".")
    filled = {"schema": schema, "last": last, "catalog": f"{catalog}." if catalog else ""}
    lines = [of.head.format(**filled)]
    for name, path in paths.items() if part != "views" else ():
        lines.append(of.table.format(**filled, name=name, path=texts([path])))
    for name, view in VIEWS.items() if part != "tables" else ():
        if all(table.name in paths for table in view.of):
            sql = view.sql.format(**{table.name: f"{schema}.{table.name}" for table in view.of})
            lines.append(f"CREATE OR REPLACE VIEW {schema}.{name} AS\n{sql};")
    return lines
