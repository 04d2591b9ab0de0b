"""What becomes of one micro-batch of alerts, of heartbeats, or of what else has landed: into the tables.

A batch of alerts, in this order:

1. find the rows that no table can hold, the later copies within the batch, and the alerts that the ``alerts`` table
   holds from other batches (same ``received_date``, same hour of ``event_time``: copies share both);
2. enrich the rest from the lookups as they are now, and append it to ``alerts`` under the batch's label: wide rows from
   file to table where this process can (``landed``), else through Spark;
3. read back what ``alerts`` holds under that label, and upsert the counts made of it (``counts``);
4. append the rows that no table can hold to ``dead_letters``;
5. return: only now is it synced, and noted as done in Spark's checkpoint (``stream``).

Every write of a batch carries a ``Txn`` (the query's id, the batch's number), so a batch that is replayed after a kill
finishes what it had begun: tables that have it stay as they are. Because counts are made of what ``alerts``
holds, they agree with it whatever happened in between.

Within a batch the copy received first stays. One that a later batch brings changes nothing, also when it was received
earlier: what has been counted and exported stays so. A copy is recognised after a minute, a month, a restart, or the
loss of the checkpoint: a fresh one reads the whole source again and adds nothing: heartbeats, numbers and dead letters
are looked up in their tables, too (``_unknown``). The streams have no state and no watermark, hence nothing that is too
late for them (``docs/decisions/0002-spark-dedupe.md``). The driver holds a part of a batch, whose rows and bytes have a
bound.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from functools import reduce
from operator import and_
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from spark_jobs.common.plain import many
from spark_jobs.intake import frames, landed
from spark_jobs.intake.counts import COUNTS, counts
from spark_jobs.intake.enrich import Lookups
from spark_jobs.intake.published import Published
from spark_jobs.intake.sources import Batch
from spark_jobs.tables.schema import (
    AGENTS,
    ALERTS,
    DEAD_LETTERS,
    HEARTBEATS,
    LANDED_ALERT,
    RULES,
    SCHEMA_VERSION,
    SEQS,
    Table,
)
from spark_jobs.tables.tables import Ranges, Tables, Txn, Where

log = logging.getLogger(__name__)

MAX_BUCKETS = 10_000
"""Different hours of event time in a batch, beyond which the table is searched without them."""

PART_ROWS = 500_000
"""Alerts that are written at a time: where rows are much alike, a few megabytes of files hold millions of them."""
PART_BYTES = 256 << 20
"""Of heartbeats and dead letters, whose texts have no bound that is known here."""

MAX_PARTS = 1000

LANDED_SECONDS = 60
"""Grain at which the times at which a batch's rows landed are looked up in the table."""

ADDED = ("counted_at", "asset", "place", "intel")
"""What a row of ``alerts`` has beside the landed columns and ``batch``."""

UNDATED = "0000-00-00"
"""Partition of dead letters that say no time."""


@dataclass(slots=True)
class Account:
    """What became of the rows: ``rows = new + duplicates + unusable``."""

    batches: int = 0
    files: int = 0
    bad_files: int = 0
    """Files of which nothing could be read."""
    rows: int = 0
    unusable: int = 0
    duplicates: int = 0
    new: int = 0
    odd_times: int = 0
    """Of the new ones, those with an absurd event time, counted at the time they landed."""

    def add(self, other: Account) -> None:
        for figure in fields(self):
            setattr(self, figure.name, getattr(self, figure.name) + getattr(other, figure.name))

    def __str__(self) -> str:
        text = f"{many(self.files, 'file')}, " if self.files else ""
        text += f"{many(self.rows, 'row')}: {self.new:,} new, {many(self.duplicates, 'duplicate')}"
        for number, noun in (
            (self.unusable, "unusable row"),
            (self.bad_files, "bad file"),
            (self.odd_times, "absurd time"),
        ):
            text += f", {many(number, noun)}" if number else ""
        return text


class Work(NamedTuple):
    """Where a micro-batch goes: number ``number`` of the query ``query``."""

    spark: SparkSession
    tables: Tables
    query: str
    number: int

    @property
    def txn(self) -> Txn:
        """The name of the batch's writes."""
        return self.part(0)

    def part(self, number: int) -> Txn:
        """The name of one of a table's writes, where a batch takes several."""
        return Txn(self.query, self.number * MAX_PARTS + number)

    @property
    def label(self) -> str:
        """What the rows of the batch carry."""
        return f"{self.query.replace('-', '')[:12]}-{self.number:09d}"


