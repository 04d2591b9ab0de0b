"""Median and median absolute deviation of counts, of which most may be 0 and not be written down."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F


def centred(rows: DataFrame, met: str, number: Column) -> DataFrame:
    """``rows`` with ``median`` and ``mad`` of ``number`` counts: those in the array ``met``, the others 0."""
    zeros = F.array_repeat(F.lit(0.0), F.greatest(number - F.size(met), F.lit(0)).cast("int"))
    padded = rows.withColumn(met, F.sort_array(F.concat(zeros, met)))
    whole = padded.withColumn("median", _middle(F.col(met)))
    away = F.sort_array(F.transform(met, lambda one: F.abs(one - F.col("median"))))
    return whole.withColumn("mad", _middle(away)).drop(met)


def _middle(values: Column) -> Column:
    """The median of a sorted array that is not empty."""
    size = F.size(values)
    return (F.get(values, F.floor((size - 1) / 2).cast("int")) + F.get(values, F.floor(size / 2).cast("int"))) / 2
