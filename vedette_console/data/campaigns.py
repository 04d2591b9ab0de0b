"""Campaigns: entities of one attack at many sites, with story, steps, and the graph of where each was met."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from spark_jobs.common.attack import caption
from spark_jobs.common.plain import many
from spark_jobs.tables.ask import LEVELS, Row, severity, text, time, total
from spark_jobs.tables.schema import CAMPAIGNS, ENTITY_SITE_5M
from vedette_console.data.alerts import newest
from vedette_console.data.findings import decided, history
from vedette_console.data.models import (
    AlertRow,
    Campaign,
    CampaignEntity,
    CampaignRow,
    Chapter,
    Decision,
    Edge,
    Graph,
    Node,
)
from vedette_console.data.reader import Reader
from vedette_console.data.rows import Part, last_days, none, part, technique, titles
from vedette_console.data.sql import NOT_FOLD, names
from vedette_console.web import Listing

MAX_GRAPH = 24
"""Entities, and as many sites."""
MAX_SAMPLES = 12
MAX_ASKED = 8
"""Entities of a campaign whose alerts are looked up."""


def campaigns(
    reader: Reader, state: str = "", after: str = "", limit: int = 50, days: int = 30,
    now: datetime | None = None,
) -> Listing[CampaignRow]:  # fmt: skip
    """Campaigns that were active in the last ``days``, ``open``, ``closed`` or all, by score."""
    test = f"last_seen >= {time(last_days(days, now).start)}::TIMESTAMPTZ"
    rows, total, following = listed(reader, test + (f" AND state = {text(state)}" if state else ""), limit, after)
    return Listing(items=rows_of(reader, rows, now), total=total, next=following)


def listed(reader: Reader, test: str, limit: int, after: str = "") -> Part:
    """Campaigns that pass ``test`` (SQL), by score; without those that were taken back."""
    reader.view("campaigns", CAMPAIGNS)
    order = "score DESC, last_seen DESC, campaign_id"
    return part(reader, f"campaigns WHERE score > 0 AND {test}", order, after, limit)


def rows_of(reader: Reader, rows: Sequence[Row], now: datetime | None = None) -> list[CampaignRow]:
    """Rows of the table ``campaigns`` as models."""
    decisions = decided(reader, rows, "campaign_id", "last_seen", now)
    return [CampaignRow.model_validate(_values(*pair)) for pair in zip(rows, decisions, strict=True)]


def _values(row: Row, decision: Decision) -> Row:
    return {**row, "day": row["date"], "triage": decision}


def campaign(reader: Reader, campaign_id: str, now: datetime | None = None) -> Campaign:
    """A campaign in full. Raises Problem 404."""
    rows = listed(reader, f"campaign_id = {text(campaign_id)}", 1).rows
    if not rows:
        raise none("campaign")
    row = rows[0]
    steps = [step for step in row["steps"] or () if step]
    titled = titles(reader, row["rules"] or ())
    (decision,) = decided(reader, rows, "campaign_id", "last_seen", now)
    entities = [CampaignEntity.model_validate(entity) for entity in row["entities"] or () if entity]
    return Campaign.model_validate(
        {
            **_values(row, decision),
            "techniques": [technique(name) for name in row["techniques"] or () if name],
            "steps": [{**step, "rule_title": titled.get(step["rule_id"], "")} for step in steps],
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
    pairs = ", ".join(f"({text(entity.kind)}, {text(entity.value)})" for entity in shown)
    sites = ", ".join(text(place) for place in row["sites"] or ()) or "''"
    rows = reader.rows(
        f"""SELECT kind, value, fleet || '/' || site AS place, {total("alerts")}, arg_max(level, {severity()}) AS level
        FROM entity WHERE (kind, value) IN ({pairs}) AND fleet || '/' || site IN ({sites})
        AND last_time >= {time(first)}::TIMESTAMPTZ AND first_time <= {time(last)}::TIMESTAMPTZ
        GROUP BY 1, 2, 3 ORDER BY alerts DESC, 1, 2, 3"""
    )
    by_site = Counter[str]()
    by_entity = Counter[tuple[str, str]]()
    for met in rows:
        by_site[met["place"]] += met["alerts"]
        by_entity[met["kind"], met["value"]] += met["alerts"]
    places = sorted(by_site, key=lambda place: (-by_site[place], place))
    left = [entity for entity in shown if (entity.kind, entity.value) in by_entity]
    right = places[:MAX_GRAPH]
    nodes = [
        Node(id=f"e{n}", kind=entity.kind, label=entity.value, alerts=by_entity[entity.kind, entity.value], x=0.2,
             y=(n + 0.5) / len(left))
        for n, entity in enumerate(left)
    ] + [
        Node(id=f"s{n}", kind="site", label=place, alerts=by_site[place], x=0.8, y=(n + 0.5) / len(right))
        for n, place in enumerate(right)
    ]  # fmt: skip
    ids = {(entity.kind, entity.value): f"e{n}" for n, entity in enumerate(left)}
    edges = [
        Edge(source=ids[met["kind"], met["value"]], target=f"s{right.index(met['place'])}", alerts=met["alerts"],
             level=met["level"] or "")
        for met in rows if met["place"] in right
    ]  # fmt: skip
    return Graph(nodes=nodes, edges=edges, more=len(entities) - len(left) + len(places) - len(right))


def _samples(reader: Reader, row: Row, entities: Sequence[CampaignEntity]) -> list[AlertRow]:
    """The most severe of its newest alerts."""
    if row["first_seen"] is None or row["last_seen"] is None or not entities:
        return []
    any_of = " OR ".join(names(entity.kind, entity.value) for entity in entities[:MAX_ASKED])
    test = f"({any_of}) AND {NOT_FOLD}"
    alerts = newest(reader, test, row["first_seen"], row["last_seen"], MAX_SAMPLES * 5)
    alerts.sort(key=lambda alert: LEVELS.index(alert.level) if alert.level in LEVELS else len(LEVELS))
    return alerts[:MAX_SAMPLES]
