"""SQL for other programs: what is printed is taken by the engines, and says what the tables hold."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
import sqlglot
from pyspark.sql import SparkSession

from spark_jobs.jobs.views import DIALECTS, VIEWS, statements
from spark_jobs.tables.arrow import arrow_schema
from spark_jobs.tables.schema import AGENTS, CAMPAIGNS, RISK, TABLES, TRIAGE, WIN_5M
from spark_jobs.tables.tables import Tables, open_tables
from tests.spark_jobs.conftest import JARS, run
from tests.spark_jobs.found import AT, write, write_all
from tests.spark_jobs.landed import DAY

DECIDED = {"campaign-1": "new", "campaign-2": "assigned", "campaign-4": "new"}
"""The decision of the first has expired, another was made while a clock was ahead; the third campaign is withdrawn."""

PAGE = (Path(__file__).parents[3] / "docs" / "tables.md").read_text("utf-8")


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    """Every table that a view reads."""
    tables = open_tables(str(tmp_path / "tables"))
    write_all(tables)
    common = {
        "date": DAY,
        "fleet": "north",
        "site": "plant",
        "rule_id": "r",
        "level": "high",
        "alerts": 2,
        "matches": 3,
    }
    rows = [{**common, "window_start": AT + timedelta(minutes=5 * n)} for n in range(13)]
    tables.upsert(WIN_5M, pa.Table.from_pylist(rows))
    tables.upsert(AGENTS, pa.Table.from_pylist([{"fleet": "north", "agent_id": "edge-1", "state": "running"}]))
    danger = {"as_of": DAY, "risk_id": "risk-1", "kind": "user", "value": "anna", "score": 120.0, "over": True}
    write(tables, RISK, danger, {**danger, "as_of": "2026-11-19", "score": 90.0})
    decided: list[tuple[str, datetime | None]] = [("false-positive", None), ("acknowledged", AT), ("assigned", None)]
    for number, (state, expires) in enumerate(decided):
        row = {"finding_id": f"campaign-{1 + number // 2}", "state": state, "expires_at": expires, "author": "ann"}
        row["updated_at"] = AT + timedelta(hours=number)
        tables.append(TRIAGE, pa.Table.from_pylist([row], arrow_schema(TRIAGE.columns)))
    ahead = {"finding_id": "campaign-1", "state": "assigned", "updated_at": datetime(2999, 1, 1, tzinfo=UTC)}
    tables.append(TRIAGE, pa.Table.from_pylist([ahead], arrow_schema(TRIAGE.columns)))
    return tables


def check(rows: dict[str, list[dict[str, Any]]]) -> None:
    """What each view says of ``tables``."""
    assert [(row["alerts"], row["matches"]) for row in sorted(rows["alerts_hourly"], key=lambda row: row["hour"])] == [
        (24, 36), (2, 3),
    ]  # fmt: skip
    decisions = {row["campaign_id"]: row["decision"] for row in rows["campaigns_now"]}
    assert decisions == {
        "campaign-1": "new",
        "campaign-2": "assigned",
        "campaign-4": "new",
    }  # one expired, one withdrawn
    assert {row["anomaly_id"] for row in rows["anomalies_now"]} == {"anomaly-1", "anomaly-2"}
    assert {(row["technique"], row["alerts"], row["silent_rules"]) for row in rows["techniques_now"]} == {
        ("T1110", 6, 0), ("T1003", 0, 1),
    }  # fmt: skip
    assert [row["agent_id"] for row in rows["agents_now"]] == ["edge-1"]
    assert [(row["risk_id"], row["score"], row["decision"]) for row in rows["risk_now"]] == [("risk-1", 120.0, "new")]
    assert {row["rule_id"] for row in rows["noise_now"]} == {"rule-a", "rule-b"}


def test_duckdb_takes_the_views(tables: Tables) -> None:
    """Over the tables' rows, with the columns of docs/tables.md; only what DuckDB's extension for Delta would read is
    put there by hand, since it downloads that."""
    paths = {name: tables.path(table) for name, table in TABLES.items() if tables.exists(table)}
    with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as duck:
        duck.execute("SET TimeZone = 'UTC'; CREATE SCHEMA vedette")
        for name in paths:
            duck.register("rows", tables.arrow(TABLES[name]))
            duck.execute(f"CREATE TABLE vedette.{name} AS SELECT * FROM rows")
        for statement in statements("duckdb", "vedette", paths):
            if "delta_scan" not in statement and "INSTALL" not in statement:
                duck.execute(statement)
        answers = {name: duck.sql(f"SELECT * FROM vedette.{name}").to_arrow_table() for name in VIEWS}
    check({name: rows.to_pylist() for name, rows in answers.items()})
    for name, rows in answers.items():
        assert f"| `{name}` | `{', '.join(rows.column_names)}` |" in PAGE


@pytest.mark.spark
@pytest.mark.skipif(not JARS, reason="no jars of delta-spark: make jars")
@pytest.mark.long
def test_spark_s_catalog_takes_it(spark: SparkSession, tables: Tables) -> None:
    """The SQL as it is, in Spark's own catalog with Delta, where it gives what the tables hold."""
    those = {table.name: tables.path(table) for table in (AGENTS, CAMPAIGNS, TRIAGE)}
    for statement in statements("spark", "seen", those):
        spark.sql(statement)
    try:
        rows = spark.table("seen.campaigns_now").select("campaign_id", "decision", "author").collect()
        assert {row.campaign_id: row.decision for row in rows} == DECIDED
        assert [row.agent_id for row in spark.table("seen.agents_now").collect()] == ["edge-1"]
    finally:
        spark.sql("DROP SCHEMA seen CASCADE")


