"""Entities: users, addresses, devices and hosts with what adds up against them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from spark_jobs.tables.schema import ENTITY_KINDS
from vedette_console.data.entities import entities as ask_entities
from vedette_console.data.entities import entity as ask_entity
from vedette_console.data.findings import risks as ask_risks
from vedette_console.data.models_fleet import Count
from vedette_console.pages.render import page, query_of
from vedette_console.pages.render import search as search_link
from vedette_console.pages.shapes import of_days
from vedette_console.pages.together import together
from vedette_console.security.principal import Principal
from vedette_console.web import Problem, need

router = APIRouter()
ROWS = 50
KINDS = (*ENTITY_KINDS, "host")


@router.get("/entities")
async def entities(
    request: Request,
    who: Principal = need("read"),
    q: Annotated[str, Query(max_length=300)] = "",
    kind: Annotated[str, Query(max_length=20)] = "",
    after: Annotated[str, Query(max_length=500)] = "",
) -> Response:
    """Those over their threshold, and the ones with most alerts."""
    ask = request.app.state.pool.ask
    found, risks = await together(
        request,
        ask(ask_entities, who, q=q, kind=kind, after=after, limit=ROWS),
        ask(ask_risks, who, over=True, limit=12),
    )
    if isinstance(found, Problem):
        raise found
    return page(
        request,
        "entities.html.j2",
        found=found,
        risks=None if q or kind or after or isinstance(risks, Problem) else risks,
        q=q,
        kind=kind,
        kinds=KINDS,
        first=query_of(request, after=None) if after else "",
        following=query_of(request, after=found.next) if found.next else "",
    )


@router.get("/entities/{kind}/{value:path}")
async def entity(
    request: Request,
    kind: str,
    value: str,
    who: Principal = need("read"),
    scope: Annotated[str, Query(max_length=300)] = "",
) -> Response:
    """One: its ledger, where it was seen, its newest alerts."""
    found = await request.app.state.pool.ask(ask_entity, who, kind, value, scope)
    scores = [
        Count(
            name=one.day,
            label=f"{one.day}",
            alerts=round(one.score),
            matches=0,
            level="critical" if one.over else "low",
        )
        for one in found.risk_days
    ]
    by_day = of_days(found.by_day, lambda day: search_link(f"{found.query} from:{day} to:{day}"))
    return page(request, "entity.html.j2", one=found, days=of_days(scores, lambda day: ""), alerts_by_day=by_day)
