"""The job ``summary``: a day's findings, hosts, rules, entities, and how the agents fare, in one screen of text.

A day is a UTC day of ``counted_at``, except for what concerns agents and dead letters: there it is the day of receipt.
Every list is cut to a named number of rows in Spark; nothing that grows with the data comes to the driver.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from threading import Event
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from spark_jobs import given, render, storage
from spark_jobs.render import LEVELS, Cell, Section, Summary
from spark_jobs.schema import AGENTS, ALERTS, DEAD_LETTERS, ENTITY_SITE_5M, HOST_1H, WIN_5M
from spark_jobs.tables import Tables

TOP = 10
MAX_AGENTS = 200
MAX_LATEST_RAW = 200
"""Characters of an alert's event that the summary shows."""

RECENT_DAYS = 7

HELP = "one day's summary as text, and as HTML"


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command line of the job may say."""
    parser.add_argument("--date", type=given.day, default="today", metavar="DAY", help="YYYY-MM-DD, today or yesterday")
    parser.add_argument("--top", type=given.positive, default=TOP, metavar="N", help="rows of each list")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page as well")


def check(parser: argparse.ArgumentParser, said: argparse.Namespace) -> None:
    """Nothing is refused."""


def run(spark: SparkSession, tables: Tables, said: argparse.Namespace, stop: Event) -> str:
    """The day's summary as text; with ``--html`` also a page."""
    found = summarise(spark, tables, said.date, top=said.top)
    if said.html:
        storage.replace(said.html, render.as_html(found))
    return render.as_text(found)


def summarise(spark: SparkSession, tables: Tables, day: date, *, top: int = TOP) -> Summary:
    """The summary of ``day``."""
    name = day.isoformat()
    counts = tables.frame(spark, WIN_5M, name, name).cache()
    hosts = tables.frame(spark, HOST_1H, name, name).cache()
    try:
        alerts = tables.frame(spark, ALERTS, (day - timedelta(days=1)).isoformat())
        alerts = alerts.where(F.date_format("counted_at", "yyyy-MM-dd") == name)
        sections = [
            _levels(counts),
            _top_rules(counts, hosts, top),
            _top_hosts(hosts, top),
            _top_entities(tables.frame(spark, ENTITY_SITE_5M, name, name), top),
            _gravest(alerts, top),
            _agents(spark, tables, name),
            _unread(spark, tables, name, top),
        ]
        whole = _only(
            counts.agg(
                _total("alerts"),
                _total("matches"),
                F.count_distinct("rule_id").alias("rules"),
                F.count_distinct("fleet", "site").alias("sites"),
            )
        )
        by_hour = {
            row.hour: row.alerts
            for row in counts.groupBy(F.hour("window_start").alias("hour")).agg(_total("alerts")).collect()
        }
        different = _only(hosts.agg(F.count_distinct("fleet", "site", "host").alias("hosts"))).hosts
    finally:
        counts.unpersist()
        hosts.unpersist()
    if not whole.alerts:
        sections.append(_other_days(spark, tables, name))
    return Summary(
        day=name,
        alerts=whole.alerts,
        matches=whole.matches,
        rules=whole.rules,
        sites=whole.sites,
        hosts=different,
        hours=tuple(by_hour.get(hour, 0) for hour in range(24)),
        sections=tuple(section for section in sections if section is not None),
    )


def _levels(counts: DataFrame) -> Section:
    found = counts.groupBy("level").agg(_total("alerts"), _total("matches")).orderBy("level").limit(TOP).collect()
    found.sort(key=lambda row: LEVELS.index(row.level) if row.level in LEVELS else len(LEVELS))
    note = "matches: what the alerts stand for, repeats that were folded into one alert included"
    return Section("Levels", ("level", "alerts", "matches"), _rows(found), note)


