"""Who and what was seen for the first time: at a site, and in the whole fleet.

``FIRST_SEEN`` remembers every rule and every entity of ``KINDS`` of every site, also when the days that showed it are
long deleted. Each day is added to it once, when it has ended (the write of a day carries its number as ``Txn``). Alerts
that come for it later are not in the column ``alerts``; the times are brought up to date with them for the days
evaluated and the ``LATE_DAYS`` before these.

Of what is new, little is worth a look: a rule of which no alert had landed before; a rule of a high level at a site
that has never seen it; a user, device or program of a high level that is new at a site: one row for each, wherever it
is new, at most ``MAX_RULES`` of each of the first two and ``MAX_ENTITIES`` of the third. Their ``score`` is on the
scale of bursts. Of a new rule it is the points of its level, times how few it names: an attack begins at one host of
one site, and what comes to many at once is a change of the rules, or of what they watch, however loud. A new entity has
it by level and alerts, after them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, timedelta
from typing import TypeAlias

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.common.entities import LEVELS, SEVERE
from spark_jobs.common.period import Period
from spark_jobs.findings.anomalies import MIN_HISTORY, PLACE, as_anomalies
from spark_jobs.findings.surprise import habits
from spark_jobs.tables.schema import ENTITY_SITE_5M, FIRST_SEEN, HOST_1H, RULES, WIN_5M, Table
from spark_jobs.tables.tables import Tables, Txn

APP = "first_seen"
"""Name of the writes to ``FIRST_SEEN``; their number is that of the last day in them."""

DAYS_AT_ONCE = 7
"""New days in one write: what they name passes through the driver in the ``delta`` backend."""

LATE_DAYS = 14
"""Days before those evaluated looked at again: what an agent saw that was cut off is not new when it is back."""

KINDS = ("user", "device", "user_agent")
"""Kinds of entities of which a site has the same ones for long. Of addresses, domains and files most are new."""

MAX_ENTITIES = MAX_RULES = 50
"""Of a run: more are read by nobody, and those first in line have the highest score."""

RULE_POINTS = {"critical": 100.0, "high": 70.0, "medium": 40.0}
OTHER_POINTS = 20.0
"""A new rule's by its level, where it names one host on one day."""

ENTITY_POINTS = {True: 10.0, False: 3.0}
MORE_POINTS, MAX_MORE = 1.0, 5.0
"""A new entity's: whether a critical rule named it, and for each doubling of its alerts and its sites."""

Less: TypeAlias = Callable[[DataFrame, Table], DataFrame]

_KEY = ["kind", "value", *PLACE]


def write(spark: SparkSession, tables: Tables, wanted: Period, sites: DataFrame, less: Less) -> DataFrame:
    """Bring ``FIRST_SEEN`` up to date; what was new in ``wanted``, as ``ANOMALIES``.

    ``sites`` are the ``baselines.histories``: a site is asked about once it has ``MIN_HISTORY`` days, be it within
    ``wanted``. ``less`` takes from rows of a table of counts what does not count, of ``wanted`` and of the
    ``LATE_DAYS`` before at least.
    """
    keep(spark, tables, wanted, less)
    remembered = tables.frame(spark, FIRST_SEEN).select(*_KEY, F.col("first_seen").alias("known"))
    missing = F.make_dt_interval((MIN_HISTORY - F.col("history_days")).cast("int"))
    grown = sites.select(*PLACE, (F.lit(wanted.start) + missing).alias("grown"))
    seen = _seen(spark, tables, wanted.days, less).join(F.broadcast(grown), PLACE, "left")
    new = seen.join(remembered.where(F.col("known") >= F.lit(wanted.start)), _KEY)
    new = new.withColumn("old", F.col("first_seen") >= F.col("grown"))
    rules = tables.frame(spark, RULES).select("rule_id", "rule_title", "first_landed")
    weighed = rules.join(_few(spark, tables, wanted, less), "rule_id")
    return _rules(new, weighed, wanted).unionByName(_entities(new.where("old"), wanted))


def _few(spark: SparkSession, tables: Tables, wanted: Period, less: Less) -> DataFrame:
    """By ``rule_id`` how ``few`` it has named, 0 to 1: the surprise of its hosts or its sites, whichever is less, since
    ``LATE_DAYS`` before ``wanted``."""
    late = wanted.from_day(wanted.first - timedelta(days=LATE_DAYS))
    each = []
    for table, names in ((WIN_5M, PLACE), (HOST_1H, [*PLACE, "host"])):
        rows = less(tables.frame(spark, table, late.since, late.until), table)
        met = rows.select(F.concat_ws("/", *names).alias("at"), "rule_id", F.col("date").alias("day"))
        each.append(habits(met).select("rule_id", "fleet"))
    return each[0].unionByName(each[1]).groupBy("rule_id").agg(F.min("fleet").alias("few"))


def keep(spark: SparkSession, tables: Tables, wanted: Period, less: Less) -> None:
    """Add every day that has ended by ``wanted.now`` and is not in ``FIRST_SEEN`` yet; then what has come since for
    the days of ``wanted`` and the ``LATE_DAYS`` before."""
    done = tables.version(FIRST_SEEN, APP) or 0
    ended, have = f"{wanted.now:%Y-%m-%d}", tables.partitions(WIN_5M)
    days = [day for day in have if day < ended and date.fromisoformat(day).toordinal() > done]
    for first in range(0, len(days), DAYS_AT_ONCE):
        some = days[first : first + DAYS_AT_ONCE]
        rows = _seen(spark, tables, some, less).select(*FIRST_SEEN.names)
        tables.upsert(FIRST_SEEN, rows, Txn(APP, date.fromisoformat(some[-1]).toordinal()))
    late = wanted.from_day(wanted.first - timedelta(days=LATE_DAYS))
    # A day that goes on, or for which late alerts have come: times, and who was missing.
    if again := [day for day in late.among(have) if day not in days]:
        rows = _seen(spark, tables, again, less).withColumn("alerts", F.lit(0).cast("long"))
        tables.upsert(FIRST_SEEN, rows.select(*FIRST_SEEN.names))


