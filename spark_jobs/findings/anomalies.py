"""Bursts and silences: hours of the days evaluated that are unlike the usual (``baselines``).

Counts of matches are not Poisson: one fold record counts many matches at once, and how many has no scale: of two
scanners one goes on for a minute, the other all day. So the scale of what is ordinary is at least that of counts of
which the variance is ``DISPERSION`` times the mean, and a burst is measured without the fullest five minutes of its
hour, unless these alone are beyond what one fold says in this fleet: by this rule, or by any. Alerts proper, which no
fold makes, count by themselves: 45 of them within five minutes are a burst, too.

What is there at times of its own, by no hour of the week, is no burst either: half of it has been there on ``HABIT``
of the days before.

A silence goes on over hours that have a ``STRAY`` share of what is usual: one machine of many that was not cut off, or
an alert that was on its way, ends no outage.

A site is evaluated once it has ``MIN_HISTORY`` days of history: before that all is new. A rule that the fleet has not
had for as long has no usual hour of the week: it is measured by the busiest of its hours since it began.

The numbers below were set on made-up fleets (``simulate``) of the seeds 101 to 103, 7002, 8001 and 8002, and are
measured on other seeds (``tests/spark_jobs/jobs/test_baselines.py``): change them on the first, never on the second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark_jobs.common.islands import identity, runs
from spark_jobs.common.materialised import materialised
from spark_jobs.common.period import Period
from spark_jobs.common.weeks import centred, hour_of, hour_of_week, local_hour, time_of
from spark_jobs.tables.schema import ANOMALIES, columns

MIN_HISTORY = 7
"""Days. An hour of the week has to have been seen once."""

DISPERSION = 8.0
"""Variance over mean of matches an hour. With one fold in twenty alerts, of ten matches on average, it is 7."""

ALERT_DISPERSION = 3.0
"""The same of alerts proper, which come one by one."""

MAD_SCALE = 1.4826
"""From the MAD of a normal distribution to its standard deviation."""

MIN_SCORE = 6.0
"""Scales above the usual: with some 10^5 site-rule-hours a day, a limit at which chance gives less than one a week."""

MIN_BURST = 30
"""Matches in an hour below which nobody wants to be woken, however quiet it usually is."""

LONE = 500
MIN_LONE_SCORE = 10.0
"""Matches within five minutes that are a burst by themselves, and the scales above the usual that it takes."""

HABIT = 2
"""Days before with half of it by which a burst is none: the site has had it, and it was said twice."""
COMMON = 3
"""Rules that have had half of a lone full five minutes anywhere, by which it is what folds are in this fleet. That one
rule folds by the ten thousand every day hides no flood of another's."""

BUSY = 0.75
MIN_YOUNG_SCORE = 10.0
"""Of the hours of a rule that has no past, the share that is calmer than what it is measured by, and the scales above
it that a burst takes. By its median, every busy hour of a rule that sleeps at night would be a burst; by much more than
three quarters, the bursts of its first days would hide each other. Chance gave 7.1 at most, planted bursts 14.7 at
least."""

MIN_SILENCE = 30.0
"""Matches usual in the hours of a silence. With two matches to an occasion (``FOLDED``), the chance is 10^-6.5."""

MIN_SILENT_HOURS = 2
STRAY = 0.05
"""Of what is usual, the share that ends no silence."""
FOLDED = 2.0
"""Matches on one occasion, folds included; rather too many than too few."""

HIGH_SCORE = 20.0
MAX_SCORE = 100.0
"""All kinds of anomalies share one scale, so that a list of them begins with what matters most."""
LOG10_E = 0.4343

FACTS = columns("long agents reporting fed starved sites; string rule_title")
"""Further columns, by which a reason is worded (``report.reasons``)."""

PLACE = ["fleet", "site"]
WHAT = [*PLACE, "rule_id"]


