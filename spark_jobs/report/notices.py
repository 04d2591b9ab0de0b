"""Findings as notices: in the columns of an alert, so that every sink of an agent and its templates take them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from spark_jobs.common.attack import caption
from spark_jobs.common.plain import many, short
from spark_jobs.report import text
from spark_jobs.report.figures import Line
from spark_jobs.report.headline import Report, belonging, span, unnamed_risks

KINDS = {"burst": "Burst", "silence": "Gone quiet", "new_rule": "New rule"}
"""Anomalies that are noticed, and what they are called."""


def notices(report: Report) -> Iterator[dict[str, Any]]:
    """A row for each open campaign, each anomaly of ``KINDS`` and each risk that the first screen would show, about
    which nobody has decided anything yet."""
    for campaign in report.findings.campaigns.items:
        if campaign.state == "open" and campaign.triage.state == "new":
            yield _campaign(campaign)
    for anomaly in report.findings.anomalies.items:
        if anomaly.kind in KINDS and anomaly.triage.state == "new":
            yield _anomaly(anomaly, report.counts.title(anomaly.rule_id))
    for leader in unnamed_risks(report.findings):
        # Who joins one about which somebody has decided is news.
        those = [leader] if leader.triage.state == "new" else belonging(report.findings, leader)
        yield from (_risk(risk, report) for risk in those if risk.triage.state == "new")


def digest(report: Report) -> dict[str, Any]:
    """A row that sums up the period: its first screen."""
    said = text.text(report).partition("\nLevels")[0]
    return _row(
        f"digest-{report.period.since}-{report.period.until}", "digest", f"Digest of {span(report.period)}",
        "informational", "all sites", report.period.now, said,
    )  # fmt: skip


def _campaign(campaign: Line) -> dict[str, Any]:
    stage = f", reached {caption(campaign.stage)}" if campaign.stage else ""
    steps = [
        f"{step['time']:%Y-%m-%d %H:%M} {step['fleet']}/{step['site']} {', '.join(step['hosts'].items)} "
        f"{caption(step['tactic'] or '')}".rstrip()
        for step in campaign.steps[:20]
    ]
    said = "\n".join([campaign.reason, f"Score {campaign.score:.0f}, {many(campaign.alerts, 'alert')}.", *steps])
    title = f"Campaign of {campaign.kind} {short(campaign.value)}{stage}"
    where = many(len(campaign.sites), "site")
    row = _row(campaign.campaign_id, "campaign", title, campaign.level, where, campaign.last_seen, said)
    tags = [f"attack.{name}" for name in (*campaign.tactics, *(technique.lower() for technique in campaign.techniques))]
    return {**row, "tags": tags, "entities": [{"kind": campaign.kind, "value": campaign.value}]}


def _anomaly(anomaly: Line, title: str) -> dict[str, Any]:
    what = f"{KINDS[anomaly.kind]}: {title}" if anomaly.rule_id else KINDS[anomaly.kind]
    where = f"{anomaly.fleet}/{anomaly.site}" if anomaly.site else "the fleet"
    level = anomaly.level or "medium"
    row = _row(anomaly.anomaly_id, anomaly.kind, what, level, where, anomaly.started_at, anomaly.reason)
    return {**row, "fleet": anomaly.fleet, "site": anomaly.site}


def _risk(risk: Line, report: Report) -> dict[str, Any]:
    parts = []
    for part in risk.contributions:
        title = report.counts.title(part["rule_id"])
        parts.append(
            f"{part['points']:.0f} {part['time']:%Y-%m-%d} {title}" + (f", {part['why']}" if part["why"] else "")
        )
    name = f"{risk.kind} {short(risk.value)}" + (f" at {risk.scope}" if risk.scope else "")
    said = "\n".join([risk.reason, *parts])
    where, level = risk.scope or "the fleet", risk.level or "medium"
    row = _row(risk.risk_id, "risk", f"Risk of {name}", level, where, risk.last_seen, said)
    tags = [f"attack.{name}" for name in dict.fromkeys(part["tactic"] for part in risk.contributions) if name]
    return {**row, "tags": tags, "entities": [{"kind": risk.kind, "value": risk.value}]}


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
