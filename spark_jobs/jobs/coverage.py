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
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import date
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import click
import pyarrow as pa

from spark_jobs.common.attack import of_tags
from spark_jobs.common.period import Period, period
from spark_jobs.intake.published import alerting, lists
from spark_jobs.jobs.job import FILE, FOLDER, Job, days_options, spark_job
from spark_jobs.tables import storage
from spark_jobs.tables.arrow import arrow_schema
from spark_jobs.tables.ask import Reader, Row, total
from spark_jobs.tables.schema import COVERAGE, RULES, RUNS, WIN_5M
from spark_jobs.tables.tables import Tables

DAYS = 30

MAX_TECHNIQUES = 5000
"""More than ATT&CK has: what rule authors write as one could be anything."""
MAX_TITLES = 10
"""Rules that the comment on a technique names."""

SEEN, SILENT, STRANGE = "#74c476", "#fdd0a2", "#9e9ac8"
LEGEND = ((SEEN, "rules, and alerts"), (SILENT, "rules that never fired"), (STRANGE, "alerts of rules not deployed"))


@spark_job()
@days_options(DAYS, "Days looked at.")
@click.option("--rules", type=FOLDER, metavar="PATH",
              help="The landing's folder rules, or rule files on this host.  [default: as of `all`]")  # fmt: skip
@click.option("--layer", "layer_file", type=FILE, metavar="FILE", help="Write a layer for the ATT&CK Navigator (JSON).")
def coverage(job: Job, last: date, days: int, rules: str | None, layer_file: Path | None) -> str:
    """Compare deployed ATT&CK techniques with alerts.

    Example: vedette-spark coverage --tables tables --rules landing/rules --layer layer.json
    """
    wanted, listed = period(last, days), deployed(rules or _noted(job.tables))
    with closing(job.reader()) as reader:
        rows = covered(reader, listed, wanted)
    job.tables.replace(COVERAGE, pa.Table.from_pylist(rows, arrow_schema(COVERAGE.columns)), [wanted.until])
    if layer_file:
        storage.replace(layer_file, json.dumps(layer(rows, wanted), indent=1, ensure_ascii=False) + "\n")
    fired = {row["rule_id"] for row in rows if row["alerts"]}
    strange = {row["rule_id"] for row in rows if not row["deployed"]}
    techniques = {row["technique"] for row in rows if row["technique"]}
    seen = {row["technique"] for row in rows if row["technique"] and row["alerts"]}
    return (
        f"coverage: {len(listed)} rules deployed, {len(listed.keys() - fired)} never fired, {len(strange)} not "
        f"deployed fired; {len(seen)} of {len(techniques)} techniques seen"
    )


def _noted(tables: Tables) -> str:
    """Where the rules lay when ``all`` last ran this job. Raises UsageError."""
    for run in tables.arrow(RUNS).to_pylist():
        if run["job"] == "coverage" and (run["inputs"] or "").startswith("rules "):
            return str(run["inputs"].removeprefix("rules "))
    raise click.UsageError("coverage needs --rules PATH: no run of `all` has noted where they are")


def deployed(path: str) -> dict[str, Mapping[str, Any]]:
    """The rules at ``path`` of which alerts can come, by id. Raises FileNotFoundError."""
    if not storage.exists(path):
        raise FileNotFoundError(f"{path}: no such rules; name the folder `rules` of the landing, or rule files")
    if storage.count(path, "*.json"):
        every = {listed["name"]: listed["rules"] for listed in lists(path)}
        rules = [rule for newest in every.values() for rule in newest]
    else:
        from vedette import compile_rules
        from vedette.rules.build import described

        rules = described(compile_rules(path))
    return alerting(rules)


def covered(reader: Reader, rules: Mapping[str, Mapping[str, Any]], wanted: Period) -> list[dict[str, Any]]:
    """The rows of ``COVERAGE``: ``rules`` (``deployed``), and those that alerted in ``wanted``."""
    reader.view("win", WIN_5M, wanted.since, wanted.until)
    reader.view("rules", RULES)
    sums = reader.rows(
        f"""SELECT w.*, r.rule_id IS NOT NULL AS described, r.rule_title, r.level, r.tactics, r.techniques FROM (
            SELECT rule_id, {total("alerts")}, {total("matches")}, count(DISTINCT concat(fleet, '/', site)) AS sites,
                min(first_time) AS first_seen, max(last_time) AS last_seen FROM win GROUP BY rule_id) w
        LEFT JOIN rules r ON w.rule_id = r.rule_id"""
    )
    seen = {row["rule_id"]: row for row in sums}
    rows = []
    for rule_id in {**rules, **{rule_id: row for rule_id, row in seen.items() if row["described"]}}:
        row: dict[str, Any] = {"alerts": 0, "matches": 0, "sites": 0, **seen.get(rule_id, {"rule_id": rule_id})}
        row |= {"as_of": wanted.until, "deployed": rule_id in rules}
        if rule := rules.get(rule_id):
            tactics, techniques = of_tags(rule["tags"])
            row |= {"rule_title": rule["title"], "level": rule["level"], "tactics": tactics, "techniques": techniques}
        rows += [{**row, "technique": technique} for technique in row["techniques"] or [""]]
    return rows


def layer(rows: Sequence[Row], wanted: Period) -> dict[str, Any]:
    """``COVERAGE`` rows as a layer of the ATT&CK Navigator."""
    enterprise = sorted((row for row in rows if row["technique"].startswith("T1")), key=itemgetter("technique"))
    techniques = []
    for technique, group in groupby(enterprise, itemgetter("technique")):
        those = list(group)
        alerts = sum(row["alerts"] for row in those)
        is_deployed = any(row["deployed"] for row in those)
        texts = sorted((-row["alerts"], f"{row['rule_title'] or row['rule_id']}: {row['alerts']}") for row in those)
        comment = [text for _, text in texts[:MAX_TITLES]]
        if len(those) > MAX_TITLES:
            comment.append(f"and {len(those) - MAX_TITLES} more")
        colour = STRANGE if not is_deployed else SEEN if alerts else SILENT
        techniques.append(
            {"techniqueID": technique, "score": alerts, "color": colour, "enabled": True, "comment": "\n".join(comment)}
        )
    return {
        "name": f"Vedette {wanted.since} to {wanted.until}",
        "versions": {"navigator": "5.0.0", "layer": "4.5"},
        "domain": "enterprise-attack",
        "description": "Deployed rules and the alerts of this time, by technique; the score is the number of alerts.",
        "sorting": 0,
        "layout": {"layout": "side", "showID": True, "showName": True, "expandedSubtechniques": "annotated"},
        "techniques": techniques[:MAX_TECHNIQUES],
        "gradient": {
            "colors": [SILENT, SEEN],
            "minValue": 0,
            "maxValue": max((technique["score"] for technique in techniques), default=0) or 1,
        },
        "legendItems": [{"color": colour, "label": label} for colour, label in LEGEND],
    }
