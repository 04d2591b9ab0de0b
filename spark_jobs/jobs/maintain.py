"""The job ``maintain``: upkeep of the tables and the landing, once a day.

In this order, each step whole by itself and harmless when done again:

1. **Exact.** Of the last days that have ended, an alert that is in ``alerts`` twice (the same agent and id; ingest lets
   none through, two ingests at once might) is there once, the one received first. Then the counts of each of these days
   are compared with the alerts that are counted on it; where they differ, the day's counts are rebuilt from these,
   and so are those of every day, however long ago, on which a copy was counted that is gone now; then the sums of
   ``rules``. A day of which retention has dropped alerts keeps its counts, whatever lands late. All that holds off
   ingest while it writes. It is left out while one is running, and after one that was interrupted until it has been run
   again: what it will still add to the counts must not be in them already. Where it fails, the next two steps are still
   done, and nothing is deleted.
2. **Compact.** The many small files of these days become few large ones.
3. **Retention.** ``--keep TABLE=DAYS``: older days are dropped. Without it nothing is. A day of ``alerts`` is the
   edge's, whose clock may be far behind: one stays as long as any of its alerts landed within the days kept.
4. **Vacuum.** Files that no reader of the last ``--vacuum-hours`` can need are deleted.
5. **Landing.** ``--landing-days N``: folders of days before the last N are deleted when ingest has taken over every
   file in them; one with a file that it has not is kept, and logged; so is a file that comes meanwhile, or that ingest
   could not read: it is tried again once it has changed. So do all, when ingest could not read more files than it
   notes. The alerts of the others are in the tables then, and
   recognised there when they are sent again; so keep ``alerts`` longer than the landing.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, date, datetime, timedelta

import click
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from spark_jobs.common.period import Period, period
from spark_jobs.common.plain import many
from spark_jobs.intake import frames, unread
from spark_jobs.intake.counts import COUNTS, counted_from
from spark_jobs.intake.published import Published
from spark_jobs.intake.sources import KafkaSource, LandingSource
from spark_jobs.jobs.ingest import LANDED, published_at
from spark_jobs.jobs.job import COUNT, DAY, FOLDER, SPAN, Job, Value, pair, spark_job
from spark_jobs.tables import manifest, storage
from spark_jobs.tables.schema import ALERTS, RULES, TABLES, WIN_5M
from spark_jobs.tables.tables import Tables

log = logging.getLogger(__name__)

DAYS = 3
"""Days that have ended: yesterday's, and those that late alerts still reach in numbers."""

MAX_REWRITE = 5_000_000
"""Alerts of a day that are rewritten at once: they pass through the driver in the ``delta`` backend."""

VACUUM_HOURS = 168


def _kept(text: str) -> tuple[str, int]:
    name, days = pair(text)
    divided = sorted(table.name for table in TABLES.values() if table.partition is not None)
    if name not in divided:
        raise ValueError(f"no table of days: {name!r}; there are {', '.join(divided)}")
    if not re.fullmatch(r"[1-9][0-9]{0,4}", days):
        raise ValueError(f"expects a number from 1 to 99999, not {days!r}")
    return name, int(days)


@spark_job()
@click.option("--date", "last", type=DAY, default="yesterday", show_default=True, metavar="DAY",
              help="Last day that has ended: YYYY-MM-DD or yesterday, in UTC.")  # fmt: skip
@click.option("--days", type=SPAN, default=DAYS, show_default=True, help="Days gone over.")
@click.option("--keep", type=Value("kept", _kept), multiple=True, metavar="TABLE=DAYS",
              help="Forget older days of a table; may be repeated.")  # fmt: skip
@click.option("--vacuum-hours", type=COUNT, default=VACUUM_HOURS, show_default=True,
              help="Delete files that were replaced longer ago than this.")  # fmt: skip
@click.option("--max-rewrite", type=COUNT, default=MAX_REWRITE, show_default=True,
              help="Alerts of a day that are rewritten at most.")  # fmt: skip
