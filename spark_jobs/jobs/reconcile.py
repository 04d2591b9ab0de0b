"""The job ``reconcile``: the tables one set again, after some of them were lost or restored from another time.

1. With ``--landing`` or ``--kafka``, all that these still have is read again, whatever the checkpoints say: what the
   tables hold is known by its id, and what they have lost comes back.
2. The counts of every day that has alerts are made again from these, and the sums of ``rules`` from the counts. Days
   whose alerts retention has dropped, or of which nobody has any, keep their counts; so does a day that had counted
   more than the alerts that are there now, which may not be all (``--lower`` takes these for all).
3. Every table is noted as it stands (``manifest``). Until then all other jobs refuse the tables, so that a run that was
   cut short is done again.

No ingest and no upkeep runs meanwhile.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from datetime import date
from operator import lt
from typing import cast

import click
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_jobs.common.plain import many
from spark_jobs.intake.enrich import Lookups
from spark_jobs.jobs.ingest import kafka_sources, landing_sources, said, source_options, take_over
from spark_jobs.jobs.job import Job, spark_job
from spark_jobs.jobs.maintain import interrupted, rebuild, rebuild_rules, said_by_day, sums_by_day
from spark_jobs.tables import manifest, storage
from spark_jobs.tables.schema import ALERTS, TABLES
from spark_jobs.tables.tables import Tables

log = logging.getLogger(__name__)

NOTE = "_reconcile.json"
"""Under the folder of the tables, while this job is under way: what each day had counted before."""
NO_LIMIT = 1 << 62
"""Alerts of a day whose counts are made again."""


@spark_job()
@source_options
@click.option("--lower", is_flag=True, help="Rebuild counts also where they say more than the alerts that are there.")
def reconcile(
    job: Job, lower: bool, folder: str | None, kafka: str | None, topics: str, options: tuple[tuple[str, str], ...],
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
    if folder and not storage.names(f"{folder}/{ALERTS.name}", folders=True):
        raise ValueError(
            f"{folder}: holds no landed alerts: name the folder that the landing writes to; nothing was done"
        )
    done = []
    with storage.one_writer(tables.root, "maintain"):
        with storage.one_writer(tables.root, "ingest"):
            sources = {}
            if kafka:
                sources = kafka_sources(kafka, topics, options=dict(options))
            elif folder:
                sources = landing_sources(folder)
            else:
                _refuse(spark, tables, checkpoints)
            for name, source in sources.items():
                storage.delete(f"{checkpoints}/{source.kind}{name}")
            before = _before(spark, tables)
            manifest.begin_again(tables.root)
        if sources:
            streams = take_over(spark, tables, sources, lookups=lookups, checkpoints=checkpoints, landed=folder)
            done.append(said(streams))
        with storage.one_writer(tables.root, "ingest"), manifest.writing(tables, manifest.RECONCILE, TABLES.values()):
            days = recount(spark, tables, {} if lower else before)
            storage.delete(f"{tables.root}/{NOTE}")
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


def _before(spark: SparkSession, tables: Tables) -> Mapping[str, Sequence[int]]:
    """Alerts and matches of each day as they were counted before, also before a run that was cut short."""
    path = f"{tables.root}/{NOTE}"
    if manifest.RECONCILE in manifest.readable(tables.root).writers and (content := storage.text(path)):
        return cast(dict[str, list[int]], json.loads(content))
    counted = said_by_day(spark, tables, date.min.isoformat(), date.max.isoformat())
    storage.store(path, json.dumps(counted))
    return counted


def recount(spark: SparkSession, tables: Tables, before: Mapping[str, Sequence[int]]) -> list[str]:
    """Step 2; the days whose counts were made again, but those of which ``before`` says more than the alerts do."""
    rebuild_rules(spark, tables)  # counts take titles and levels from them
    expired = manifest.read(tables.root).dropped.get(ALERTS.name, "")
    day = F.date_format("counted_at", "yyyy-MM-dd").alias("day")
    days = sorted(row.day for row in tables.frame(spark, ALERTS).select(day).distinct().collect() if row.day > expired)
    there = sums_by_day(tables.frame(spark, ALERTS))
    fewer = [name for name in days if any(map(lt, there.get(name, (0, 0)), before.get(name, ())))]
    for name in fewer:
        log.warning("counts of %s are kept: they say more than its %d alerts that are there", name, there[name][0])
    days = [name for name in days if name not in fewer]
    for name in days:
        rebuild(spark, tables, name, NO_LIMIT)
    rebuild_rules(spark, tables)
    return days
