"""Findings as notices: in the columns of an alert, so that every sink of an agent and its templates take them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from spark_jobs.common.attack import caption
from spark_jobs.common.plain import many, short
from spark_jobs.report import text
from spark_jobs.report.figures import Line
from spark_jobs.report.headline import Report, span, unnamed_risks

KINDS = {"burst": "Burst", "silence": "Gone quiet", "new_rule": "New rule"}
"""Anomalies that are noticed, and what they are called."""


def notices(report: Report) -> Iterator[dict[str, Any]]:
    """A row for each open campaign, each anomaly of ``KINDS`` and each risk that the first screen would show, about
    which nobody has decided anything yet."""
    for one in report.findings.campaigns.items:
        if one.state == "open" and one.triage.state == "new":
            yield _campaign(one)
    for one in report.findings.anomalies.items:
        if one.kind in KINDS and one.triage.state == "new":
            rule = report.counts.known.get(one.rule_id)
            yield _anomaly(one, rule.rule_title if rule else one.rule_id)
    for one in unnamed_risks(report.findings):
        if one.triage.state == "new":
            yield _risk(one, report)


def digest(report: Report) -> dict[str, Any]:
    """A row that sums up the period: its first screen."""
    said = text.text(report).partition("\nLevels")[0]
    return _row(
        f"digest-{report.period.since}-{report.period.until}", "digest", f"Digest of {span(report.period)}",
        "informational", "all sites", report.period.now, said,
    )  # fmt: skip


def _campaign(one: Line) -> dict[str, Any]:
    stage = f", reached {caption(one.stage)}" if one.stage else ""
    steps = [
        f"{step['time']:%Y-%m-%d %H:%M} {step['fleet']}/{step['site']} {', '.join(step['hosts'].items)} "
        f"{caption(step['tactic'] or '')}".rstrip()
        for step in one.steps[:20]
    ]
    said = "\n".join([one.reason, f"Score {one.score:.0f}, {many(one.alerts, 'alert')}.", *steps])
    row = _row(one.campaign_id, "campaign", f"Campaign of {one.kind} {short(one.value)}{stage}", one.level,
               many(len(one.sites), "site"), one.last_seen, said)  # fmt: skip
    tags = [f"attack.{name}" for name in (*one.tactics, *(technique.lower() for technique in one.techniques))]
    return {**row, "tags": tags, "entities": [{"kind": one.kind, "value": one.value}]}


def _anomaly(one: Line, title: str) -> dict[str, Any]:
    what = f"{KINDS[one.kind]}: {title}" if one.rule_id else KINDS[one.kind]
    where = f"{one.fleet}/{one.site}" if one.site else "the fleet"
    row = _row(one.anomaly_id, one.kind, what, one.level or "medium", where, one.started_at, one.reason)
    return {**row, "fleet": one.fleet, "site": one.site}


def _risk(one: Line, report: Report) -> dict[str, Any]:
    parts = []
    for part in one.contributions:
        rule = report.counts.known.get(part["rule_id"])
        title = (rule.rule_title if rule else "") or part["rule_id"]
        parts.append(
            f"{part['points']:.0f} {part['time']:%Y-%m-%d} {title}" + (f", {part['why']}" if part["why"] else "")
        )
    name = f"{one.kind} {short(one.value)}" + (f" at {one.scope}" if one.scope else "")
    said = "\n".join([one.reason, *parts])
    row = _row(one.risk_id, "risk", f"Risk of {name}", one.level or "medium", one.scope or "the fleet", one.last_seen,
               said)  # fmt: skip
    tags = [f"attack.{name}" for name in dict.fromkeys(part["tactic"] for part in one.contributions) if name]
    return {**row, "tags": tags, "entities": [{"kind": one.kind, "value": one.value}]}


def _row(finding: str, kind: str, title: str, level: str, where: str, at: datetime | None, said: str) -> dict[str, Any]:
    """All columns of an alert. The agent is the finding, by which PagerDuty tells incidents apart."""
    time = 0 if at is None else int(at.timestamp() * 1e6)
    return {
        "schema_version": 1, "alert_id": finding, "parent_id": None, "seq": 0, "kind": kind,
        "rule_id": f"vedette.{kind}", "rule_title": title, "rule_digest": "", "level": level, "tags": [],
        "agent_id": finding, "site": "", "fleet": "", "host": where, "event_time": time, "detected_at": time,
        "source": "region", "logsource": {}, "fields": {}, "entities": [], "raw": said, "raw_ref": None,
        "contributing": [], "group_by": {}, "count": 1, "first_time": time, "last_time": time, "bundle": None,
        "flags": [],
    }  # fmt: skip
