"""Entity risk: points for each day on which a rule named an entity, decayed, and what it takes for them to be many.

**Points.** One contribution is one rule on one day, however often it alerted on it:

    level * confidence * stage * novelty * breadth * rarity * surprise * criticality * REPEAT ** (days before)
    * 0.5 ** (age / half-life)

``confidence`` is the rule's (``jobs.risk``), ``stage`` that of its furthest tactic (``TRIED``: less of the hosts and
sites at which an attack is only tried), ``novelty`` whether the entity
meets the rule, or the tactic, for the first time in the days looked at, ``criticality`` what the owner says of the
entity; ``days before`` are those on which the same rule has named it already. So volume gives nothing: a rule that
alerts every minute of every day has few points, several that are new there have many, with one alert of each a day.
Points are rounded to hundredths, and the score is their sum.

**Rarity**: what a rule says of everyone at a site it says of nobody. Where it has named ``n`` of the ``N`` entities of
a kind that have had any alert at a site in the days looked at, it is ``(1 - ln n / ln (N + 1)) ** SHARPNESS``: 1 for a
rule that names one alone, next to 0 for one that names all. An entity at several sites on a day has it from the site
where it is highest; the place of a site is the whole of all fleets.

**Surprise** (``findings.surprise``) is how little the fleet and the site are used to the rule: what is seen every day
somewhere says next to nothing. Who is at most of the sites day by day (``root``, ``SYSTEM``) is nobody in particular,
and has no row; its hosts and sites have theirs.

**Days before** do not count on a day on which the rule names the entity at a site for the first time: to move on is no
repetition.

**Breadth** is of an entity's first alert of a rule ``1 + m / (m + BREADTH)``, below 2, where ``m`` is the number of
rules that it first met on earlier days, each counted by its rarity: who goes on day by day to what is new and unusual
adds up faster than whom much befalls in a day.

**Threshold**: the larger of ``MIN_THRESHOLD`` and ``OWN_TIMES`` what is usual for the entity: the median of its scores
at moments before the last half of a half-life. Scores of the past are reckoned from the same contributions, so they
do not depend on when the job ran.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from spark_jobs.common.attack import TACTICS
from spark_jobs.common.entities import CRITICAL_DAYS, EVERYWHERE, LEVELS, MANY_SITES, MIN_HISTORY, WHO, scope
from spark_jobs.common.islands import identity
from spark_jobs.findings.surprise import habits, surprise
from spark_jobs.findings.weight import ATTEMPTS

KINDS = ("user", "ip", "device")
"""Of ``ENTITY_SITE_5M``; hosts and sites have their own tables. Files, programs and domains are what is used, not who
acts."""

LEVEL_POINTS = (2.0, 2.0, 10.0, 20.0, 40.0, 100.0)
"""Of a level that there is not, and of ``LEVELS``. A critical alert is worth a look alone."""

FIRST_STAGE, STAGE_STEPS = 0.7, 0.6
"""Of Reconnaissance, and how much more Impact has; a rule without a tactic has 1."""

TRIED = 0.2
"""The same of hosts and sites, where the tactic is one of ``ATTEMPTS`` and the rule below critical: what is tried from
outside is tried at all of them, and says more of who tries it."""

NEW_TACTIC, NEW_RULE = 1.3, 1.15

BREADTH = 5
"""Rules, met on earlier days, that name nobody else, by which the points of the next are half as many again. It is
bounded, so that it raises the past of an entity that is ever like that as well."""

SHARPNESS = 2
"""Of rarity: a rule that names ten of sixty has a fifth of its points. By 1 it would have nearly half of them, and a
person at a busy site who meets every rule there in a month has as much as somebody who does a little every day by
rules that name nobody else."""

REPEAT = 1 / 3
"""Of the points of a rule's day what the rule's next day has: all of them together are half as much again."""

PERSONAL = ("user", "device")
"""Whose surprise counts by its root: who does a little every day, by rules that others set off, too, shows by rarity
and breadth. A host meets all that goes on at it."""

UNUSUAL = 0.25
"""Surprise from which on a critical alert puts whom it names over the threshold; on the first day there it always does.
A false positive of every day does not, and stands among the critical alerts."""

CRITICALITY = {1: 0.5, 2: 0.75, 3: 1.0, 4: 1.5, 5: 2.0}
"""By the owner's number; one outside of them, or none, is as 3."""

MAX_SITES = 20
"""Of a contribution that are compared with those of others."""

WINDOW = 4
"""Half-lives looked at: what is older has less than a sixteenth of its points."""

MIN_THRESHOLD = 50.0
OWN_TIMES = 2.0
MIN_MOMENTS = 3
"""Of the past, that it takes to say what is usual."""

