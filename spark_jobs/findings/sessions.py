"""Sessions: runs of one entity's activity without a gap of ``GAP`` seconds, whatever the number of sites.

What is usual (``entities``) is in none: it would never end. A session belongs to the day on which it began, and a day's
sessions are rewritten as a whole, so that late alerts may join two or let one begin earlier.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark_jobs.common import attack
from spark_jobs.common.entities import WHO
from spark_jobs.common.islands import identity, runs
from spark_jobs.common.materialised import materialised
from spark_jobs.common.plain import many
from spark_jobs.tables.schema import SESSIONS
from spark_jobs.tables.tables import Tables

GAP = 3600
"""Twice the longest usual suppression window, so that folds do not tear a session."""

MIN_MATCHES = 2
"""A match alone is an alert and no session."""

MAX_RULES = 200
"""Rules and sites that a row names."""


def write(tables: Tables, rows: DataFrame, rules: DataFrame, days: Sequence[str], now: datetime) -> str:
    """Write the sessions that begin on ``days``, one day at a time; how many.

    ``rows`` are ``ENTITY_SITE_5M`` with ``scope``, of ``days`` and the day before them, without what is usual.
    """
    sessions = materialised(find(rows.where(F.col("date").between(day_before(min(days)), max(days))), rules, now))
    for day in days:
        tables.replace(SESSIONS, sessions.where(F.col("date") == day), [day])
    number = sessions.where(F.col("date").isin(*days)).count()
    return many(number, "session")


def day_before(day: str) -> str:
    """The day from which on rows tell whether a session began on ``day`` or went on into it."""
    return (date.fromisoformat(day) - timedelta(days=1)).isoformat()


def find(rows: DataFrame, rules: DataFrame, now: datetime) -> DataFrame:
    """``SESSIONS`` of ``rows``. One that goes on from before the first of them is cut there."""
    # Most runs are one row of one match: they are left out before anything is collected.
    order = Window.partitionBy(*WHO).orderBy("first_time", "last_time")
    before, after = F.lag("run", 1, 0).over(order), F.lead("run", 1, 0).over(order)
    alone = (F.col("run") != before) & (F.col("run") != after)
    parted = runs(rows, WHO, GAP, "first_time", "last_time").withColumn("alone", alone)
    several = parted.where(~F.col("alone") | (F.col("matches") >= MIN_MATCHES))
    parts = several.join(F.broadcast(rules.select("rule_id", "tactics")), "rule_id", "left")
    whole = parts.groupBy(*WHO, "run").agg(
        F.min("first_time").alias("started_at"),
        F.max("last_time").alias("ended_at"),
        F.sum("alerts").alias("alerts"),
        F.sum("matches").alias("matches"),
        F.slice(F.sort_array(F.collect_set(F.concat_ws("/", "fleet", "site"))), 1, MAX_RULES).alias("sites"),
        F.slice(F.sort_array(F.collect_set("rule_id")), 1, MAX_RULES).alias("rules"),
        *attack.first_times(),
    )
    named = (
        whole.where(F.col("matches") >= MIN_MATCHES)
        .withColumn("tactics", attack.as_met())
        .withColumn("date", F.date_format("started_at", "yyyy-MM-dd"))
        .withColumn("session_id", identity(*map(F.col, WHO), F.unix_micros("started_at").cast("string")))
        .withColumn("updated_at", F.lit(now))
    )
    return named.select(*SESSIONS.names)
