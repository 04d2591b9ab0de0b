"""The day's summary: what was found, where, by which rules, about whom, and how the agents fare.

Reads the tables of ``counts`` and, for heartbeats and dead letters, one day of the landing. A day is a UTC day of event
time, except for what concerns agents and files: there it is the day of detection or arrival. Every list is cut to a
named number of rows in Spark; nothing that grows with the data comes to the driver.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from spark_jobs import frames, storage
from spark_jobs.batches import Tables
from spark_jobs.schema import LANDED_BAD as BAD
from spark_jobs.schema import LANDED_STATUS as STATUS

LEVELS = ("critical", "high", "medium", "low", "informational")
"""Most severe first; other texts come after them."""

TOP = 10
MAX_AGENTS = 200
MAX_LATEST_RAW = 200
"""Characters of an alert's event that the summary shows."""

RECENT_DAYS = 7

Cell = str | int | None


@dataclass(frozen=True, slots=True)
class Section:
    """A titled table; ``note`` says what its columns mean or what was left out."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Summary:
    """What ``render`` shows. ``hours`` are the alerts of the day's 24 hours (UTC)."""

    day: str
    alerts: int
    matches: int
    rules: int
    sites: int
    hosts: int
    hours: tuple[int, ...]
    sections: tuple[Section, ...]


def summarise(
    spark: SparkSession, tables_root: str, day: date, *, landing_root: str | None = None, top: int = TOP
) -> Summary:
    """The summary of ``day``; sections about heartbeats and dead letters need ``landing_root``."""
    tables, name = Tables(tables_root), day.isoformat()
    counts = frames.totals(tables.counts.read(spark, name.__eq__)).cache()
    try:
        alerts = tables.alerts.read(spark, (day - timedelta(days=1)).isoformat().__le__)
        alerts = alerts.where(F.date_format("event_time", "yyyy-MM-dd") == name)
        sections = [
            _levels(counts),
            _top_rules(counts, top),
            _top_hosts(counts, top),
            _top_entities(alerts, top),
            _gravest(alerts, top),
            _agents(spark, tables, landing_root, name),
            _unread(spark, tables, landing_root, name, top),
        ]
        whole = _only(
            counts.agg(
                _total("alerts"),
                _total("matches"),
                F.count_distinct("rule_id").alias("rules"),
                F.count_distinct("fleet", "site").alias("sites"),
                F.count_distinct("fleet", "site", "host").alias("hosts"),
            )
        )
        by_hour = {
            row.hour: row.alerts
            for row in counts.groupBy(F.hour("window_start").alias("hour")).agg(_total("alerts")).collect()
        }
    finally:
        counts.unpersist()
    if not whole.alerts:
        sections.append(_other_days(spark, tables, name))
    return Summary(
        day=name,
        alerts=whole.alerts,
        matches=whole.matches,
        rules=whole.rules,
        sites=whole.sites,
        hosts=whole.hosts,
        hours=tuple(by_hour.get(hour, 0) for hour in range(24)),
        sections=tuple(section for section in sections if section is not None),
    )


def _levels(counts: DataFrame) -> Section:
    found = counts.groupBy("level").agg(_total("alerts"), _total("matches")).orderBy("level").limit(TOP).collect()
    found.sort(key=lambda row: LEVELS.index(row.level) if row.level in LEVELS else len(LEVELS))
    note = "matches: what the alerts stand for, repeats that were folded into one alert included"
    return Section("Levels", ("level", "alerts", "matches"), _rows(found), note)


def _top_rules(counts: DataFrame, top: int) -> Section:
    by_rule = counts.groupBy("rule_id", "level").agg(
        F.max("rule_title").alias("rule_title"),
        _total("alerts"),
        _total("matches"),
        F.count_distinct("fleet", "site", "host").alias("hosts"),
    )
    return _top(
        "Rules",
        by_rule.select("rule_title", "level", "alerts", "matches", "hosts", "rule_id"),
        ("rule", "level", "alerts", "matches", "hosts", "id"),
        top,
    )


def _top_hosts(counts: DataFrame, top: int) -> Section:
    by_host = counts.groupBy("host", "site", "fleet").agg(
        _total("alerts"), _total("matches"), F.count_distinct("rule_id").alias("rules")
    )
    return _top("Hosts", by_host, ("host", "site", "fleet", "alerts", "matches", "rules"), top)


def _top_entities(alerts: DataFrame, top: int) -> Section:
    by_entity = (
        alerts.where(~F.col("kind").eqNullSafe("fold"))
        .select(F.explode(F.array_distinct("entities")).alias("entity"), "fleet", "site", "host", "rule_id")
        .groupBy("entity.kind", "entity.value")
        .agg(
            F.count("*").alias("alerts"),
            F.count_distinct("rule_id").alias("rules"),
            F.count_distinct("fleet", "site", "host").alias("hosts"),
        )
    )
    return _top("Entities", by_entity, ("kind", "value", "alerts", "rules", "hosts"), top)


def _gravest(alerts: DataFrame, top: int) -> Section:
    rank = F.coalesce(F.array_position(F.array(*map(F.lit, reversed(LEVELS))), F.col("level")), F.lit(0))
    rows = (
        alerts.where(~F.col("kind").eqNullSafe("fold"))
        .orderBy(rank.desc(), F.col("event_time").desc(), "agent_id", "alert_id")
        .limit(top)
        .select(
            F.date_format("event_time", "HH:mm:ss"),
            "level",
            "rule_title",
            "site",
            "host",
            F.substring("raw", 1, MAX_LATEST_RAW),
        )
    )
    columns = ("time", "level", "rule", "site", "host", "event")
    return Section("Gravest alerts", columns, _rows(rows.collect()), "newest first within a level; event cut")