def _seen(spark: SparkSession, tables: Tables, days: Sequence[str], less: Less) -> DataFrame:
    """Entities of ``KINDS`` and rules of each site in these days, and when a rule of a high level first named them."""
    named = tables.frame(spark, ENTITY_SITE_5M, only=days).where(F.col("kind").isin(*KINDS))
    entities = less(named, ENTITY_SITE_5M)
    windows = less(tables.frame(spark, WIN_5M, only=days), WIN_5M)
    rules = windows.withColumns({"kind": F.lit("rule"), "value": F.col("rule_id")})
    columns = [*_KEY, "first_time", "last_time", "alerts", "level"]
    both = entities.select(*columns).unionByName(rules.select(*columns))
    return both.groupBy(*_KEY).agg(
        F.min("first_time").alias("first_seen"),
        F.max("last_time").alias("last_seen"),
        F.sum("alerts").alias("alerts"),
        F.min(F.when(F.col("level").isin(*SEVERE), F.col("first_time"))).alias("severe_at"),
        F.max(F.col("level").eqNullSafe("critical")).alias("critical"),
        _severest(),
    )


def _rules(new: DataFrame, rules: DataFrame, wanted: Period) -> DataFrame:
    """Rules that are new in the fleet (no site is named; one site at least is old), and severe ones that are new at an
    old site: one row a rule, at the first site where it is new."""
    of_rules = new.where("kind = 'rule'").withColumn("rule_id", F.col("value"))
    met = of_rules.join(F.broadcast(rules), "rule_id")
    in_fleet = met.where(F.col("first_landed") >= F.lit(wanted.start)).groupBy("rule_id", "rule_title", "few")
    whole = in_fleet.agg(
        F.max("old").alias("old"),
        F.min("first_seen").alias("started_at"),
        F.sum("alerts").alias("alerts"),
        F.count("*").alias("sites"),
        F.max("last_seen").alias("ended_at"),
        F.max("critical").alias("critical"),
        _severest(),
    )
    names = ("rule_id", "rule_title", "ended_at", "critical", "score", "sites")
    shown = [*map(F.col, names), F.col("alerts").alias("observed")]
    fleet = _first(whole.where("old")).select(F.lit("").alias("fleet"), F.lit("").alias("site"), "started_at", *shown)
    elsewhere = met.where(F.col("first_landed") < F.lit(wanted.start)).where("old AND severe_at IS NOT NULL")
    where = F.min_by(F.struct(*PLACE, F.col("first_seen").alias("started_at")), F.struct("first_seen", *PLACE))
    each = elsewhere.groupBy("rule_id", "rule_title", "few").agg(
        where.alias("first"),
        F.max("last_seen").alias("ended_at"),
        F.sum("alerts").alias("alerts"),
        F.count("*").alias("sites"),
        F.max("critical").alias("critical"),
        _severest(),
    )
    site = _first(each).select("first.*", *shown)
    return _as_anomalies(fleet.unionByName(site), "new_rule", wanted)


def _severest() -> Column:
    """The highest level: the newest is what a single agent says last."""
    return F.max_by("level", F.array_position(F.array(*map(F.lit, LEVELS)), F.col("level"))).alias("level")


def _first(rules: DataFrame) -> DataFrame:
    """With their ``score`` the ``MAX_RULES`` that come first."""
    points = F.lit(OTHER_POINTS)
    for level, worth in RULE_POINTS.items():
        points = F.when(F.col("level") == level, worth).otherwise(points)
    return rules.withColumn("score", points * F.col("few")).orderBy(F.desc("score"), "rule_id").limit(MAX_RULES)


def _entities(new: DataFrame, wanted: Period) -> DataFrame:
    """One row for each entity that severe rules named, at the first site where it is new; ``MAX_ENTITIES`` in all."""
    severe = new.where((F.col("kind") != "rule") & F.col("severe_at").isNotNull())
    where = F.min_by(F.struct(*PLACE, F.col("first_seen").alias("started_at")), F.struct("severe_at", *PLACE))
    each = severe.groupBy("kind", "value").agg(
        where.alias("first"),
        F.max("last_seen").alias("ended_at"),
        F.sum("alerts").alias("alerts"),
        F.count("*").alias("sites"),
        F.max("critical").alias("critical"),
    )
    more = F.least(MORE_POINTS * F.log2((F.col("alerts") * F.col("sites")).cast("double")), F.lit(MAX_MORE))
    points = F.when(F.col("critical"), ENTITY_POINTS[True]).otherwise(ENTITY_POINTS[False])
    chosen = each.withColumn("score", points + more).orderBy(F.desc("score"), "kind", "value").limit(MAX_ENTITIES)
    rows = chosen.select(
        "first.*", "ended_at", F.lit("").alias("rule_id"), "critical", "score", "sites",
        F.col("alerts").alias("observed"), F.col("kind").alias("entity_kind"), F.col("value").alias("entity_value"),
    )  # fmt: skip
    return _as_anomalies(rows, "new_entity", wanted)


def _as_anomalies(rows: DataFrame, kind: str, wanted: Period) -> DataFrame:
    level = F.when(F.col("critical"), "high").otherwise("medium")
    return as_anomalies(rows, kind, level, wanted)
