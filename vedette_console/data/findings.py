"""Anomalies and risks, with what was decided about them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from spark_jobs.report.triage import NEW
from spark_jobs.tables.ask import Row, severity, text
from spark_jobs.tables.schema import ANOMALIES, RISK
from vedette_console.data.days import last_days, newest_day
from vedette_console.data.models import Anomaly, Contribution, Listing, Risk
from vedette_console.data.reader import Reader
from vedette_console.data.rows import following, limited, numbers_of, offset, texts_of, values_of
from vedette_console.data.rules import titles
from vedette_console.data.triage import decision, held
from vedette_console.security.principal import Principal

_ANOMALY_TEXTS = ("kind", "fleet", "site", "rule_id", "level", "reason", "entity_kind", "entity_value")


def anomalies(
    reader: Reader, who: Principal, kind: str = "", after: str = "", limit: int = 50, days: int = 7,
    now: datetime | None = None,
) -> Listing[Anomaly]:  # fmt: skip
    """Anomalies of the last ``days``, of one kind or all, those furthest from the usual first."""
    before, limit, period = offset(after), limited(limit), last_days(days, now)
    reader.view("anomalies", ANOMALIES, period.since, period.until)
    rows = reader.rows(
        f"""SELECT *, count(*) OVER () AS of FROM anomalies WHERE {f"kind = {text(kind)}" if kind else "true"}
        ORDER BY coalesce(score, 0) DESC, {severity()} DESC, started_at, anomaly_id LIMIT {limit} OFFSET {before}"""
    )
    of = rows[0]["of"] if rows else 0
    return Listing(items=_anomalies(reader, rows, now), total=of, next=following(before, len(rows), of))


def _anomalies(reader: Reader, rows: Sequence[Row], now: datetime | None) -> list[Anomaly]:
    known = titles(reader, [row["rule_id"] for row in rows if row["rule_id"]])
    decided = held(reader, [row["anomaly_id"] for row in rows], now)
    return [
        Anomaly(
            anomaly_id=row["anomaly_id"],
            day=row["date"],
            **texts_of(row, *_ANOMALY_TEXTS),
            rule_title=known.get(row["rule_id"] or "", ""),
            **values_of(row, "started_at", "ended_at", "observed", "median", "score"),
            triage=decision(decided.get(row["anomaly_id"], NEW), row["ended_at"]),
        )
        for row in rows
    ]


def risks(
    reader: Reader, who: Principal, kind: str = "", over: bool = False, after: str = "", limit: int = 50,
    now: datetime | None = None,
) -> Listing[Risk]:  # fmt: skip
    """Entities of the newest day, of one kind or all, those over their threshold first."""
    before, limit = offset(after), limited(limit)
    newest_day(reader, "risk", RISK)
    found = " AND ".join([f"kind = {text(kind)}" if kind else "true", "over" if over else "true"])
    rows = reader.rows(
        f"""SELECT *, count(*) OVER () AS of FROM risk WHERE {found}
        ORDER BY over DESC, score / nullif(threshold, 0) DESC, kind, value, scope LIMIT {limit} OFFSET {before}"""
    )
    of = rows[0]["of"] if rows else 0
    return Listing(items=risk_models(reader, rows, now), total=of, next=following(before, len(rows), of))


def risk_models(reader: Reader, rows: Sequence[Row], now: datetime | None = None) -> list[Risk]:
    """Rows of the table ``risk`` as models."""
    parts = [part for row in rows for part in row["contributions"] or ()]
    known = titles(reader, [part["rule_id"] for part in parts if part["rule_id"]])
    decided = held(reader, [row["risk_id"] for row in rows], now)
    return [_risk(row, known, decision(decided.get(row["risk_id"], NEW), row["last_seen"])) for row in rows]


def _risk(row: Row, known: dict[str, str], triage: Any) -> Risk:
    return Risk(
        day=row["as_of"],
        **texts_of(row, "risk_id", "kind", "value", "scope", "level", "reason"),
        **values_of(row, "threshold", "usual", "first_seen", "last_seen"),
        **numbers_of(row, "score", "alerts", "rules", "tactics", "days", "others"),
        others_points=row["others_points"] or 0.0,
        over=bool(row["over"]),
        contributions=[
            Contribution(
                points=part["points"] or 0.0,
                time=part["time"],
                alerts=part["alerts"] or 0,
                rule_title=known.get(part["rule_id"] or "", ""),
                **texts_of(part, "rule_id", "level", "tactic", "why"),
            )
            for part in row["contributions"] or ()
        ],
        triage=triage,
    )
