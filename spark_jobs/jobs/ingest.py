"""The job ``ingest``: a stream of each table of the landing, from its folders or from Kafka, into the tables."""

from __future__ import annotations

import argparse
import logging
from threading import Event

from pyspark.sql import SparkSession

from spark_jobs.common import given
from spark_jobs.intake import batch, landing
from spark_jobs.intake.enrich import Lookups
from spark_jobs.intake.sources import KafkaSource, LandingSource, Source
from spark_jobs.intake.stream import Stream, run_all
from spark_jobs.tables import storage
from spark_jobs.tables.schema import (
    ALERTS,
    DEAD_LETTERS,
    HEARTBEATS,
    LANDED_ALERT,
    LANDED_BAD,
    LANDED_SEQS,
    LANDED_STATUS,
    SEQS,
)
from spark_jobs.tables.tables import Tables

log = logging.getLogger(__name__)

HELP = "landed alerts, heartbeats and dead letters into the tables"
BYTES_PER_BATCH = 32 << 20
"""Of landed files, compressed, in one micro-batch."""
ROWS_PER_BATCH = 200_000
"""Of Kafka messages in one micro-batch."""
TOPICS = "vedette"

_LANDED = (
    ("alerts", LANDED_ALERT, ALERTS),
    ("status", LANDED_STATUS, HEARTBEATS),
    ("seqs", LANDED_SEQS, SEQS),
    ("bad", LANDED_BAD, DEAD_LETTERS),
)
"""Name of a stream, columns of its landed rows, and the table that gets these."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command line of the job may say."""
    parser.add_argument("--source", choices=("landing", "kafka"), default="landing")
    parser.add_argument("--landing", type=given.folder, metavar="DIR", help="folder that the landing writes")
    parser.add_argument("--brokers", metavar="HOST:PORT,…", help="of Kafka")
    parser.add_argument(
        "--topics", default=TOPICS, metavar="NAME", help="NAME.alerts, NAME.status, NAME.seqs, NAME.bad are read"
    )
    parser.add_argument(
        "--kafka-option", action="append", default=[], type=given.pair, metavar="KEY=VALUE", help="repeatable"
    )
    parser.add_argument("--lookups", type=given.folder, metavar="DIR", help="folder of assets, sites and intel")
    parser.add_argument("--checkpoints", type=given.folder, metavar="DIR", help="default: TABLES/_checkpoints")
    parser.add_argument("--every", type=given.seconds, metavar="TIME", help="go on, looking each TIME; default: once")
    parser.add_argument("--bytes-per-batch", type=given.positive, default=BYTES_PER_BATCH, metavar="N")
    parser.add_argument("--rows-per-batch", type=given.positive, default=ROWS_PER_BATCH, metavar="N", help="of Kafka")


def check(parser: argparse.ArgumentParser, said: argparse.Namespace) -> None:
    """Refuse what does not go together."""
    if said.source == "landing" and not said.landing:
        parser.error("ingest needs --landing DIR, or --source kafka with --brokers")
    if said.source == "kafka" and not said.brokers:
        parser.error("--source kafka needs --brokers HOST:PORT")


def run(spark: SparkSession, tables: Tables, said: argparse.Namespace, stop: Event) -> str:
    """Take over what there is (or go on until ``stop``); an account in words.

    Raises FileNotFoundError when there is no landing, BlockingIOError when another ingest writes these tables, and what
    Spark raises when storage fails.
    """
    streams = take_over(
        spark,
        tables,
        sources(said),
        lookups=said.lookups,
        checkpoints=said.checkpoints,
        every=said.every,
        landed=said.landing if said.source == "landing" else None,
        stop=stop,
    )
    return "ingest: " + (
        "; ".join(f"{one.name}: {one.account}" for one in streams if one.account.rows or one.account.files)
        or "nothing new"
    )


def sources(said: argparse.Namespace) -> dict[str, Source]:
    """The source of each stream by its name."""
    if said.source == "landing":
        return landing_sources(said.landing, said.bytes_per_batch)
    options = dict(said.kafka_option)
    return {
        name: KafkaSource(said.brokers, f"{said.topics}.{name}", schema, said.rows_per_batch, options)
        for name, schema, _ in _LANDED
    }


def landing_sources(root: str, bytes_per_batch: int = BYTES_PER_BATCH) -> dict[str, Source]:
    return {name: LandingSource(f"{root}/{name}", schema, bytes_per_batch) for name, schema, _ in _LANDED}


def take_over(
    spark: SparkSession,
    tables: Tables,
    given: dict[str, Source],
    *,
    lookups: str | None = None,
    checkpoints: str | None = None,
    every: float | None = None,
    landed: str | None = None,
    stop: Event | None = None,
) -> list[Stream]:
    """Run the streams of ``given`` sources and return them with their accounts. Raises as ``run`` does.

    ``landed``: the landing's folder, which must exist.
    """
    if landed is not None:
        if not storage.exists(spark, landed):
            raise FileNotFoundError(f"{landed}: no such landing folder; name the one that `vedette region land` writes")
        if left := landing.leftovers(spark, f"{landed}/alerts"):
            log.warning(
                "%s/alerts: %d temporary files of an interrupted landing, left out; agents send those alerts again",
                landed,
                left,
            )
    known = None if lookups is None else Lookups(lookups)
    takes = {
        "alerts": lambda work, one: batch.alerts(work, one, known),
        "status": batch.heartbeats,
        "seqs": batch.seqs,
        "bad": batch.dead_letters,
    }
    streams = [Stream(name, given[name], takes[name], table) for name, _, table in _LANDED if name in given]
    with storage.one_writer(spark, tables.root, "ingest"):
        run_all(spark, tables, streams, checkpoints or f"{tables.root}/_checkpoints", every=every, stop=stop)
    return streams
