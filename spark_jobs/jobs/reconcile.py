"""The job ``reconcile``: the tables one set again, after some of them were lost or restored from another time.

1. With ``--landing`` or ``--kafka``, all that these still have is read again, whatever the checkpoints say: what the
   tables hold is known by its id, and what they have lost comes back. It is not counted: of an alert that comes back
   nobody knows whether it had been.
2. The counts of every day that has alerts are made again from these, and the sums of ``rules`` from the counts. Days
   whose alerts retention has dropped keep their counts as they are; so does a day that had counted more than the
   alerts that are there now, be it none, which may not be all (``--lower`` takes these for all).
   ``maintain`` leaves such a day as it is, too.
3. Every table is noted as it stands (``manifest``). Until then all other jobs refuse the tables, so that a run that was
   cut short is done again.

No ingest and no upkeep runs meanwhile. ``--check`` does none of this: it compares the counts of every day kept with its
alerts, which ``all`` has it do once a day.
"""

from __future__ import annotations

import logging
from contextlib import closing
from datetime import date
from operator import lt

import click
from pyspark.sql import SparkSession

from spark_jobs.common.plain import many
from spark_jobs.intake.enrich import Lookups
from spark_jobs.intake.published import Published
from spark_jobs.jobs.ingest import kafka_sources, landing_sources, published_at, said, source_options, take_over
from spark_jobs.jobs.job import Job, spark_job
from spark_jobs.jobs.maintain import ingest_held_off, interrupted, rebuild, rebuild_rules, said_by_day, sums_by_day
from spark_jobs.report.freshness import DIFFER, by_day
from spark_jobs.tables import manifest, storage
from spark_jobs.tables.schema import ALERTS, TABLES, WIN_5M
from spark_jobs.tables.tables import Tables

log = logging.getLogger(__name__)

DAY_SAID = "{date}: {alerts:,} alerts, {counted:,} counted, {matches:,} matches, {counted_matches:,} counted"
MAX_SAID = 5
"""Days that are named."""
NO_LIMIT = 1 << 62
"""Alerts of a day whose counts are made again."""


@spark_job()
@source_options
@click.option("--check", is_flag=True, help="Change nothing: fail where counts of a day kept differ from its alerts.")
@click.option("--lower", is_flag=True, help="Rebuild counts also where they say more than the alerts that are there.")
def reconcile(
    job: Job, check: bool, lower: bool, folder: str | None, kafka: str | None, topics: str,
    options: tuple[tuple[str, str], ...], lookups: Lookups | None, checkpoints: str | None,
) -> str:  # fmt: skip
    """Make the tables one set again after a loss or a restore.

    Alerts from what has landed, where a source is named; counts from alerts.

    Example: vedette-spark reconcile --tables tables

    Example: vedette-spark reconcile --tables tables --landing landing

    Example: vedette-spark reconcile --tables tables --check
    """
    if check:
        return checked(job)
    if folder and kafka:
        raise click.UsageError("--landing and --kafka exclude each other")
    job.ends = False  # all that has landed is read
    spark, tables = job.spark, job.unchecked
    checkpoints = checkpoints or f"{tables.root}/_checkpoints"
    if folder and not storage.names(f"{folder}/{ALERTS.name}", folders=True):
        raise ValueError(
            f"{folder}: holds no landed alerts: name the folder that the landing writes to; nothing was done"
        )
    done = []
    with storage.one_writer(tables.root, manifest.MAINTAIN):
        with storage.one_writer(tables.root, "ingest"):
            sources = {}
            if kafka:
                sources = kafka_sources(kafka, topics, options=dict(options))
            elif folder:
                sources = landing_sources(folder)
            else:
                _refuse(tables, checkpoints)
            read_again = {f"{source.kind}{name}" for name, source in sources.items()}
            # A batch of another source that was cut short would add to counts that have its alerts by then.
            for name in read_again.union(interrupted(tables, checkpoints)):
                storage.delete(f"{checkpoints}/{name}")
            manifest.begin_again(tables.root)
        if sources:
            streams = take_over(spark, tables, sources, lookups=lookups, checkpoints=checkpoints, counting=False)
            done.append(said(streams))
        with storage.one_writer(tables.root, "ingest"), manifest.writing(tables, manifest.RECONCILE, TABLES.values()):
            days = recount(spark, tables, published_at(folder), lower=lower)
            done.append(f"counts of {many(len(days), 'day')} rebuilt")
    return "reconcile: " + "; ".join(done)


def checked(job: Job) -> str:
    """How many days agree, of all whose alerts are kept and whose counts are not known to say more (``frozen``). Raises
    ClickException when some do not."""
    tables = job.tables
    with ingest_held_off(tables, f"{tables.root}/_checkpoints") as alone, closing(job.reader()) as reader:
        if not alone:
            return "reconcile: not checked, as ingest runs or was interrupted"
        noted = manifest.read(tables.root)
        reader.view("alerts", ALERTS)
        reader.view("win", WIN_5M)
        days = [day for day in reader.rows(f"{by_day()} ORDER BY date") if day["date"] not in noted.frozen]
    days = [day for day in days if day["date"] > max(noted.dropped.get(table.name, "") for table in (ALERTS, WIN_5M))]
    wrong = [day for day in days if (day["alerts"], day["matches"]) != (day["counted"], day["counted_matches"])]
    if wrong:
        said = "; ".join(DAY_SAID.format(**day) for day in wrong[:MAX_SAID])
        more = f" and {len(wrong) - MAX_SAID:,} more" if len(wrong) > MAX_SAID else ""
        raise click.ClickException(f"{DIFFER} from alerts on {many(len(wrong), 'day')} of {len(days):,} ({said}{more})")
    return f"reconcile: counts of {many(len(days), 'day')} agree with alerts"


def _refuse(tables: Tables, checkpoints: str) -> None:
    """Raise ValueError where counts alone do not mend the tables."""
    noted = manifest.read(tables.root)
    wrong = manifest.problems(tables, noted, whole=True)
    why = ", ".join(f"{problem.table.name} {problem.text}" for problem in wrong if problem.landed)
    if not why and interrupted(tables, checkpoints):
        why = "ingest was interrupted, so that some alerts are counted and others not"
    if not why and manifest.RECONCILE in noted.writers and noted.batches:
        why = "reconcile was cut short while it read what has landed"
    if why:
        raise ValueError(f"{tables.root}: {why}; name --landing DIR (or --kafka), to read again what has landed")


def recount(
    spark: SparkSession, tables: Tables, published: Published | None = None, *, lower: bool = False
) -> list[str]:
    """Step 2; the days whose counts were made again."""
    rebuild_rules(spark, tables, published)  # counts take titles from them
    expired = manifest.read(tables.root).dropped.get(ALERTS.name, "")
    there = {day: sums for day, sums in sums_by_day(tables.frame(spark, ALERTS)).items() if day > expired}
    said_before = {} if lower else said_by_day(spark, tables, date.min.isoformat(), date.max.isoformat())
    fewer = [day for day, said in said_before.items() if day > expired and any(map(lt, there.get(day, (0, 0)), said))]
    for day in sorted(fewer):
        number, _ = there.get(day, (0, 0))
        log.warning("counts of %s are kept: they say more than its %d alerts that are there", day, number)
    manifest.freeze(tables.root, fewer)
    days = sorted(there.keys() - set(fewer))
    for day in days:
        rebuild(spark, tables, day, NO_LIMIT)
    rebuild_rules(spark, tables, published)
    return days