MAX_CONTRIBUTIONS = 8
"""Of an entity that are kept with it, the largest."""

MAX_ENTITIES = 1000
"""Of a kind that are written: those over their threshold first, then by score against threshold."""

_CELL = [*WHO, "site", "rule_id", "day"]
_RULE = ["kind", "place", "rule_id"]
_CRITICAL = len(LEVELS)


def cells(entities: DataFrame, hosts: DataFrame, windows: DataFrame) -> DataFrame:
    """One row for each entity, rule and day (``date``), of ``ENTITY_SITE_5M``, ``HOST_1H`` and ``WIN_5M``, with
    ``rarity``, ``surprise``, whether it was at a ``new_place``, and its ``sites``; ``site`` is a host's, by which its
    criticality is looked up."""
    at = F.concat_ws("/", "fleet", "site")
    parts = (
        (entities.where(F.col("kind").isin(*KINDS)), F.col("kind"), F.col("value"), scope(), F.lit(""), at),
        (hosts, F.lit("host"), F.col("host"), at, F.col("site"), at),
        (windows.where("site != ''"), F.lit("site"), at, F.lit(""), F.lit(""), F.lit("")),
    )
    named = [
        rows.select(
            kind.alias("kind"), value.alias("value"), whose.alias("scope"), site.alias("site"), "rule_id",
            F.col("date").alias("day"), "level", "alerts", "first_time", "last_time", place.alias("place"),
            at.alias("at"),
        )
        for rows, kind, value, whose, site, place in parts
    ]  # fmt: skip
    every = named[0].unionByName(named[1]).unionByName(named[2]).where("value != '' AND alerts > 0")
    every = every.join(F.broadcast(_nobody(every)), WHO, "left_anti")
    rank = F.coalesce(F.array_position(F.array(*map(F.lit, LEVELS)), F.col("level")), F.lit(0)).cast("int")
    customs = habits(windows.where("alerts > 0").select(at.alias("at"), "rule_id", F.col("date").alias("day")))
    # A row for each rule at a site is little, so that ``every`` need not be sorted for it.
    visits = (
        every.join(F.broadcast(_rarity(every)), _RULE)
        .join(F.broadcast(customs), ["at", "rule_id"])
        .groupBy(*_CELL, "at")
        .agg(
            F.max(rank).alias("rank"),
            F.sum("alerts").alias("alerts"),
            F.min("first_time").alias("first_time"),
            F.max("last_time").alias("last_time"),
            F.max("rarity").alias("rarity"),
            F.max(surprise(F.col("day"))).alias("surprise"),
        )
        .repartition(*WHO)
    )
    order = Window.partitionBy(*WHO, "rule_id", "at").orderBy("day")
    critical = (F.col("rank") == _CRITICAL) & (F.col("new_place") | (F.col("surprise") >= UNUSUAL))
    return (
        visits.withColumn("new_place", F.row_number().over(order) == 1)
        .groupBy(*_CELL)
        .agg(
            F.max("rank").alias("rank"),
            F.sum("alerts").alias("alerts"),
            F.min("first_time").alias("first_time"),
            F.max("last_time").alias("last_time"),
            F.max(F.when(critical, F.col("last_time"))).alias("critical_at"),
            F.max("rarity").alias("rarity"),
            F.max("surprise").alias("surprise"),
            F.max("new_place").alias("new_place"),
            F.slice(F.sort_array(F.collect_set("at")), 1, MAX_SITES).alias("sites"),
        )
    )


def _nobody(every: DataFrame) -> DataFrame:
    """Entities that are at more than ``EVERYWHERE`` of ``MANY_SITES`` sites or more on ``MIN_HISTORY`` days: no actor,
    but a name that all have. What hosts and sites saw of them stays."""
    pairs = every.where(F.col("kind").isin(*KINDS)).select(*WHO, "at", "day").distinct()
    there = every.select("at", "day").distinct().groupBy("day").agg(F.count("*").alias("every"))
    met = pairs.groupBy(*WHO, "day").agg(F.count("*").alias("sites")).join(F.broadcast(there), "day")
    days = met.where((F.col("every") >= MANY_SITES) & (F.col("sites") > EVERYWHERE * F.col("every"))).groupBy(*WHO)
    return days.count().where(F.col("count") >= MIN_HISTORY).select(*WHO)


def _rarity(every: DataFrame) -> DataFrame:
    """``rarity`` by kind, place and rule."""
    pairs = every.select(*_RULE, "value").distinct()
    named = pairs.groupBy(*_RULE).agg(F.count("*").alias("named"))
    there = pairs.select("kind", "place", "value").distinct().groupBy("kind", "place").agg(F.count("*").alias("there"))
    share = F.log("named") / F.log(F.col("there") + 1)
    rarity = F.pow(1 - share, F.lit(SHARPNESS)).alias("rarity")
    return named.join(F.broadcast(there), ["kind", "place"]).select(*_RULE, rarity)


