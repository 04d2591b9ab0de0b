"""The job ``risk``: what each user, address, device, host and site has come to, by many small alerts or a few large.

``findings.risk`` has the arithmetic. This module has what it is made of: the counts of ``WINDOW`` half-lives, the
rules' tactics, the owner's criticality of hosts and entities, and each rule's **confidence**: with ``t`` findings of it
closed as true and ``f`` as false positives, ``(PRIOR + t) / (PRIOR + t + f)``, so 1 for a rule of which nobody has said
anything. A finding is a campaign, an anomaly or a risk; of a risk the rules of its contributions as they were
on the day of the decision.

A day's rows are rewritten by each run; over the same tables, at the same time, they are the same. What the lookup
``intel`` knows as one's own (``intake.own``) has no row, and what a red team or a scanner of one's own does raises
neither the host nor the site that it meets: their counts are less the alerts that ``ALERTS`` has with such a threat.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, date, datetime
from typing import Any

import click
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_jobs.common.period import Period, period
from spark_jobs.common.plain import many, plain, short
from spark_jobs.findings import incidents
from spark_jobs.findings import risk as points
from spark_jobs.intake.enrich import Lookups
from spark_jobs.intake.own import OWN, Trials, threats_of
from spark_jobs.jobs.job import COUNT, Job, date_option, lookups_option, spark_job
from spark_jobs.report import closed
from spark_jobs.report.reasons import of_contribution, of_risk
from spark_jobs.tables.arrow import arrow_schema
from spark_jobs.tables.ask import Reader, Row
from spark_jobs.tables.schema import ENTITY_SITE_5M, HOST_1H, RISK, RULES, WIN_5M
from spark_jobs.tables.tables import Tables

log = logging.getLogger(__name__)

HALF_LIFE = 14
"""Days: two weeks of one small alert a day are then enough, and a month's quiet leaves a quarter."""

PRIOR = 2.0
"""Findings by which a rule is held to be right before anybody has closed one."""

KINDS = (*points.KINDS, "host", "site")


@spark_job()
@date_option("Day whose end, or now, the points are decayed to")
@click.option(
    "--half-life",
    type=click.IntRange(7, 30),
    default=HALF_LIFE,
    show_default=True,
    metavar="DAYS",
    help="After which a contribution has half of its points, 7 to 30; four of them are looked at.",
)
@click.option("--top", type=COUNT, default=10, show_default=True, help="Entities printed.")
@lookups_option("Folder with the lookups assets and entities, for their criticality, and intel.")
def risk(job: Job, last: date, half_life: int, top: int, lookups: Lookups | None) -> str:  # fmt: skip
    """Find entities whose alerts add up, fast or slowly.

    Example: vedette-spark risk --tables tables --lookups lookups
    """
    wanted = period(last, points.WINDOW * half_life)
    with closing(job.reader()) as reader:
        trusted = confidence(reader, wanted)
    return write(job.spark, job.tables, wanted, half_life, lookups, trusted, top)


def write(
    spark: SparkSession,
    tables: Tables,
    wanted: Period,
    half_life: int = HALF_LIFE,
    lookups: Lookups | None = None,
    trusted: Mapping[str, float] | None = None,
    top: int = 10,
) -> str:
    """Write ``RISK`` of the last day of ``wanted``; how many are over their threshold, and the first of them."""
    there = wanted.among(tables.partitions(WIN_5M))
    first = datetime.fromisoformat(there[0]).replace(tzinfo=UTC) if there else wanted.start
    entities = tables.frame(spark, ENTITY_SITE_5M, wanted.since, wanted.until)
    trials = Trials(spark, tables, wanted.first, wanted.last)
    counted = ((table, tables.frame(spark, table, wanted.since, wanted.until)) for table in (HOST_1H, WIN_5M))
    rows = points.cells(entities, *(trials.less(those, table) for table, those in counted))
    assets, people = (None if lookups is None else lookups.table(spark, name) for name in ("assets", "entities"))
    worth = points.criticalities(spark, assets, people)
    parts = points.contributions(rows, tables.frame(spark, RULES), trusted or {}, worth)
    every = points.scored(parts, wanted.now, half_life, points.moments(wanted.now, half_life, first))
    stamps = {"as_of": F.lit(wanted.until), "updated_at": F.lit(wanted.now)}
    chosen = points.chosen(every, wanted.now).withColumns(stamps).toArrow().to_pylist()
    mine = _own(spark, chosen, lookups)
    others = [row for row in chosen if row["risk_id"] not in mine]
    led = incidents.leaders(others)
    worded = [{**_worded(row), "leader": led.get(row["risk_id"], "")} for row in others]
    written = pa.Table.from_pylist(worded, arrow_schema(RISK.columns))
    tables.replace(RISK, written, [wanted.until])
    return _said(written, top)


def _worded(row: Row) -> dict[str, Any]:
    """One of ``points.chosen`` with what words can say of it."""
    parts = [{**part, "why": of_contribution(row["kind"], part)} for part in row["contributions"]]
    return {**row, "reason": of_risk(row), "contributions": parts}


def _own(spark: SparkSession, rows: Sequence[Row], lookups: Lookups | None) -> set[str]:
    """The ``risk_id`` of those ``rows`` that the lookup ``intel`` knows as one's own."""
    if lookups is None or not rows:
        return set()
    asked = [(row["kind"], row["value"], row["last_seen"], row["risk_id"]) for row in rows]
    members = spark.createDataFrame(asked, "kind STRING, value STRING, last_seen TIMESTAMP, member STRING")
    return {risk_id for risk_id, threats in threats_of(spark, members, lookups).items() if threats & OWN}


def _said(written: pa.Table, top: int) -> str:
    rows = written.select(["kind", "value", "scope", "score", "threshold", "over", "reason"]).to_pylist()
    over = [row for row in rows if row["over"]]
    kinds = Counter(row["kind"] for row in over)
    head = f"risk: {many(len(over), 'entity', 'entities')} over the threshold"
    head += f" ({', '.join(f'{kind} {kinds[kind]:,}' for kind in KINDS if kinds[kind])})" if over else ""
    for kind, number in kinds.items():
        if number == points.MAX_ENTITIES:
            log.warning("%s: the first %d over their threshold are kept; there may be more", kind, number)
    over.sort(key=lambda row: (-row["score"] / row["threshold"], row["kind"], row["value"], row["scope"]))
    lines = [
        f"{row['score']:7.1f}  {row['kind']} {plain(short(row['value']))}"
        f"{' at ' + plain(short(row['scope'])) if row['scope'] else ''}: {row['reason']}"
        for row in over[:top]
    ]
    return "\n".join([head, *lines])


def confidence(reader: Reader, wanted: Period) -> dict[str, float]:
    """The confidence of each rule that has a part in a finding about which a decision holds that closed it."""
    closed.take_apart(reader, wanted.now, wanted.until)
    return {
        row["rule_id"]: (PRIOR + row["correct"]) / (PRIOR + row["correct"] + row["incorrect"])
        for row in closed.rules(reader)
    }
