"""The job ``ingest``: a stream of each table of the landing, from its folders or from Kafka, into the tables."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from threading import Event

import click
from pyspark.sql import SparkSession

from spark_jobs.intake import batch, landing
from spark_jobs.intake.enrich import Lookups
from spark_jobs.intake.published import Published
from spark_jobs.intake.sources import KafkaSource, LandingSource, Source
from spark_jobs.intake.stream import Stream, run_all
from spark_jobs.jobs.job import COUNT, DURATION, FOLDER, PAIR, Job, lookups_option, spark_job
from spark_jobs.tables import manifest, storage
from spark_jobs.tables.schema import (
    AGENTS,
    DEAD_LETTERS,
    HEARTBEATS,
    LANDED_ALERT,
    LANDED_BAD,
    LANDED_SEQS,
    LANDED_STATUS,
    SEQS,
)
from spark_jobs.tables.spark import using
from spark_jobs.tables.tables import Tables

log = logging.getLogger(__name__)

BYTES_PER_BATCH = 32 << 20
"""Of landed files, compressed, in one micro-batch."""
ROWS_PER_BATCH = 200_000
"""Of Kafka messages in one micro-batch."""
TOPICS = "vedette"
KEPT = {"spark.sql.inMemoryColumnarStorage.compressed": "false"}
"""Settings of ingest: a batch's cached rows are few and read at once, so compressing them costs more than it saves."""

LANDED = (
    ("alerts", LANDED_ALERT, (*manifest.TOGETHER, DEAD_LETTERS)),
    ("status", LANDED_STATUS, (HEARTBEATS, AGENTS, DEAD_LETTERS)),
    ("seqs", LANDED_SEQS, (SEQS, DEAD_LETTERS)),
    ("bad", LANDED_BAD, (DEAD_LETTERS,)),
)
"""Name of a stream (and of its folder in the landing), columns of its landed rows, and the tables that it writes, first
the one that gets these."""


def source_options(run: Callable[..., str]) -> Callable[..., str]:
    """The options that say where landed rows come from, what is known of them, and where Spark's record is."""
    for option in (
        click.option("--checkpoints", type=FOLDER, metavar="DIR",
                     help="Spark's record of what is done.  [default: TABLES/_checkpoints]"),
        lookups_option("Folder of the lookups assets, sites and intel."),
        click.option("--kafka-option", "options", type=PAIR, multiple=True, metavar="KEY=VALUE",
                     help="Option of Spark's Kafka source; may be repeated."),
        click.option("--kafka-topics", "topics", default=TOPICS, show_default=True, metavar="NAME",
                     help="NAME.alerts, NAME.status, NAME.seqs and NAME.bad are read."),
        click.option("--kafka", metavar="HOST:PORT,…", help="Read Kafka topics instead."),
        click.option("--landing", "folder", type=FOLDER, metavar="DIR", help="Folder that the landing writes."),
    ):  # fmt: skip
        run = option(run)
    return run


@spark_job()
@source_options
@click.option("--every", type=DURATION, metavar="TIME", help="Go on, looking each TIME (30s, 5m, …); else once.")
@click.option("--bytes-per-batch", type=COUNT, default=BYTES_PER_BATCH, show_default=True,
              help="Landed files in a micro-batch, compressed.")  # fmt: skip
@click.option("--rows-per-batch", type=COUNT, default=ROWS_PER_BATCH, show_default=True,
              help="Kafka messages in a micro-batch.")  # fmt: skip
def ingest(
    job: Job, folder: str | None, kafka: str | None, topics: str, options: tuple[tuple[str, str], ...],
    lookups: Lookups | None, checkpoints: str | None, every: float | None, bytes_per_batch: int, rows_per_batch: int,
) -> str:  # fmt: skip
    """Take what has landed into the tables, once.

    Alerts, heartbeats, ranges of alert numbers and dead letters, each row once however often it has landed.

    Example: vedette-spark ingest --landing landing --tables tables --every 1m

    Example: vedette-spark ingest --kafka kafka-1:9092 --tables tables
    """
    if bool(folder) == bool(kafka):
        raise click.UsageError("ingest needs --landing DIR, or --kafka HOST:PORT")
    manifest.check(job.unchecked, whole=True)
    if kafka:
        sources = kafka_sources(kafka, topics, rows_per_batch, dict(options))
    else:
        sources = landing_sources(str(folder), bytes_per_batch)
    streams = take_over(
        job.spark, job.unchecked, sources, lookups=lookups, published=published_at(folder), checkpoints=checkpoints,
        every=every, stop=job.stop,
    )  # fmt: skip
    return f"ingest: {said(streams)}"


def said(streams: list[Stream]) -> str:
    """Say what became of the rows of each stream."""
    new = (f"{stream.name}: {stream.account}" for stream in streams if stream.account.rows or stream.account.files)
    return "; ".join(new) or "nothing new"


def kafka_sources(
    brokers: str, topics: str = TOPICS, rows_per_batch: int = ROWS_PER_BATCH, options: Mapping[str, str] | None = None
) -> dict[str, Source]:
    """The source of each stream by its name."""
    return {
        name: KafkaSource(brokers, f"{topics}.{name}", schema, rows_per_batch, options or {})
        for name, schema, _ in LANDED
    }


def landing_sources(root: str, bytes_per_batch: int = BYTES_PER_BATCH) -> dict[str, Source]:
    """The source of each stream by its name. Raises FileNotFoundError when there is no landing."""
    if not storage.exists(root):
        raise FileNotFoundError(f"{root}: no such landing folder; name the one that `vedette region land` writes")
    if left := landing.leftovers(f"{root}/alerts"):
        log.warning(
            "%s/alerts: %d temporary files of an interrupted landing, skipped; agents send those alerts again",
            root,
            left,
        )
    return {name: LandingSource(f"{root}/{name}", schema, bytes_per_batch) for name, schema, _ in LANDED}


def published_at(landing: str | None) -> Published | None:
    """The rule lists of ``landing``, where there is one."""
    return Published(f"{landing}/rules") if landing else None


def take_over(
    spark: SparkSession,
    tables: Tables,
    sources: dict[str, Source],
    *,
    lookups: Lookups | None = None,
    published: Published | None = None,
    checkpoints: str | None = None,
    every: float | None = None,
    stop: Event | None = None,
    counting: bool = True,
) -> list[Stream]:
    """Run the streams of ``sources``, once or until ``stop``, and return them with their accounts. ``counting``
    False: alerts that come in are not counted.

    Raises BlockingIOError when another ingest writes these tables, and what Spark raises when storage fails.
    """
    takes = {
        "alerts": lambda work, rows: batch.alerts(work, rows, lookups, published, counting=counting),
        "status": batch.heartbeats,
        "seqs": batch.seqs,
        "bad": batch.dead_letters,
    }
    streams = [Stream(name, sources[name], takes[name], written) for name, _, written in LANDED if name in sources]
    with storage.one_writer(tables.root, "ingest"), using(spark, KEPT):
        run_all(spark, tables, streams, checkpoints or f"{tables.root}/_checkpoints", every=every, stop=stop)
    return streams