def alerts(
    work: Work,
    batch: Batch,
    lookups: Lookups | None = None,
    published: Published | None = None,
    *,
    counting: bool = True,
) -> Account:
    """Steps 1 to 4 for a micro-batch; the same batch a second time leaves the tables as they were. Of rules that are
    ``published`` the texts are the region's. ``counting`` False: the counts stay as they are."""
    spark, tables = work.spark, work.tables
    rows = batch.rows.withColumn("trouble", F.coalesce("undecoded", frames.trouble(*frames.NEEDED)))
    rows = rows.withColumn("file", frames.file())
    columns = [*frames.KEY, *frames.PLACE, "event_time", "received_at", "schema_version", "trouble"]
    # What is asked of all rows several times; the rows themselves are read once more, on their way into the table.
    about = [] if lookups is None else ["fleet", "site", "host", "entities"]
    keys = rows.select(*columns, *about).persist()
    try:
        account, dates, near, _ = _survey(work, keys, "received_date", "event_time", frames.BUCKET_SECONDS)
        good = keys.where("trouble IS NULL")
        if dates:
            parts = _parts(account.rows)
            done = tables.version(ALERTS, work.query)
            if done is None or done < work.part(parts - 1).version:
                stored = tables.frame(spark, ALERTS, only=dates, near=near).where(F.col("batch") != work.label)
                copies = frames.later_copies(good).unionByName(frames.known_copies(good, stored)).distinct()
                _store(work, batch, rows.where("trouble IS NULL"), good, copies, parts, lookups)
            with counts(spark, tables, work.label, dates) as batch_counts:
                rules = batch_counts.rules(tables.arrow(RULES), published.rules() if published else None)
                if rules.num_rows:
                    account.new, account.odd_times = (pc.sum(rules[name]).as_py() for name in ("rows", "odd"))
                if rules.num_rows and counting:
                    with ThreadPoolExecutor(1) as ahead:  # counts a table while the previous one is written
                        for table, cells in [(table, ahead.submit(batch_counts.of, table)) for table in COUNTS]:
                            tables.upsert(table, cells.result(), work.txn)
                    tables.upsert(RULES, rules.drop_columns(["odd", "rows"]), work.txn)
    finally:
        keys.unpersist()
    account.duplicates = account.rows - account.unusable - account.new
    _keep_dead_letters(work, batch, rows.where("trouble IS NOT NULL") if account.unusable else None)
    return account


def _store(
    work: Work, batch: Batch, rows: DataFrame, good: DataFrame, copies: DataFrame, parts: int, lookups: Lookups | None
) -> None:
    """Append ``rows`` that are no ``copies`` to ``alerts``, enriched, in ``parts``; ``good`` are their narrow columns.

    Where this process writes the table and the files lie on this host, Spark says only which rows these are and what
    the lookups know of them: the wide columns go from file to table.
    """

    def fresh(those: DataFrame) -> DataFrame:
        left = those.join(F.broadcast(copies), frames.PLACE, "left_anti").withColumn("counted_at", frames.counted_at())
        if lookups is not None:
            left = lookups.enrich(work.spark, left, good.withColumn("counted_at", frames.counted_at()))
        return left.withColumn("part", F.pmod(F.xxhash64("alert_id"), F.lit(parts)))

    narrow = fresh(good) if work.tables.in_process and batch.local else None
    origins = {} if narrow is None else _origins(rows)
    wide = fresh(rows) if narrow is None else None
    done = work.tables.version(ALERTS, work.query)
    for part in range(parts):
        if done is not None and done >= work.part(part).version:
            continue
        if narrow is not None:
            wanted = landed.rows(_places(narrow.where(F.col("part") == part)), origins, LANDED_ALERT)
            if wanted is not None:
                wanted = wanted.append_column("batch", pa.repeat(work.label, wanted.num_rows))
                work.tables.append(ALERTS, wanted, work.part(part))
                del wanted
                pa.default_memory_pool().release_unused()  # before the counts, which need their own
                continue
        wide = fresh(rows) if wide is None else wide
        mine = wide.where(F.col("part") == part).withColumn("batch", F.lit(work.label))
        work.tables.append(ALERTS, mine.select(*(n for n in ALERTS.names if n in mine.columns)), work.part(part))


def _places(fresh: DataFrame) -> pa.Table:
    """Where rows of ``alerts`` lie, and what they have beside their landed columns."""
    return fresh.select(*frames.PLACE, *(name for name in ADDED if name in fresh.columns)).toArrow()


