"""An entity's way through the sites, and how sure it is that this is no chance.

**Evidence** (0 to 100) adds up what chance does not do: many sites at a time, or very many one after the other;
several different rules at one and the same site; many sites within the hour; tactics in the order of an attack; the
level of the rules. Where it is below ``MIN_EVIDENCE`` there is no campaign.

**Chance is what many do.** A rule that ``CROWD`` entities of a kind bring to several sites day by day, each other ones
(internet scanners, domains of spam), tells of none of them. A site counts where something else was met, by the rules
that were met there in all; the level is that of the rules that tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark_jobs.common import attack
from spark_jobs.common.attack import TACTICS
from spark_jobs.common.entities import LEVELS, MIN_HISTORY, SEVERE, USUAL_SHARE
from spark_jobs.common.islands import most_within
from spark_jobs.common.materialised import materialised

WINDOW = 24 * 3600
HOUR = 3600
MIN_SITES = 3
"""Two sites share a contractor or an address by chance every day; three within a day are worth a score."""

SLOW_SITES = 12
"""Sites of a run that are worth one however far apart in time they were visited."""

MIN_EVIDENCE = 50.0
"""More than sites and tactics can give (49, for 4 sites) when each site saw one alert, and no hour saw many sites: an
address that turns up once here and once there is no campaign, whatever the rules are about."""

SITE_POINTS, MAX_SITE_POINTS = 10.0, 40.0
"""For each doubling of the sites in the busiest 24 hours: 3 sites 16, 4 sites 20, 16 sites 40."""

SLOW_POINTS, MAX_SLOW_POINTS = 12.0, 60.0
"""In their place, for each doubling of all sites of the run, from ``SLOW_SITES`` on: 16 sites 48, 22 sites 54."""

DEEP_RULES = 2
DEPTH_POINTS, MAX_DEPTH_POINTS = 10.0, 30.0
"""For each site at which ``DEEP_RULES`` different rules named the entity. By chance that is one site, seldom two."""

TEMPO_POINTS, MAX_TEMPO_POINTS = 5.0, 20.0
"""For each site beyond the first in the busiest hour: what goes from site to site within the hour is a program."""

ORDER_POINTS, MAX_ORDER_POINTS = 5.0, 15.0
"""For each step forward along ATT&CK's tactics. Low, because rules in any order give some steps."""

LEVEL_POINTS = (0.0, 0.0, 3.0, 6.0, 10.0)

MAX_STEPS = 200
"""Half of them the first, half the last: stages and what is new are reckoned from all."""

NEW = timedelta(days=1)
"""Steps that are no older are new: who looks once a day has not seen them."""

CROWD = 5
"""Different entities of one kind on a day: what no attack brings day after day, and a scanned network always has."""

_PLACE = ["fleet", "site"]


def telling(seen: DataFrame, days: int) -> DataFrame:
    """``seen`` with whether its rule is ``telling`` of that kind of entity: not met by ``CROWD`` or more, that are at
    several sites, on as many of the ``days`` as make it usual; a critical one always is."""
    begun = seen.groupBy("kind", "rule_id", "value", "scope").agg(F.min("date").alias("date"))
    met = begun.groupBy("kind", "rule_id", "date").agg(F.count("*").alias("who"))
    often = max(min(MIN_HISTORY, days), USUAL_SHARE * days)
    daily = met.where(F.col("who") >= CROWD).groupBy("kind", "rule_id").count().where(F.col("count") >= often)
    common = F.broadcast(materialised(daily.select("kind", "rule_id", F.lit(True).alias("common"))))
    tells = F.col("common").isNull() | (F.col("level") == "critical")
    return seen.join(common, ["kind", "rule_id"], "left").withColumn("telling", tells).drop("common")