def bursts(
    before: DataFrame,
    hours: DataFrame,
    between: DataFrame,
    usual: DataFrame,
    sites: DataFrame,
    rules: DataFrame,
    wanted: Period,
) -> DataFrame:
    """Runs of hours in which a rule matched far more often at a site than is usual, as ``ANOMALIES``.

    ``hours``, those ``before`` them, ``usual`` and ``sites`` are those of ``baselines``. ``between`` are hours that
    begin half an hour later: one of them counts where neither hour of the clock that it lies in does.
    """
    grown = F.col("first_time") <= F.lit(wanted.start - timedelta(days=MIN_HISTORY))
    young = F.broadcast(rules.where(~grown).select("rule_id"))
    old = sites.where(F.col("history_days") >= MIN_HISTORY).select(*PLACE)
    own = _since_they_began(hours.join(young, "rule_id", "left_semi"), wanted)
    both = hours.withColumn("late", F.lit(0)).unionByName(between.withColumn("late", F.lit(1)))
    compared = (
        both.where((F.col("matches") >= MIN_BURST) & (F.col("rule_id") != ""))
        .join(F.broadcast(old), PLACE)
        .join(usual.select(*WHAT, "hour_of_week", "median", "mad"), [*WHAT, "hour_of_week"], "left")
        .join(own, WHAT, "left")
        .withColumns({name: F.coalesce(f"own_{name}", name, F.lit(0.0)) for name in ("median", "mad")})
    )
    compared = _with_habits(compared, before)
    scale = F.greatest(F.col("mad") * MAD_SCALE, F.sqrt(F.greatest("median", F.lit(1.0)) * DISPERSION))
    spread = F.col("matches") - F.col("peak")
    alone = (F.col("matches") - F.col("median")) / scale
    rest = (spread - F.col("median")) / scale
    # What is usual is known in matches, which are no fewer than alerts.
    apart = F.greatest(F.col("mad") * MAD_SCALE, F.sqrt(F.greatest("median", F.lit(1.0)) * ALERT_DISPERSION))
    proper = (F.col("alerts") - F.col("median")) / apart
    lone = (F.col("peak") >= F.greatest(F.lit(LONE), 2 * F.col("fold"))) & (alone >= MIN_LONE_SCORE)
    limit = F.when(F.col("own_median").isNull(), MIN_SCORE).otherwise(MIN_YOUNG_SCORE)
    many = (F.col("alerts") >= F.greatest(F.lit(MIN_BURST), 2 * F.col("had"))) & (proper >= limit)
    few = F.greatest(F.lit(MIN_BURST * 11 / 12), 2 * F.col("had"), F.least("own_fold", "common"))
    wide = (spread >= few) & (rest >= limit)
    most = F.greatest(F.when(lone, alone).otherwise(rest), F.when(many, proper))
    loud = compared.withColumn("score", F.least(most, F.lit(MAX_SCORE))).where(lone | many | wide)
    clock = loud.where("late = 0")
    beside = clock.select(*WHAT, F.explode(F.array(F.col("hour"), F.col("hour") - 1)).alias("hour")).distinct()
    chosen = clock.unionByName(loud.where("late = 1").join(beside, [*WHAT, "hour"], "left_anti"))
    half = F.when(F.col("late") == 1, F.expr("INTERVAL 30 MINUTES")).otherwise(F.expr("INTERVAL 0 MINUTES"))
    parted = runs(
        chosen.withColumn("start", time_of(F.col("hour")) + half).withColumn("end", time_of(F.col("hour") + 1) + half),
        WHAT,
        3600,
        "start",
        "end",
    )
    worst = F.max_by(F.struct("matches", "median", "mad"), F.struct("score", "hour")).alias("worst")
    whole = parted.groupBy(*WHAT, "run").agg(
        F.min("start").alias("started_at"), F.max("end").alias("ended_at"), F.max("score").alias("score"), worst
    )
    rows = whole.withColumn("observed", F.col("worst.matches")).select("*", "worst.median", "worst.mad")
    return as_anomalies(rows, "burst", _level(), wanted)


def _with_habits(hours: DataFrame, before: DataFrame) -> DataFrame:
    """``hours`` with what was reached on ``HABIT`` of the days ``before``: here, in an hour, by more than one fold
    (``had``); anywhere, in five minutes, by the rule (``own_fold``), or on one of the days by ``COMMON`` (``fold``)."""
    proper = F.greatest("alerts", F.col("matches") - F.col("peak"))
    days = before.where("rule_id != ''").groupBy(*WHAT, F.floor(F.col("hour") / 24).alias("day"))
    most = days.agg(F.max(proper).alias("most"), F.max("peak").alias("peak"))

    def nth(name: str, place: int) -> Column:
        return F.coalesce(F.get(F.sort_array(F.collect_list(name), asc=False), F.lit(place - 1)), F.lit(0))

    here = most.groupBy(*WHAT).agg(nth("most", HABIT).alias("had"))
    folds = most.groupBy("rule_id", "day").agg(F.max("peak").alias("peak")).groupBy("rule_id")
    rules = folds.agg(nth("peak", HABIT).alias("own_fold"), F.max("peak").alias("most"))
    common = rules.agg(nth("most", COMMON).alias("common"))
    of_rules = F.broadcast(rules.select("rule_id", "own_fold"))
    met = hours.join(here, WHAT, "left").join(of_rules, "rule_id", "left").crossJoin(F.broadcast(common))
    return met.fillna(0, ["had", "own_fold"]).withColumn("fold", F.greatest("own_fold", "common"))


