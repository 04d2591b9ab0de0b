"""How surprising it is that a rule has an alert at a site on a day: what the fleet sees every day tells of nobody.

It is the product of two numbers of 0 to 1, of the days looked at:

* of the fleet: ``(ln (N / k) / ln N)²``, where the rule had alerts on ``k`` of the ``N`` days of sites that had any,
  ``UNSEEN`` of them added: what little has been seen is held to be rare, and a fleet that begins has no habits;
* of the site: ``(1 - h / (d + SETTLING))²``, where it had alerts on ``h`` of the ``d`` days since the site's first.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

UNSEEN = 100.0
"""Days of sites, without an alert of the rule, that stand for what there was before."""

SETTLING = 3
"""Days that a site's first ones count for less: what it has on both of two days is not known to be a habit."""


def habits(days: DataFrame) -> DataFrame:
    """Of each ``rule_id`` at each place ``at`` its ``days`` (numbers, ascending), the ``first`` of the place with any
    alert, and what it surprises the ``fleet``; ``days`` are rows with ``at``, ``rule_id`` and ``day`` (a date)."""
    each = days.select("at", "rule_id", F.unix_date(F.to_date("day")).alias("number")).distinct()
    rules = each.groupBy("rule_id").agg(F.count("*").alias("k"))
    places = each.groupBy("at").agg(F.min("number").alias("first"), F.count_distinct("number").alias("seen"))
    size = F.broadcast(places.agg((F.sum("seen") + UNSEEN).alias("size")))
    met = each.groupBy("at", "rule_id").agg(F.sort_array(F.collect_list("number")).alias("days"))
    fleet = F.pow(F.log(F.col("size") / F.col("k")) / F.log("size"), F.lit(2)).alias("fleet")
    return (
        met.join(F.broadcast(rules), "rule_id").join(F.broadcast(places), "at").crossJoin(size)
        .select("at", "rule_id", "days", "first", fleet)
    )  # fmt: skip


def surprise(day: Column) -> Column:
    """Of an alert on ``day``, beside ``habits``."""
    number = F.unix_date(F.to_date(day))
    had = F.size(F.filter("days", lambda other: other < number))
    seen = F.greatest(number - F.col("first"), F.lit(0))  # an entity's counts may be older than those of its site
    return F.col("fleet") * F.pow(1 - had / (seen + SETTLING), F.lit(2))
