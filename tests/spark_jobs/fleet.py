"""A simulated fleet's tables, made by the same arithmetic as ingest's: for jobs that read tables."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow.dataset import dataset
from pyspark.sql import SparkSession

from bench.simulate import Plan, simulate
from spark_jobs.intake import frames
from spark_jobs.intake.counts import COUNTS, ByDuck, counts
from spark_jobs.tables.arrow import arrow_schema, conform
from spark_jobs.tables.duck import database
from spark_jobs.tables.schema import (
    AGENTS,
    ALERTS,
    ENTITY_SITE_5M,
    HOST_1H,
    LANDED_ALERT,
    LANDED_STATUS,
    RULES,
    WIN_5M,
    Table,
)
from spark_jobs.tables.tables import Tables, open_tables

SEEDS = [9001 + number for number in range(int(os.environ.get("VEDETTE_FLEETS", "1")))]
"""Of the fleets on which jobs are measured: no threshold was set on one of them. ``make evaluate`` takes more."""


def take(spark: SparkSession, tables: Tables, label: str, rows: list[dict[str, Any]]) -> None:
    """Write ``rows``, as ``alert`` makes them, and their counts as ingest does in its batch ``label``."""
    counted = [{**row, "counted_at": row["event_time"], "batch": label} for row in rows]
    tables.append(ALERTS, conform(ALERTS, pa.Table.from_pylist(counted, arrow_schema(ALERTS.columns))))
    with counts(spark, tables, label, sorted({row["received_date"] for row in rows})) as of_batch:
        rules = of_batch.rules()
        for table in COUNTS:
            tables.upsert(table, of_batch.of(table))
        tables.upsert(RULES, rules.drop_columns(["odd", "rows"]))


class Fleet(NamedTuple):
    """Where it is, and what was planted in it."""

    folder: Path
    tables: Tables
    truth: dict[str, Any]

    @property
    def lookups(self) -> str:
        return str(self.folder / "lookups")


def print_score(what: str, fleet: Fleet, met: int, planted: int, right: int, reported: int) -> None:
    """Print recall and precision, for ``make evaluate``."""
    sys.stdout.write(
        f"\nseed {fleet.truth['plan']['seed']}: {what}: "
        f"{met} of {planted} planted are found (recall {met / planted:.3f}), "
        f"{right} of {reported} found are planted (precision {right / max(reported, 1):.3f})\n"
    )


_ONCE = "(SELECT DISTINCT ON (agent_id, alert_id) * FROM landed)"
_COUNTED_AT = (
    "CASE WHEN received_at - event_time "
    f"BETWEEN INTERVAL ({-frames.MAX_AHEAD.days}) DAY AND INTERVAL {frames.MAX_AGE.days} DAY "
    "THEN event_time ELSE received_at END"
)
"""``frames.counted_at`` in SQL."""
FILLED = (WIN_5M, ENTITY_SITE_5M, HOST_1H, RULES, ALERTS, AGENTS)


def simulated(spark: SparkSession, folder: Path, plan: Plan, *wanted: Table) -> Fleet:
    """Simulate ``plan`` and fill those of ``FILLED`` that are ``wanted``; none named: all of them."""
    simulate(plan, folder)
    landing, tables = folder / "landing", open_tables(str(folder / "tables"))
    wanted = wanted or FILLED
    with database() as duck:
        duck.register("landed", dataset(landing / "alerts", arrow_schema(LANDED_ALERT)))
        written = f"SELECT *, {_COUNTED_AT} AS counted_at, 'made' AS batch FROM {_ONCE}"
        duck.execute(f"CREATE TEMP TABLE written AS {written}")
        by_duck = ByDuck(duck, "made")
        rules = by_duck.rules()
        for table in COUNTS:
            if table in wanted:
                tables.upsert(table, by_duck.of(table))
        if RULES in wanted:
            tables.upsert(RULES, rules.drop_columns(["odd", "rows"]))
        if ALERTS in wanted:
            tables.append(ALERTS, duck.sql("FROM written").to_arrow_table())
    if AGENTS in wanted:
        beats = spark.read.schema(LANDED_STATUS).option("recursiveFileLookup", "true").parquet(str(landing / "status"))
        tables.upsert(AGENTS, frames.agents(beats))
    return Fleet(folder, tables, json.loads((folder / "truth.json").read_text()))
