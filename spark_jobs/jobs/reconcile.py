"""The job ``reconcile``: the tables one set again, after some of them were lost or restored from another time.

1. With ``--landing`` or ``--kafka``, all that these still have is read again, whatever the checkpoints say: what the
   tables hold is known by its id, and what they have lost comes back.
2. The counts of every day that has alerts are made again from these, and the sums of ``rules`` from the counts. Days
   whose alerts retention has dropped, or of which nobody has any, keep their counts.
3. Every table is noted as it stands (``manifest``). Until then all other jobs refuse the tables, so that a run that was
   cut short is done again.

No ingest and no upkeep runs meanwhile.
"""

from __future__ import annotations

import click
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_jobs.common.plain import many
from spark_jobs.intake.enrich import Lookups
from spark_jobs.jobs.ingest import kafka_sources, landing_sources, said, source_options, take_over
from spark_jobs.jobs.job import Job, spark_job
from spark_jobs.jobs.maintain import interrupted, rebuild, rebuild_rules
from spark_jobs.tables import manifest, storage
from spark_jobs.tables.schema import ALERTS, TABLES
from spark_jobs.tables.tables import Tables

NO_LIMIT = 1 << 62
"""Alerts of a day whose counts are made again."""


@spark_job()
@source_options
def reconcile(
    job: Job, folder: str | None, kafka: str | None, topics: str, options: tuple[tuple[str, str], ...],
    lookups: Lookups | None, checkpoints: str | None,
) -> str:  # fmt: skip
    """Make the tables one set again after a loss or a restore.

    Alerts from what has landed, where a source is named; counts from alerts.

    Example: vedette-spark reconcile --tables tables

    Example: vedette-spark reconcile --tables tables --landing landing
    """
    if folder and kafka:
        raise click.UsageError("--landing and --kafka exclude each other")
    spark, tables = job.spark, job.unchecked
    checkpoints = checkpoints or f"{tables.root}/_checkpoints"
    sources = kafka_sources(kafka, topics, options=dict(options)) if kafka else landing_sources(str(folder))
    done = []
    with storage.one_writer(tables.root, "maintain"):
        with storage.one_writer(tables.root, "ingest"):
            if not (folder or kafka):
                _refuse(spark, tables, checkpoints)
            if folder or kafka:
                for name, source in sources.items():
                    storage.delete(f"{checkpoints}/{source.kind}{name}")
            manifest.begin_again(tables.root)
        if folder or kafka:
            streams = take_over(spark, tables, sources, lookups=lookups, checkpoints=checkpoints, landed=folder)
            done.append(said(streams))
        with storage.one_writer(tables.root, "ingest"), manifest.writing(tables, manifest.RECONCILE, TABLES.values()):
            days = recount(spark, tables)
            done.append(f"counts of {many(len(days), 'day')} rebuilt")
    return "reconcile: " + "; ".join(done)


def _refuse(spark: SparkSession, tables: Tables, checkpoints: str) -> None:
    """Raise ValueError where counts alone do not mend the tables."""
    wrong = manifest.problems(tables, manifest.readable(tables.root), whole=True)
    why = ", ".join(f"{problem.table.name} {problem.text}" for problem in wrong if problem.landed)
    if not why and interrupted(spark, checkpoints):
        why = "ingest was interrupted, so that some alerts are counted and others not"
    if why:
        raise ValueError(f"{tables.root}: {why}; name --landing DIR (or --kafka), to read again what has landed")


def recount(spark: SparkSession, tables: Tables) -> list[str]:
    """Step 2; the days whose counts were made again."""
    rebuild_rules(spark, tables)  # counts take titles and levels from them
    expired = manifest.read(tables.root).dropped.get(ALERTS.name, "")
    day = F.date_format("counted_at", "yyyy-MM-dd").alias("day")
    days = sorted(row.day for row in tables.frame(spark, ALERTS).select(day).distinct().collect() if row.day > expired)
    for name in days:
        rebuild(spark, tables, name, NO_LIMIT)
    rebuild_rules(spark, tables)
    return days