def _origins(rows: DataFrame) -> dict[int, str]:
    """By ``frames.file`` the URL of each file that ``rows`` are of."""
    return {row.file: row.origin for row in rows.select("file", "origin").distinct().collect()}


def heartbeats(work: Work, batch: Batch) -> Account:
    """A micro-batch of heartbeats: kept as they came, and each agent's account by its newest."""
    account, good = _keep(work, batch, HEARTBEATS, ["agent_id", "received_at"], ["agent_id", "received_at", "payload"])
    work.tables.upsert(AGENTS, frames.agents(good), work.txn)
    return account


def seqs(work: Work, batch: Batch) -> Account:
    """A micro-batch of runs of alert numbers: kept as they came."""
    needed = ["agent_id", "log_id", "received_at"]
    account, _ = _keep(work, batch, SEQS, needed, [*needed, "first", "last"])
    return account


def _keep(
    work: Work, batch: Batch, table: Table, needed: Sequence[str], same: Sequence[str]
) -> tuple[Account, DataFrame]:
    """Append the rows that have what is ``needed`` to ``table``, and keep the others as dead letters; those that have
    it. Rows that another batch has brought, alike in the columns ``same``, are not appended."""
    rows = batch.rows.withColumn("trouble", F.coalesce("undecoded", frames.trouble(*needed)))
    rows = rows.withColumn("batch", F.lit(work.label)).withColumn("date", F.date_format("received_at", "yyyy-MM-dd"))
    good, bad = rows.where("trouble IS NULL"), rows.where("trouble IS NOT NULL")
    about = rows.select("trouble", "date", "received_at", F.lit(0).alias("schema_version"), _size(same).alias("size"))
    account, dates, near, size = _survey(work, about, "date", "received_at", LANDED_SECONDS)
    if dates:
        new = _unknown(work, table, good, same, dates, near).select(*table.names)
        _append(work, table, new, _parts(account.rows, size), *same)
        account.new = _number(work, table, dates)
    account.duplicates = account.rows - account.unusable - account.new
    _keep_dead_letters(work, batch, bad if account.unusable else None)
    return account, good


def dead_letters(work: Work, batch: Batch) -> Account:
    """A micro-batch of what the landing could not read."""
    rows = batch.rows.withColumn("whole", F.coalesce("payload", "whole")).withColumn("file", F.col("origin"))
    rows = rows.withColumn("origin", F.coalesce("topic", "origin"))
    rows = rows.withColumn("trouble", F.coalesce("undecoded", "reason", F.lit("")))
    new = _keep_dead_letters(work, batch, rows, kind="message")
    number = rows.count()
    return Account(rows=number, new=new, duplicates=number - new)


def _met(keys: DataFrame, *by: Column, limit: int | None = None) -> list[Row]:
    """Numbers of rows by ``trouble`` and ``by``, and their newest version; at most ``limit`` of these groups."""
    size = F.sum("size") if "size" in keys.columns else F.lit(0)
    sums = F.count("*").alias("rows"), F.max("schema_version").alias("version"), size.alias("size")
    groups = keys.groupBy("trouble", *by).agg(*sums)
    return (groups if limit is None else groups.limit(limit)).collect()


def _survey(work: Work, keys: DataFrame, date: str, time: str, seconds: int) -> tuple[Account, set[str], Ranges, int]:
    """How many rows there are, of which nothing can hold how many, why, and whether agents are newer than this; of the
    others the values of ``date``, where the table may hold their like by ``time``, and the sum of ``size``."""
    usable = F.col("trouble").isNull()
    day = F.when(usable, F.col(date)).alias("day")
    bucket = F.when(usable, F.floor(F.unix_seconds(time) / seconds)).alias("bucket")
    met = _met(keys, day, bucket, limit=MAX_BUCKETS + 1)
    near: Ranges = {}
    if len(met) > MAX_BUCKETS:
        met = _met(keys, day)
    else:
        near = {time: frames.ranges((row.bucket for row in met if not row.trouble), seconds)}
    unusable: Counter[str] = Counter()
    for row in met:
        if row.trouble:
            unusable[row.trouble] += row.rows
    account = Account(rows=sum(row.rows for row in met), unusable=unusable.total())
    newest = max((row.version or 0 for row in met), default=0)
    if newest > SCHEMA_VERSION:
        log.warning(
            "batch %s: alerts of schema version %d, read by the columns of version %d; update this job",
            work.label,
            newest,
            SCHEMA_VERSION,
        )
    for trouble, number in sorted(unusable.items()):
        log.warning("batch %s: %d rows %s; kept in dead_letters", work.label, number, trouble)
    good = [row for row in met if not row.trouble]
    return account, {row.day for row in good}, near, sum(row.size or 0 for row in good)