def moments(now: datetime, half_life: int, first: datetime) -> list[datetime]:
    """When an entity's past scores are taken: every quarter of a half-life, from half of one before ``now`` back to
    ``first``, the first day with alerts."""
    steps = range(2, 4 * WINDOW)
    past = [now - timedelta(days=half_life) * step / 4 for step in steps]
    return [moment for moment in past if moment >= first]


def contributions(rows: DataFrame, rules: DataFrame, confidence: Mapping[str, float], worth: DataFrame) -> DataFrame:
    """``cells`` with the points they had when they came (``base``), and what these are made of. ``confidence`` by rule;
    of one that is not in it 1. ``worth`` is ``criticality`` by ``kind``, ``value`` and ``site`` (empty: any)."""
    spark = rows.sparkSession
    stages = F.array(*map(F.lit, TACTICS))
    there = F.filter("tactics", lambda tactic: tactic.isin(*TACTICS))
    places = F.transform(there, lambda tactic: F.array_position(stages, tactic))
    furthest = rules.select("rule_id", F.array_max(places).cast("int").alias("place"))
    trust = spark.createDataFrame(sorted(confidence.items()), "rule_id STRING, confidence DOUBLE")
    whole = (
        rows.join(F.broadcast(furthest), "rule_id", "left")
        .join(F.broadcast(trust), "rule_id", "left")
        .join(worth, ["kind", "value", "site"], "left")
        .join(worth.where("site = ''").drop("site").withColumnRenamed("criticality", "anywhere"), WHO[:2], "left")
    )
    of_rule = Window.partitionBy(*WHO, "rule_id").orderBy("day")
    of_tactic = Window.partitionBy(*WHO, "place").orderBy("day", "first_time", "rule_id")
    marked = whole.withColumns(
        {
            "turn": F.row_number().over(of_rule),
            "new_tactic": F.col("place").isNotNull() & (F.row_number().over(of_tactic) == 1),
            "tactic": F.coalesce(F.get(stages, F.col("place") - 1), F.lit("")),
            "confidence": F.coalesce("confidence", F.lit(1.0)),
            "criticality": F.coalesce("criticality", "anywhere"),
        }
    )
    # Whole hundredths, whose sum is the same in any order.
    new = F.when(F.col("turn") == 1, F.round(100 * F.col("rarity"))).cast("long")
    earlier = Window.partitionBy(*WHO).orderBy(F.unix_date(F.to_date("day")))
    met = F.coalesce(F.sum(new).over(earlier.rangeBetween(Window.unboundedPreceding, -1)), F.lit(0)) / 100
    breadth = F.when(F.col("turn") == 1, 1 + met / (met + BREADTH)).otherwise(1.0)
    return marked.withColumn("breadth", breadth).withColumn("base", _base())


def _base() -> Column:
    stage = F.lit(FIRST_STAGE) + STAGE_STEPS * (F.col("place") - 1) / (len(TACTICS) - 1)
    novelty = F.when(F.col("new_tactic"), NEW_TACTIC).when(F.col("turn") == 1, NEW_RULE).otherwise(1.0)
    stage = F.when(_tried(F.col("tactic"), F.col("rank") == _CRITICAL), TRIED).otherwise(F.coalesce(stage, F.lit(1.0)))
    worth = F.lit(1.0)
    for number, factor in CRITICALITY.items():
        worth = F.when(F.col("criticality") == number, factor).otherwise(worth)
    level = F.get(F.array(*map(F.lit, LEVEL_POINTS)), F.col("rank"))
    repeated = F.when(F.col("new_place"), 1.0).otherwise(F.pow(F.lit(REPEAT), F.col("turn") - 1))
    surprise = F.when(F.col("kind").isin(*PERSONAL), F.sqrt("surprise")).otherwise(F.col("surprise"))
    named = F.col("rarity") * surprise * F.col("breadth") * F.col("confidence")
    return level * stage * novelty * named * worth * repeated


def _tried(tactic: Column, critical: Column) -> Column:
    """Whether a rule says of a host or a site no more than that an attack was tried there."""
    return F.col("kind").isin("host", "site") & tactic.isin(*ATTEMPTS) & ~critical


def _cents(at: datetime, half_life: int) -> Column:
    """Points at ``at`` in hundredths: whole numbers, whose sum is the same in any order. What is dated later is new."""
    age = F.greatest((F.unix_micros(F.lit(at)) - F.unix_micros("last_time")) / 86_400e6, F.lit(0.0))
    return F.round(100 * F.col("base") * F.pow(F.lit(0.5), age / half_life)).cast("long")


