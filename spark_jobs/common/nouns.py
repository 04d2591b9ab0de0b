"""Numbers with their nouns in the columns of a frame, as ``plain.many`` has them in texts."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F


def counted(number: Column | str, one: str, more: str = "") -> Column:
    """``number`` and its noun, in the plural where it should be."""
    column = F.col(number) if isinstance(number, str) else number
    noun = F.when(column == 1, F.lit(f" {one}")).otherwise(F.lit(f" {more or one + 's'}"))
    return F.concat(column.cast("string"), noun)
