"""Entities that the lookup ``intel`` knows as one's own: what they do is no attack, and nothing unusual."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.common.materialised import materialised
from spark_jobs.intake import frames
from spark_jobs.intake.counts import counted_from
from spark_jobs.intake.enrich import Lookups
from spark_jobs.tables.schema import RULES, Table
from spark_jobs.tables.tables import Tables

OWN = frozenset(("exercise", "scanner", "shared"))
"""Threats by which ``intel`` names what is one's own: a red team, a scanner in service, an address that many share."""

TRIALS = frozenset(("exercise", "scanner"))
"""Of these what acts by itself and is no danger to a host. Behind a shared address may be anybody."""

EXERCISE = "exercise"
"""The one that takes all that it joined with it: the accounts that a red team took are its own."""

MAX_BROADCAST = 200_000
"""Alerts of trials whose counts, a few hundred bytes for each, every executor is given whole."""


class Trials:
    """The alerts of these days whose ``intel`` named a trial of one's own when they came in."""

    def __init__(self, spark: SparkSession, tables: Tables, first: date, last: date) -> None:
        alerts = counted_from(spark, tables, first, last)
        theirs = alerts.where(F.exists("intel", lambda hit: hit["threat"].isin(*TRIALS)))
        # Where there are none, which is often, a single column is read.
        days = [row.received_date for row in theirs.select("received_date").distinct().collect()]
        self._counted = materialised(frames.counted(theirs.where(F.col("received_date").isin(days)))) if days else None
        self._small = self._counted is not None and self._counted.count() <= MAX_BROADCAST
        self._rules, self._of = tables.frame(spark, RULES), dict[str, DataFrame]()

    def less(self, rows: DataFrame, table: Table) -> DataFrame:
        """``rows`` of a table of counts without them. Those that a running ingest has not counted yet are missing until
        the next run."""
        if self._counted is None:
            return rows
        if table.name not in self._of:
            counts = frames.rows_of(table, self._counted, self._rules)
            named = (F.col(name).alias(f"of_{name}") for name in table.sums)
            self._of[table.name] = materialised(counts.select(*table.keys, *named))
        theirs = self._of[table.name]
        met = rows.join(F.broadcast(theirs) if self._small else theirs, [*table.keys], "left")
        left = met.withColumns({name: F.col(name) - F.coalesce(f"of_{name}", F.lit(0)) for name in table.sums})
        return left.select(*rows.columns).where("matches > 0")


def threats_of(spark: SparkSession, sightings: DataFrame, lookups: Lookups) -> Mapping[str, frozenset[str]]:
    """By ``member`` of ``sightings`` what ``intel`` says of its entity at the time it was last seen."""
    asked = sightings.select(
        F.col("member").alias("file"), F.lit(0).cast("long").alias("position"),
        F.col("last_seen").alias("counted_at"), F.array(F.struct("kind", "value")).alias("entities"),
        *(F.lit(None).cast("string").alias(name) for name in ("fleet", "site", "host")),
    )  # fmt: skip
    enriched = lookups.enrich(spark, asked)
    if "intel" not in enriched.columns:
        return {}
    return {
        row.file: frozenset(row.threats)
        for row in enriched.select("file", F.col("intel.threat").alias("threats")).where("size(threats) > 0").collect()
    }
