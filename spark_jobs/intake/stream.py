"""Running streaming queries to their end: what is there now, or continuously until stopped."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Event

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_jobs.intake import landing
from spark_jobs.intake.batch import Account, Work
from spark_jobs.intake.sources import Batch, Source
from spark_jobs.tables import storage
from spark_jobs.tables.schema import Table
from spark_jobs.tables.tables import Tables

log = logging.getLogger(__name__)

_POLL = 0.5
"""Seconds between looks at whether to stop."""


@dataclass(slots=True)
class Stream:
    """One query: its ``name``, where its rows come from, what is done with a micro-batch of them, and the table that
    gets the rows themselves."""

    name: str
    source: Source
    take: Callable[[Work, Batch], Account]
    main: Table
    account: Account = field(default_factory=Account)


def run_all(
    spark: SparkSession,
    tables: Tables,
    streams: list[Stream],
    checkpoints: str,
    *,
    every: float | None = None,
    stop: Event | None = None,
) -> None:
    """Run ``streams``, each adding to its account: one after the other what is there now (``every`` None), or all of
    them, looking each ``every`` seconds until ``stop`` is set. Raises what the first one to fail has raised."""
    stop = stop or Event()
    running: dict[str, tuple[StreamingQuery, list[Exception]]] = {}
    try:
        while not stop.is_set():
            for one in streams:
                if stop.is_set():
                    break
                if one.name not in running and one.source.ready(spark):
                    running[one.name] = _start(spark, tables, one, f"{checkpoints}/{one.source.kind}{one.name}", every)
                    if every is None:
                        _wait(running[one.name], stop)
            for one_running in running.values():
                _check(one_running)
            if every is None or (len(running) == len(streams) and all(not q.isActive for q, _ in running.values())):
                return
            stop.wait(_POLL if running else min(every, _POLL))
    finally:
        for query, _ in running.values():
            query.stop()


def _start(
    spark: SparkSession, tables: Tables, stream: Stream, checkpoint: str, every: float | None
) -> tuple[StreamingQuery, list[Exception]]:
    query_id: Future[str] = Future()
    failure: list[Exception] = []

    def take(frame: DataFrame, number: int) -> None:
        try:
            done = take_batch(Work(spark, tables, query_id.result(60), number), stream, frame, checkpoint)
        except Exception as error:  # Spark gives its caller only text: kept as it is, for who waits for the query
            failure.append(error)
            raise
        stream.account.add(done)
        log.info("%s: batch %d: %s", stream.name, number, done)

    writer = stream.source.stream(spark).writeStream.foreachBatch(take)
    writer = writer.queryName(stream.name).option("checkpointLocation", checkpoint)
    writer = writer.trigger(availableNow=True) if every is None else writer.trigger(processingTime=f"{every} seconds")
    query = writer.start()
    query_id.set_result(str(query.id))
    return query, failure


def take_batch(work: Work, stream: Stream, frame: DataFrame, checkpoint: str) -> Account:
    """One micro-batch, with the files that cannot be read as dead letters. A second time it changes nothing."""
    batch = stream.source.batch(work.spark, frame, work.number, checkpoint)
    done = work.tables.version(stream.main, work.query)
    if done is not None and done >= work.txn.version:
        # Replayed, and its rows are there: they are not read again, so a bad file would not be found by them.
        batch = stream.source.mend(work.spark, batch) or batch
    try:
        account = stream.take(work, batch)
    except landing.FAILURES:
        mended = stream.source.mend(work.spark, batch)
        if mended is None:
            raise
        batch = mended
        account = stream.take(work, batch)
    account.batches = 1
    account.bad_files = len(batch.letters)
    account.files = len(batch.files) + len(batch.letters)
    storage.settle(work.tables.root)
    return account


def _wait(running: tuple[StreamingQuery, list[Exception]], stop: Event) -> None:
    query, _ = running
    while query.isActive and not stop.is_set():
        try:
            query.awaitTermination(1)
        except StreamingQueryException:
            break
    _check(running)


def _check(running: tuple[StreamingQuery, list[Exception]]) -> None:
    query, failure = running
    if failure:
        raise failure[0]
    if (error := query.exception()) is not None:
        raise error