def _since_they_began(hours: DataFrame, wanted: Period) -> DataFrame:
    """Find what is usual for rules that have no past, of all hours of a site from the rule's first on: the number that
    the share ``BUSY`` of them does not exceed, as ``own_median``, and the MAD."""
    end = int(wanted.now.timestamp()) // 3600 + 1
    met = hours.groupBy(*WHAT).agg(
        F.collect_list(F.col("matches").cast("double")).alias("met"), F.min("hour").alias("first")
    )
    number = F.lit(end) - F.col("first")
    place = F.floor(number * BUSY) - (number - F.size("met"))  # hours without a match come first, and are not in it
    busy = F.coalesce(F.get(F.sort_array("met"), F.greatest(place, F.lit(-1)).cast("int")), F.lit(0.0))
    rows = centred(met.withColumn("own_median", busy), "met", number)
    return rows.select(*WHAT, "own_median", F.col("mad").alias("own_mad"))


def silences(
    hours: DataFrame,
    usual: DataFrame,
    sites: DataFrame,
    agents: DataFrame,
    beats: Callable[[Sequence[int] | None], DataFrame],
    wanted: Period,
) -> DataFrame:
    """Runs of hours without a match at a site where matches are usual, as ``ANOMALIES``.

    ``agents`` are those known, ``beats`` their ``HEARTBEATS`` of these hours since 1970 (None: from ``wanted`` on). An
    agent ran that was heard of in half of the silent hours: once at their beginning, or later again, says nothing about
    the time between. By its own count of what its inputs received, in the first hour and in the last, it was ``fed`` or
    ``starved``, or does not say. The hour that has not ended is left out. Of a silence that began before ``wanted``,
    what lies within is given.
    """
    dark = _dark(hours, usual, sites, wanted)
    share = F.greatest("observed", F.lit(1.0)) / F.greatest("median", F.lit(1.0))
    lacks = F.col("median") - F.col("observed") + F.col("observed") * F.log(share)
    expected = materialised(
        dark.withColumn("lacks", lacks)
        .where(F.col("lacks") >= MIN_SILENCE)
        .withColumns({"started_at": time_of(F.col("hour") + 1), "ended_at": time_of(F.col("next"))})
    )
    which = F.broadcast(expected.select(*PLACE, "hour", "next", "started_at", "ended_at"))
    edges = [hour for row in expected.collect() for hour in (row.hour + 1, row.next - 1)]
    whose = [*PLACE, "hour", "next", "agent_id"]
    # An agent that says that it has lost its connection is not heard: a broker says so in its place.
    running = F.coalesce("state", F.lit("")) != "lost"
    alive_then = F.col("received_at").between(F.col("started_at"), F.col("ended_at"))
    heard = (
        beats(None).where(running).select(*PLACE, "agent_id", "received_at").join(which, PLACE).where(alive_then)
        .groupBy(*whose).agg(F.count_distinct(F.date_trunc("hour", "received_at")).alias("heard"))
        .where(2 * F.col("heard") >= F.col("next") - F.col("hour") - 1)
    )  # fmt: skip
    taken = F.to_json(F.map_values(F.from_json("payload", "inputs map<string, struct<received: bigint>>")["inputs"]))
    at = hour_of("received_at")
    first, last = (F.when(at == F.col(name) + more, F.col("received_at")) for name, more in (("hour", 1), ("next", -1)))
    said = (
        beats(edges).where(running).select(*PLACE, "agent_id", "received_at", "payload").join(which, PLACE)
        .withColumns({"first": first, "last": last}).where("first IS NOT NULL OR last IS NOT NULL")
        .withColumn("taken", taken)
        .groupBy(*whose).agg((F.max_by("taken", "first") != F.min_by("taken", "last")).alias("took"))
    )  # fmt: skip
    heard = heard.join(said, whose, "left").groupBy(*PLACE, "hour").agg(
        F.count("*").alias("reporting"), F.count_if("took").alias("fed"), F.count_if(~F.col("took")).alias("starved")
    )  # fmt: skip
    number = agents.groupBy(*PLACE).agg(F.count("*").alias("agents"))
    counted = expected.join(number, PLACE, "left").join(heard, [*PLACE, "hour"], "left")
    counted = counted.fillna(0, ["agents", "reporting", "fed", "starved"])
    chance = F.least(F.round(F.col("lacks") / FOLDED * LOG10_E, 1), F.lit(MAX_SCORE))
    return as_anomalies(counted.withColumns({"score": chance, "rule_id": F.lit("")}), "silence", _level(), wanted)


