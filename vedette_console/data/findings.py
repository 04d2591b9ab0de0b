"""Anomalies and risks; and what people decide about these, a campaign or an alert: the table ``triage``.

A finding is named by its id; an alert's is ``alert:AGENT/ID``. Who decides must be allowed to at every place that the
finding is of, those that they do not see included: a decision closes it for all.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import MAXYEAR, UTC, datetime, timedelta
from typing import NamedTuple

from pydantic import Field, field_validator

from spark_jobs.common.period import last_hours
from spark_jobs.report.figures import Line
from spark_jobs.report.findings import view_anomalies
from spark_jobs.report.triage import CLOSED, MAX_TEXT, NEW, STATES, decisions, mistake, words
from spark_jobs.report.triage import decide as keep
from spark_jobs.tables.ask import Row, severity, text
from spark_jobs.tables.schema import ANOMALIES, CAMPAIGNS, RISK, TRIAGE
from vedette_console.data.models import Anomaly, Decision, Risk
from vedette_console.data.models_fleet import DecisionMade
from vedette_console.data.reader import Reader
from vedette_console.data.rows import last_days, newest_day, none, part, titles, whole_alert
from vedette_console.security.principal import ALL
from vedette_console.web import Listing, Model, Problem, require

MAX_DECISIONS = 100
_LATER = re.compile(r"([1-9][0-9]{0,3})d")


class Decide(Model):
    """A decision. ``expires``: ``30d``, or a day (UTC), from which on the finding is new again; empty: never. ``day``:
    of an alert, its day, by which it is found sooner."""

    state: str = Field(description=f"one of {', '.join(STATES)}")
    reason: str = Field("", max_length=MAX_TEXT)
    assignee: str = Field("", max_length=MAX_TEXT)
    expires: str = Field("", max_length=40)
    day: str = Field("", max_length=10)

    @field_validator("reason", "assignee")
    @classmethod
    def _writable(cls, value: str) -> str:
        if "\x00" in value or value.encode(errors="replace").decode() != value:
            raise ValueError("has characters that no table can hold")
        return value

    @field_validator("state")
    @classmethod
    def _is_state(cls, value: str) -> str:
        if value not in STATES:
            raise ValueError(f"write one of {', '.join(STATES)}")
        return value


class Finding(NamedTuple):
    """``places``: fleets and sites of it, ``*`` where it is of all; ``last``: when it was last active."""

    kind: str
    id: str
    places: tuple[tuple[str, str], ...]
    last: datetime | None


def decision(line: Line, last: datetime | None) -> Decision:
    """A decision for a page; ``last``: when its finding was last active."""
    shut = line.state in CLOSED and (last is None or last <= line.updated_at)
    return Decision(state=line.state, assignee=line.assignee, reason=line.reason, author=line.author,
                    expires_at=line.expires_at, updated_at=line.updated_at, closed=shut, words=words(line))  # fmt: skip


def decided(reader: Reader, rows: Sequence[Row], id: str, last: str, now: datetime | None = None) -> list[Decision]:
    """The decision about the finding of each row; ``id`` and ``last``: the columns of its id, and of when it was last
    active."""
    lines = decisions(reader, [row[id] for row in rows], now or datetime.now(UTC))
    return [decision(lines.get(row[id], NEW), row[last]) for row in rows]


def history(reader: Reader, finding: str) -> list[Decision]:
    """All decisions about a finding, the newest first."""
    reader.view("triage", TRIAGE)
    rows = reader.rows(
        f"""SELECT state, coalesce(assignee, '') AS assignee, coalesce(reason, '') AS reason,
        coalesce(author, '') AS author, expires_at, updated_at FROM triage WHERE finding_id = {text(finding)}
        ORDER BY updated_at DESC, state LIMIT {MAX_DECISIONS}"""
    )
    return [decision(Line(**row), None) for row in rows]


def find(reader: Reader, finding: str, day: str = "") -> Finding:
    """The finding of this id that is seen. Raises Problem 404."""
    if finding.startswith("alert:"):
        return _alert(reader, finding, day)
    for kind, table, column in (("campaign", CAMPAIGNS, "campaign_id"), ("anomaly", ANOMALIES, "anomaly_id"),
                                ("risk", RISK, "risk_id")):  # fmt: skip
        reader.view("findings", table)
        last = "ended_at" if kind == "anomaly" else "last_seen"
        rows = reader.rows(f"SELECT * FROM findings WHERE {column} = {text(finding)} ORDER BY {last} DESC LIMIT 1")
        if rows:
            return Finding(kind, finding, _places(reader, kind, rows[0], column), rows[0][last])
    raise none("finding")


def _alert(reader: Reader, finding: str, day: str) -> Finding:
    agent, _, alert = finding.removeprefix("alert:").partition("/")
    row = whole_alert(reader, day, agent, alert, "fleet, site, counted_at")
    return Finding("alert", finding, ((row["fleet"] or "", row["site"] or ""),), row["counted_at"])


def _places(reader: Reader, kind: str, row: Row, column: str) -> tuple[tuple[str, str], ...]:
    if kind == "anomaly":
        return ((row["fleet"] or "", row["site"] or ALL),)
    if kind == "risk":
        place = row["value"] if row["kind"] == "site" else row["scope"]
        return (_place(place),) if place else ((ALL, ALL),)
    sites = row["sites"] or []
    if not reader.scope.all:
        whole = reader.rows(f"SELECT sites FROM all_findings WHERE {column} = {text(row[column])}")
        sites = [place for part in whole for place in part["sites"] or []]
    return tuple(sorted({_place(place) for place in sites}))


def _place(text: str) -> tuple[str, str]:
    fleet, _, site = text.partition("/")
    return fleet, site


def decide(reader: Reader, finding: str, body: Decide, now: datetime | None = None) -> DecisionMade:
    """Keep a decision. Raises Problem 404 for an unknown finding, 403, and 422 for what it lacks."""
    now = now or datetime.now(UTC)
    if wrong := mistake(body.state, body.assignee, body.reason):
        raise Problem(422, wrong, where=wrong.rpartition(" ")[2], what_to_do="give it, or choose another state")
    expires = _until(body.expires, now)
    about = find(reader, finding, body.day)
    for fleet, site in about.places:
        require(reader.who, "triage", fleet, site)
    line = keep(
        reader.catalog.tables, about.id, about.kind, body.state, author=reader.who.name, now=now,
        assignee=body.assignee, reason=body.reason, expires=expires,
    )  # fmt: skip
    reader.catalog.moved(TRIAGE)
    return DecisionMade(finding_id=about.id, kind=about.kind, triage=decision(line, about.last))


def _until(text: str, now: datetime) -> datetime | None:
    if not text:
        return None
    try:
        days = _LATER.fullmatch(text)
        until = now + timedelta(days=int(days[1])) if days else datetime.fromisoformat(text)
        if until.year == MAXYEAR:
            return None
        until = until.replace(tzinfo=UTC) if until.tzinfo is None else until.astimezone(UTC)
    except (ValueError, OverflowError):
        raise Problem(422, f"{text!r} is no time", where="expires",
                      what_to_do="write days such as 30d, or YYYY-MM-DD") from None  # fmt: skip
    if until <= now:
        raise Problem(422, f"{text} has passed", where="expires", what_to_do="write a later day")
    return until


def anomalies(
    reader: Reader, kind: str = "", after: str = "", limit: int = 50, days: int = 7,
    now: datetime | None = None,
) -> Listing[Anomaly]:  # fmt: skip
    """Anomalies of the last ``days``, of which one is the last 24 hours, of one kind or all, those furthest from the
    usual first."""
    view_anomalies(reader, last_hours(now) if days == 1 else last_days(days, now))
    rows, total, following = part(
        reader, f"anomalies WHERE {f'kind = {text(kind)}' if kind else 'true'}",
        f"coalesce(score, 0) DESC, {severity()} DESC, started_at, anomaly_id", after, limit,
    )  # fmt: skip
    titled = titles(reader, (row["rule_id"] for row in rows))
    items = [
        Anomaly.model_validate(
            {**row, "day": row["date"], "rule_title": titled.get(row["rule_id"], ""), "triage": decision}
        )
        for row, decision in zip(rows, decided(reader, rows, "anomaly_id", "ended_at", now), strict=True)
    ]
    return Listing(items=items, total=total, next=following)


def risks(
    reader: Reader, kind: str = "", over: bool = False, after: str = "", limit: int = 50,
    now: datetime | None = None,
) -> Listing[Risk]:  # fmt: skip
    """Entities of the newest day, of one kind or all, those over their threshold first."""
    newest_day(reader, "risk", RISK)
    tests = " AND ".join([f"kind = {text(kind)}" if kind else "true", "over" if over else "true"])
    order = "over DESC, score / nullif(threshold, 0) DESC, kind, value, scope"
    rows, total, following = part(reader, f"risk WHERE {tests}", order, after, limit)
    return Listing(items=risk_models(reader, rows, now), total=total, next=following)


def risk_models(reader: Reader, rows: Sequence[Row], now: datetime | None = None) -> list[Risk]:
    """Rows of the table ``risk`` as models."""
    titled = titles(reader, (share["rule_id"] for row in rows for share in row["contributions"] or ()))
    models = []
    for row, decision in zip(rows, decided(reader, rows, "risk_id", "last_seen", now), strict=True):
        shares = [{**share, "rule_title": titled.get(share["rule_id"], "")} for share in row["contributions"] or ()]
        models.append(Risk.model_validate({**row, "day": row["as_of"], "contributions": shares, "triage": decision}))
    return models
