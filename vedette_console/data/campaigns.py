"""Campaigns: entities of one attack at many sites, with story, steps, and the graph of where each was met."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from spark_jobs.common.attack import caption
from spark_jobs.common.plain import many
from spark_jobs.report.figures import Line
from spark_jobs.report.triage import NEW
from spark_jobs.tables.ask import Row, severity, text, time, total
from spark_jobs.tables.schema import CAMPAIGNS, ENTITY_SITE_5M
from vedette_console.data.alerts import newest
from vedette_console.data.findings import decision, held, history
from vedette_console.data.models import (
    AlertRow,
    Campaign,
    CampaignEntity,
    CampaignRow,
    Chapter,
    Edge,
    Graph,
    Node,
)
from vedette_console.data.reader import Reader
from vedette_console.data.rows import (
    following,
    last_days,
    limited,
    none,
    offset,
    technique,
)
from vedette_console.data.rules import titles
from vedette_console.security.principal import Principal
from vedette_console.web import Listing

MAX_GRAPH = 24
"""Entities, and as many sites."""
MAX_SAMPLES = 12
MAX_ASKED = 8
"""Entities of a campaign whose alerts are looked up."""
SEVERITY = {"informational": 1, "low": 2, "medium": 3, "high": 4, "critical": 5}


def campaigns(
    reader: Reader, who: Principal, state: str = "", after: str = "", limit: int = 50, days: int = 30,
    now: datetime | None = None,
) -> Listing[CampaignRow]:  # fmt: skip
    """Campaigns that were active in the last ``days``, ``open``, ``closed`` or all, by score."""
    before, limit, period = offset(after), limited(limit), last_days(days, now)
    found = f"last_seen >= {time(period.start)}::TIMESTAMPTZ" + (f" AND state = {text(state)}" if state else "")
    rows, of = listed(reader, found, limit, before)
    return Listing(items=rows_of(reader, rows, now), total=of, next=following(before, len(rows), of))


def listed(reader: Reader, found: str, limit: int, before: int = 0) -> tuple[list[Row], int]:
    """Campaigns that are ``found`` (SQL), by score, and how many there are; without those that were taken back."""
    reader.view("campaigns", CAMPAIGNS)
    rows = reader.rows(
        f"""SELECT *, count(*) OVER () AS of FROM campaigns WHERE score > 0 AND {found}
        ORDER BY score DESC, last_seen DESC, campaign_id LIMIT {limit} OFFSET {before}"""
    )
    return rows, rows[0]["of"] if rows else 0


def rows_of(reader: Reader, rows: Sequence[Row], now: datetime | None = None) -> list[CampaignRow]:
    decided = held(reader, [row["campaign_id"] for row in rows], now)
    return [CampaignRow.model_validate(_values(row, decided.get(row["campaign_id"], NEW))) for row in rows]


def _values(row: Row, decided: Line) -> Row:
    return {**row, "day": row["date"], "triage": decision(decided, row["last_seen"])}


def campaign(reader: Reader, who: Principal, campaign_id: str, now: datetime | None = None) -> Campaign:
    """A campaign in full. Raises Problem 404."""
    rows, _ = listed(reader, f"campaign_id = {text(campaign_id)}", 1)
    if not rows:
        raise none("campaign")
    row = rows[0]
    steps = [step for step in row["steps"] or () if step]
    known = titles(reader, [rule for rule in row["rules"] or () if rule])
    decided = held(reader, [campaign_id], now).get(campaign_id, NEW)
    entities = [CampaignEntity.model_validate(entity) for entity in row["entities"] or () if entity]
    return Campaign.model_validate(
        {
            **_values(row, decided),
            "techniques": [technique(name) for name in row["techniques"] or () if name],
            "steps": [{**step, "rule_title": known.get(step["rule_id"] or "", "")} for step in steps],
            "story": [_chapter(part) for part in row["story"] or () if part],
            "entities": entities,
            "graph": graph(reader, row, entities),
            "samples": _samples(reader, row, entities),
            "decisions": history(reader, campaign_id),
        }
    )


def _chapter(part: Row) -> Chapter:
    sites, alerts = list(part["sites"] or ()), part["alerts"] or 0
    stage = caption(part["tactic"]) if part["tactic"] else "No known stage"
    where = sites[0] if len(sites) == 1 else f"{many(len(sites), 'site')}, first {sites[0]}" if sites else "no site"
    return Chapter(
        first=part["first"], last=part["last"], tactic=part["tactic"] or "", sites=sites,
        rules=list(part["rules"] or ()), alerts=alerts,
        text=f"{stage} at {where}" + (f": {many(alerts, 'alert')}" if alerts else ""),
    )  # fmt: skip


def graph(reader: Reader, row: Row, entities: Sequence[CampaignEntity]) -> Graph:
    """Entities on the left, sites on the right, those with most alerts above; an edge where one was met."""
    first, last = row["first_seen"], row["last_seen"]
    if first is None or last is None or not entities:
        return Graph(nodes=[], edges=[], more=0)
    reader.view("entity", ENTITY_SITE_5M, f"{first:%Y-%m-%d}", f"{last:%Y-%m-%d}")
    shown = entities[:MAX_GRAPH]
    pairs = ", ".join(f"({text(one.kind)}, {text(one.value)})" for one in shown)
    sites = ", ".join(text(place) for place in row["sites"] or ()) or "''"
    rows = reader.rows(
        f"""SELECT kind, value, fleet || '/' || site AS place, {total("alerts")}, arg_max(level, {severity()}) AS level
        FROM entity WHERE (kind, value) IN ({pairs}) AND fleet || '/' || site IN ({sites})
        AND last_time >= {time(first)}::TIMESTAMPTZ AND first_time <= {time(last)}::TIMESTAMPTZ
        GROUP BY 1, 2, 3 ORDER BY alerts DESC, 1, 2, 3"""
    )
    by_site: dict[str, int] = {}
    by_entity: dict[tuple[str, str], int] = {}
    for one in rows:
        by_site[one["place"]] = by_site.get(one["place"], 0) + one["alerts"]
        by_entity[one["kind"], one["value"]] = by_entity.get((one["kind"], one["value"]), 0) + one["alerts"]
    places = sorted(by_site, key=lambda place: (-by_site[place], place))
    left = [one for one in shown if (one.kind, one.value) in by_entity]
    right = places[:MAX_GRAPH]
    nodes = [
        Node(id=f"e{n}", kind=one.kind, label=one.value, alerts=by_entity[one.kind, one.value], x=0.2,
             y=(n + 0.5) / len(left))
        for n, one in enumerate(left)
    ] + [
        Node(id=f"s{n}", kind="site", label=place, alerts=by_site[place], x=0.8, y=(n + 0.5) / len(right))
        for n, place in enumerate(right)
    ]  # fmt: skip
    ids = {(one.kind, one.value): f"e{n}" for n, one in enumerate(left)}
    edges = [
        Edge(source=ids[one["kind"], one["value"]], target=f"s{right.index(one['place'])}", alerts=one["alerts"],
             level=one["level"] or "")
        for one in rows if one["place"] in right
    ]  # fmt: skip
    return Graph(nodes=nodes, edges=edges, more=len(entities) - len(left) + len(places) - len(right))


def _samples(reader: Reader, row: Row, entities: Sequence[CampaignEntity]) -> list[AlertRow]:
    """The most severe of its newest alerts."""
    if row["first_seen"] is None or row["last_seen"] is None or not entities:
        return []
    named = " OR ".join(
        f"list_contains(entities, {{'kind': {text(one.kind)}, 'value': {text(one.value)}}})"
        for one in entities[:MAX_ASKED]
    )
    found = newest(
        reader, f"coalesce({named}, false) AND coalesce(kind, '') <> 'fold'", row["first_seen"], row["last_seen"],
        MAX_SAMPLES * 5,
    )  # fmt: skip
    found.sort(key=lambda one: -SEVERITY.get(one.level, 0))
    return found[:MAX_SAMPLES]