def test_what_is_printed(tables: Tables) -> None:
    """The command prints the statements for the tables that are there, and refuses a folder without any."""
    said = run(None, "views", f"--tables={tables.root}", "--dialect=duckdb")
    assert said.count("delta_scan(") == 8
    assert said.count("CREATE OR REPLACE VIEW") == 8 + len(VIEWS)
    with pytest.raises(ValueError, match="has no tables yet"):
        run(None, "views", f"--tables={tables.root}/nowhere", "--dialect=duckdb")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_sql_is_that_of_the_dialect(dialect: str, tmp_path: Path) -> None:
    """Every view is read by a parser of the dialect; names are where they should be, quotes in a path are doubled."""
    said = statements(dialect, "lake.vedette", {name: f"/data/o'neil/{name}" for name in TABLES})
    assert sum("o''neil" in statement for statement in said) == len(TABLES)
    own = (statement for statement in said if "delta_scan" not in statement)
    created = [statement for statement in own if statement.startswith("CREATE OR REPLACE VIEW")]
    assert len(created) == len(VIEWS)
    for statement in created:
        parsed = sqlglot.parse_one(statement.rstrip(";"), read=dialect)
        assert isinstance(parsed, sqlglot.exp.Create), statement


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_second_run_of_the_views_takes_nothing_for_new(dialect: str) -> None:
    """The views by themselves, which may be made again and again; the tables' names by themselves, which Trino's
    ``register_table`` gives once."""
    paths = {name: f"s3://b/{name}" for name in TABLES}
    names, seen = (statements(dialect, "lake.vedette", paths, part) for part in ("tables", "views"))
    assert [names[0], *names[1:], *seen[1:]] == statements(dialect, "lake.vedette", paths)
    assert len(seen) == 1 + len(VIEWS)
    again = ("CREATE OR REPLACE VIEW", "CREATE SCHEMA IF NOT EXISTS", "INSTALL delta", "CREATE TABLE IF NOT EXISTS")
    assert all(statement.startswith(again) for statement in (seen if dialect == "trino" else [*seen, *names]))


def test_views_of_tables_that_are_not_there_are_left_out() -> None:
    said = "\n".join(statements("trino", "lake.vedette", {"agents": "s3://b/agents"}))
    assert "CALL lake.system.register_table(schema_name => 'vedette', table_name => 'agents'" in said
    assert "agents_now" in said
    assert "campaigns_now" not in said
