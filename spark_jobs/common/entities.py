"""Who an entity is, and which of its alerts are part of the furniture.

A private address is another machine at each site, so its ``scope`` is the site; every other entity is one and the same
wherever it is seen (``scope`` empty).

**Usual** is what was there before and keeps coming back, and it is an entity's alerts of one rule at one site, never
the entity: an account that trips one rule at home every day is new wherever else, and with whatever else, it is met.
Days decide, not amounts: active on many of the days seen, and not absent when they began. What appears after days of
absence is new, however often it is seen from then on.

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

ABOUT_SITES = 3
RETURNS = 1.3
"""An entity goes about that was at so many sites in the first half of the days, and has had so many days at each of its
sites, on average: what moves from site to site and never comes back has one."""

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


def usual(rows: DataFrame, first: date, days: Sequence[str]) -> Usual:
    """Find what is usual by ``rows`` (``ENTITY_SITE_5M`` with ``scope``), all of ``first`` or later days.

    ``days`` are those that have rows at all, each within ``MAX_DAYS`` of ``first``.
    """
    bit = F.expr(f"shiftleft(1L, datediff(to_date(date), DATE'{first.isoformat()}'))").alias("bit")
    cells = materialised(_hashed(rows.select("*", bit)).groupBy(*_NUMBERS).agg(F.bit_or("bit").alias("days")))
    asked, back = _by_past(cells, first, days) if len(days) >= MIN_HISTORY else _by_spread(cells)
    return Usual(cells, F.broadcast(materialised(asked)), F.broadcast(materialised(back)))


def _hashed(rows: DataFrame) -> DataFrame:
    """``rows`` with ``rank`` (0 below the level high, then 1, and 2 for critical) and hashes: ``who``, the ``place``,
    the ``rule`` of ``who``, and the ``cell``, which is all of it."""
    rank = F.when(F.col("level") == "critical", 2).otherwise(F.when(F.col("level") == "high", 1).otherwise(0))
    named = rows.withColumn("who", F.xxhash64(F.lit(_SEED), *WHO)).withColumn("place", F.xxhash64(F.lit(_SEED), *_SITE))
    of_rule = named.withColumn("rule", F.xxhash64("who", "rule_id")).withColumn("rank", rank)
    return of_rule.withColumn("cell", F.xxhash64("rule", "place", "level"))


def _by_past(cells: DataFrame, first: date, dates: Sequence[str]) -> tuple[DataFrame, DataFrame]:
    """``asked`` and ``back`` of ``Usual``, by the days of ``cells``."""
    bits = [(date.fromisoformat(day) - first).days for day in dates]
    there, early = sum(1 << bit for bit in bits), sum(1 << bit for bit in bits[: (len(bits) + 1) // 2])
    days = F.bit_or("days").alias("days")

    def comes_back(days: str) -> Column:
        lowest = F.col(days).bitwiseAND(-F.col(days))
        absent = F.bit_count(F.lit(there).cast("long").bitwiseAND(lowest - 1))
        return (F.bit_count(days) >= max(MIN_HISTORY, USUAL_SHARE * len(dates))) & (absent < QUIET_DAYS)

    severe = (F.col("rank") > 0).alias("severe")
    visits = cells.groupBy("who", severe, "place").agg(days)
    visited = visits.groupBy("who", "severe").agg(
        F.bit_or("days").alias("every"),
        F.count("*").alias("sites"),
        F.sum(F.bit_count("days")).alias("visits"),
        F.count_if(F.col("days").bitwiseAND(F.lit(early).cast("long")) != 0).alias("early"),
    )
    goes_about = comes_back("every") & (F.col("early") >= ABOUT_SITES) & (F.col("visits") >= RETURNS * F.col("sites"))
    about = visited.where(goes_about)
    severely = F.broadcast(about.where("severe").select("who"))
    of_rule = cells.where(severe).join(severely, "who", "left_semi").groupBy("rule").agg(days)
    high = of_rule.where(F.bit_count("days") >= MIN_HISTORY).select(_asked(F.col("rule"), F.lit(1)))
    critical = of_rule.where(comes_back("days")).select(_asked(F.col("rule"), F.lit(2)))
    low = about.where(~F.col("severe")).select(F.col("who").alias("asked"))
    back = cells.where(~severe & comes_back("days")).select("cell")
    return low.unionByName(high).unionByName(critical), back


def _by_spread(cells: DataFrame) -> tuple[DataFrame, DataFrame]:
    """The same without a past: what is everywhere."""
    every = F.broadcast(cells.agg(F.count_distinct("place").alias("every")))
    sites = cells.groupBy("who").agg(F.count_distinct("place").alias("sites")).crossJoin(every)
    common = sites.where((F.col("every") >= MANY_SITES) & (F.col("sites") > EVERYWHERE * F.col("every")))
    return common.select(F.col("who").alias("asked")), cells.where(F.lit(False)).select("cell")


def _asked(rule: Column, rank: Column) -> Column:
    return F.xxhash64(rule, rank).alias("asked")
