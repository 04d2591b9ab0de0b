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

from collections.abc import Callable, Sequence
from datetime import date
from typing import TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

Kept: TypeAlias = Callable[[DataFrame], DataFrame]
"""Has Spark keep a frame, which is asked more than once, until the job has written."""

WHO = ["kind", "value", "scope"]

LEVELS = ("informational", "low", "medium", "high", "critical")
SEVERE = ("high", "critical")

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
_CELL = [*WHO, *_SITE, "rule_id", "level"]
_WHO = [*WHO, "severe"]


def scope() -> Column:
    """The site, ``FLEET/SITE``, of an entity that is another one at each site; else empty."""
    private = (F.col("kind") == "ip") & F.col("value").rlike(PRIVATE)
    return F.when(private, F.concat_ws("/", "fleet", "site")).otherwise(F.lit(""))


def unusual(rows: DataFrame, first: date, held: Sequence[str], since: str, keep: Kept) -> DataFrame:
    """Of ``rows`` (``ENTITY_SITE_5M`` with ``scope``) those that are not usual, by what they have from ``since`` on.

    ``first`` is the first day, ``held`` are the days that have rows at all, each within ``MAX_DAYS`` of it. What is
    usual is little beside the rows, so that it is broadcast to them: they are neither sorted nor shuffled.
    """
    bit = F.expr(f"shiftleft(1L, datediff(to_date(date), DATE'{first.isoformat()}'))")
    marked = rows.withColumn("severe", F.col("level").isin(*SEVERE))
    seen = marked.where(F.col("date") >= since).withColumn("days", bit)
    new = _by_past(marked, seen, first, held, keep) if len(held) >= MIN_HISTORY else _by_spread(marked, seen, keep)
    return new.select(*rows.columns)


def _by_past(rows: DataFrame, seen: DataFrame, first: date, held: Sequence[str], keep: Kept) -> DataFrame:
    """Of ``rows`` those that ``seen`` (a day each) does not show to be usual."""
    bits = [(date.fromisoformat(day) - first).days for day in held]
    there, early = sum(1 << bit for bit in bits), sum(1 << bit for bit in bits[: (len(bits) + 1) // 2])
    days = F.bit_or("days").alias("days")

    def comes_back(days: str) -> Column:
        lowest = F.col(days).bitwiseAND(-F.col(days))
        absent = F.bit_count(F.lit(there).cast("long").bitwiseAND(lowest - 1))
        return (F.bit_count(days) >= max(MIN_HISTORY, USUAL_SHARE * len(held))) & (absent < QUIET_DAYS)

    def few(frame: DataFrame) -> DataFrame:
        return F.broadcast(keep(frame))

    visits = seen.groupBy(*_WHO, *_SITE).agg(F.bit_or("days").alias("there"))
    visited = visits.groupBy(*_WHO).agg(
        F.bit_or("there").alias("every"),
        F.count("*").alias("sites"),
        F.sum(F.bit_count("there")).alias("visits"),
        F.count_if(F.col("there").bitwiseAND(F.lit(early).cast("long")) != 0).alias("early"),
    )
    goes_about = comes_back("every") & (F.col("early") >= ABOUT_SITES) & (F.col("visits") >= RETURNS * F.col("sites"))
    about = few(visited.where(goes_about).select(*_WHO, F.lit(True).alias("about")))
    of_rule = few(
        seen.where("severe").join(about, _WHO).groupBy(*WHO, "rule_id").agg(F.bit_or("days").alias("of_rule"))
    )
    often = F.when(F.col("level") == "critical", comes_back("of_rule")).otherwise(F.bit_count("of_rule") >= MIN_HISTORY)
    # A hash is cheaper to group by than the seven texts of a cell's key. A collision joins the days of two cells: no
    # cell that comes back is missed, and the full key confirms the candidates.
    low = seen.where(~F.col("severe")).withColumn("hash", F.xxhash64(*_CELL))
    candidates = few(low.groupBy("hash").agg(days).where(comes_back("days")).select("hash"))
    cells = low.join(candidates, "hash", "left_semi").groupBy(*_CELL).agg(days)
    back = few(cells.where(comes_back("days")).select(*_CELL))
    known = rows.join(about, _WHO, "left").join(of_rule, [*WHO, "rule_id"], "left")
    goes = F.when(F.col("severe"), F.col("about") & often).otherwise(F.col("about"))
    return known.where(~F.coalesce(goes, F.lit(False))).join(back, _CELL, "left_anti")


def _by_spread(rows: DataFrame, seen: DataFrame, keep: Kept) -> DataFrame:
    """The same without a past: what is everywhere."""
    every = F.broadcast(seen.agg(F.count_distinct(*_SITE).alias("every")))
    sites = seen.groupBy(*WHO).agg(F.count_distinct(*_SITE).alias("sites")).crossJoin(every)
    common = sites.where((F.col("every") >= MANY_SITES) & (F.col("sites") > EVERYWHERE * F.col("every")))
    usual = F.broadcast(keep(common.select(*WHO, F.lit(False).alias("severe"))))
    return rows.join(usual, _WHO, "left_anti")
