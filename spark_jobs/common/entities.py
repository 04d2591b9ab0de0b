"""Who an entity is, and whether it is part of the furniture.

A private address is another machine at each site, so its ``scope`` is the site; every other entity is one and the same
wherever it is seen (``scope`` empty).

**Usual** is what was there before and keeps coming back: ``root``, a common browser, a monitoring scanner, the address
behind which a whole company surfs. Days decide, not amounts: an entity that has been active on many of the
days seen, and had not been absent when they began. Something that appears after days of absence is new, however often
it is seen from then on.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

WHO = ["kind", "value", "scope"]

MAX_DAYS = 62
"""Days that one look can span: they are the bits of a number."""

MIN_HISTORY = 3
"""Days with alerts that it takes to tell the usual from the new. Two could be a weekend."""

USUAL_SHARE = 0.4
"""An entity active on this share of the days is usual: more than the five days in fourteen (0.36) of one that works
every other day of the week, less than the working days of a fortnight (0.71)."""

QUIET_DAYS = 3
"""An entity that was absent for the first days, this many of them, is new. A weekend is two."""

MANY_SITES = 10
EVERYWHERE = 0.5
"""Before there is a history, an entity at more than this share of ``MANY_SITES`` sites or more is held to be usual."""

PRIVATE = (
    r"^(10\.|127\.|169\.254\.|192\.168\.|172\.(1[6-9]|2[0-9]|3[01])\.|100\.(6[4-9]|[7-9][0-9]|1[01][0-9]|12[0-7])\."
    r"|[fF][cCdD][0-9a-fA-F]{2}:|[fF][eE][89abAB][0-9a-fA-F]:|::1$)"
)
"""Addresses that mean something within a site only: RFC 1918, 1122, 3927, 6598, 4193, 4291."""


def scope() -> Column:
    """The site, ``FLEET/SITE``, of an entity that is another one at each site; else empty."""
    private = (F.col("kind") == "ip") & F.col("value").rlike(PRIVATE)
    return F.when(private, F.concat_ws("/", "fleet", "site")).otherwise(F.lit(""))


def profile(rows: DataFrame, first: date, held: Sequence[str]) -> DataFrame:
    """For each entity of ``rows`` (``ENTITY_SITE_5M`` with ``scope``): ``sites``, ``active`` days, and ``usual``.

    ``first`` is the first day, ``held`` are the days that have rows at all, each within ``MAX_DAYS`` of it.
    """
    seen = sum(1 << _bit(day, first) for day in held)
    bit = F.expr(f"shiftleft(1L, datediff(to_date(date), DATE'{first.isoformat()}'))")
    by_site = rows.withColumn("bit", bit).groupBy(*WHO, "fleet", "site").agg(F.bit_or("bit").alias("days"))
    whole = by_site.groupBy(*WHO).agg(F.bit_or("days").alias("days"), F.count("*").alias("sites"))
    lowest = F.col("days").bitwiseAND(-F.col("days"))
    absent = F.bit_count(F.lit(seen).cast("long").bitwiseAND(lowest - 1))
    active = F.bit_count("days")
    if len(held) < MIN_HISTORY:
        every = by_site.agg(F.count_distinct("fleet", "site").alias("every"))
        whole = whole.crossJoin(F.broadcast(every))
        usual = (F.col("every") >= MANY_SITES) & (F.col("sites") > EVERYWHERE * F.col("every"))
    else:
        usual = (active >= max(MIN_HISTORY, USUAL_SHARE * len(held))) & (absent < QUIET_DAYS)
    return whole.select(*WHO, "sites", active.alias("active"), usual.alias("usual"))


def _bit(day: str, first: date) -> int:
    return (date.fromisoformat(day) - first).days
