"""No number and no time that an agent says ends a report."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from spark_jobs.common.period import period
from spark_jobs.jobs.report import figures
from spark_jobs.report import page, text
from spark_jobs.report.accounts import Accounts, accounts
from spark_jobs.tables.ask import LARGEST, open_reader
from spark_jobs.tables.delta import DeltaTables
from spark_jobs.tables.schema import ALERTS, SEQS
from tests.console.made import rows_of
from tests.spark_jobs.extremes import LAST, fill
from tests.spark_jobs.found import AT, write_all
from tests.spark_jobs.landed import DAY

PERIOD = period(date.fromisoformat(DAY), 1, AT)


@pytest.fixture
def tables(tmp_path: Path) -> DeltaTables:
    return DeltaTables(str(tmp_path / "tables"))


def accounts_of(tables: DeltaTables, spark: SparkSession | None = None) -> Accounts:
    reader = open_reader(tables, spark)
    try:
        return accounts(reader, PERIOD)
    finally:
        reader.close()


@pytest.mark.parametrize("runs", [True, False])
def test_a_report_of_extremes(tables: DeltaTables, runs: bool) -> None:
    """Tables of before hold what ingest takes in no more: the report is there, and sums end at the largest number."""
    fill(tables, runs=runs)
    write_all(tables)
    reader = open_reader(tables, None)
    try:
        report = figures(reader, PERIOD)
    finally:
        reader.close()
    assert "Vedette report" in text.text(report)
    assert "agent-0" in page.html(report)
    fleet = report.accounts.fleet
    assert (fleet.agents, fleet.missing) == (9, LARGEST)
    lags = {agent.agent_id: agent.lag_seconds for agent in report.accounts.agents.items}
    assert {lag for lag in lags.values() if lag is not None} == {0.0, 1.5}


def test_gaps_at_the_end_of_the_numbers(tables: DeltaTables) -> None:
    """The same largest number twice; 0 and the largest, of two agents; alerts without a number miss none."""
    common = {"fleet": "north", "log_id": "0" * 32, "received_at": AT, "date": DAY}
    firsts = [("twice", LAST), ("twice", LAST), *((name, first) for name in ("a", "b") for first in (0, LAST))]
    runs = [{**common, "agent_id": name, "first": first, "last": first} for name, first in firsts]
    tables.append(SEQS, rows_of(SEQS, runs))
    alert = {"received_date": DAY, "fleet": "north", "agent_id": "none"}
    tables.append(ALERTS, pa.Table.from_pylist([alert]))
    met = accounts_of(tables)
    assert {agent.agent_id: agent.missing for agent in met.agents.items} == {"a": LAST - 1, "b": LAST - 1, "none": 0}
    assert met.fleet.missing == LARGEST


@pytest.mark.spark
@pytest.mark.parametrize("runs", [True, pytest.param(False, marks=pytest.mark.long)])
def test_spark_asks_the_same(spark: SparkSession, tables: DeltaTables, runs: bool) -> None:
    """The accounts of extremes are those that DuckDB gives."""
    fill(tables, runs=runs)
    by_duck, by_spark = accounts_of(tables), accounts_of(tables, spark)
    assert by_spark.fleet == by_duck.fleet
    assert by_spark.agents == by_duck.agents
