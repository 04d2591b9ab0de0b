"""The job ``campaigns``: the same entity at many sites, along the tactics of an attack; and everyone's sessions.

**A campaign** is a run of one entity's activity, without a gap of ``GAP`` seconds, in which it was alerted on at
``MIN_SITES`` or more sites within ``WINDOW`` seconds, with a score of ``MIN_SCORE`` or more. The score adds up what
chance does not do: many sites; several different rules at one and the same site; many sites within the hour; tactics in
the order of an attack; the level of the rules.

**Decoys** look like it and are none: the usual (``entities``); whoever only scans; an entity that the lookup ``intel``
knows as one's own by its threat (``OWN``). A campaign that turns out to be one of these is withdrawn: it is closed,
with score 0 and a reason.

**A campaign keeps its id** and its date while it grows, and when late alerts let it begin earlier. Two that turn out
to be one go on under the id of the earlier; the other is closed and says so. Runs of this job over the same tables give
the same rows, so a run that was cut short is simply done again; but for an open campaign near the first day looked at:
the next run looks further back for its sake, and may see more.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import date, timedelta

import click
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from spark_jobs.common import attack, entities
from spark_jobs.common.attack import TACTICS
from spark_jobs.common.entities import MAX_DAYS, MIN_HISTORY, QUIET_DAYS, WHO
from spark_jobs.common.islands import identity, most_within, runs
from spark_jobs.common.period import Period, held, period
from spark_jobs.common.plain import many
from spark_jobs.findings import sessions
from spark_jobs.intake.enrich import Lookups
from spark_jobs.jobs.job import COUNT, Job, days_options, lookups_option, spark_job
from spark_jobs.tables.schema import CAMPAIGNS, ENTITY_SITE_5M, RULES
from spark_jobs.tables.tables import Tables

log = logging.getLogger(__name__)

DAYS = 14
"""Days looked at: enough to tell what comes back every working day from what does not."""

WINDOW = 24 * 3600
MIN_SITES = 3
"""Two sites share a contractor or an address by chance every day; three within a day are worth a score."""

GAP = 24 * 3600
"""A campaign that pauses for a night goes on; one that is back after a whole day of silence is another."""

HOUR = 3600
STEPS = 4

MIN_SCORE = 50.0
"""More than sites and tactics can give (49, for 4 sites) when each site saw one alert, and no hour saw many sites: an
address that turns up once here and once there is no campaign, whatever the rules are about."""

SITE_POINTS, MAX_SITE_POINTS = 10.0, 40.0
"""For each doubling of the sites in the busiest 24 hours: 3 sites 16, 4 sites 20, 16 sites 40."""

DEEP_RULES = 2
DEPTH_POINTS, MAX_DEPTH_POINTS = 10.0, 30.0
"""For each site at which ``DEEP_RULES`` different rules named the entity. By chance that is one site, seldom two."""

TEMPO_POINTS, MAX_TEMPO_POINTS = 5.0, 20.0
"""For each site beyond the first in the busiest hour: what goes from site to site within the hour is a program."""

ORDER_POINTS, MAX_ORDER_POINTS = 5.0, 15.0
"""For each step forward along ATT&CK's tactics. Low, because rules in any order give some steps."""

LEVELS = ("informational", "low", "medium", "high", "critical")
LEVEL_POINTS = (0.0, 0.0, 3.0, 6.0, 10.0)

SCANNING = ("reconnaissance", "resource-development")
MAX_SCANNING = 40.0
"""Highest score of a run in which nothing but ``SCANNING`` was seen: everyone is being scanned, all the time."""

OWN = ("exercise", "scanner", "shared")
"""Threats by which ``intel`` names what is one's own: a red team, a scanner in service, an address that many share."""

MAX_STEPS = 200

_RUN = [*WHO, "run"]


@spark_job()
@days_options(DAYS, "Days looked at.", most=MAX_DAYS)
@click.option("--session-days", type=COUNT, default=2, show_default=True, help="Last days, whose sessions are written.")
@lookups_option("Folder with the lookup intel.")
def campaigns(job: Job, last: date, days: int, session_days: int, lookups: Lookups | None) -> str:
    """Find entities at many sites, and sessions.

    Example: vedette-spark campaigns --tables tables --lookups lookups
    """
    if session_days > days:
        raise click.UsageError(f"--session-days: at most the {days} of --days, not {session_days}")
    wanted = period(last, days)
    return write(job.spark, job.tables, wanted, lookups, wanted.days[-session_days:])