def _dark(hours: DataFrame, usual: DataFrame, sites: DataFrame, wanted: Period) -> DataFrame:
    """Runs of hours at old sites after ``hour`` until before ``next`` with a ``STRAY`` share of what is usual: what is
    ``observed`` in all, and the sums ``median`` and ``mad``."""
    first, end = int(wanted.start.timestamp()) // 3600, int(wanted.now.timestamp()) // 3600
    old = sites.where(F.col("history_days") >= MIN_HISTORY).select(*PLACE, "timezone")
    each = old.withColumn("hour", F.explode(F.sequence(F.lit(first), F.lit(end)))).where(F.col("hour") < end)
    each = each.withColumn("hour_of_week", hour_of_week(local_hour(F.col("hour"), F.col("timezone"))))
    total = usual.where("rule_id = ''").select(*PLACE, "hour_of_week", "median", "mad")
    met = hours.where("rule_id = ''").select(*PLACE, "hour", F.col("matches").cast("double").alias("observed"))
    sums = ("observed", "median", "mad")
    every = each.join(total, [*PLACE, "hour_of_week"], "left").join(met, [*PLACE, "hour"], "left")
    every = every.fillna(0.0, list(sums))
    each = _parted(every.withColumn("calm", F.col("observed") <= STRAY * F.col("median")), "calm")
    long = F.count("*").over(Window.partitionBy(*PLACE, "part")) >= MIN_SILENT_HOURS
    each = _parted(each.withColumn("dark", F.col("calm") & long), "dark")
    parts = each.groupBy(*PLACE, "part", "dark").agg(
        F.min("hour").alias("hour"), F.max("hour").alias("until"), *(F.sum(name).alias(name) for name in sums)
    )
    turns = Window.partitionBy(*PLACE).orderBy("part")
    around = F.col("median") + F.lag("median").over(turns) + F.lag("median", 2).over(turns)
    goes_on = F.col("dark") & (F.lag("observed").over(turns) <= STRAY * around)
    whole = parts.withColumn("goes_on", F.coalesce(goes_on, F.lit(False)))
    whole = whole.withColumns(
        {
            "run": F.sum((F.col("dark") & ~F.col("goes_on")).cast("int")).over(turns),
            "within": F.col("dark") | F.lead("goes_on").over(turns),
        }
    )
    edges = (F.min("hour") - 1).alias("hour"), (F.max("until") + 1).alias("next")
    return whole.where("within").groupBy(*PLACE, "run").agg(*edges, *(F.sum(name).alias(name) for name in sums))


def _parted(hours: DataFrame, by: str) -> DataFrame:
    """``hours`` with ``part``, a number that is another wherever the column ``by`` changes at a site."""
    order = Window.partitionBy(*PLACE).orderBy("hour")
    changed = (F.col(by) != F.lag(by).over(order)).cast("int")
    return hours.withColumn("part", F.coalesce(changed, F.lit(0))).withColumn("part", F.sum("part").over(order))


def _level() -> Column:
    return F.when(F.col("score") >= HIGH_SCORE, "high").otherwise("medium")


def as_anomalies(rows: DataFrame, kind: str, level: Column, wanted: Period) -> DataFrame:
    """``rows`` as ``ANOMALIES`` without reasons, and with ``FACTS``; what they do not have is null."""
    what = [*WHAT, *(name for name in ("entity_kind", "entity_value") if name in rows.columns)]
    key = identity(F.lit(kind), *map(F.col, what), F.unix_micros("started_at").cast("string"))
    whole = rows.withColumns(
        {
            "kind": F.lit(kind),
            "level": level,
            "anomaly_id": key,
            "score": F.round("score", 1),
            "date": F.date_format("started_at", "yyyy-MM-dd"),
            "updated_at": F.lit(wanted.now),
        }
    )
    return whole.select(
        *(
            (F.col(field.name) if field.name in whole.columns else F.lit(None)).cast(field.dataType).alias(field.name)
            for field in (*ANOMALIES.columns.fields, *FACTS.fields)
        )
    )
