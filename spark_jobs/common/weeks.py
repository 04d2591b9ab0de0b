"""Hours as numbers: since 1970, by the clock of a place, within its week; and what is usual among their counts."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

HOURS_OF_WEEK = 168
_MONDAY = 72
"""Hours from the Monday before 1970-01-01, a Thursday, to that day."""


def hour_of(time: str) -> Column:
    """Hours from 1970 to ``time``, UTC."""
    return F.floor(F.unix_seconds(time) / 3600)


def time_of(hour: Column) -> Column:
    """The beginning of an hour since 1970, UTC."""
    return F.timestamp_seconds(hour * 3600)


def local_hour(hour: Column, zone: Column) -> Column:
    """The same hour by the clock of ``zone``: it leaps where summer time begins, and halts where it ends."""
    return F.floor(F.unix_seconds(F.from_utc_timestamp(time_of(hour), zone)) / 3600)


def hour_of_week(local: Column) -> Column:
    """0 is Monday 00:00."""
    return F.pmod(local + _MONDAY, F.lit(HOURS_OF_WEEK)).cast("int")


def occurrences(of_week: Column, first: Column, end: Column) -> Column:
    """How many hours from ``first`` until before ``end``, by the clock, are the hour ``of_week`` of their week."""

    def before(hour: Column) -> Column:
        return F.floor((hour - 1 - of_week + _MONDAY) / HOURS_OF_WEEK)

    return before(end) - before(first)


def centred(rows: DataFrame, met: str, number: Column) -> DataFrame:
    """``rows`` with ``median`` and ``mad`` (median absolute deviation) of ``number`` counts: ``met``, the rest 0."""
    zeros = F.array_repeat(F.lit(0.0), F.greatest(number - F.size(met), F.lit(0)).cast("int"))

    def both(values: Column) -> Column:
        def pair(median: Column) -> Column:
            away = F.sort_array(F.transform(values, lambda value: F.abs(value - median)))
            return F.struct(median.alias("median"), _middle(away).alias("mad"))

        return _let(_middle(values), pair)

    whole = rows.withColumn(met, _let(F.sort_array(F.concat(zeros, met)), both))
    return whole.select("*", f"{met}.median", f"{met}.mad").drop(met)


def _let(value: Column, use: Callable[[Column], Column]) -> Column:
    """``use(value)``, with ``value`` computed once. Spark puts the expression of a column that a lambda names into that
    lambda, and computes it again for each element."""
    return F.get(F.transform(F.array(value), use), F.lit(0))


def _middle(values: Column) -> Column:
    """The median of a sorted array that is not empty."""
    size = F.size(values)
    return (F.get(values, F.floor((size - 1) / 2).cast("int")) + F.get(values, F.floor(size / 2).cast("int"))) / 2