@click.option("--landing", type=FOLDER, metavar="DIR", help="With --landing-days: the landing.")
@click.option("--landing-days", type=SPAN, metavar="N", help="Days of the landing that are kept.")
@click.option("--checkpoints", type=FOLDER, metavar="DIR", help="Those of ingest.  [default: TABLES/_checkpoints]")
def maintain(
    job: Job, last: date, days: int, keep: tuple[tuple[str, int], ...], vacuum_hours: int, max_rewrite: int,
    landing: str | None, landing_days: int | None, checkpoints: str | None,
) -> str:  # fmt: skip
    """Deduplicate, compact and expire, once a day.

    Example: vedette-spark maintain --tables tables --keep alerts=400 --landing landing --landing-days 30
    """
    if (landing is None) != (landing_days is None):
        raise click.UsageError("--landing and --landing-days go together")
    if last >= datetime.now(UTC).date():
        raise click.UsageError(f"--date: {last} has not ended")
    spark, tables, wanted, done = job.spark, job.unchecked, period(last, days), list[str]()
    failure: Exception | None = None
    checkpoints = checkpoints or f"{tables.root}/_checkpoints"
    manifest.check(tables, newer=False)  # what somebody added to a table is what step 1 looks for
    with (
        storage.one_writer(tables.root, manifest.MAINTAIN),
        manifest.writing(tables, manifest.MAINTAIN, TABLES.values()),
    ):
        with ingest_held_off(tables, checkpoints) as alone:
            if alone:
                try:
                    done += exact(spark, tables, wanted, max_rewrite, published_at(landing))
                except Exception as error:  # whatever it is: one bad day must not let small files pile up for ever
                    failure = error
        done += clean_up(spark, tables, wanted, keep)
        if failure is not None:
            log.error("repair failed; done: %s", ", ".join(done))
            raise failure
        files = sum(tables.vacuum(table, vacuum_hours) for table in TABLES.values())
        done.append(f"{many(files, 'file')} deleted")
        if landing and landing_days:
            until = last - timedelta(days=landing_days - 1)
            done.append(f"{many(clean(spark, landing, checkpoints, until), 'day')} of the landing deleted")
    return "maintain: " + ", ".join(done)


@contextmanager
def ingest_held_off(tables: Tables, checkpoints: str) -> Iterator[bool]:
    """Whether ingest has done all that it has begun; while the context lasts, it begins nothing."""
    with ExitStack() as held_off:
        why = ""
        try:
            held_off.enter_context(storage.one_writer(tables.root, "ingest"))
            if cut_short := interrupted(tables, checkpoints):
                why = f"ingest was interrupted ({', '.join(cut_short)}); run it again first"
        except BlockingIOError:
            why = "ingest is running; stop it for that from time to time"
        if why:
            log.warning("alerts and counts are not compared: %s", why)
        yield not why


def interrupted(tables: Tables, checkpoints: str) -> list[str]:
    """Names of the checkpoints of ingest's queries that have begun a batch and not finished it, as Spark has noted, or
    as the tables have: of a file that is tried again, or with a checkpoint that is gone, these alone know."""

    def newest(folder: str) -> int:
        return max((int(name) for name in storage.names(folder) if name.isdecimal()), default=-1)

    names = [kind + name for kind in (LandingSource.kind, KafkaSource.kind) for name, *_ in LANDED]
    folders = {name: f"{checkpoints}/{name}" for name in names}
    begun = [name for name, folder in folders.items() if newest(f"{folder}/offsets") > newest(f"{folder}/commits")]
    return sorted({*begun, *set(names).intersection(manifest.read(tables.root).ingests)})


def clean_up(spark: SparkSession, tables: Tables, wanted: Period, keep: Sequence[tuple[str, int]]) -> list[str]:
    """Steps 2 and 3; what was done."""
    done = [f"{many(compact(tables, wanted), 'table')} compacted"]
    for name, days in keep:
        old = expired(tables.partitions(TABLES[name]), wanted.last, days)
        if old and name == ALERTS.name:
            old = landed_before(spark, tables, old, period(wanted.last, days).start)
        if old:
            newest = old[-1]
            if name == ALERTS.name:  # some may be counted on a later day
                newest = max(newest, newest_counted(tables.frame(spark, ALERTS, only=old)))
            manifest.dropping(tables.root, name, newest)  # before it is done: a kill must not leave it unsaid
            tables.drop(TABLES[name], old)
            done.append(f"{many(len(old), 'day')} of {name} dropped")
    return done


