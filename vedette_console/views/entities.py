"""Entities: addresses, users, devices, hosts, sites, and what adds up against each."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from spark_jobs.tables.schema import ENTITY_KINDS
from vedette_console.data import entities, findings
from vedette_console.data.models_fleet import Count, EntityPage, EntityRow
from vedette_console.data.reader import ask, pool_of
from vedette_console.pages.render import page, pager, together
from vedette_console.pages.render import search as search_link
from vedette_console.pages.shapes import of_days
from vedette_console.security.principal import Principal
from vedette_console.views.forms import After, Days, Kind, Limit, Part
from vedette_console.web import Listing, Problem, need

api = APIRouter(tags=["entities"])


@api.get("/entities")
async def get_entities(
    request: Request, q: Part = "", kind: Kind = "", days: Days = 7, after: After = "", limit: Limit = 50,
    who: Principal = need("read"),
) -> Listing[EntityRow]:  # fmt: skip
    """Entities of the last days, those with the largest risk first, then by alerts."""
    return await ask(request, entities.entities, who, q, kind, days, after, limit)


@api.get("/entities/{kind}/{value:path}")
async def get_entity(
    request: Request, kind: str, value: str, scope: Annotated[str, Query(max_length=300)] = "", days: Days = 14,
    who: Principal = need("read"),
) -> EntityPage:  # fmt: skip
    """One entity: its risk over time, sites, rules, newest alerts; `scope` is `FLEET/SITE`, for that site only."""
    return await ask(request, entities.entity, who, kind, value, scope, days)


pages = APIRouter()
ROWS = 50
KINDS = (*ENTITY_KINDS, "host")


@pages.get("/entities")
async def show_entities(
    request: Request,
    who: Principal = need("read"),
    q: Annotated[str, Query(max_length=300)] = "",
    kind: Annotated[str, Query(max_length=20)] = "",
    after: Annotated[str, Query(max_length=500)] = "",
) -> Response:
    """Those over their threshold, and the ones with most alerts."""
    question = pool_of(request).ask
    listing, risks = await together(
        request,
        question(entities.entities, who, q=q, kind=kind, after=after, limit=ROWS),
        question(findings.risks, who, over=True, limit=12),
    )
    if isinstance(listing, Problem):
        raise listing
    return page(
        request,
        "entities.html.j2",
        listing=listing,
        risks=None if q or kind or after or isinstance(risks, Problem) else risks,
        q=q,
        kind=kind,
        kinds=KINDS,
        **pager(request, listing.next),
    )


@pages.get("/entities/{kind}/{value:path}")
async def show_entity(
    request: Request,
    kind: str,
    value: str,
    who: Principal = need("read"),
    scope: Annotated[str, Query(max_length=300)] = "",
) -> Response:
    """One: its ledger, where it was seen, its newest alerts."""
    shown = await ask(request, entities.entity, who, kind, value, scope)
    scores = [
        Count(
            name=risk_day.day,
            label=f"{risk_day.day}",
            alerts=round(risk_day.score),
            matches=0,
            level="critical" if risk_day.over else "low",
        )
        for risk_day in shown.risk_days
    ]
    by_day = of_days(shown.by_day, lambda day: search_link(f"{shown.query} from:{day} to:{day}"))
    return page(request, "entity.html.j2", entity=shown, days=of_days(scores, lambda day: ""), alerts_by_day=by_day)
