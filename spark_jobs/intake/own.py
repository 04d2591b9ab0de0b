"""Entities that the lookup ``intel`` knows as one's own: what they do is no attack."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.intake.enrich import Lookups

OWN = frozenset(("exercise", "scanner", "shared"))
"""Threats by which ``intel`` names what is one's own: a red team, a scanner in service, an address that many share."""

TRIALS = frozenset(("exercise", "scanner"))
"""Of these what acts by itself and is no danger to a host. Behind a shared address may be anybody."""

EXERCISE = "exercise"
"""The one that takes all that it joined with it: the accounts that a red team took are its own."""


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