def landed_before(spark: SparkSession, tables: Tables, days: Sequence[str], start: datetime) -> list[str]:
    """Of ``days`` of ``ALERTS`` those of which nothing landed at ``start`` or later."""
    landed = tables.frame(spark, ALERTS, only=days).where(F.col("received_at") >= F.lit(start))
    lately = {row.received_date for row in landed.select("received_date").distinct().collect()}
    return [day for day in days if day not in lately]


def newest_counted(alerts: DataFrame) -> str:
    """The last day on which some of ``alerts`` are counted; empty: there are none."""
    newest: str | None = alerts.agg(F.date_format(F.max("counted_at"), "yyyy-MM-dd")).collect()[0][0]
    return newest or ""


def exact(
    spark: SparkSession, tables: Tables, wanted: Period, max_rewrite: int = MAX_REWRITE,
    published: Published | None = None,
) -> list[str]:  # fmt: skip
    """Step 1 for the days of ``wanted``; what there was to do. Cut short between copies and counts, it compares only
    the counts of ``wanted`` when it is done again."""
    done: list[str] = []
    days = set[str]()
    for day in wanted.among(tables.partitions(ALERTS)):
        alerts = tables.frame(spark, ALERTS, day, day)
        doubled = alerts.groupBy(*frames.KEY).count().where("count > 1")
        extra = doubled.agg(F.sum(F.col("count") - 1)).collect()[0][0]
        if not extra:
            continue
        if (rows := alerts.count()) > max_rewrite:
            log.error("alerts of %s: %d copies among %d rows; too many to rewrite, see --max-rewrite", day, extra, rows)
            continue
        each = numbered(alerts)
        days.update(sums_by_day(each.where("copy > 1")))
        tables.replace(ALERTS, each.where("copy = 1").drop("copy"), [day])
        done.append(f"{many(extra, 'copy', 'copies')} of {day} removed")
    days.update(unequal(spark, tables, wanted))
    noted = manifest.read(tables.root)
    taken_until = noted.dropped.get(ALERTS.name, "")
    if stay := sorted(day for day in days if day <= taken_until or day in noted.frozen):
        log.warning("counts of %s are kept: not all of the alerts that they count are there any more", ", ".join(stay))
        days.difference_update(stay)
    rebuilt = [day for day in sorted(days) if rebuild(spark, tables, day, max_rewrite)]
    done += [f"counts of {day} rebuilt" for day in rebuilt]
    if len(rebuilt) == len(days) and (rebuilt or rules_differ(spark, tables)):
        rebuild_rules(spark, tables, published)
    return done


def numbered(alerts: DataFrame) -> DataFrame:
    """``alerts`` with ``copy``: 1 for the one of each alert that was received first."""
    order = Window.partitionBy(*frames.KEY).orderBy(F.col("received_at").asc_nulls_last(), "batch")
    return alerts.withColumn("copy", F.row_number().over(order))


def sums_by_day(alerts: DataFrame) -> dict[str, tuple[int, int]]:
    """Alerts and matches of ``alerts`` by the day on which they are counted."""
    day = F.date_format("counted_at", "yyyy-MM-dd").alias("date")
    by_day = frames.counted(alerts).groupBy(day).agg(F.sum("alerts").alias("alerts"), F.sum("matches").alias("matches"))
    return {row.date: (row.alerts, row.matches) for row in by_day.collect()}


def said_by_day(spark: SparkSession, tables: Tables, since: str, until: str) -> dict[str, tuple[int, int]]:
    """Alerts and matches by day, as ``WIN_5M`` has counted them."""
    rows = tables.frame(spark, WIN_5M, since, until).groupBy("date")
    by_day = rows.agg(F.sum("alerts").alias("alerts"), F.sum("matches").alias("matches"))
    return {row.date: (row.alerts, row.matches) for row in by_day.collect()}


