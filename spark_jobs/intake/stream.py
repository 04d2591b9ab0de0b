"""Running streaming queries to their end: what is there now, or continuously until stopped."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Event, Lock
from time import monotonic

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_jobs.intake import landing, unread
from spark_jobs.intake.batch import Account, Work
from spark_jobs.intake.sources import Batch, Source
from spark_jobs.tables import manifest, storage
from spark_jobs.tables.schema import Table
from spark_jobs.tables.tables import Tables

log = logging.getLogger(__name__)

_POLL = 0.5
"""Seconds between looks at whether to stop."""


@dataclass(slots=True)
class Stream:
    """One query: its ``name``, where its rows come from, what is done with a micro-batch of them, and the tables that
    this writes, first the one that gets the rows themselves."""

    name: str
    source: Source
    take: Callable[[Work, Batch], Account]
    tables: tuple[Table, ...]
    account: Account = field(default_factory=Account)
    busy: Lock = field(default_factory=Lock)
    """Held while a batch is taken."""
    stuck: set[str] = field(default_factory=set)
    """Files that have been logged, as only reconcile mends what was begun of them."""


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
    look = 0.0
    try:
        while not stop.is_set():
            due = monotonic() >= look
            if due:
                look = monotonic() + (every or 0)
            for stream in streams:
                if stop.is_set():
                    break
                checkpoint = f"{checkpoints}/{stream.source.kind}{stream.name}"
                if due:
                    take_changed(spark, tables, stream, checkpoint)
                if stream.name not in running and stream.source.ready(spark):
                    running[stream.name] = _start(spark, tables, stream, checkpoint, every)
                    if every is None:
                        _wait(running[stream.name], stop)
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
            with stream.busy:
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
    """One micro-batch, with the files that cannot be read as dead letters. A second time it changes nothing.

    Raises ValueError when the last one in the tables is neither this one, planned at the same time, nor the one before
    it: then the tables, or the checkpoint, are of another time. So too when a new query would begin after one that was
    cut short: it knows the alerts of that one's batch, and would not count them.
    """
    plan, query = _hash(storage.text(f"{checkpoint}/offsets/{work.number}")), f"{stream.source.kind}{stream.name}:"
    former = manifest.read(work.tables.root)
    done, last = manifest.Done(work.number, plan), former.batches.get(work.query)
    others = {name for name in former.writers if name.startswith(query)} - {f"{query}{work.query}"}
    if not work.number and others:
        raise ValueError(
            f"{work.tables.root}: a batch of {stream.name} was cut short whose checkpoint is not {checkpoint}: run "
            f"ingest with that one, or vedette-spark reconcile --tables {work.tables.root} --landing DIR"
        )
    if last is not None and last != done and last.number + 1 != work.number:
        raise ValueError(
            f"{checkpoint}: batch {work.number} does not follow {last.number} in {work.tables.root}: one of them is "
            "of another time; restore both from one backup, or delete this folder to read again all that has landed"
        )
    batch = stream.source.batch(work.spark, frame, work.number, checkpoint)
    with manifest.writing(work.tables, f"{query}{work.query}", stream.tables) as noted:
        account = _take(work, stream, batch, checkpoint)
        noted.batches[work.query] = done
    return account


def take_changed(spark: SparkSession, tables: Tables, stream: Stream, checkpoint: str) -> None:
    """Take the files that could not be read and have changed since, each as a batch of its own; not while another batch
    of the stream is taken.

    The batch is named by the file and how often it has been tried, so that one that was cut short is done to its end.
    One that fails before any of it is in the tables is logged, and taken at the next look; one that was cut short
    before that, and whose file has gone or is as it was noted, is withdrawn.
    """
    if not stream.busy.acquire(blocking=False):
        return
    try:
        files = unread.changed(checkpoint)
        _withdraw(spark, tables, stream, checkpoint, {file.name for file, _ in files})
        for file, tries in files:
            work = _retry(spark, tables, stream, file.path, tries)
            writer = f"{_retries(stream)}{file.name}"
            try:
                with manifest.writing(tables, writer, stream.tables):
                    batch = stream.source.files(spark, [file])
                    account = _take(work, stream, batch, checkpoint)
                if not account.bad_files:  # by now: a note that went before the writer's name would leave that for ever
                    unread.forget(checkpoint, file)
            except Exception as error:  # whatever it is: one file must not stop all streams
                if _begun(work, stream):
                    raise
                manifest.withdraw(tables.root, writer)
                log.error("%s: %s could not be taken, and is tried again: %s", stream.name, file.name, error)
                continue
            stream.account.add(account)
            log.info("%s: tried %s again, as it has changed: %s", stream.name, file.name, account)
    finally:
        stream.busy.release()


def _withdraw(spark: SparkSession, tables: Tables, stream: Stream, checkpoint: str, again: set[str]) -> None:
    """Withdraw the files that were tried, of which nothing is in the tables, and which are not tried ``again``."""
    writers = manifest.read(tables.root).writers
    left = {name.removeprefix(_retries(stream)) for name in writers if name.startswith(_retries(stream))} - again
    if not left:
        return
    tries = unread.tries(checkpoint)
    for name in sorted(left):
        # As Spark may write it; without a note any try counts.
        works = [
            _retry(spark, tables, stream, path, tries.get(path, 0)) for path in (name, f"file:{name}", f"file://{name}")
        ]
        if not any(_begun(work, stream) for work in works):
            manifest.withdraw(tables.root, f"{_retries(stream)}{name}")
        elif name not in stream.stuck:
            stream.stuck.add(name)
            log.error(
                "%s: %s was cut short when it was tried again, and is in the tables by half; as it is gone, or as it "
                "was, run vedette-spark reconcile --tables %s --landing DIR", stream.name, name, tables.root,
            )  # fmt: skip


def _retries(stream: Stream) -> str:
    """What the writer of a file that is tried again begins with; the rest is the file's name."""
    return f"{stream.source.kind}{stream.name} "


def _retry(spark: SparkSession, tables: Tables, stream: Stream, path: str, tries: int) -> Work:
    return Work(spark, tables, _hash((stream.name, path)), tries)


def _hash(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:32]


def _begun(work: Work, stream: Stream) -> bool:
    """Whether rows of the batch are in the tables."""
    done = work.tables.version(stream.tables[0], work.query)
    return done is not None and done >= work.txn.version


def _take(work: Work, stream: Stream, batch: Batch, checkpoint: str) -> Account:
    if _begun(work, stream):
        # Replayed, and its rows are there: they are not read again, so a bad file would not be found by them.
        batch = stream.source.mend(work.spark, batch) or batch
    unread.note(checkpoint, [letter.file for letter in batch.letters])
    try:
        account = stream.take(work, batch)
    except landing.FAILURES:
        mended = stream.source.mend(work.spark, batch)
        if mended is None:
            raise
        batch = mended
        unread.note(checkpoint, [letter.file for letter in batch.letters])
        account = stream.take(work, batch)
    account.batches = 1
    account.bad_files = len(batch.letters)
    account.files = len(batch.files) + len(batch.letters)
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
