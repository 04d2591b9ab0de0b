"""Alerts: the search with its facets and its bars, and one alert with its event, evidence and neighbours."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from markupsafe import Markup

from spark_jobs.tables.ask import LEVELS
from vedette_console.data.alerts import alert as ask_alert
from vedette_console.data.alerts import search
from vedette_console.data.counting import facets, histogram
from vedette_console.data.models import Facets, Histogram, Listing
from vedette_console.data.related import related
from vedette_console.pages.render import page, part, query_of
from vedette_console.pages.render import search as search_link
from vedette_console.pages.shapes import of_histogram
from vedette_console.pages.together import nothing, together
from vedette_console.pages.zone import Zone
from vedette_console.security.principal import Principal
from vedette_console.web import Problem, need

router = APIRouter()
ROWS = 50
PARTS = ("bars", "facets")
"""Of the page, by id: what counts."""
QUICK = ("level:critical since:24h", "level>=high since:7d", "kind:correlation since:7d", "-technique:* since:7d")
MAX_LINKED = 300
"""Characters of a search or a term that links repeat."""


@router.get("/alerts")
async def alerts(
    request: Request,
    who: Principal = need("read"),
    q: Annotated[str, Query(max_length=4_000)] = "",
    after: Annotated[str, Query(max_length=500)] = "",
) -> Response:
    """What a search finds, newest first; a search that is not understood is shown with what is wrong about it. What
    counts all that it finds comes as parts of its own, which nobody waits for."""
    ask, store = request.app.state.pool.ask, request.app.state.store
    wanted = part(request)
    found, faceted, over_time, saved = await together(
        request,
        nothing() if wanted in PARTS else ask(search, who, q, after, ROWS),
        ask(facets, who, q) if wanted == "facets" else nothing(),
        ask(histogram, who, q) if wanted == "bars" else nothing(),
        asyncio.to_thread(store.searches.of, who.name),
    )
    problem = next((one.body for one in (found, faceted, over_time) if isinstance(one, Problem)), None)
    zone = Zone.of(request)
    counted = over_time if isinstance(over_time, Histogram) else None
    return page(
        request,
        "alerts.html.j2",
        400 if problem else 200,
        q=q,
        after=after,
        problem=problem,
        saved=saved,
        found=found if isinstance(found, Listing) else None,
        quick=QUICK,
        levels=(*LEVELS, "other"),
        facets=faceted if isinstance(faceted, Facets) else None,
        histogram=counted,
        shown_levels={level for one in (counted.buckets if counted else ()) for level in one.levels},
        bars=of_histogram(counted, zone, lambda since, until: narrowed(q, within(since, until))) if counted else None,
        narrowed=lambda term: narrowed(q, term),
        export=lambda form: Markup("/api/v1/alerts/export?format={}&q={}").format(form, quote(q, safe="")),
        first=query_of(request, after=None) if after else "",
        following=query_of(request, after=found.next) if isinstance(found, Listing) and found.next else "",
        later=not wanted,
        itself=query_of(request),
    )


@router.get("/alerts/{day}/{agent_id}/{alert_id}")
async def alert(request: Request, day: str, agent_id: str, alert_id: str, who: Principal = need("read")) -> Response:
    """One alert. Raises Problem 404 when there is none that the asker sees."""
    state = request.app.state
    found = await state.pool.ask(ask_alert, who, day, agent_id, alert_id)
    near = await state.pool.ask(related, who, day, agent_id, alert_id)
    return page(
        request, "alert.html.j2", alert=found, related=near, evidence=await state.fleet.evidence_of(who, alert_id)
    )


def within(since: datetime, until: datetime) -> str:
    """The terms for a range of time."""
    return f"from:{since:%Y-%m-%dT%H:%M:%S} to:{until:%Y-%m-%dT%H:%M:%S}"


def narrowed(q: str, term: str) -> str:
    """Where the alerts are that ``q`` and ``term`` find; a new range of time takes the place of one in ``q``. Empty for
    long texts: a page has a hundred such links."""
    if len(q) > MAX_LINKED or len(term) > MAX_LINKED:
        return ""
    words = q.split(" ")
    if term.startswith("from:"):
        words = [word for word in words if not word.startswith(("from:", "to:", "since:"))]
    return search_link(" ".join([*filter(None, words), term]))
