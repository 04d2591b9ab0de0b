"""The job ``coverage``: which ATT&CK techniques the deployed rules speak for, which were seen, which never fired.

**Deployed** are the rules of the newest list of each bundle in the landing's folder ``rules`` (``--rules``), or those
in rule files, which need ``vedette[rules]`` beside Spark. Of rules that only a correlation looks at no alert can come:
they are left out, as are refused ones.

A rule with several techniques has a row for each; one without any has a row with an empty technique. A rule that
alerted and is in no list has ``deployed`` false: an agent runs what was not published, or its list is missing.

``layer`` is the same as a layer of the ATT&CK Navigator (format 4.5, domain ``enterprise-attack``): the score is the
number of alerts, the colour says whether a technique was seen. Techniques of ATT&CK for ICS (``T0…``) are not in it.
"""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import click
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.common.attack import tactics_of, techniques_of
from spark_jobs.common.period import Period, period
from spark_jobs.jobs.job import FILE, FOLDER, Job, days_options, spark_job
from spark_jobs.tables import storage
from spark_jobs.tables.schema import COVERAGE, RULES, WIN_5M
from spark_jobs.tables.tables import Tables

DAYS = 30

MAX_TECHNIQUES = 5000
"""More than ATT&CK has: what rule authors write as one could be anything."""
MAX_TITLES = 10
"""Rules that the comment on a technique names."""

SEEN, SILENT, STRANGE = "#74c476", "#fdd0a2", "#9e9ac8"
LEGEND = ((SEEN, "rules, and alerts"), (SILENT, "rules that never fired"), (STRANGE, "alerts of rules not deployed"))

_LIST = (
    "name STRING, version LONG, rules ARRAY<STRUCT<id: STRING, title: STRING, level: STRING, tags: ARRAY<STRING>, "
    "state: STRING, alerts: BOOLEAN>>"
)


@spark_job()
@days_options(DAYS, "Days looked at.")
@click.option("--rules", type=FOLDER, required=True, metavar="PATH",
              help="The landing's folder rules, or rule files on this host.")  # fmt: skip
@click.option("--layer", "layer_file", type=FILE, metavar="FILE", help="Write a layer for the ATT&CK Navigator (JSON).")
def coverage(job: Job, last: date, days: int, rules: str, layer_file: Path | None) -> str:
    """Compare deployed ATT&CK techniques with alerts.

    Example: vedette-spark coverage --tables tables --rules landing/rules --layer layer.json
    """
    wanted, spark, tables = period(last, days), job.spark, job.tables
    write(spark, tables, deployed(spark, rules), wanted)
    rows = tables.frame(spark, COVERAGE, wanted.until, wanted.until)
    if layer_file:
        storage.replace(layer_file, json.dumps(layer(rows, wanted), indent=1, ensure_ascii=False) + "\n")
    by_rule = rows.groupBy("rule_id").agg(F.max("alerts").alias("alerts"), F.max("deployed").alias("deployed"))
    of_rules = by_rule.agg(
        F.count_if("deployed").alias("deployed"),
        F.count_if(F.col("deployed") & (F.col("alerts") == 0)).alias("silent"),
        F.count_if(~F.col("deployed")).alias("strange"),
    ).collect()[0]
    tagged = rows.where("technique != ''").groupBy("technique").agg(F.sum("alerts").alias("alerts"))
    techniques = tagged.agg(F.count("*").alias("all"), F.count_if(F.col("alerts") > 0).alias("seen")).collect()[0]
    return (
        f"coverage: {of_rules.deployed} rules deployed, {of_rules.silent} never fired, {of_rules.strange} not deployed "
        f"fired; {techniques.seen} of {techniques.all} techniques seen"
    )


def write(spark: SparkSession, tables: Tables, rules: DataFrame, wanted: Period) -> None:
    """Write ``COVERAGE`` of ``rules`` (``deployed``) in ``wanted``, under its last day."""
    counts = tables.frame(spark, WIN_5M, wanted.since, wanted.until)
    rows = covered(rules, tables.frame(spark, RULES), counts).withColumn("as_of", F.lit(wanted.until))
    tables.replace(COVERAGE, rows.select(*COVERAGE.names), [wanted.until])


