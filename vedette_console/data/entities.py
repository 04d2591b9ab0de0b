"""Entities: who alerted most, and all about one: its risk over time, its sites and rules, its newest alerts."""

from __future__ import annotations

from datetime import datetime

from spark_jobs.common.period import Period
from spark_jobs.tables.ask import Row, text, total
from spark_jobs.tables.schema import ENTITY_SITE_5M, HOST_1H, RISK, WIN_5M
from vedette_console.data.alerts import newest
from vedette_console.data.campaigns import listed, rows_of
from vedette_console.data.findings import risk_models
from vedette_console.data.models_fleet import EntityPage, EntityRow, RiskDay
from vedette_console.data.query import KINDS, term
from vedette_console.data.reader import Reader
from vedette_console.data.rows import last_days, newest_day, none, part, titles
from vedette_console.data.rules import by_day, counted, since_for
from vedette_console.data.sql import NOT_FOLD, names
from vedette_console.web import Listing

NEWEST = 20
MAX_CAMPAIGNS = 10


def entities(
    reader: Reader, q: str = "", kind: str = "", days: int = 7, after: str = "", limit: int = 50,
    now: datetime | None = None,
) -> Listing[EntityRow]:  # fmt: skip
    """Entities, hosts and sites of the last ``days`` whose value holds ``q``, of one kind or all: those with the
    largest risk first, then by alerts."""
    period = last_days(days, now)
    key = ("entities", period.since, period.until, q, kind, after, limit)
    tables = (ENTITY_SITE_5M, HOST_1H, RISK)
    tests = [f"kind = {text(kind)}"] if kind else []
    tests += [f"contains(lower(value), lower({text(q)}))"] if q else []
    return reader.cached(key, tables, lambda: _listed(reader, " AND ".join(tests) or "true", period, after, limit))


def _listed(reader: Reader, test: str, period: Period, after: str, limit: int) -> Listing[EntityRow]:
    alerts = _all(reader, period, test)
    newest_day(reader, "risk", RISK)
    rows, total, following = part(
        reader,
        f"""(SELECT kind, value, scope, coalesce(a.alerts, 0) AS alerts, score, threshold, coalesce(over, false) AS over
        FROM ({alerts}) a FULL JOIN (SELECT kind, value, scope, score, threshold, over FROM risk WHERE {test}) r
        USING (kind, value, scope))""",
        "over DESC, score / nullif(threshold, 0) DESC NULLS LAST, alerts DESC, kind, value, scope",
        after,
        limit,
    )
    spread = _spread(reader, [(row["kind"], row["value"]) for row in rows])
    items = []
    for row in rows:
        rules, sites = spread.get((row["kind"], row["value"], row["scope"])) or (0, 0)
        items.append(EntityRow.model_validate({**row, "rules": rules, "sites": sites}))
    return Listing(items=items, total=total, next=following)


def _spread(reader: Reader, names: list[tuple[str, str]]) -> dict[tuple[str, str, str], tuple[int, int]]:
    """Numbers of rules by which and of sites at which these alerted, by kind, value and scope."""
    if not names:
        return {}
    pairs = ", ".join(f"({text(kind)}, {text(value)})" for kind, value in names)
    rows = reader.rows(
        f"""SELECT kind, value, {SCOPE} AS scope, count(DISTINCT rule_id) AS rules,
        count(DISTINCT fleet || '/' || site) AS sites FROM (
            SELECT kind, value, fleet, site, rule_id FROM entity
            UNION ALL SELECT 'host', host, fleet, site, rule_id FROM host)
        WHERE (kind, value) IN ({pairs}) GROUP BY 1, 2, 3"""
    )
    return {(row["kind"], row["value"], row["scope"]): (row["rules"], row["sites"]) for row in rows}


PRIVATE = (
    r"^(10\.|127\.|169\.254\.|192\.168\.|172\.(1[6-9]|2[0-9]|3[01])\.|100\.(6[4-9]|[7-9][0-9]|1[01][0-9]|12[0-7])\.)"
    r"|^([fF][cCdD][0-9a-fA-F]{2}:|[fF][eE][89abAB][0-9a-fA-F]:|::1$)"
)
"""As ``spark_jobs.common.entities.PRIVATE``, in the syntax of RE2."""


SCOPE = f"""CASE WHEN kind = 'host' OR kind = 'ip' AND value[1] IN ('1', 'f', 'F', ':')
    AND regexp_matches(value, '{PRIVATE}') THEN fleet || '/' || site ELSE '' END"""
"""SQL: the site of what is another one at each site."""