def scored(rows: DataFrame, now: datetime, half_life: int, past: Sequence[datetime]) -> DataFrame:
    """One row for each entity of ``contributions``: its score, what is usual, and the largest contributions."""
    order = Window.partitionBy(*WHO).orderBy(F.desc("cents"), F.desc("last_time"), "rule_id", "day")
    ranked = rows.withColumn("cents", _cents(now, half_life)).withColumn("order", F.row_number().over(order))
    counts = (F.col("cents") > 0) | (F.col("rank") == _CRITICAL)
    shown = (F.col("order") <= MAX_CONTRIBUTIONS) & counts
    contribution = F.struct(
        "order", (F.col("cents") / 100).alias("points"), F.col("last_time").alias("time"), "rule_id",
        F.get(F.array(F.lit(""), *map(F.lit, LEVELS)), F.col("rank")).alias("level"), "tactic", "alerts",
        "turn", "new_place", "sites", "new_tactic", "confidence", "criticality", "rarity", "surprise",
        "breadth",
    )  # fmt: skip
    before = [
        F.sum(F.when(F.col("last_time") <= F.lit(at), _cents(at, half_life)).otherwise(0)).alias(f"past_{n}")
        for n, at in enumerate(past)
    ]
    whole = ranked.groupBy(*WHO).agg(
        F.sum("cents").alias("cents"),
        F.sum(F.when(shown, F.col("cents")).otherwise(0)).alias("shown"),
        F.sort_array(F.collect_list(F.when(shown, contribution))).alias("contributions"),
        F.count_if((F.col("cents") > 0) & ~shown).alias("others"),
        F.max("rank").alias("rank"),
        F.max("critical_at").alias("critical_at"),
        F.sum("alerts").alias("alerts"),
        F.count_if(F.col("turn") == 1).alias("rules"),
        F.count_if("new_tactic").alias("tactics"),
        F.count_distinct("day").alias("days"),
        F.min("first_time").alias("first_seen"),
        F.max("last_time").alias("last_seen"),
        *before,
    )
    usual = F.lit(None).cast("double")
    if len(past) >= MIN_MOMENTS:
        scores = F.sort_array(F.array(*(F.col(f"past_{n}") for n in range(len(past)))))
        usual = (F.get(scores, F.lit((len(past) - 1) // 2)) + F.get(scores, F.lit(len(past) // 2))) / 200
    return whole.withColumn("usual", usual).drop(*(f"past_{n}" for n in range(len(past))))


def chosen(rows: DataFrame, now: datetime) -> DataFrame:
    """The ``MAX_ENTITIES`` of each kind of ``scored`` that come first, with their thresholds."""
    # ``greatest`` passes over nulls.
    threshold = F.round(F.greatest(F.lit(MIN_THRESHOLD), OWN_TIMES * F.col("usual")), 2)
    recent = F.coalesce(F.col("critical_at") > F.lit(now - timedelta(days=CRITICAL_DAYS)), F.lit(False))
    whole = rows.withColumns(
        {
            "risk_id": identity(*map(F.col, WHO)),
            "score": F.col("cents") / 100,
            "others_points": (F.col("cents") - F.col("shown")) / 100,
            "threshold": threshold,
            "recent": recent,
            "level": F.get(F.array(F.lit(""), *map(F.lit, LEVELS)), F.col("rank")),
        }
    )
    over = (F.col("score") >= F.col("threshold")) | F.col("recent")
    first = (F.desc("over"), F.desc(F.col("score") / F.col("threshold")), "value", "scope")
    order = F.row_number().over(Window.partitionBy("kind").orderBy(*first))
    ranked = whole.where("cents > 0 OR recent").withColumn("over", over).withColumn("order", order)
    return ranked.where(F.col("order") <= MAX_ENTITIES)


def criticalities(spark: SparkSession, assets: DataFrame | None, entities: DataFrame | None) -> DataFrame:
    """``criticality`` by ``kind``, ``value`` and ``site`` (empty: any), the highest where there are several: of hosts
    by the lookup ``assets``, of all kinds by ``entities``."""
    rows = spark.createDataFrame([], "kind STRING, value STRING, site STRING, criticality INT")
    if assets is not None:
        site = F.coalesce("site", F.lit("")).alias("site")
        rows = rows.unionByName(assets.select(F.lit("host").alias("kind"), F.col("host").alias("value"), site,
                                                "criticality"))  # fmt: skip
    if entities is not None:
        rows = rows.unionByName(entities.select("kind", "value", F.lit("").alias("site"), "criticality"))
    valid = rows.where(F.col("criticality").isin(*CRITICALITY))
    return valid.groupBy("kind", "value", "site").agg(F.max("criticality").alias("criticality"))
