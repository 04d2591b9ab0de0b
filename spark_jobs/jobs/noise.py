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

import math
from collections.abc import Mapping
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Any

import click
import pyarrow as pa

from spark_jobs.common.entities import PRIVATE, SEVERE
from spark_jobs.common.period import Period, period
from spark_jobs.common.plain import short
from spark_jobs.findings.proposals import added, file_name, filter_text
from spark_jobs.jobs.job import COUNT, FILE, Job, days_options, spark_job
from spark_jobs.report.reasons import of_noise
from spark_jobs.tables import storage
from spark_jobs.tables.arrow import arrow_schema
from spark_jobs.tables.ask import Reader, Row, text, total, within
from spark_jobs.tables.schema import ALERTS, ENTITY_SITE_5M, HOST_1H, NOISE, RULES, WIN_5M
from spark_jobs.tables.tables import Tables

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
    wanted = period(last, days)
    with closing(job.reader()) as reader:
        rows = write(reader, job.tables, wanted)
    if folder or patch:
        proposed = {file_name(row["rule_id"]): row["proposal"] for row in rows if row["proposal"]}
        if folder:
            folder.mkdir(parents=True, exist_ok=True)
            for name, proposal in proposed.items():
                storage.replace(folder / name, proposal)
        if patch:
            storage.replace(patch, "".join(added(name, proposal) for name, proposal in proposed.items()))
    lines = [f"{row['score']:5.1f}  {row['rule_title'] or row['rule_id']}: {row['reason']}" for row in rows[:top]]
    return "\n".join(["noise: score, rule, reason", *lines])


def write(reader: Reader, tables: Tables, wanted: Period) -> list[dict[str, Any]]:
    """Write ``NOISE`` of ``wanted``, under its last day; its rows, the loudest first."""
    reader.view("win", WIN_5M, wanted.since, wanted.until)
    reader.view("host", HOST_1H, wanted.since, wanted.until)
    reader.view("entity", ENTITY_SITE_5M, wanted.since, wanted.until)
    reader.view("rules", RULES)
    volumes = reader.rows(_VOLUMES)
    whole = sum(row["matches"] for row in volumes)
    rows = [_weighed(row, whole) for row in volumes]
    rows.sort(key=lambda row: (-row["score"], row["rule_id"]))
    proposed = proposals(reader, rows, wanted)
    for row in rows:
        row |= {"reason": of_noise(row), "proposal": proposed.get(row["rule_id"], ""), "as_of": wanted.until}
    tables.replace(NOISE, pa.Table.from_pylist(rows, arrow_schema(NOISE.columns)), [wanted.until])
    return rows


_SCOPE = f"""CASE WHEN kind = 'ip' AND regexp_extract(value, {text(PRIVATE)}, 0) <> ''
    THEN concat(fleet, '/', site) ELSE '' END"""
"""SQL: as ``entities.scope``."""

_VOLUMES = f"""SELECT w.rule_id, rule_title, level, w.alerts, w.matches, sites, coalesce(hosts, 0) AS hosts, top_kind,
    top_value, scope, coalesce(top_alerts, 0) AS top_alerts
FROM (SELECT rule_id, {total("alerts")}, {total("matches")}, count(DISTINCT concat(fleet, '/', site)) AS sites
      FROM win GROUP BY rule_id) w
LEFT JOIN (SELECT rule_id, count(DISTINCT concat(fleet, '/', site, '/', host)) AS hosts FROM host GROUP BY rule_id) h
ON w.rule_id = h.rule_id
LEFT JOIN (
    SELECT rule_id, kind AS top_kind, value AS top_value, scope, alerts AS top_alerts FROM (
        SELECT *, row_number() OVER (PARTITION BY rule_id ORDER BY alerts DESC, kind, value, scope) AS place FROM (
            SELECT rule_id, kind, value, {_SCOPE} AS scope, {total("alerts")} FROM entity GROUP BY 1, 2, 3, 4) e) p
    WHERE place = 1 AND alerts > 0) t
ON w.rule_id = t.rule_id
LEFT JOIN rules r ON w.rule_id = r.rule_id
WHERE w.matches > 0"""
"""SQL: each rule with its sums and the entity that most of its alerts name."""


def _weighed(row: Row, whole: int) -> dict[str, Any]:
    """A row of ``_VOLUMES`` with its shares and ``score``; ``whole`` are the matches of all."""
    share = row["matches"] / whole
    suppressed = max(1 - row["alerts"] / row["matches"], 0.0)
    top = min(row["top_alerts"] / row["alerts"], 1.0) if row["alerts"] else 0.0
    points = SHARE_POINTS
    points += suppressed * SUPPRESSED_POINTS if row["matches"] >= MIN_MATCHES else 0.0
    points += top * TOP_POINTS if row["alerts"] >= MIN_ALERTS else 0.0
    score = math.sqrt(min(share / FULL_SHARE, 1.0)) * points * (SEVERE_FACTOR if row["level"] in SEVERE else 1.0)
    return {
        **row,
        "share": share,
        "share_suppressed": suppressed,
        "top_share": top,
        "score": math.floor(10 * score + 0.5) / 10,
    }


def proposals(reader: Reader, rows: list[dict[str, Any]], wanted: Period) -> dict[str, str]:
    """Filters by rule, for the loudest of ``rows`` that one entity makes."""
    here = [row for row in rows if not row["scope"] or row["sites"] == 1]
    loud = [row for row in here if row["alerts"] >= MIN_ALERTS and row["top_share"] >= PROPOSED_SHARE]
    chosen = {row["rule_id"]: row for row in loud[:MAX_PROPOSALS]}
    if not chosen:
        return {}
    # Not by day of receipt: that is the edge's, whose clock may stand at 1970.
    reader.view("alerts", ALERTS, near={"counted_at": [(wanted.start, wanted.end)]})
    named = " OR ".join(
        f"(rule_id = {text(rule_id)} AND lower(entry.value) = lower({text(row['top_value'])}))"
        for rule_id, row in chosen.items()
    )
    fields = reader.rows(
        f"""SELECT rule_id, entry.key AS field, logsource, count(*) AS alerts FROM (
            SELECT rule_id, logsource, {{explode}}(map_entries(fields)) AS entry FROM alerts
            WHERE kind = 'detection' AND logsource IS NOT NULL
            AND {within("counted_at", wanted.since, wanted.until)}) e
        WHERE {named} GROUP BY 1, 2, 3 ORDER BY alerts, field DESC"""
    )
    best = {row["rule_id"]: row for row in fields}
    return {rule_id: filter_of(chosen[rule_id], row["field"], row["logsource"]) for rule_id, row in best.items()}


def filter_of(row: Row, field: str, source: Mapping[str, str | None]) -> str:
    """A Sigma filter in YAML that leaves ``top_value`` of ``row`` in ``field`` out of the rule."""
    value, rule_id = row["top_value"], row["rule_id"]
    return filter_text(
        rule_id, source, {field: [value]}, key=f"{rule_id} {field} {value}",
        title=f"{short(value, 60)} in {short(row['rule_title'] or rule_id, 60)}",
        description=f"{row['top_share']:.0%} of {row['alerts']} alerts named it. Apply it only if it is harmless.",
    )  # fmt: skip
