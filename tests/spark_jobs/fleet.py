"""A simulated fleet's tables, made by the same arithmetic as ingest's: for jobs that read tables."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from bench.simulate import Plan, simulate
from spark_jobs.intake import frames
from spark_jobs.intake.counts import COUNTS
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


class Fleet(NamedTuple):
    """Where it is, and what was planted in it."""

    folder: Path
    tables: Tables
    truth: dict[str, Any]

    @property
    def lookups(self) -> str:
        return str(self.folder / "lookups")


def told(what: str, fleet: Fleet, met: int, planted: int, right: int, found: int) -> None:
    """Print recall and precision, for ``make evaluate``."""
    sys.stdout.write(
        f"\nseed {fleet.truth['plan']['seed']}: {what}: "
        f"{met} of {planted} planted are found (recall {met / planted:.3f}), "
        f"{right} of {found} found are planted (precision {right / max(found, 1):.3f})\n"
    )


FILLED = (WIN_5M, ENTITY_SITE_5M, HOST_1H, RULES, ALERTS, AGENTS)


def made(spark: SparkSession, folder: Path, plan: Plan, *wanted: Table) -> Fleet:
    """Simulate ``plan`` and fill those of ``FILLED`` that are ``wanted``; none named: all of them."""
    simulate(plan, folder)
    landing, tables = folder / "landing", open_tables(str(folder / "tables"))
    wanted = wanted or FILLED
    rows = spark.read.schema(LANDED_ALERT).option("recursiveFileLookup", "true").parquet(str(landing / "alerts"))
    once = rows.dropDuplicates(["agent_id", "alert_id"]).withColumn("counted_at", frames.counted_at())
    counted = frames.counted(once).persist()
    rules = frames.rules(counted).drop("odd", "rows").persist()
    for table in COUNTS:
        if table in wanted:
            tables.upsert(table, frames.rows_of(table, counted, rules))
    if RULES in wanted:
        tables.upsert(RULES, rules)
    if ALERTS in wanted:
        tables.append(ALERTS, once.withColumn("batch", F.lit("made")))
    if AGENTS in wanted:
        beats = spark.read.schema(LANDED_STATUS).option("recursiveFileLookup", "true").parquet(str(landing / "status"))
        tables.upsert(AGENTS, frames.agents(beats))
    counted.unpersist()
    rules.unpersist()
    return Fleet(folder, tables, json.loads((folder / "truth.json").read_text()))
