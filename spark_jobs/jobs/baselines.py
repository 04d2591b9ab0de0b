"""The job ``baselines``: what is usual at each site in each hour of the week, and what was not.

**Usual** is the median of the hours of the week in ``WEEKS`` weeks before the days evaluated, each with the hour before
and after it (so two weeks give six numbers instead of two), in the site's own time zone; hours without a match count as
0, from the site's first match on. How far from it is ordinary says the median absolute deviation (MAD).

Days are evaluated whole and their anomalies rewritten, so that late alerts end a silence, and a run that
was cut short is simply done again. What is found: ``anomalies`` (bursts and silences), ``newness`` (entities and rules
that a site, or the fleet, sees for the first time). The alerts of trials of one's own (``intake.own``) are left out.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Sequence
from datetime import date, timedelta

import click
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.common.materialised import materialised
from spark_jobs.common.period import Period, period
from spark_jobs.common.plain import many
from spark_jobs.common.weeks import HOURS_OF_WEEK, centred, hour_of, hour_of_week, local_hour, occurrences
from spark_jobs.findings import anomalies, newness
from spark_jobs.findings.anomalies import MIN_HISTORY, PLACE, WHAT
from spark_jobs.intake import frames
from spark_jobs.intake.enrich import Lookups
from spark_jobs.intake.landing import FAILURES
from spark_jobs.intake.own import Trials
from spark_jobs.jobs.job import COUNT, Job, days_options, lookups_option, spark_job
from spark_jobs.report.reasons import of_anomaly
from spark_jobs.tables.arrow import arrow_schema
from spark_jobs.tables.schema import AGENTS, ANOMALIES, BASELINES, HEARTBEATS, RULES, WIN_5M
from spark_jobs.tables.tables import Tables

log = logging.getLogger(__name__)

DAYS = 7
"""Days evaluated: late alerts change what happened on days gone by, and a silence may last."""

HALF = timedelta(minutes=30)
"""How much later the hours begin that are looked at as well, so that no burst hides between two of the clock's."""

WEEKS = 4
"""Weeks before them that say what is usual: enough for a median, few enough to follow a change of habits."""


@spark_job()
@days_options(DAYS, "Days evaluated.")
@click.option("--weeks", type=COUNT, default=WEEKS, show_default=True, help="Weeks before them that say what is usual.")
@lookups_option("Folder with the lookup sites, for their time zones.")
def baselines(job: Job, last: date, days: int, weeks: int, lookups: Lookups | None) -> str:
    """Find bursts, silences and what is new.

    Usual is what a rule did at a site in the same hour of the weeks before.

    Example: vedette-spark baselines --tables tables --lookups lookups
    """
    return write(job.spark, job.tables, period(last, days), weeks, lookups)


def write(
    spark: SparkSession, tables: Tables, wanted: Period, weeks: int = WEEKS, lookups: Lookups | None = None
) -> str:
    """Write the baselines before ``wanted``, its anomalies, and who was first seen; how many anomalies of each kind."""
    past = Period(wanted.first - timedelta(days=7 * weeks), wanted.first - timedelta(days=1), wanted.now)
    zones = time_zones(spark, lookups)
    trials = Trials(spark, tables, past.first, wanted.last)
    now = trials.less(tables.frame(spark, WIN_5M, wanted.since, wanted.until), WIN_5M)
    before = materialised(hours(trials.less(tables.frame(spark, WIN_5M, past.since, past.until), WIN_5M), zones))
    after = materialised(hours(now, zones))
    sites = materialised(histories(before, wanted))
    usual = materialised(usual_hours(before, sites))
    as_of = usual.withColumn("as_of", F.lit(wanted.since)).select(*BASELINES.names)
    tables.replace(BASELINES, as_of, [wanted.since])
    rules = tables.frame(spark, RULES)
    unusual = anomalies.bursts(before, after, hours(now, zones, HALF), usual, sites, rules, wanted)
    agents = tables.frame(spark, AGENTS)

    def beats(hours: Sequence[int] | None) -> DataFrame:
        near = None if hours is None else {"received_at": frames.ranges(hours)}
        return tables.frame(spark, HEARTBEATS, wanted.since, near=near)

    unusual = unusual.unionByName(anomalies.silences(after, usual, sites, agents, beats, wanted))
    rows = unusual.unionByName(newness.write(spark, tables, wanted, sites, trials.less)).toArrow().to_pylist()
    worded = [{**row, "reason": of_anomaly(row)} for row in rows]
    tables.replace(ANOMALIES, pa.Table.from_pylist(worded, arrow_schema(ANOMALIES.columns)), wanted.days)
    kinds = Counter(row["kind"] for row in rows)
    young = _young(after, sites)
    said = ", ".join(
        many(kinds[kind], singular, plural)
        for kind, singular, plural in (
            ("burst", "burst", ""),
            ("silence", "silence", ""),
            ("new_rule", "new rule", ""),
            ("new_entity", "new entity", "new entities"),
        )
    )
    if young:
        said += f"; {many(young, 'site')} with less than {MIN_HISTORY} days of history not evaluated"
    return said