def find(seen: DataFrame, rules: DataFrame, by: Sequence[str], now: datetime) -> DataFrame:
    """One row for each ``by`` that was at ``MIN_SITES`` within ``WINDOW``, or at ``SLOW_SITES`` in all, by rules that
    tell: what it did, with its ``evidence``. ``seen`` are rows of ``ENTITY_SITE_5M`` with ``telling``; steps are new at
    ``now``. Much of it is reckoned at once."""
    tells = seen.where("telling")
    days = most_within(tells, by, _PLACE, WINDOW).withColumnRenamed("most", "at_once")
    visits = materialised(_visits(seen, rules, by))
    depth = visits.groupBy(*by, *_PLACE).agg(F.count("*").alias("rules"), F.bool_or("telling").alias("telling"))
    deep = depth.groupBy(*by).agg(
        F.count_if("telling").alias("telling_sites"),
        F.count_if(F.col("telling") & (F.col("rules") >= DEEP_RULES)).alias("deep"),
        F.sum("rules").alias("cells"),
    )
    # Few of very many: all else is asked of these only.
    enough = (F.col("at_once") >= MIN_SITES) | (F.col("telling_sites") >= SLOW_SITES)
    worth = materialised(days.join(deep, [*by]).where(enough))
    few = worth.select(*by)
    hours = most_within(tells.join(few, [*by], "left_semi"), by, _PLACE, HOUR).withColumnRenamed("most", "in_hour")
    gathered = _gathered(visits.join(few, [*by], "left_semi"), by, now)
    whole = gathered.join(hours, [*by]).join(worth, [*by])
    return whole.withColumn("evidence", _evidence())


def _visits(seen: DataFrame, rules: DataFrame, by: Sequence[str]) -> DataFrame:
    """One row for each ``by``, site and rule, with the rule's tactics; ``rank`` is the level, where it is telling."""
    rank = F.array_position(F.array(*map(F.lit, LEVELS)), F.col("level")).cast("int")
    visits = seen.groupBy(*by, *_PLACE, "rule_id").agg(
        F.min("first_time").alias("first_time"),
        F.max("last_time").alias("last_time"),
        F.sum("alerts").alias("alerts"),
        F.sum("matches").alias("matches"),
        F.max(F.when(F.col("telling"), rank)).alias("rank"),
        F.bool_or("telling").alias("telling"),
    )
    return visits.join(F.broadcast(rules.select("rule_id", "tactics", "techniques")), "rule_id", "left")