def _agents(spark: SparkSession, tables: Tables, landing_root: str | None, day: str) -> Section:
    """One row an agent: its newest heartbeat of the day, its own account, and what reached the table."""
    seq = F.col("seq")
    reached = (
        tables.alerts.read(spark, day.__eq__)
        .groupBy("agent_id")
        .agg(F.count("*").alias("landed"), (F.max(seq) - F.min(seq) + 1 - F.count_distinct(seq)).alias("missing"))
    )
    beats = _landed(spark, landing_root, "status", day, STATUS)
    newest = beats.groupBy("agent_id").agg(F.max_by(F.struct(*STATUS.names[1:]), "received_at").alias("beat"))
    both = newest.join(reached, "agent_id", "full_outer").orderBy("agent_id").limit(MAX_AGENTS + 1).collect()
    rows: list[tuple[Cell, ...]] = []
    for row in both[:MAX_AGENTS]:
        beat = row.beat
        seen = (beat.state, f"{beat.received_at:%H:%M:%S}", beat.version, beat.bundle) if beat else (None,) * 4
        account = own_account(beat.payload) if beat else {}
        rows.append(
            (
                row.agent_id,
                *seen,
                *(account.get(name) for name in ("received", "stored", "judged", "dropped")),
                row.landed or 0,
                row.missing or 0,
            )
        )
    note = (
        "state to dropped: the agent's own word; missing: gaps in seq among the landed records (on their way, or lost)"
    )
    if len(both) > MAX_AGENTS:
        note += f"; the first {MAX_AGENTS} agents"
    columns = ("agent", "state", "heard", "version", "bundle", "received", "stored", "judged", "dropped", "landed")
    return Section("Agents", (*columns, "missing"), tuple(rows), note)


def own_account(payload: str | None) -> Mapping[str, int]:
    """The totals over inputs in a heartbeat's JSON, or an empty mapping when it has none."""
    try:
        document = json.loads(payload or "")
    except ValueError:
        return {}
    if isinstance(document, dict) and isinstance(document.get("counters"), dict):
        document = document["counters"]
    inputs = document.get("inputs") if isinstance(document, dict) else None
    if not isinstance(inputs, dict) or not all(isinstance(one, dict) for one in inputs.values()):
        return {}
    account = {
        name: sum(_number(one.get(name)) for one in inputs.values()) for name in ("received", "stored", "judged")
    }
    account["dropped"] = sum(
        _number(n) for one in inputs.values() if isinstance(one.get("dropped"), dict) for n in one["dropped"].values()
    )
    return account


def _number(value: Any) -> int:
    return value if type(value) is int else 0


def _unread(spark: SparkSession, tables: Tables, landing_root: str | None, day: str, top: int) -> Section | None:
    """Dead letters and bad files of the day, by reason; None when there are none."""
    letters = _landed(spark, landing_root, "bad", day, BAD).groupBy("topic", "reason").agg(F.count("*").alias("n"))
    name = F.regexp_extract("path", "([^/]+/){0,2}[^/]+$", 0).alias("path")
    files = tables.bad_files.read(spark, day.__eq__).select(name, "reason", F.col("rows").alias("n"))
    rows = (
        letters.select(F.lit("message").alias("what"), F.col("topic").alias("name"), "reason", "n")
        .unionByName(files.select(F.lit("file").alias("what"), F.col("path").alias("name"), "reason", "n"))
        .orderBy("what", F.col("n").desc(), "name", "reason")
        .limit(top)
        .collect()
    )
    if not rows:
        return None
    note = "messages the landing could not read, and landed files or rows that are no alerts"
    return Section("Could not be read", ("what", "name", "reason", "number"), _rows(rows), note)


def _other_days(spark: SparkSession, tables: Tables, day: str) -> Section | None:
    """The newest days that do have alerts, for who asked for a day without; None when there are none."""
    days = [one for one in tables.counts.dates(spark) if one != day][-RECENT_DAYS:]
    if not days:
        return None
    counts = tables.counts.read(spark, set(days).__contains__).groupBy("date").agg(_total("alerts"))
    return Section("Days with alerts", ("day", "alerts"), _rows(counts.orderBy("date").collect()))


def _landed(spark: SparkSession, root: str | None, name: str, day: str, schema: StructType) -> DataFrame:
    """Rows of one day of a landing table. Heartbeats come again, so a file that cannot be read is passed over."""
    folder = f"{root}/{name}/dt={day}"
    if root is None or not storage.exists(spark, folder):
        return spark.createDataFrame([], schema)
    reader = spark.read.schema(schema).option("recursiveFileLookup", "true").option("pathGlobFilter", "*.parquet")
    rows = reader.option("ignoreCorruptFiles", "true").parquet(storage.literal(folder))
    return rows.where(F.col("received_at").isNotNull())


def _top(title: str, found: DataFrame, columns: tuple[str, ...], top: int) -> Section:
    """The ``top`` rows with most alerts, ties by the other columns so that the same data gives the same list."""
    rows = found.orderBy(F.col("alerts").desc(), *(name for name in found.columns if name != "alerts"))
    listed = rows.limit(top + 1).collect()
    return Section(title, columns, _rows(listed[:top]), f"the first {top}" if len(listed) > top else "")


def _total(name: str) -> Any:
    return F.coalesce(F.sum(name), F.lit(0)).alias(name)


def _rows(rows: Sequence[Row]) -> tuple[tuple[Cell, ...], ...]:
    return tuple(tuple(row) for row in rows)


def _only(frame: DataFrame) -> Row:
    """The one row of a global aggregate."""
    return frame.collect()[0]