def _young(after: DataFrame, sites: DataFrame) -> int:
    """Sites that have alerts and too little history: nothing is said of them, so this is."""
    old = sites.where(F.col("history_days") >= MIN_HISTORY).select(*PLACE)
    return after.where("rule_id = ''").select(*PLACE).distinct().join(old, PLACE, "left_anti").count()


def time_zones(spark: SparkSession, lookups: Lookups | None) -> DataFrame:
    """``fleet``, ``site`` and ``timezone`` of the sites whose time zone is known; a fleet may be empty for all."""
    rows = None if lookups is None else lookups.table(spark, "sites")
    if rows is None:
        return spark.createDataFrame([], "fleet STRING, site STRING, timezone STRING")
    named = rows.where("timezone IS NOT NULL")
    zones = {row.timezone for row in named.select("timezone").distinct().limit(2000).collect()}
    valid = zones if _takes(spark, zones) else {zone for zone in zones if _takes(spark, {zone})}
    if zones - valid:
        log.warning("sites: unknown time zones: %s; UTC is used", ", ".join(sorted(zones - valid)))
    return named.where(F.col("timezone").isin(*valid)).groupBy(*PLACE).agg(F.min("timezone").alias("timezone"))


def _takes(spark: SparkSession, zones: Collection[str]) -> bool:
    """Whether Spark reckons with all of ``zones``: its list is not Python's, and one zone too many ends the job."""
    rows = spark.createDataFrame([(zone,) for zone in zones], "zone STRING")
    try:
        rows.select(F.from_utc_timestamp(F.lit("2026-01-01").cast("timestamp"), F.col("zone"))).collect()
    except FAILURES:
        return False
    return True


def hours(counts: DataFrame, zones: DataFrame, shift: timedelta = timedelta(0)) -> DataFrame:
    """``WIN_5M`` by the hour: matches, those of the fullest 5 minutes, and alerts, by site and rule, and in all (no
    rule).

    ``hour`` counts from 1970 and begins ``shift`` later than the clock's; ``hour_of_week`` is that of the site's time
    zone.
    """
    moved = counts.withColumn("window_start", F.col("window_start") - F.lit(shift)) if shift else counts
    by_rule = moved.groupBy(*WHAT, hour_of("window_start").alias("hour")).agg(
        F.sum("matches").alias("matches"), F.max("matches").alias("peak"), F.sum("alerts").alias("alerts")
    )
    total = by_rule.groupBy(*PLACE, "hour").agg(
        F.sum("matches").alias("matches"), F.max("peak").alias("peak"), F.sum("alerts").alias("alerts")
    )
    every = by_rule.unionByName(total.withColumn("rule_id", F.lit("")))
    exact = zones.where("fleet != ''")
    anywhere = zones.where("coalesce(fleet, '') = ''").select("site", F.col("timezone").alias("other"))
    placed = every.join(F.broadcast(exact), PLACE, "left").join(F.broadcast(anywhere), "site", "left")
    zone = F.coalesce("timezone", "other", F.lit("UTC"))
    of_week = hour_of_week(local_hour(F.col("hour"), zone))
    return placed.withColumn("timezone", zone).withColumn("hour_of_week", of_week).drop("other")


def histories(before: DataFrame, wanted: Period) -> DataFrame:
    """Time zone, ``history_days``, first hour and end by its clock of each site in ``before`` (``hours``)."""
    start = int(wanted.start.timestamp()) // 3600
    first = before.where("rule_id = ''").groupBy(*PLACE, "timezone").agg(F.min("hour").alias("hour"))
    return first.select(
        *PLACE,
        "timezone",
        # By the calendar: a site that had its first alert at 01:10 has that day as its first.
        (F.floor(F.lit(start) / 24) - F.floor(F.col("hour") / 24)).alias("history_days"),
        local_hour(F.col("hour"), F.col("timezone")).alias("begin"),
        local_hour(F.lit(start), F.col("timezone")).alias("end"),
    )


def usual_hours(before: DataFrame, sites: DataFrame) -> DataFrame:
    """``BASELINES`` without ``as_of``, of ``hours`` and ``histories``; where all is 0, there is no row."""
    near = F.explode(F.array(*(F.pmod(F.col("hour_of_week") + by, F.lit(HOURS_OF_WEEK)) for by in (-1, 0, 1))))
    each = before.select(*WHAT, near.alias("hour_of_week"), F.col("matches").cast("double").alias("matches"))
    met = each.groupBy(*WHAT, "hour_of_week").agg(F.collect_list("matches").alias("met"))
    there = met.join(F.broadcast(sites), PLACE)
    of_week = F.col("hour_of_week")

    def seen(by: int) -> Column:
        return occurrences(F.pmod(of_week + by, F.lit(HOURS_OF_WEEK)), F.col("begin"), F.col("end"))

    number = seen(-1) + seen(0) + seen(1)
    # What was met in less than half of these hours has 0 in their middle, and most is.
    half = there.withColumn("weeks", seen(0).cast("int")).where(2 * F.size("met") >= number)
    rows = centred(half, "met", number)
    return rows.where("median > 0 OR mad > 0").select(*WHAT, "hour_of_week", "median", "mad", "weeks")
