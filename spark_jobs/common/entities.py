"""Who an entity is, and which of its alerts are part of the furniture.

A private address is another machine at each site, so its ``scope`` is the site; every other entity is one and the same
wherever it is seen (``scope`` empty).

**Usual** is what was there before and keeps coming back, and it is an entity's alerts of one rule at one site, never
the entity: an account that trips one rule at home every day is new wherever else, and with whatever else, it is met.
Days decide, not amounts: active on many of the days seen, and not absent when they began. What appears after days of
absence is new, however often it is seen from then on. A history begins when there is something to be absent from: at a
site with its first alert, in all with the first day that has a fair share (``THIN``) of what days have from then on,
not with a pilot's, or with a late clock's.

An entity that goes about everywhere, day by day (``root``, a common browser, a monitoring scanner, the address of a
whole company) meets another rule at another site each time. What it does below the level high is usual at every site.
An alert of the level high is usual only where alerts of that level or above at many sites are what the entity has had
day by day, and that very rule among them; one of the level critical, where that very rule is what it has had day by
day.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from statistics import median

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.common.materialised import materialised

WHO = ["kind", "value", "scope"]

LEVELS = ("informational", "low", "medium", "high", "critical")
SEVERE = ("high", "critical")

CRITICAL_DAYS = 7
"""An entity with a critical alert is over its threshold of risk for so long, whatever its score."""

MAX_DAYS = 62
"""Days that one look can span: they are the bits of a number."""

MIN_HISTORY = 3
"""Days with alerts that it takes to tell the usual from the new. Two could be a weekend."""

USUAL_SHARE = 0.4
"""What is active on this share of the days is usual: more than the five days in fourteen (0.36) of what comes
every other day of the week, less than the working days of a fortnight (0.71)."""

QUIET_DAYS = 3
"""What was absent for the first days, this many of them, is new. A weekend is two."""

THIN = 0.1
"""Of the entities, sites and rules that meet on the median day from then on: a first day with less is none of the
history. A Sunday has more, a pilot at one of many sites has not."""

ABOUT_SITES = 3
RETURNS = 1.3
"""An entity goes about that was at so many sites in the first half of the days, and has had so many days at each of its
sites, on average: what moves from site to site and never comes back has one. Two in a row are one, over midnight."""

MANY_SITES = 10
EVERYWHERE = 0.5
"""Before there is a history, an entity at more than this share of ``MANY_SITES`` sites or more is held to be usual,
below the level high."""

PRIVATE = (
    r"^(10\.|127\.|169\.254\.|192\.168\.|172\.(1[6-9]|2[0-9]|3[01])\.|100\.(6[4-9]|[7-9][0-9]|1[01][0-9]|12[0-7])\."
    r"|[fF][cCdD][0-9a-fA-F]{2}:|[fF][eE][89abAB][0-9a-fA-F]:|::1$)"
)
"""Addresses that mean something within a site only: RFC 1918, 1122, 3927, 6598, 4193, 4291."""

_SITE = ["fleet", "site"]

_NUMBERS = ["cell", "who", "rule", "place", "rank"]
"""What ``_hashed`` adds to a row."""

_SEED = secrets.randbits(63)
"""Of hashes, drawn by each process: for a known one, whoever chooses a text of an alert can make one that is taken for
another."""


@dataclass(frozen=True, slots=True)
class Usual:
    """Cells that are usual, by 64-bit hashes in place of texts. Among n cells one is by chance taken for another in
    n^2 / 2^65 of the runs: of ten million cells, in three of a million."""

    cells: DataFrame
    """A row for each entity, site, rule and level, of numbers only."""
    asked: DataFrame
    """Below the level high who goes about; of the other levels what rules it is used to. Few, broadcast."""
    back: DataFrame
    """Cells below the level high that keep coming back. Few, broadcast."""
    days: int
    """Since there is a history."""

    def at_sites(self, number: int) -> DataFrame:
        """``who`` has what is not usual at so many sites."""
        places = self._left(self.cells).groupBy("who", "place").agg(F.lit(1)).groupBy("who").count()
        return places.where(F.col("count") >= number).select("who")

    def left(self, rows: DataFrame, who: DataFrame | None = None) -> DataFrame:
        """The ``rows``, also of other days, that are not usual; of those that ``who`` has only, if given, as these
        are few. They are neither sorted nor shuffled."""
        hashed = _hashed(rows)
        some = hashed if who is None else hashed.join(F.broadcast(who), "who", "left_semi")
        return self._left(some).select(*rows.columns)

    def _left(self, hashed: DataFrame) -> DataFrame:
        asked = F.when(F.col("rank") == 0, F.col("who")).otherwise(_asked(F.col("rule"), F.col("rank")))
        unasked = hashed.withColumn("asked", asked).join(self.asked, "asked", "left_anti")
        return unasked.join(self.back, "cell", "left_anti")


def scope() -> Column:
    """The site, ``FLEET/SITE``, of an entity that is another one at each site; else empty."""
    private = (F.col("kind") == "ip") & F.col("value").rlike(PRIVATE)
    return F.when(private, F.concat_ws("/", "fleet", "site")).otherwise(F.lit(""))


def usual(rows: DataFrame, first: date, days: Sequence[str], since: date | None = None) -> Usual:
    """Find what is usual by ``rows`` (``ENTITY_SITE_5M`` with ``scope``), all of ``first`` or later days.

    ``days`` are those that have rows at all, each within ``MAX_DAYS`` of ``first``. By those before ``since`` only the
    ``rows`` that are ``whole`` are judged.
    """
    recent = 0 if since is None else (since - first).days
    whole = F.col("whole") if recent > 0 else F.lit(True)
    bit = F.expr(f"shiftleft(1L, datediff(to_date(date), DATE'{first.isoformat()}'))").alias("bit")
    numbers = _hashed(rows.select("*", bit)).groupBy(*_NUMBERS)
    cells = materialised(numbers.agg(F.bit_or("bit").alias("days"), F.bool_or(whole).alias("whole")))
    bits = [(date.fromisoformat(day) - first).days for day in days]
    met = [F.count_if(F.shiftright("days", bit).bitwiseAND(F.lit(1)) == 1).alias(f"on_{bit}") for bit in bits]
    counts = cells.agg(F.lit(0), *met).collect()[0]
    bits = _history(bits, [counts[f"on_{bit}"] for bit in bits])
    asked, back = _by_past(cells, bits, recent) if len(bits) >= MIN_HISTORY else _by_spread(cells)
    return Usual(cells, F.broadcast(materialised(asked)), F.broadcast(materialised(back)), len(bits))


def _history(bits: list[int], met: Sequence[int]) -> list[int]:
    """Of the days ``bits`` those since there is a history; ``met`` are the cells of each."""
    begin = next((n for n in range(len(bits)) if met[n] >= THIN * median(met[n:])), 0)
    return bits[begin:]


def _hashed(rows: DataFrame) -> DataFrame:
    """``rows`` with ``rank`` (0 below the level high, then 1, and 2 for critical) and hashes: ``who``, the ``place``,
    the ``rule`` of ``who``, and the ``cell``, which is all of it."""
    rank = F.when(F.col("level") == "critical", 2).otherwise(F.when(F.col("level") == "high", 1).otherwise(0))
    named = rows.withColumn("who", F.xxhash64(F.lit(_SEED), *WHO)).withColumn("place", F.xxhash64(F.lit(_SEED), *_SITE))
    of_rule = named.withColumn("rule", F.xxhash64("who", "rule_id")).withColumn("rank", rank)
    return of_rule.withColumn("cell", F.xxhash64("rule", "place", "level"))


def _by_past(every: DataFrame, bits: Sequence[int], recent: int) -> tuple[DataFrame, DataFrame]:
    """``asked`` and ``back`` of ``Usual``, by what the cells of ``every`` had on the days ``bits``; those that are not
    ``whole`` by that of ``recent`` days or later."""

    def mask(bits: Sequence[int]) -> Column:
        return F.lit(sum(1 << bit for bit in bits)).cast("long")

    later = [bit for bit in bits if bit >= recent]
    there = F.when(F.col("whole"), mask(bits)).otherwise(mask(later))
    early = F.when(F.col("whole"), mask(bits[: (len(bits) + 1) // 2])).otherwise(mask(later[: (len(later) + 1) // 2]))
    cells = every.withColumn("days", F.col("days").bitwiseAND(there)).where("days != 0")
    days, whole = F.bit_or("days").alias("days"), F.bool_or("whole").alias("whole")

    def comes_back(days: str, begin: Column | int = 1) -> Column:
        lowest = F.col(days).bitwiseAND(-F.col(days))
        absent = F.bit_count(there.bitwiseAND(lowest - begin))
        enough = F.greatest(F.lit(MIN_HISTORY), USUAL_SHARE * F.bit_count(there))
        return (F.bit_count(days) >= enough) & (absent < QUIET_DAYS)

    twice = F.col("days").bitwiseAND(F.shiftleft("days", 1)) != 0
    over_midnight = twice & (F.bit_count("days") == 2)
    severe = (F.col("rank") > 0).alias("severe")
    visits = cells.groupBy("who", severe, "place").agg(days, whole)
    visited = visits.groupBy("who", "severe").agg(
        F.bit_or("days").alias("every"),
        F.count("*").alias("sites"),
        F.sum(F.bit_count("days") - over_midnight.cast("int")).alias("visits"),
        F.count_if(F.col("days").bitwiseAND(early) != 0).alias("early"),
        whole,
    )
    goes_about = comes_back("every") & (F.col("early") >= ABOUT_SITES) & (F.col("visits") >= RETURNS * F.col("sites"))
    about = visited.where(goes_about)
    severely = F.broadcast(about.where("severe").select("who"))
    of_rule = cells.where(severe).join(severely, "who", "left_semi").groupBy("rule").agg(days, whole)
    high = of_rule.where(F.bit_count("days") >= MIN_HISTORY).select(_asked(F.col("rule"), F.lit(1)))
    critical = of_rule.where(comes_back("days")).select(_asked(F.col("rule"), F.lit(2)))
    low = about.where(~F.col("severe")).select(F.col("who").alias("asked"))
    alive = every.groupBy("place").agg(F.bit_or(F.col("days").bitwiseAND(mask(bits))).alias("alive"))
    places = alive.select("place", F.col("alive").bitwiseAND(-F.col("alive")).alias("begin"))
    back = cells.join(F.broadcast(places), "place").where(~severe & comes_back("days", F.col("begin"))).select("cell")
    return low.unionByName(high).unionByName(critical), back


def _by_spread(cells: DataFrame) -> tuple[DataFrame, DataFrame]:
    """The same without a past: what is everywhere."""
    every = F.broadcast(cells.agg(F.count_distinct("place").alias("every")))
    sites = cells.groupBy("who").agg(F.count_distinct("place").alias("sites")).crossJoin(every)
    common = sites.where((F.col("every") >= MANY_SITES) & (F.col("sites") > EVERYWHERE * F.col("every")))
    return common.select(F.col("who").alias("asked")), cells.where(F.lit(False)).select("cell")


def _asked(rule: Column, rank: Column) -> Column:
    return F.xxhash64(rule, rank).alias("asked")
