"""The job ``noise``: which rules are loud, why, and what their authors could do about it.

A rule's ``score`` (0 to 100) says how much of the volume is its (``share``) and, of that, how much suppression
already holds back (``share_suppressed``) and one single entity makes (``top_share``): of a rule that makes no volume,
neither is noise. Rules of a high level count half, because they are meant to be noticed. ``reason`` says the same in
words.

Where one entity makes most of a rule's alerts, ``proposal`` is a Sigma filter that leaves that entity out of that rule.
``vedette rules lint`` and ``vedette scan --rules`` take it beside the rule, which stays as it is; ``--patch`` gives all
of them as one patch for the folder of the rules. The field it names is the one of the rule's own alerts that holds the
entity. It is a proposal: nobody but the rule's author can know whether the entity is harmless. There is none for a
private address, which is another machine at each site, unless the rule alerts at one site only; none for correlations,
to which filters do not apply; and none where no field holds the entity.
"""

from __future__ import annotations

import logging
from datetime import date
from pathlib import Path

import click
from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F

from spark_jobs.common import entities
from spark_jobs.common.entities import SEVERE
from spark_jobs.common.kept import kept
from spark_jobs.common.nouns import counted
from spark_jobs.common.period import Period, period
from spark_jobs.common.plain import short
from spark_jobs.findings.proposals import added, file_name, filter_text
from spark_jobs.jobs.job import COUNT, FILE, Job, days_options, spark_job
from spark_jobs.tables import storage
from spark_jobs.tables.schema import ALERTS, ENTITY_SITE_5M, HOST_1H, NOISE, RULES, WIN_5M
from spark_jobs.tables.tables import Tables

log = logging.getLogger(__name__)

DAYS = 7

SHARE_POINTS, FULL_SHARE = 40.0, 0.2
"""A rule that makes a fifth of all matches is as loud as one can be; a quarter of that is half as loud, by a root, so
that the many rules below do not all look alike."""

SUPPRESSED_POINTS, MIN_MATCHES = 30.0, 100
TOP_POINTS, MIN_ALERTS = 30.0, 50
"""Below these numbers a share says nothing."""

SEVERE_FACTOR = 0.5

PROPOSED_SHARE = 0.5
"""A filter that leaves a rule more than half as loud is not worth its upkeep."""

MAX_PROPOSALS = 200
"""The loudest rules for which one is made: each is read by a person."""


@spark_job()
@days_options(DAYS, "Days looked at.")
@click.option("--top", type=COUNT, default=10, show_default=True, help="Rules printed.")
@click.option("--proposals", "folder", type=FILE, metavar="DIR", help="Write each proposal into this folder.")
@click.option("--patch", type=FILE, metavar="FILE", help="Write all proposals as one patch.")
def noise(job: Job, last: date, days: int, top: int, folder: Path | None, patch: Path | None) -> str:
    """Find loud rules, and propose filters.

    Example: vedette-spark noise --tables tables --date yesterday --patch noise.patch
    """
    wanted, spark, tables = period(last, days), job.spark, job.tables
    write(spark, tables, wanted)
    rows = tables.frame(spark, NOISE, wanted.until, wanted.until).orderBy(F.desc("score"), "rule_id")
    if folder or patch:
        proposed = {
            file_name(row.rule_id): row.proposal for row in rows.where("proposal != ''").limit(MAX_PROPOSALS).collect()
        }
        if folder:
            folder.mkdir(parents=True, exist_ok=True)
            for name, text in proposed.items():
                storage.replace(folder / name, text)
        if patch:
            storage.replace(patch, "".join(added(name, text) for name, text in proposed.items()))
    lines = [f"{row.score:5.1f}  {row.rule_title or row.rule_id}: {row.reason}" for row in rows.limit(top).collect()]
    return "\n".join(["noise: score, rule, reason", *lines])


def write(spark: SparkSession, tables: Tables, wanted: Period) -> None:
    """Write ``NOISE`` of ``wanted``, under its last day."""
    counts = tables.frame(spark, WIN_5M, wanted.since, wanted.until)
    hosts = tables.frame(spark, HOST_1H, wanted.since, wanted.until)
    who = tables.frame(spark, ENTITY_SITE_5M, wanted.since, wanted.until)
    rules = tables.frame(spark, RULES)
    loud = kept(volumes(counts, hosts, who, rules))
    # Not by day of receipt: that is the edge's, whose clock may stand at 1970.
    near = tables.frame(spark, ALERTS, near={"counted_at": [(wanted.start, wanted.end)]})
    counted = (F.col("counted_at") >= F.lit(wanted.start)) & (F.col("counted_at") < F.lit(wanted.end))
    proposed = proposals(loud, near.where(counted))
    rows = loud.join(spark.createDataFrame(proposed, "rule_id STRING, proposal STRING"), "rule_id", "left")
    rows = rows.withColumns({"proposal": F.coalesce("proposal", F.lit("")), "as_of": F.lit(wanted.until)})
    tables.replace(NOISE, rows.select(*NOISE.names), [wanted.until])


