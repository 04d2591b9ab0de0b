"""The jobs' arithmetic: data frames in, data frames out; nothing is read, written or kept here."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark_jobs.batches import COUNTS

KEY = ["agent_id", "alert_id", "received_date"]
"""What copies of one alert share: the first two tell alerts apart, the third says where in the table to look."""

WINDOW = "5 minutes"

MAX_COUNT = (1 << 31) - 1
"""A fold that claims to stand for more matches counts as this many, so that no sum overflows."""

_GRAIN = ["date", "window_start", "fleet", "site", "host", "rule_id", "level"]


def whole() -> Column:
    """Whether a row has an identity and a time. A foreign Parquet file read by the alert's schema has neither."""
    return F.coalesce(
        (F.length("agent_id") > 0)
        & (F.length("alert_id") > 0)
        & F.col("received_date").rlike("^[0-9]{4}-[0-9]{2}-[0-9]{2}$")
        & F.col("event_time").between(F.lit("0001-01-01").cast("timestamp"), F.lit("9999-12-31").cast("timestamp")),
        F.lit(False),
    )


def first_copies(rows: DataFrame) -> DataFrame:
    """The earliest received copy of each alert; of equals, the first by ``landed_file`` and ``landed_row``."""
    order = Window.partitionBy(*KEY).orderBy(F.col("received_at").asc_nulls_last(), "landed_file", "landed_row")
    return rows.withColumn("copy", F.row_number().over(order)).where("copy = 1").drop("copy")


def unseen(rows: DataFrame, known: DataFrame) -> DataFrame:
    """Rows whose alert is not in ``known``. Of ``known`` only the key is read, and no row of it moves unless ``rows``
    has it as well."""
    seen = known.select(*KEY).join(rows.select(*KEY), KEY, "left_semi").distinct()
    return rows.join(seen, KEY, "left_anti")


def windows(alerts: DataFrame) -> DataFrame:
    """``COUNTS`` of ``alerts``: by 5 minutes of event time, fleet, site, host, rule and level.

    The ``count`` of a fold is how many further alerts it stands for. That of a correlation is what its condition speaks
    of, events or values: the correlation matched once.
    """
    is_fold = F.col("kind").eqNullSafe("fold")
    folded = F.least(F.greatest(F.coalesce("count", F.lit(1)), F.lit(0)), F.lit(MAX_COUNT))
    stands_for = F.when(is_fold, folded).otherwise(F.lit(1))
    placed = alerts.withColumn("window_start", F.window("event_time", WINDOW)["start"])
    return (
        placed.withColumn("date", F.date_format("window_start", "yyyy-MM-dd"))
        .groupBy(*_GRAIN)
        .agg(
            F.max("rule_title").alias("rule_title"),
            F.count_if(~is_fold).alias("alerts"),
            F.sum(stands_for).cast("long").alias("matches"),
        )
        .select(*COUNTS.names)
    )


def totals(partial: DataFrame) -> DataFrame:
    """Rows of ``counts_5m`` added up over batches: one row a window, fleet, site, host, rule and level."""
    added = partial.groupBy(*_GRAIN).agg(
        F.max("rule_title").alias("rule_title"), F.sum("alerts").alias("alerts"), F.sum("matches").alias("matches")
    )
    return added.select(*COUNTS.names)
