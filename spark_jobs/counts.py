"""The streaming job: landed alerts in, the ``alerts`` table and the 5-minute ``counts_5m`` table out, exactly once.

For each micro-batch of landed files, in this order:

1. read the files (``landing``), leave out rows that no table can hold, and keep the first copy of each alert;
2. leave out what the ``alerts`` table holds already, from other batches, on the same ``received_date``;
3. write the rest to ``alerts`` under the batch's label (``tables``: writing a label again replaces it);
4. write ``counts_5m`` under the same label, **from what step 3 left in the table**;
5. sync, and return: only now does Spark note the batch as done in its checkpoint.

A kill at any point leaves a batch that Spark replays with the same files and the same label: step 2 does not look at
the label's own rows, so steps 3 and 4 write what they wrote before. An alert is known by ``(agent_id, alert_id)``, and
its copies carry the same ``received_date``, so a copy is recognised after a minute, a month, a restart, or the loss of
the checkpoint: a fresh checkpoint reads the whole landing again and adds nothing. The stream itself has no state and
no watermark, hence nothing that is too late for it (``docs/decisions/0002-spark-dedupe.md``).

Driver memory holds names and sums of the files of one batch; rows stay in the executors.
"""

from __future__ import annotations

import logging
from concurrent.futures import Future
from dataclasses import dataclass, fields
from threading import Event
from typing import NamedTuple

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from spark_jobs import frames, landing, storage
from spark_jobs.batches import BAD_FILES, Tables
from spark_jobs.schema import LANDED_ALERT as ALERTS
from spark_jobs.schema import SCHEMA_VERSION

log = logging.getLogger(__name__)

FILES_PER_BATCH = 100
"""Landed files that one micro-batch takes at most."""

_POLL = 1
"""Seconds between looks at whether to stop."""


@dataclass(slots=True)
class Account:
    """What became of landed files and rows: ``rows = new + duplicates + unusable``."""

    batches: int = 0
    files: int = 0
    bad_files: int = 0
    """Files of which nothing could be read."""
    rows: int = 0
    unusable: int = 0
    duplicates: int = 0
    new: int = 0

    def add(self, other: Account) -> None:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    def __str__(self) -> str:
        text = f"{self.files} files, {self.rows} rows: {self.new} new alerts, {self.duplicates} duplicates"
        if self.unusable:
            text += f", {self.unusable} unusable rows"
        if self.bad_files:
            text += f", {self.bad_files} bad files"
        return text


class Bad(NamedTuple):
    """A row of ``BAD_FILES``."""

    path: str
    reason: str
    rows: int | None
    date: str


def run(
    spark: SparkSession,
    landing_root: str,
    tables_root: str,
    *,
    checkpoint: str | None = None,
    every: float | None = None,
    files_per_batch: int = FILES_PER_BATCH,
    stop: Event | None = None,
) -> Account:
    """Take over what has landed; return the account of this run.

    ``every`` None: take what is there and return. Else look for new files each ``every`` seconds until ``stop`` is set.
    ``checkpoint`` None: ``TABLES/_checkpoints/counts``. Raises FileNotFoundError when there is no landing,
    BlockingIOError when another job writes these tables, and what Spark raises when storage fails.
    """
    stop = stop or Event()
    folder = f"{landing_root}/alerts"
    checkpoint = checkpoint or f"{tables_root}/_checkpoints/counts"
    account = Account()
    if not storage.exists(spark, landing_root):
        raise FileNotFoundError(
            f"{landing_root}: no such landing folder; name the one that `vedette region land` writes"
        )
    with storage.one_writer(spark, tables_root):
        while not storage.exists(spark, folder):
            log.info("%s: nothing has landed yet", folder)
            if every is None or stop.wait(every):
                return account
        if left := landing.leftovers(spark, folder):
            log.warning(
                "%s: %d temporary files of an interrupted landing, left out; agents send those alerts again",
                folder,
                left,
            )
        _stream(spark, folder, Tables(tables_root), checkpoint, every, files_per_batch, stop, account)
    return account