def unequal(spark: SparkSession, tables: Tables, wanted: Period) -> list[str]:
    """Days of which ``WIN_5M`` says something else than ``ALERTS``. A day of which there are no alerts any more has
    outlived them: its counts stay."""
    said = said_by_day(spark, tables, wanted.since, wanted.until)
    counted = sums_by_day(counted_from(spark, tables, wanted.first, wanted.last))
    return [day for day, sums in counted.items() if said.get(day) != sums]


def rebuild(spark: SparkSession, tables: Tables, day: str, max_rewrite: int) -> bool:
    """Rebuild the counts of ``day`` from the alerts that are counted on it; False, with a log, when these are more
    than ``max_rewrite``."""
    of_day = date.fromisoformat(day)
    if (number := counted_from(spark, tables, of_day, of_day).count()) > max_rewrite:
        log.error("counts of %s differ from its %d alerts, too many to count again; see --max-rewrite", day, number)
        return False
    rows = frames.counted(counted_from(spark, tables, of_day, of_day)).persist()
    rules = tables.frame(spark, RULES).persist()
    try:
        for table in COUNTS:
            tables.replace(table, frames.rows_of(table, rows, rules), [day])
        return True
    finally:
        rows.unpersist()
        rules.unpersist()


def rules_differ(spark: SparkSession, tables: Tables) -> bool:
    """Whether ``RULES`` has counted otherwise than ``WIN_5M``, of rules all of whose days are there."""
    counted = tables.frame(spark, RULES).where(_of_days_there(tables, "first_time")).select("rule_id", *RULES.sums)
    return not counted.exceptAll(_sums_by_rule(spark, tables).select("rule_id", *RULES.sums)).isEmpty()


def _of_days_there(tables: Tables, first_time: str) -> Column:
    """Whether ``WIN_5M`` has every day since a rule's ``first_time``: none that retention took, though one of these may
    be there again, with what landed late."""
    return F.date_format(first_time, "yyyy-MM-dd") > manifest.read(tables.root).dropped.get(WIN_5M.name, "")


def rebuild_rules(spark: SparkSession, tables: Tables, published: Published | None = None) -> None:
    """Rebuild ``RULES``: texts as ``published``, else by the alerts that are there, sums by ``WIN_5M``; what neither
    speaks of stays. A rule that is older than the days of ``WIN_5M`` keeps what was counted of it, or has more."""
    former = tables.frame(spark, RULES)
    stand, listed = former.where("published").toArrow(), published.rules() if published else None
    newest = frames.rules(frames.counted(tables.frame(spark, ALERTS)), stand, listed).select(*RULES.names)
    texts = newest.unionByName(former.join(newest, "rule_id", "left_anti")).alias("t")
    sums, before = _sums_by_rule(spark, tables).alias("s"), former.alias("f")
    exact = F.isnull("f.first_time") | _of_days_there(tables, "f.first_time")
    # Of counts that have outlived their alerts nobody knows any more when these landed.
    outlived = F.isnull("f.rule_id") & (F.col("s.first_time") < F.col("t.first_time"))

    def column(name: str) -> Column:
        if name == "first_landed":
            return F.least("f.first_landed", "t.first_landed", F.when(outlived, F.col("s.first_time"))).alias(name)
        if name not in (*RULES.sums, "first_time", "last_time"):
            return F.col("rule_id" if name == "rule_id" else f"t.{name}").alias(name)
        further = F.least if name == "first_time" else F.greatest
        more = further(f"f.{name}", f"s.{name}")
        return F.when(exact, F.coalesce(f"s.{name}", f"t.{name}")).otherwise(more).alias(name)

    rows = texts.join(sums, "rule_id", "left").join(before, "rule_id", "left").select(*map(column, RULES.names))
    tables.replace(RULES, rows.toArrow(), None)


def _sums_by_rule(spark: SparkSession, tables: Tables) -> DataFrame:
    return tables.frame(spark, WIN_5M).groupBy("rule_id").agg(
        *(F.sum(name).alias(name) for name in RULES.sums), F.min("first_time").alias("first_time"),
        F.max("last_time").alias("last_time"),
    )  # fmt: skip


def compact(tables: Tables, wanted: Period) -> int:
    """Step 2; of how many tables."""
    number = 0
    for table in TABLES.values():
        if table.partition is None:
            tables.compact(table)
            number += 1
        elif days := wanted.among(tables.partitions(table)):
            tables.compact(table, days)
            number += 1
    return number