def write(
    spark: SparkSession,
    tables: Tables,
    wanted: Period,
    lookups: Lookups | None = None,
    session_days: Sequence[str] = (),
) -> str:
    """Write the campaigns of ``wanted`` and the sessions that begin on ``session_days``; how many of each."""
    wanted = _from_open_campaigns(tables.frame(spark, CAMPAIGNS), wanted)
    there = held(tables.partitions(ENTITY_SITE_5M), wanted)
    if len(there) < MIN_HISTORY:
        log.warning(
            "only %d days have alerts: below %d new entities cannot be distinguished from usual ones",
            len(there),
            MIN_HISTORY,
        )
    early = min([wanted.since, *(sessions.day_before(day) for day in session_days)])
    every = tables.frame(spark, ENTITY_SITE_5M, early, wanted.until).withColumn("scope", entities.scope())
    rows = every.where(F.col("date") >= wanted.since)
    rules = tables.frame(spark, RULES)
    who = entities.profile(rows, wanted.first, there).persist()
    seen = suspects(rows, who).persist()
    try:
        found = find(seen, rules).where(F.col("score") >= MIN_SCORE)
        if lookups is not None:
            found = without_own(spark, found.persist(), lookups)
        text = _write(spark, tables, named(found, tables.frame(spark, CAMPAIGNS), wanted), wanted)
        if session_days:
            text += f"; {sessions.write(tables, every, who, rules, session_days, wanted.now)}"
    finally:
        seen.unpersist()
        who.unpersist()
    return text


def _from_open_campaigns(known: DataFrame, wanted: Period) -> Period:
    """``wanted`` from early enough to see open campaigns whole, and that they were not there before; as far back as
    one look can span. What ended before that cannot go on in it: ``paused`` closes it unseen."""
    furthest = wanted.from_day(wanted.last - timedelta(days=MAX_DAYS - 1))
    going_on = F.unix_seconds("last_seen") + GAP >= F.unix_seconds(F.lit(furthest.start))
    first = known.where(going_on & (F.col("state") == "open")).agg(F.min("first_seen")).collect()[0][0]
    if first is None:
        return wanted
    begin = first.date() - timedelta(days=QUIET_DAYS)
    return wanted.from_day(max(min(begin, wanted.first), furthest.first))


def _write(spark: SparkSession, tables: Tables, rows: DataFrame, wanted: Period) -> str:
    rows.persist()
    try:
        tables.upsert(CAMPAIGNS, rows)
        said = {
            row.what: row.n
            for row in rows.groupBy(F.when(F.col("score") > 0, F.col("state")).otherwise("ended").alias("what"))
            .agg(F.count("*").alias("n"))
            .collect()
        }
    finally:
        rows.unpersist()
    left = paused(tables.frame(spark, CAMPAIGNS), wanted).toArrow()
    if left.num_rows:
        tables.upsert(CAMPAIGNS, left)
    text = f"{many(said.get('open', 0), 'open campaign')}, {said.get('closed', 0) + left.num_rows:,} closed"
    return f"{text}, {said['ended']} withdrawn" if "ended" in said else text


def suspects(rows: DataFrame, who: DataFrame) -> DataFrame:
    """Of ``rows`` those of entities at ``MIN_SITES`` or more sites that are not usual, with the number of their run."""
    chosen = who.where((F.col("sites") >= MIN_SITES) & ~F.col("usual")).select(*WHO)
    return runs(rows.join(chosen, WHO, "left_semi"), WHO, GAP, "first_time", "last_time")


def find(seen: DataFrame, rules: DataFrame) -> DataFrame:
    """Every run of ``suspects`` that was at ``MIN_SITES`` within ``WINDOW``, scored: ``CAMPAIGNS`` without a name."""
    days = most_within(seen, _RUN, ["fleet", "site"], "window_start", WINDOW, STEPS)
    hours = most_within(seen, _RUN, ["fleet", "site"], "window_start", HOUR, STEPS)
    visits = _visits(seen, rules)
    depth = visits.groupBy(*_RUN, "fleet", "site").count().groupBy(*_RUN)
    deep = depth.agg(F.count_if(F.col("count") >= DEEP_RULES).alias("deep"))
    whole = (
        _gathered(visits)
        .join(days.withColumnRenamed("most", "at_once"), _RUN)
        .where(F.col("at_once") >= MIN_SITES)
        .join(hours.withColumnRenamed("most", "in_hour"), _RUN)
        .join(deep, _RUN)
    )
    return whole.withColumn("score", _score()).withColumn("reason", _reason())