def volumes(counts: DataFrame, hosts: DataFrame, who: DataFrame, rules: DataFrame) -> DataFrame:
    """``NOISE`` without ``as_of`` and ``proposal``, and with the ``scope`` of the loudest entity."""
    by_site = counts.groupBy("rule_id", "fleet", "site").agg(_sum("alerts"), _sum("matches"))
    by_rule = by_site.groupBy("rule_id").agg(_sum("alerts"), _sum("matches"), F.count("*").alias("sites"))
    on_hosts = hosts.groupBy("rule_id", "fleet", "site", "host").agg(F.lit(1)).groupBy("rule_id")
    whole = (
        by_rule.join(on_hosts.agg(F.count("*").alias("hosts")), "rule_id", "left")
        .join(_loudest(who), "rule_id", "left")
        .join(F.broadcast(rules.select("rule_id", "rule_title", "level")), "rule_id", "left")
        .crossJoin(F.broadcast(counts.agg(F.sum("matches").alias("all"))))
    )
    share = F.col("matches") / F.col("all")
    rows = whole.withColumns(
        {
            "share": share,
            "share_suppressed": F.greatest(1 - F.col("alerts") / F.col("matches"), F.lit(0.0)),
            "hosts": F.coalesce("hosts", F.lit(0).cast("long")),
            # Not by ``least`` alone: it passes over nulls, and a rule without an entity would have all of the points.
            "top_share": F.least(F.coalesce(F.col("top_alerts") / F.col("alerts"), F.lit(0.0)), F.lit(1.0)),
        }
    ).where("matches > 0")
    return rows.withColumn("score", _score()).withColumn("reason", _reason()).drop("all")


def _sum(name: str) -> Column:
    return F.sum(name).alias(name)


def _loudest(who: DataFrame) -> DataFrame:
    """Of each rule the entity that most of its alerts name: ``top_kind``, ``top_value``, ``scope``, ``top_alerts``."""
    key = ["rule_id", *entities.WHO]
    each = who.withColumn("scope", entities.scope()).groupBy(*key).agg(_sum("alerts"))
    # By the largest number first, which needs no text: a text in an aggregate would have Spark sort all entities.
    most = each.groupBy("rule_id").agg(F.max("alerts").alias("alerts")).where("alerts > 0")
    first = F.min(F.struct("kind", "value", "scope")).alias("top")
    of_rule = each.join(F.broadcast(most), ["rule_id", "alerts"]).groupBy("rule_id", "alerts").agg(first)
    return of_rule.select(
        "rule_id", F.col("top.kind").alias("top_kind"), F.col("top.value").alias("top_value"), "top.scope",
        F.col("alerts").alias("top_alerts"),
    )  # fmt: skip


def _score() -> Column:
    total = F.sqrt(F.least(F.col("share") / FULL_SHARE, F.lit(1.0))) * (
        SHARE_POINTS
        + F.when(F.col("matches") >= MIN_MATCHES, F.col("share_suppressed")).otherwise(0.0) * SUPPRESSED_POINTS
        + F.when(F.col("alerts") >= MIN_ALERTS, F.col("top_share")).otherwise(0.0) * TOP_POINTS
    )
    return F.round(F.when(F.col("level").isin(*SEVERE), total * SEVERE_FACTOR).otherwise(total), 1)


def _reason() -> Column:
    def percent(name: str) -> Column:
        return F.concat(F.round(F.col(name) * 100).cast("int"), F.lit(" %"))

    top = F.concat("top_kind", F.lit(" "), "top_value")
    return F.concat(
        counted("matches", "match", "matches"), F.lit(", "), percent("share"), F.lit(" of all; "),
        percent("share_suppressed"), F.lit(" suppressed; at "), counted("sites", "site"), F.lit(", "),
        counted("hosts", "host"),
        F.coalesce(F.concat(F.lit("; "), percent("top_share"), F.lit(" of the alerts name "), top), F.lit("")),
    )  # fmt: skip


def proposals(loud: DataFrame, alerts: DataFrame) -> list[tuple[str, str]]:
    """Rule and filter, for the loudest of ``volumes`` that one entity makes."""
    one_place = (F.col("scope") == "") | (F.col("sites") == 1)
    wanted = (
        loud.where((F.col("alerts") >= MIN_ALERTS) & (F.col("top_share") >= PROPOSED_SHARE) & one_place)
        .orderBy(F.desc("score"), "rule_id")
        .limit(MAX_PROPOSALS)
    )
    named = F.broadcast(wanted.select("rule_id", F.lower("top_value").alias("wanted")))
    held = alerts.where((F.col("kind") == "detection") & F.col("logsource").isNotNull()).join(named, "rule_id")
    fields = held.select("rule_id", "wanted", "logsource", F.explode("fields").alias("field", "value"))
    by_field = fields.where(F.lower("value") == F.col("wanted")).groupBy("rule_id", "field", "logsource").count()
    order = Window.partitionBy("rule_id").orderBy(F.desc("count"), "field")
    best = by_field.withColumn("rank", F.row_number().over(order)).where("rank = 1")
    rows = wanted.join(best.select("rule_id", "field", "logsource"), "rule_id").collect()
    return [(row.rule_id, filter_of(row)) for row in rows]


def filter_of(row: Row) -> str:
    """A Sigma filter in YAML that leaves ``row.top_value`` out of the rule."""
    return filter_text(
        row.rule_id, row.logsource.asDict(), {row.field: [row.top_value]},
        key=f"{row.rule_id} {row.field} {row.top_value}",
        title=f"{short(row.top_value, 60)} in {short(row.rule_title or row.rule_id, 60)}",
        description=f"{row.top_share:.0%} of {row.alerts} alerts named it. Apply it only if it is harmless.",
    )  # fmt: skip
