"""Gaps and islands: rows in time order parted into runs wherever nothing happens for longer than a gap."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F


def runs(rows: DataFrame, by: Sequence[str], gap_seconds: int, start: str, end: str, *, name: str = "run") -> DataFrame:
    """``rows`` with the number ``name``, from 1 within each ``by``.

    A row begins a run when it starts more than ``gap_seconds`` after the latest end of all rows before it. One pass
    over rows that are sorted by ``by`` and ``start``; of rows that share ``by``, none is held but the one at hand.
    """
    order = Window.partitionBy(*by).orderBy(start, end)
    before = F.max(end).over(order.rowsBetween(Window.unboundedPreceding, -1))
    apart = before.isNull() | (F.unix_micros(start) - F.unix_micros(before) > gap_seconds * 1_000_000)
    begun = rows.withColumn(name, apart.cast("int"))
    number = F.sum(name).over(order.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    return begun.withColumn(name, number)


def most_within(rows: DataFrame, by: Sequence[str], different: Sequence[str], seconds: int) -> DataFrame:
    """For each ``by``: ``most``, the largest number of different ``different`` within any ``seconds``, both ends
    included; ``rows`` have ``first_time`` and ``last_time``.

    Exact, and no window slides: a visitor counts from each of its visits until ``seconds`` after the last one that
    follows without a longer pause, and what is sought is the largest number that count at a time. Two sorts.
    """
    visits = rows.select(*by, *different, "first_time", "last_time")
    parted = runs(visits, [*by, *different], seconds, "first_time", "last_time", name="stay")
    stays = parted.groupBy(*by, *different, "stay").agg(
        F.min(F.unix_micros("first_time")).alias("begin"),
        (F.max(F.unix_micros("last_time")) + seconds * 1_000_000).alias("end"),
    )
    turns = stays.select(*by, F.inline(F.array(
        F.struct(F.col("begin").alias("at"), F.lit(1).alias("step")),
        F.struct(F.col("end").alias("at"), F.lit(-1).alias("step")),
    )))  # fmt: skip
    order = Window.partitionBy(*by).orderBy("at", F.desc("step"))
    there = turns.withColumn("there", F.sum("step").over(order.rowsBetween(Window.unboundedPreceding, 0)))
    return there.groupBy(*by).agg(F.max("there").alias("most"))


def identity(*parts: Column) -> Column:
    """32 hex digits that stand for ``parts``, the same at every run of a job."""
    return F.substring(F.sha2(F.to_json(F.array(*parts)), 256), 1, 32)