def _visits(seen: DataFrame, rules: DataFrame) -> DataFrame:
    """One row for each run, site and rule, with the rule's tactics."""
    rank = F.array_position(F.array(*map(F.lit, LEVELS)), F.col("level")).cast("int")
    visits = seen.groupBy(*_RUN, "fleet", "site", "rule_id").agg(
        F.min("first_time").alias("first_time"),
        F.max("last_time").alias("last_time"),
        F.sum("alerts").alias("alerts"),
        F.sum("matches").alias("matches"),
        F.max(rank).alias("rank"),
    )
    return visits.join(F.broadcast(rules.select("rule_id", "tactics", "techniques")), "rule_id", "left")


def _gathered(visits: DataFrame) -> DataFrame:
    """One row for each run, of what lists of bounded length can say."""
    order = Window.partitionBy(*_RUN).orderBy("first_time", "fleet", "site", "rule_id")
    first_tactic = F.array_min(F.transform(F.filter("tactics", lambda one: one.isin(*TACTICS)), _place))
    step = F.struct(
        F.col("first_time").alias("time"), "fleet", "site", "rule_id",
        F.get(_tactics(), first_tactic - 1).alias("tactic"), "alerts",
    )  # fmt: skip
    ranked = visits.withColumn("step", F.when(F.row_number().over(order) <= MAX_STEPS, step))
    whole = ranked.groupBy(*_RUN).agg(
        F.min("first_time").alias("first_seen"),
        F.max("last_time").alias("last_seen"),
        F.sum("alerts").alias("alerts"),
        F.sum("matches").alias("matches"),
        F.max("rank").alias("rank"),
        F.sort_array(F.collect_set(F.concat_ws("/", "fleet", "site"))).alias("sites"),
        F.sort_array(F.collect_set("rule_id")).alias("rules"),
        F.sort_array(F.array_distinct(F.flatten(F.collect_set("techniques")))).alias("techniques"),
        F.sort_array(F.collect_list("step")).alias("steps"),
        *attack.first_times(),
    )
    return (
        whole.withColumn("tactics", attack.as_met())
        .withColumn("stage", attack.furthest())
        .withColumn("forward", _forward())
        .withColumn("level", F.get(F.array(*map(F.lit, LEVELS)), F.col("rank") - 1))
        .drop(*TACTICS)
    )


def _tactics() -> Column:
    return F.array(*map(F.lit, TACTICS))


def _place(tactic: Column) -> Column:
    return F.array_position(_tactics(), tactic).cast("int")


def _forward() -> Column:
    """Steps forward: tactics before which none beyond them was met, less the first."""
    steps = []
    for place, name in enumerate(TACTICS):
        here = F.col(f"`{name}`")
        beyond = F.array_min(F.array(*(F.col(f"`{one}`") for one in TACTICS[place + 1 :]), F.lit(None)))
        steps.append((here.isNotNull() & (beyond.isNull() | (here <= beyond))).cast("int"))
    total = steps[0]
    for step in steps[1:]:
        total = total + step
    return F.greatest(total - 1, F.lit(0))


def _score() -> Column:
    """0 to 100."""

    def points(amount: Column, each: float, most: float) -> Column:
        return F.least(amount * each, F.lit(most))

    total = (
        points(F.log2(F.col("at_once").cast("double")), SITE_POINTS, MAX_SITE_POINTS)
        + points(F.col("deep"), DEPTH_POINTS, MAX_DEPTH_POINTS)
        + points(F.col("in_hour") - 1, TEMPO_POINTS, MAX_TEMPO_POINTS)
        + points(F.col("forward"), ORDER_POINTS, MAX_ORDER_POINTS)
        + F.coalesce(F.get(F.array(*map(F.lit, LEVEL_POINTS)), F.col("rank") - 1), F.lit(0.0))
    )
    scanning = (F.size("tactics") > 0) & (F.size(F.array_except("tactics", F.array(*map(F.lit, SCANNING)))) == 0)
    total = F.when(scanning, F.least(total, F.lit(MAX_SCANNING))).otherwise(total)
    return F.round(F.least(total, F.lit(100.0)), 1)


def _reason() -> Column:
    """What the score is made of, in words."""
    return F.concat(
        F.col("at_once"), F.lit(" sites within 24 h ("), F.col("in_hour"), F.lit(" within 1 h); "),
        F.col("deep"), F.lit(f" sites with {DEEP_RULES} or more rules; "),
        F.col("forward"), F.lit(" steps forward, to "), F.coalesce("stage", F.lit("no tactic")),
    )  # fmt: skip