def expired(partitions: Sequence[str], last: date, days: int) -> list[str]:
    """Of ``partitions`` those before the ``days`` days that end with ``last``. What is no day never is."""
    first = (last - timedelta(days=days - 1)).isoformat()
    return [name for name in partitions if name < first and _is_day(name)]


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).year > 0
    except ValueError:
        return False


def clean(spark: SparkSession, landing: str, checkpoints: str, until: date) -> int:
    """Delete the landing's folders of days before ``until`` of which ingest has every file; how many.

    Files are deleted by name, those that ingest has: one that is copied in meanwhile stays, and its folder with it.
    """
    deleted = 0
    for name, *_ in LANDED:
        folder = f"{landing}/{name}"
        days = [folder_name for folder_name in storage.names(folder, folders=True) if folder_name.startswith("dt=")]
        days = [folder_name for folder_name in days if folder_name[3:] < until.isoformat() and _is_day(folder_name[3:])]
        if not days:
            continue
        unreadable = {storage.bare(path) for path in unread.tries(f"{checkpoints}/{name}")}
        if len(unreadable) >= unread.MAX_FILES:
            log.warning(
                "%s: ingest could not read %d files, and maybe more; all days are kept: move what dead_letters names "
                "elsewhere, and delete %s/%s/%s", folder, len(unreadable), checkpoints, name, unread.NAME,
            )  # fmt: skip
            continue
        files = there(spark, folder, days, f"{checkpoints}/{name}").persist()
        try:
            left = files.where("NOT taken").groupBy("day").agg(F.count("*").alias("n")).collect()
            left_by_day = {row.day: row.n for row in left}
            for row in files.where(~F.col("day").isin(*left_by_day)).select("path").toLocalIterator():
                if storage.bare(row.path) in unreadable:
                    log.warning("%s: ingest could not read it; kept", storage.bare(row.path))
                else:
                    storage.delete(row.path)
        finally:
            files.unpersist()
        for day in days:
            if day in left_by_day:
                log.warning("%s/%s: ingest has not taken over %d of its files; kept", folder, day, left_by_day[day])
            else:
                deleted += storage.prune(f"{folder}/{day}")
    return deleted


def there(spark: SparkSession, folder: str, days: Sequence[str], checkpoint: str) -> DataFrame:
    """``path`` and ``day`` of each file in ``days``, and whether a finished batch of the query at ``checkpoint`` has
    ``taken`` it. Temporary files of collectors that were stopped are taken: nobody will ever read them."""
    paths = [storage.literal(f"{folder}/{day}") for day in days]
    reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
    listed = reader.option("pathGlobFilter", "*.{parquet,tmp}").load(paths).select("path")
    named = listed.select("path", _bare(F.col("path")).alias("name"), F.regexp_extract("path", r"/(dt=[0-9-]{10})/", 1)
                          .alias("day"), F.col("path").endswith(".tmp").alias("stopped"))  # fmt: skip
    finished = [int(name) for name in storage.names(f"{checkpoint}/commits") if name.isdecimal()]
    if not finished:
        return named.select("path", "day", F.col("stopped").alias("taken"))
    lines = spark.read.text(storage.literal(f"{checkpoint}/sources/0")).where("value LIKE '{%'")
    entry = F.from_json("value", "path STRING, batchId LONG").alias("entry")
    done = lines.select(entry).where(F.col("entry.batchId") <= max(finished))
    names = done.select(_bare(F.col("entry.path")).alias("name")).distinct().withColumn("had", F.lit(True))
    taken = F.col("stopped") | F.coalesce("had", F.lit(False))
    return named.join(names, "name", "left").select("path", "day", taken.alias("taken"))


def _bare(url: Column) -> Column:
    """``storage.bare`` of an encoded URL, in a column: a function in Python would start a process for each core."""
    decoded = F.try_url_decode(F.replace(url, F.lit("+"), F.lit("%2B")))
    return F.regexp_replace(F.coalesce(decoded, url), r"^[A-Za-z][A-Za-z0-9+.-]*:(//[^/]*)?(?=/)", "")