def _gathered(visits: DataFrame, by: Sequence[str], now: datetime) -> DataFrame:
    """One row for each ``by``: the whole, its ``story`` and some of its ``steps``."""
    order = Window.partitionBy(*by).orderBy("first_time", *_PLACE, "rule_id")
    number, of = F.row_number().over(order), F.count("*").over(Window.partitionBy(*by))
    named = (number <= MAX_STEPS // 2) | (number > of - MAX_STEPS // 2)
    reached = F.transform(F.filter("tactics", lambda tactic: tactic.isin(*TACTICS)), _place)
    step = F.struct(F.col("first_time").alias("time"), *_PLACE, "rule_id", "tactic", "alerts")
    first, last = (F.get(_tactics(), end(reached) - 1) for end in (F.array_min, F.array_max))
    staged = visits.withColumns({"tactic": first, "furthest": last})
    severe = F.col("rank") > LEVELS.index(SEVERE[0])
    ranked = staged.withColumn("step", F.when(named, step))
    whole = ranked.groupBy(*by).agg(
        F.min("first_time").alias("first_seen"),
        F.max("last_time").alias("last_seen"),
        F.sum("alerts").alias("alerts"),
        F.sum("matches").alias("matches"),
        F.max("rank").alias("rank"),
        F.collect_set(F.when(severe, F.coalesce("tactic", F.lit("")))).alias("severe"),
        F.collect_set(F.when(severe, F.col("furthest"))).alias("reached"),
        F.sort_array(F.collect_set(F.concat_ws("/", *_PLACE))).alias("sites"),
        F.sort_array(F.collect_set("rule_id")).alias("rules"),
        F.sort_array(F.array_distinct(F.flatten(F.collect_set("techniques")))).alias("techniques"),
        F.sort_array(F.collect_list("step")).alias("steps"),
        F.count_if(F.col("first_time") > F.lit(now - NEW)).cast("int").alias("new_steps"),
        *attack.first_times(),
    )
    return (
        whole.join(_story(ranked, by), [*by])
        .withColumn("tactics", attack.as_met())
        .withColumn("stage", attack.furthest())
        .withColumn("forward", _forward())
        .withColumn("level", F.get(F.array(*map(F.lit, LEVELS)), F.col("rank") - 1))
        .drop(*TACTICS)
    )


def _story(ranked: DataFrame, by: Sequence[str]) -> DataFrame:
    """One row for each ``by``: its stages in the order in which it reached them. Of each when it was first and last
    active, at which sites and by which rules (the first met first), and its alerts; ``tactic`` is empty where none is
    known."""

    def met(name: Column | str) -> Column:
        those = F.sort_array(F.collect_set(F.struct("first_time", name)))
        return F.array_distinct(F.transform(those, lambda visit: visit["name"]))

    stages = ranked.groupBy(*by, F.coalesce("tactic", F.lit("")).alias("tactic")).agg(
        F.min("first_time").alias("first"),
        F.max("last_time").alias("last"),
        met(F.concat_ws("/", *_PLACE).alias("name")).alias("sites"),
        met(F.col("rule_id").alias("name")).alias("rules"),
        F.sum("alerts").alias("alerts"),
    )
    # In the order of the struct: by ``first``, then ``tactic``.
    summary = F.struct("first", "tactic", "last", "sites", "rules", "alerts")
    story = F.transform(
        F.sort_array(F.collect_list(summary)),
        lambda stage: F.struct(
            *(stage[name].alias(name) for name in ("first", "last", "tactic", "sites", "rules", "alerts"))
        ),
    )
    return stages.groupBy(*by).agg(story.alias("story"))


def _tactics() -> Column:
    return F.array(*map(F.lit, TACTICS))


def _place(tactic: Column) -> Column:
    return F.array_position(_tactics(), tactic).cast("int")


def _forward() -> Column:
    """Steps forward: tactics before which none beyond them was met, less the first."""
    steps = []
    for place, name in enumerate(TACTICS):
        here = F.col(f"`{name}`")
        beyond = F.array_min(F.array(*(F.col(f"`{later}`") for later in TACTICS[place + 1 :]), F.lit(None)))
        steps.append((here.isNotNull() & (beyond.isNull() | (here <= beyond))).cast("int"))
    total = steps[0]
    for step in steps[1:]:
        total = total + step
    return F.greatest(total - 1, F.lit(0))


def _evidence() -> Column:
    def points(amount: Column, each: float, most: float) -> Column:
        return F.least(amount * each, F.lit(most))

    every = F.col("telling_sites")
    slow = F.when(every >= SLOW_SITES, points(F.log2(every.cast("double")), SLOW_POINTS, MAX_SLOW_POINTS))
    at_once = points(F.log2(F.col("at_once").cast("double")), SITE_POINTS, MAX_SITE_POINTS)
    total = (
        F.greatest(at_once, F.coalesce(slow, F.lit(0.0)))
        + points(F.col("deep"), DEPTH_POINTS, MAX_DEPTH_POINTS)
        + points(F.col("in_hour") - 1, TEMPO_POINTS, MAX_TEMPO_POINTS)
        + points(F.col("forward"), ORDER_POINTS, MAX_ORDER_POINTS)
        + F.coalesce(F.get(F.array(*map(F.lit, LEVEL_POINTS)), F.col("rank") - 1), F.lit(0.0))
    )
    return F.round(F.least(total, F.lit(100.0)), 1)