def _stream(
    spark: SparkSession,
    folder: str,
    tables: Tables,
    checkpoint: str,
    every: float | None,
    files_per_batch: int,
    stop: Event,
    account: Account,
) -> None:
    """Run the streaming query to its end, adding to ``account``."""
    query_id: Future[str] = Future()
    failure: list[Exception] = []

    def take(listing: DataFrame, number: int) -> None:
        try:
            files = [landing.File(row.path, row.date) for row in listing.collect()]
            missing = landing.overlooked(spark, checkpoint, number, files)
            label = f"{query_id.result(60).replace('-', '')[:12]}-{number:09d}"
            done = take_batch(spark, tables, label, files, missing)
            account.add(done)
        except Exception as error:
            failure.append(error)
            raise
        log.info("batch %d: %s", number, done)

    writer = landing.new_files(spark, folder, files_per_batch=files_per_batch).writeStream.foreachBatch(take)
    writer = writer.queryName("counts").option("checkpointLocation", checkpoint)
    writer = writer.trigger(availableNow=True) if every is None else writer.trigger(processingTime=f"{every} seconds")
    query = writer.start()
    query_id.set_result(str(query.id))
    try:
        while not query.awaitTermination(_POLL):
            if stop.is_set():
                query.stop()
    except StreamingQueryException:
        if failure:
            raise failure[0] from None
        raise


def take_batch(
    spark: SparkSession,
    tables: Tables,
    label: str,
    files: list[landing.File],
    missing: list[tuple[landing.File, str]],
) -> Account:
    """Steps 1 to 5 for one batch; ``missing`` are planned files that could not be listed, with the reason.

    The same label and files a second time leave the tables as they were.
    """
    bad = [Bad(file.name, why, None, file.date) for file, why in missing]
    try:
        account, odd = _write(spark, tables, label, files)
    except landing.FAILURES:
        found = {file: landing.examine(spark, file.path, ALERTS) for file in files}
        good = [file for file, why in found.items() if why is None]
        if len(good) == len(files):
            raise
        bad += [Bad(file.name, why, None, file.date) for file, why in found.items() if why is not None]
        account, odd = _write(spark, tables, label, good)
    account.batches, account.files, account.bad_files = 1, len(files) + len(missing), len(bad)
    bad += odd
    for one in bad:
        log.warning("%s: %s%s; left out", one.path, "" if one.rows is None else f"{one.rows} rows ", one.reason)
    if bad:
        rows = spark.createDataFrame(bad, StructType([BAD_FILES[name] for name in Bad._fields]))
        tables.bad_files.write(rows, label)
    storage.settle(spark, tables.root)
    return account


def _write(spark: SparkSession, tables: Tables, label: str, files: list[landing.File]) -> tuple[Account, list[Bad]]:
    """Steps 1 to 4 for files that can be read: the account of their rows, and which files hold unusable ones."""
    if not files:
        return Account(), []
    rows = landing.read(spark, [file.path for file in files], ALERTS)
    met = (
        rows.groupBy("landed_file", F.when(frames.whole(), F.col("received_date")).alias("edge_date"))
        .agg(F.count("*").alias("rows"), F.max("schema_version").alias("version"))
        .collect()
    )
    newest = max((row.version or 0 for row in met), default=0)
    if newest > SCHEMA_VERSION:
        log.warning(
            "batch %s: alerts of schema version %d, read by the columns of version %d; update this job",
            label,
            newest,
            SCHEMA_VERSION,
        )
    dates = {row.edge_date for row in met if row.edge_date is not None}
    known = tables.alerts.read(spark, dates.__contains__).where(F.col("batch") != label)
    tables.alerts.write(frames.unseen(frames.first_copies(rows.where(frames.whole())), known), label)
    written = tables.alerts.read_batch(spark, label, dates)
    tables.counts.write(frames.windows(written), label)

    landed = {landing.bare(file.path): file for file in files}
    odd = []
    for row in met:
        if row.edge_date is None:
            file = landed[landing.bare(row.landed_file, encoded=True)]
            odd.append(Bad(file.name, "without agent_id, alert_id, received_date or event_time", row.rows, file.date))
    account = Account(
        rows=sum(row.rows for row in met), unusable=sum(one.rows or 0 for one in odd), new=written.count()
    )
    account.duplicates = account.rows - account.unusable - account.new
    return account, odd