def without_own(spark: SparkSession, found: DataFrame, lookups: Lookups) -> DataFrame:
    """``found`` without the entities that ``intel`` names as one's own at the time they were last seen."""
    key = identity(F.col("kind"), F.col("value"), F.col("run").cast("string"))
    asked = found.select(
        key.alias("origin"), F.lit(0).cast("long").alias("position"), F.col("last_seen").alias("counted_at"),
        F.array(F.struct("kind", "value")).alias("entities"),
        *(F.lit(None).cast("string").alias(name) for name in ("fleet", "site", "host")),
    )  # fmt: skip
    known = lookups.enrich(spark, asked)
    if "intel" not in known.columns:
        return found
    own = known.where(F.exists("intel", lambda hit: hit["threat"].isin(*OWN))).select(F.col("origin").alias("own"))
    return found.withColumn("own", key).join(F.broadcast(own), "own", "left_anti").drop("own")


def named(found: DataFrame, known: DataFrame, wanted: Period) -> DataFrame:
    """Rows of ``CAMPAIGNS`` for an upsert: ``found`` under the ids that ``known`` has for them, and the ends of those
    in ``known`` that are no campaigns any more.

    Of a campaign that began before ``wanted``, what was known about that time stays.
    """
    start, now = F.lit(wanted.start), F.lit(wanted.now)
    old = known.where((F.col("last_seen") >= start) & (F.col("score") > 0))
    lists = ("sites", "rules", "tactics", "techniques")
    before = F.struct("first_seen", "campaign_id", "date", "alerts", "matches", *lists).alias("before")
    near = (
        old.select("kind", "value", before, F.col("last_seen").alias("until"))
        .join(found.select("kind", "value", "run", "first_seen", "last_seen"), ["kind", "value"])
        .where(F.unix_seconds("until") + GAP >= F.unix_seconds("first_seen"))
        .where(F.unix_seconds("before.first_seen") - GAP <= F.unix_seconds("last_seen"))
    )
    near = near.groupBy("kind", "value", "run").agg(
        F.min("before").alias("before"), F.collect_set("before.campaign_id").alias("met")
    )
    both = found.join(near, ["kind", "value", "run"], "left").withColumn(
        "turn", F.row_number().over(Window.partitionBy("kind", "value", "before.campaign_id").orderBy("first_seen"))
    )
    goes_on = F.col("before").isNotNull() & (F.col("turn") == 1)
    own_id = identity(F.col("kind"), F.col("value"), F.unix_micros("first_seen").cast("string"))
    cut = goes_on & (F.col("before.first_seen") < start)
    rows = (
        both.withColumn("campaign_id", F.when(goes_on, F.col("before.campaign_id")).otherwise(own_id))
        .withColumn("date", F.when(goes_on, F.col("before.date")).otherwise(F.date_format("first_seen", "yyyy-MM-dd")))
        .withColumns(
            {name: F.when(cut, F.array_union(f"before.{name}", name)).otherwise(F.col(name)) for name in lists}
        )
        .withColumns(
            {
                name: F.when(cut, F.greatest(f"before.{name}", name)).otherwise(F.col(name))
                for name in ("alerts", "matches")
            }
        )
        .withColumn(
            "state", F.when(F.unix_seconds("last_seen") + GAP >= F.unix_seconds(now), "open").otherwise("closed")
        )
        .withColumn("updated_at", now)
    )
    into = rows.select(F.explode("met").alias("old"), F.col("campaign_id").alias("into"))
    gone = (
        old.where(F.col("first_seen") >= start)
        .join(rows.select("campaign_id"), "campaign_id", "left_anti")
        .join(into, F.col("campaign_id") == F.col("old"), "left")
        .withColumn("reason", F.coalesce(
            F.concat(F.lit("merged into campaign "), "into"),
            F.lit("withdrawn: usual by now, your own, or too weak"),
        ))
        .withColumns({"state": F.lit("closed"), "score": F.lit(0.0), "updated_at": now})
    )  # fmt: skip
    return rows.select(*CAMPAIGNS.names).unionByName(gone.select(*CAMPAIGNS.names))


def paused(known: DataFrame, wanted: Period) -> DataFrame:
    """The ends of those in ``known``, with ``named`` written, that are open there and were last seen longer ago than
    ``GAP``: what began before the days looked at, or before any that can be."""
    left = known.where((F.col("state") == "open") & (F.unix_seconds("last_seen") + GAP < F.lit(wanted.now.timestamp())))
    return left.withColumns({"state": F.lit("closed"), "updated_at": F.lit(wanted.now)})
