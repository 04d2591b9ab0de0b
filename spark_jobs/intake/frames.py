"""Arithmetic of the batches: data frames in, data frames out; nothing is read, written or kept here.

A landed row is known by ``file`` (a hash of its ``origin``: its file's URL, or Kafka topic and partition) and
``position`` (row or offset): numbers, because every row carries them through every step.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark_jobs.intake import texts
from spark_jobs.intake.published import Listed
from spark_jobs.tables import sums
from spark_jobs.tables.schema import AGENTS, Table

KEY = ["agent_id", "alert_id", "received_date"]
"""What copies of one alert share: the first two tell alerts apart, the third says where in the table to look."""

PLACE = ["file", "position"]

BUCKET_SECONDS = 3600
"""Grain at which a batch's event times are looked up in the table."""

MAX_RANGES = 16
MAX_AGE = timedelta(days=400)
MAX_AHEAD = timedelta(days=1)
"""An event time further from ``received_at`` than this is absurd."""

MAX_COUNT = (1 << 53) - 1
"""No agent counts further; beyond it, sums of what agents say would leave 64 bits."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST = datetime(1, 1, 1, tzinfo=UTC)
_LAST = datetime.max.replace(tzinfo=UTC)

NEEDED = ("agent_id", "alert_id", "received_date", "event_time", "received_at")
"""What an alert must have to be in a table. A row of a foreign Parquet file has none of it."""


def file() -> Column:
    """A 64-bit hash of ``origin``; among the n files of a batch a collision has a chance of about n^2 / 2^65."""
    return F.xxhash64("origin").alias("file")


def trouble(*needed: str) -> Column:
    """Why no table can hold the row: the first of the columns ``needed`` that has no value; null when all have one."""
    first_reason = F.lit(None).cast("string")
    for name in reversed(needed):
        if name in ("event_time", "received_at"):
            usable = _possible(name)
            reason = F.when(F.col(name).isNull(), f"without {name}").otherwise(f"{name} is outside the years 1 to 9999")
        elif name == "received_date":
            usable = F.col(name).rlike(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}\z") & F.expr(f"try_to_date({name})").isNotNull()
            reason = F.lit("received_date is no date YYYY-MM-DD")
        else:
            usable, reason = F.length(name) > 0, F.lit(f"without {name}")
        first_reason = F.when(F.coalesce(usable, F.lit(False)), first_reason).otherwise(reason)
    return first_reason


def _possible(column: str) -> Column:
    """Whether there is a time, of a year that a timestamp can be written as."""
    first, last = (F.lit(text).cast("timestamp") for text in ("0001-01-01", "9999-12-31 23:59:59.999999"))
    return F.coalesce(F.col(column).between(first, last), F.lit(False))


def counted_at() -> Column:
    """The event's time, or the time of landing where the event's is absurd."""
    age = F.unix_micros("received_at") - F.unix_micros("event_time")
    sane = age.between(int(-MAX_AHEAD.total_seconds() * 1e6), int(MAX_AGE.total_seconds() * 1e6))
    return F.when(sane, F.col("event_time")).otherwise(F.col("received_at"))


def later_copies(keys: DataFrame) -> DataFrame:
    """``PLACE`` of all but the earliest received copy of each alert in a batch; of equals, the first by place stays."""
    keyed = keys.withColumn("hash", _hash())
    doubled = keyed.groupBy("hash").count().where("count > 1").select("hash")  # few, so only few are sorted
    order = Window.partitionBy(*KEY).orderBy(F.col("received_at").asc_nulls_last(), *PLACE)
    copies = keyed.join(doubled, "hash", "left_semi").withColumn("copy", F.row_number().over(order))
    return copies.where("copy > 1").select(*PLACE)


def known_copies(keys: DataFrame, stored: DataFrame) -> DataFrame:
    """``PLACE`` of the rows whose alert is in ``stored``. Of ``stored`` only the key is read, and no row of it moves
    unless ``keys`` has it as well."""
    batch = F.broadcast(keys.select(_hash()))
    seen = stored.select(*KEY, _hash()).join(batch, "hash", "left_semi").select(*KEY).distinct()
    return keys.join(seen, KEY, "left_semi").select(*PLACE)


def _hash() -> Column:
    """A number that copies share, and hardly ever others: what it finds is then compared by ``KEY``."""
    return F.xxhash64(*KEY).alias("hash")


def ranges(buckets: Iterable[int], seconds: int = BUCKET_SECONDS) -> list[tuple[datetime, datetime]]:
    """At most ``MAX_RANGES`` time ranges that hold every bucket (number of ``seconds`` since 1970), split where the
    gaps are widest."""
    numbers = sorted(set(buckets))
    if not numbers:
        return []
    widest = sorted(range(1, len(numbers)), key=lambda i: numbers[i - 1] - numbers[i])[: MAX_RANGES - 1]
    cuts = [0, *sorted(i for i in widest if numbers[i] - numbers[i - 1] > 1), len(numbers)]
    return [(_time(numbers[first] * seconds), _time((numbers[end - 1] + 1) * seconds)) for first, end in pairwise(cuts)]


def _time(seconds: int) -> datetime:
    """UTC; a time that no ``datetime`` can hold is the nearest that one can."""
    try:
        return _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        return _FIRST if seconds < 0 else _LAST


def counted(alerts: DataFrame) -> DataFrame:
    """The columns of ``alerts`` that the counts are made of."""
    return alerts.sparkSession.sql(sums.counted("{alerts}"), alerts=alerts)


def rule_texts(rows: DataFrame) -> DataFrame:
    """What ``counted`` rows say of their rules."""
    return rows.sparkSession.sql(sums.rule_texts("{rows}", sums.SPARK), rows=rows)


def rules(rows: DataFrame, former: pa.Table | None = None, listed: Listed | None = None) -> DataFrame:
    """``texts.resolved`` of ``counted`` rows; reckoned at once, for rules are few."""
    return rows.sparkSession.createDataFrame(texts.resolved(rule_texts(rows).toArrow(), former, listed))


def rows_of(table: Table, rows: DataFrame, rules: DataFrame) -> DataFrame:
    """The rows of a table of counts, of ``counted`` rows and of their ``rules``."""
    return rows.sparkSession.sql(sums.rows_of(table, "{rows}", "{rules}", sums.SPARK), rows=rows, rules=rules)


_INPUT = (
    "struct<received: bigint, stored: bigint, judged: bigint, dropped: map<string, bigint>, lost: map<string, bigint>>"
)
_ACCOUNT = (
    f"struct<inputs: map<string, {_INPUT}>, backlog: map<string, bigint>, lag_seconds: double, "
    "alerts: struct<made: bigint, receipted: bigint, in_outbox: bigint>, rules: struct<dead_count: bigint>, "
    "identity_broken: array<string>>"
)


def agents(beats: DataFrame) -> DataFrame:
    """``AGENTS`` of heartbeats: each agent's newest, its counters summed over inputs and reasons."""
    newest = beats.groupBy("fleet", "agent_id").agg(
        F.max_by(
            F.struct("site", "state", "version", "bundle", "plan_digest", "seq_high", "payload", "stated_site"),
            F.struct("received_at", "payload"),
        ).alias("beat"),
        F.min("received_at").alias("first_seen"),
        F.max("received_at").alias("last_seen"),
    )
    rows = newest.select(
        F.coalesce("fleet", F.lit("")).alias("fleet"), "agent_id", "first_seen", "last_seen", "beat.*",
        F.from_json("beat.payload", _ACCOUNT).alias("said"),
    )  # fmt: skip
    inputs = F.map_values("said.inputs")

    def over_inputs(name: str) -> Column:
        return _total(F.transform(inputs, lambda source: source[name])).alias(name)

    def over_reasons(name: str) -> Column:
        return _total(F.flatten(F.transform(inputs, lambda source: F.map_values(_or_empty(source[name]))))).alias(name)

    return rows.select(
        *AGENTS.names[:8],
        *map(over_inputs, ("received", "stored", "judged")),
        _total(F.map_values("said.backlog")).alias("backlog"),
        *map(over_reasons, ("dropped", "lost")),
        _count(F.col("said.alerts.made")).alias("alerts_made"),
        _count(F.col("said.alerts.receipted")).alias("alerts_receipted"),
        _count(F.col("said.alerts.in_outbox")).alias("in_outbox"),
        _count(F.col("said.lag_seconds")).alias("lag_seconds"),
        _count(F.col("said.rules.dead_count")).alias("dead_rules"),
        F.coalesce("said.identity_broken", F.array().cast("array<string>")).alias("identity_broken"),
        "first_seen",
        "last_seen",
        "stated_site",
    )


def _or_empty(numbers: Column) -> Column:
    return F.coalesce(numbers, F.create_map().cast("map<string, bigint>"))


def _count(number: Column) -> Column:
    """A count, or seconds, by an agent's word; null below 0, beyond ``MAX_COUNT`` and where it is no number."""
    return F.when(number.between(0, MAX_COUNT), number)


def _total(numbers: Column) -> Column:
    """Sum of an array of counts, at most ``MAX_COUNT``; null when there is no array."""
    zero = F.lit(0).cast("long")
    most = F.lit(MAX_COUNT).cast("long")
    return F.aggregate(numbers, zero, lambda sum, number: F.least(sum + F.coalesce(_count(number), zero), most))