def _all(reader: Reader, period: Period, test: str) -> str:
    """SQL: every entity and host that passes ``test``, with its scope and alerts."""
    reader.view("entity", ENTITY_SITE_5M, period.since, period.until)
    reader.view("host", HOST_1H, period.since, period.until)
    return f"""SELECT kind, value, {SCOPE} AS scope, {total("alerts")} FROM (
            SELECT kind, value, fleet, site, alerts FROM entity
            UNION ALL SELECT 'host', host, fleet, site, alerts FROM host WHERE host <> '')
        WHERE {test} GROUP BY 1, 2, 3"""


def entity(
    reader: Reader, kind: str, value: str, scope: str = "", days: int = 14,
    now: datetime | None = None,
) -> EntityPage:  # fmt: skip
    """One entity in the last ``days``; ``scope``: at one site only, ``FLEET/SITE``. Raises Problem 404 when nothing is
    known of it."""
    period = last_days(days, now)
    view, test, query = _source(reader, kind, value, scope, period)
    mine = reader.narrow(view, test)
    sums = reader.only(
        f"""SELECT {total("alerts")}, {total("matches")}, min(first_time) AS first_time, max(last_time) AS last_time
        FROM {mine}"""
    )
    reader.view("risk", RISK, period.since, period.until)
    is_it = f"kind = {text(kind)} AND value = {text(value)}" + (f" AND scope = {text(scope)}" if scope else "")
    risks = reader.rows(f"SELECT * FROM risk WHERE {is_it} ORDER BY as_of, score")
    if not risks and not sums["alerts"] and not sums["matches"]:
        raise none("entity")
    rules = counted(reader, mine, "true", "rule_id")
    titled = titles(reader, (rule.name for rule in rules))
    rules = [rule.model_copy(update={"label": titled.get(rule.name) or rule.name}) for rule in rules]
    counts = by_day(reader, mine, "true", period)
    daily = {row["as_of"]: row for row in risks}
    return EntityPage(
        kind=kind,
        value=value,
        scope=scope,
        days=len(period.days),
        alerts=sums["alerts"],
        matches=sums["matches"],
        first_seen=sums["first_time"],
        last_seen=sums["last_time"],
        risk=risk_models(reader, [risks[-1]], now)[0] if risks else None,
        risk_days=[
            RiskDay(day=day, score=row["score"] or 0.0, threshold=row["threshold"], over=bool(row["over"]))
            for day, row in daily.items()
        ],
        by_day=counts,
        sites=counted(reader, mine, "true", "fleet || '/' || site"),
        rules=rules,
        newest=newest(reader, _alerts(kind, value, scope), *since_for(counts, NEWEST, period), NEWEST),
        campaigns=rows_of(reader, _campaigns(reader, kind, value), now),
        query=query,
    )


def _source(reader: Reader, kind: str, value: str, scope: str, period: Period) -> tuple[str, str, str]:
    """The view of counts that knows such entities, what of it is one's (SQL), and the search for its alerts."""
    fleet, _, site = (value if kind == "site" else scope).partition("/")
    at = f"fleet = {text(fleet)} AND site = {text(site)}" if fleet or site else "true"
    places = f" {term('fleet', fleet)} {term('site', site)}" if fleet or site else ""
    if kind == "site":
        reader.view("win", WIN_5M, period.since, period.until)
        return "win", at, places.strip()
    if kind == "host":
        reader.view("host", HOST_1H, period.since, period.until)
        return "host", f"host = {text(value)} AND {at}", term("host", value) + places
    reader.view("entity", ENTITY_SITE_5M, period.since, period.until)
    field = kind if kind in KINDS else "entity"
    return "entity", f"kind = {text(kind)} AND value = {text(value)} AND {at}", term(field, value) + places


def _alerts(kind: str, value: str, scope: str) -> str:
    """SQL: whether an alert is about the entity."""
    fleet, _, site = (value if kind == "site" else scope).partition("/")
    at = f"coalesce(fleet, '') = {text(fleet)} AND coalesce(site, '') = {text(site)}" if fleet or site else "true"
    if kind == "host":
        at += f" AND coalesce(host = {text(value)}, false)"
    elif kind != "site":
        at += f" AND {names(kind, value)}"
    return f"{at} AND {NOT_FOLD}"


def _campaigns(reader: Reader, kind: str, value: str) -> list[Row]:
    """Campaigns that name it."""
    is_it = f"kind = {text(kind)} AND value = {text(value)}"
    among = f"len(list_filter(entities, lambda e: e.kind = {text(kind)} AND e.value = {text(value)})) > 0"
    return listed(reader, f"(({is_it}) OR coalesce({among}, false))", MAX_CAMPAIGNS).rows