def _size(names: Sequence[str]) -> Column:
    """Bytes of the texts among the columns ``names`` of a row."""
    return F.octet_length(F.concat_ws("", *(F.col(name).cast("string") for name in names)))


def _parts(rows: int, size: int = 0) -> int:
    """In how many parts rows of ``size`` bytes are written; at least one."""
    return min(max(-(-rows // PART_ROWS), -(-size // PART_BYTES), 1), MAX_PARTS)


def _append(work: Work, table: Table, rows: DataFrame, parts: int, *by: str) -> None:
    """Append ``rows``, divided by their values of ``by``: what the driver holds at a time has a bound."""
    for part in range(parts):
        mine = F.pmod(F.xxhash64(*by), F.lit(parts)) == part
        work.tables.append(table, rows if parts == 1 else rows.where(mine), work.part(part))


def _unknown(
    work: Work, table: Table, rows: DataFrame, same: Sequence[str], dates: Collection[str], near: Ranges
) -> DataFrame:
    """Those of ``rows`` that ``table`` does not hold from another batch, alike in the columns ``same``."""
    stored = work.tables.frame(work.spark, table, only=dates, near=near).where(F.col("batch") != work.label)
    return rows.alias("r").join(
        stored.select(*same).alias("k"),
        reduce(and_, (F.col(f"r.{name}").eqNullSafe(F.col(f"k.{name}")) for name in same)),
        "left_anti",
    )


def _written(work: Work, table: Table, dates: Collection[str]) -> DataFrame:
    """What ``table`` holds of the batch."""
    rows = work.tables.frame(work.spark, table, only=dates, near={"batch": [(work.label, work.label)]})
    return rows.where(F.col("batch") == work.label)


def _number(work: Work, table: Table, dates: Collection[str]) -> int:
    """How many rows ``table`` holds of the batch."""
    if not work.tables.in_process:
        return _written(work, table, dates).count()
    from spark_jobs.tables.delta import DeltaTables

    assert isinstance(work.tables, DeltaTables)
    rows = work.tables.dataset(table, Where(only=dates, near={"batch": [(work.label, work.label)]}))
    return int(rows.count_rows(filter=pc.field("batch") == work.label))


def _keep_dead_letters(work: Work, batch: Batch, rows: DataFrame | None, kind: str | None = None) -> int:
    """Write bad files and ``rows`` (columns ``origin``, ``trouble``, ``whole``, ``received_at``, and ``file`` when that
    is not ``origin``) to the dead letters; how many of the rows no other batch has brought.

    Equal rows of a file become one letter with their number: the same one in whichever batch the file is read.
    """
    letters = []
    for letter in batch.letters:
        file = letter.file
        log.warning("%s: %s; left where it is, and noted in dead_letters", file.name, letter.reason)
        letters.append(("file", file.name, letter.reason, None, None, file.landed))
    columns = "kind STRING, source STRING, reason STRING, rows LONG, payload BINARY, received_at TIMESTAMP"
    letters_frame = work.spark.createDataFrame(letters, columns) if letters else None
    if rows is not None:
        named = F.col("origin").alias("source"), F.col("trouble").alias("reason"), F.col("whole").alias("payload")
        single = (
            rows.groupBy(*named, F.col("file" if "file" in rows.columns else "origin").alias("file"))
            .agg(F.count("*").alias("rows"), F.min("received_at").alias("received_at"))
            .withColumn("kind", F.lit(kind or batch.letter_kind))
            .drop("file")
        )
        letters_frame = single if letters_frame is None else letters_frame.unionByName(single)
    if letters_frame is None:
        return 0
    date = F.coalesce(F.date_format("received_at", "yyyy-MM-dd"), F.lit(UNDATED))
    letters_frame = letters_frame.withColumn("date", date).withColumn("batch", F.lit(work.label))
    days = letters_frame.groupBy("date").agg(F.count("*").alias("rows"), F.sum(F.octet_length("payload")).alias("size"))
    met = days.collect()
    dates = {row.date for row in met}
    same = ["source", "reason", "payload", "received_at"]
    new = _unknown(work, DEAD_LETTERS, letters_frame, same, dates, {}).select(*DEAD_LETTERS.names)
    parts = _parts(sum(row.rows for row in met), sum(row.size or 0 for row in met))
    _append(work, DEAD_LETTERS, new, parts, *same)
    return _written(work, DEAD_LETTERS, dates).agg(F.sum("rows")).collect()[0][0] or 0