def deployed(spark: SparkSession, path: str) -> DataFrame:
    """``rule_id``, ``rule_title``, ``level`` and ``tags`` of the rules at ``path``. Raises FileNotFoundError."""
    if not storage.exists(path):
        raise FileNotFoundError(f"{path}: no such rules; name the folder `rules` of the landing, or rule files")
    if storage.count(path, "*.json"):
        lists = spark.read.schema(_LIST).option("multiLine", "true").json(f"{storage.literal(path)}/*.json")
        newest = lists.groupBy("name").agg(F.max_by("rules", "version").alias("rules"))
        rows = newest.select(F.explode("rules").alias("rule")).select("rule.*")
    else:
        rows = spark.createDataFrame(_compiled(path), "id STRING, title STRING, level STRING, tags ARRAY<STRING>, "
                                     "state STRING, alerts BOOLEAN")  # fmt: skip
    able = rows.where(F.coalesce("state", F.lit("")) != "refused").where(F.coalesce("alerts", F.lit(True)))
    once = able.where("id IS NOT NULL").groupBy(F.col("id").alias("rule_id"))
    return once.agg(
        F.first("title").alias("rule_title"), F.first("level").alias("level"), F.first("tags").alias("tags")
    )


def _compiled(path: str) -> list[tuple[Any, ...]]:
    from vedette import compile_rules
    from vedette.rules.build import described

    rows = described(compile_rules(path))
    return [(row["id"], row["title"], row["level"], row["tags"], "", row["alerts"]) for row in rows]


def covered(rules: DataFrame, fired: DataFrame, counts: DataFrame) -> DataFrame:
    """``COVERAGE`` without ``as_of``: ``rules`` (``deployed``) against ``RULES`` and the ``WIN_5M`` looked at."""
    by_site = counts.groupBy("rule_id", "fleet", "site").agg(
        F.sum("alerts").alias("alerts"),
        F.sum("matches").alias("matches"),
        F.min("first_time").alias("first_seen"),
        F.max("last_time").alias("last_seen"),
    )
    seen = by_site.groupBy("rule_id").agg(
        F.sum("alerts").alias("alerts"),
        F.sum("matches").alias("matches"),
        F.count("*").alias("sites"),
        F.min("first_seen").alias("first_seen"),
        F.max("last_seen").alias("last_seen"),
    )
    listed = rules.select(
        "rule_id",
        "rule_title",
        "level",
        tactics_of("tags").alias("tactics"),
        techniques_of("tags").alias("techniques"),
        F.lit(True).alias("deployed"),
    )
    others = fired.join(seen, "rule_id", "left_semi").join(listed, "rule_id", "left_anti")
    known = listed.unionByName(
        others.select("rule_id", "rule_title", "level", "tactics", "techniques", F.lit(False).alias("deployed"))
    )
    each = known.select("*", F.explode_outer("techniques").alias("technique"))
    whole = each.join(seen, "rule_id", "left")
    return whole.withColumn("technique", F.coalesce("technique", F.lit(""))).fillna(0, ["alerts", "matches", "sites"])


def layer(rows: DataFrame, wanted: Period) -> dict[str, Any]:
    """``COVERAGE`` rows as a layer of the ATT&CK Navigator."""
    enterprise = rows.where(F.col("technique").rlike("^T1"))
    name = F.concat(F.coalesce("rule_title", "rule_id"), F.lit(": "), "alerts")
    titles = F.transform(
        F.slice(F.sort_array(F.collect_list(F.struct(-F.col("alerts"), name.alias("name")))), 1, MAX_TITLES),
        lambda one: one["name"],
    )
    found = (
        enterprise.groupBy("technique")
        .agg(
            F.sum("alerts").alias("alerts"),
            F.max("deployed").alias("deployed"),
            F.count("*").alias("rules"),
            titles.alias("titles"),
        )
        .orderBy("technique")
        .limit(MAX_TECHNIQUES)
        .collect()
    )
    techniques = []
    for row in found:
        more = f"\nand {row.rules - MAX_TITLES} more" if row.rules > MAX_TITLES else ""
        colour = STRANGE if not row.deployed else SEEN if row.alerts else SILENT
        techniques.append(
            {"techniqueID": row.technique, "score": row.alerts, "color": colour, "enabled": True,
             "comment": "\n".join(row.titles) + more}
        )  # fmt: skip
    return {
        "name": f"Vedette {wanted.since} to {wanted.until}",
        "versions": {"navigator": "5.0.0", "layer": "4.5"},
        "domain": "enterprise-attack",
        "description": "Deployed rules and the alerts of this time, by technique; the score is the number of alerts.",
        "sorting": 0,
        "layout": {"layout": "side", "showID": True, "showName": True, "expandedSubtechniques": "annotated"},
        "techniques": techniques,
        "gradient": {
            "colors": [SILENT, SEEN],
            "minValue": 0,
            "maxValue": max((row.alerts for row in found), default=0) or 1,
        },
        "legendItems": [{"color": colour, "label": label} for colour, label in LEGEND],
    }
