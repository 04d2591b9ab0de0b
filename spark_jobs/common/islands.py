"""Gaps and islands: rows in time order parted into runs wherever nothing happens for longer than a gap."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F


def runs(rows: DataFrame, by: Sequence[str], gap_seconds: int, start: str, end: str) -> DataFrame:
    """``rows`` with the number ``run``, from 1 within each ``by``.

    A row begins a run when it starts more than ``gap_seconds`` after the latest end of all rows before it. One pass
    over rows that are sorted by ``by`` and ``start``; of rows that share ``by``, none is held but the one at hand.
    """
    order = Window.partitionBy(*by).orderBy(start, end)
    before = F.max(end).over(order.rowsBetween(Window.unboundedPreceding, -1))
    apart = before.isNull() | (F.unix_micros(start) - F.unix_micros(before) > gap_seconds * 1_000_000)
    begun = rows.withColumn("run", apart.cast("int"))
    number = F.sum("run").over(order.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    return begun.withColumn("run", number)


def most_within(
    rows: DataFrame, by: Sequence[str], different: Sequence[str], time: str, seconds: int, steps: int
) -> DataFrame:
    """For each ``by``: ``most``, the largest number of different ``different`` within ``seconds``.

    Looked at in windows of ``seconds`` that begin every ``seconds / steps``: what lies within ``seconds - seconds /
    steps`` is always counted together. Work and memory grow with the rows, not with their square.
    """
    step = seconds // steps
    slot = F.floor(F.unix_seconds(time) / step).alias("slot")
    visits = rows.select(*by, *different, slot).distinct()
    begins = F.explode(F.array(*(F.col("slot") - back for back in range(steps)))).alias("begin")
    counted = visits.select(*by, *different, begins).distinct().groupBy(*by, "begin").count()
    return counted.groupBy(*by).agg(F.max("count").alias("most"))


def identity(*parts: Column) -> Column:
    """32 hex digits that stand for ``parts``, the same at every run of a job."""
    return F.substring(F.sha2(F.to_json(F.array(*parts)), 256), 1, 32)