def _top_rules(counts: DataFrame, hosts: DataFrame, top: int) -> Section:
    by_rule = counts.groupBy("rule_id", "level").agg(
        F.max("rule_title").alias("rule"), _total("alerts"), _total("matches"), _sites()
    )
    on_hosts = hosts.groupBy("rule_id").agg(F.count_distinct("fleet", "site", "host").alias("hosts"))
    found = by_rule.join(on_hosts, "rule_id", "left").fillna(0, ["hosts"])
    columns = ("rule", "level", "alerts", "matches", "sites", "hosts", "rule_id")
    return _top("Rules", found.select(*columns), columns, top)


def _top_hosts(hosts: DataFrame, top: int) -> Section:
    by_host = hosts.groupBy("host", "site", "fleet").agg(
        _total("alerts"), _total("matches"), F.count_distinct("rule_id").alias("rules")
    )
    return _top("Hosts", by_host, ("host", "site", "fleet", "alerts", "matches", "rules"), top)


def _top_entities(entities: DataFrame, top: int) -> Section:
    by_entity = entities.groupBy("kind", "value").agg(
        _total("alerts"), F.count_distinct("rule_id").alias("rules"), _sites()
    )
    return _top("Entities", by_entity, ("kind", "value", "alerts", "rules", "sites"), top)


def _sites() -> Any:
    return F.count_distinct("fleet", "site").alias("sites")


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


def _agents(spark: SparkSession, tables: Tables, day: str) -> Section:
    """One row an agent: its own account, and what of the day reached the table."""
    seq = F.col("seq")
    reached = (
        tables.frame(spark, ALERTS, day, day)
        .groupBy("fleet", "agent_id")
        .agg(F.count("*").alias("landed"), (F.max(seq) - F.min(seq) + 1 - F.count_distinct(seq)).alias("missing"))
    )
    heard = tables.frame(spark, AGENTS).withColumn("heard", F.date_format("last_seen", "yyyy-MM-dd HH:mm:ss"))
    said = ("state", "heard", "version", "bundle", "received", "stored", "judged", "dropped", "lost")
    both = heard.join(reached, ["fleet", "agent_id"], "full_outer").fillna(0, ["landed", "missing"])
    found = both.orderBy("agent_id", "fleet").limit(MAX_AGENTS + 1).select("agent_id", *said, "landed", "missing")
    rows = found.collect()
    note = "state to lost: the agent's own word; missing: gaps in seq among the landed records (on their way, or lost)"
    if len(rows) > MAX_AGENTS:
        note += f"; the first {MAX_AGENTS} agents"
    return Section("Agents", ("agent", *said, "landed", "missing"), _rows(rows[:MAX_AGENTS]), note)


def _unread(spark: SparkSession, tables: Tables, day: str, top: int) -> Section | None:
    """The day's dead letters, by reason; None when there are none."""
    name = F.regexp_extract("source", "([^/]+/){0,3}[^/]*$", 0).alias("name")
    letters = tables.frame(spark, DEAD_LETTERS, day, day).withColumn("name", name)
    found = (
        letters.groupBy(F.col("kind").alias("what"), "name", "reason")
        .agg(_total("rows"))
        .orderBy("what", F.col("rows").desc(), "name", "reason")
    )
    rows = found.limit(top).collect()
    if not rows:
        return None
    note = "files, rows and messages that hold no alert or heartbeat that could be read"
    return Section("Could not be read", ("what", "name", "reason", "number"), _rows(rows), note)


def _other_days(spark: SparkSession, tables: Tables, day: str) -> Section | None:
    """The newest days that do have alerts, for who asked for a day without; None when there are none."""
    days = [one for one in tables.partitions(WIN_5M) if one != day][-RECENT_DAYS:]
    if not days:
        return None
    counts = tables.frame(spark, WIN_5M, only=days).groupBy("date").agg(_total("alerts"))
    return Section("Days with alerts", ("day", "alerts"), _rows(counts.orderBy("date").collect()))


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
