"""Alerts: searched, counted, exported, and one in full with its event, evidence and neighbours."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response, StreamingResponse
from markupsafe import Markup

from spark_jobs.tables.ask import LEVELS
from vedette_console.data import alerts, complete, counting, export
from vedette_console.data.models import Alert, AlertRow, Completion, Facets, Histogram, Related
from vedette_console.data.query import MAX_SEARCH
from vedette_console.data.reader import ask, pool_of, unless_gone
from vedette_console.fleet.service import fleet_of
from vedette_console.pages.filters import Zone
from vedette_console.pages.render import nothing, page, part, query_of, together
from vedette_console.pages.render import search as search_link
from vedette_console.pages.shapes import Bars, of_histogram
from vedette_console.security.principal import Principal
from vedette_console.store.store import store_of
from vedette_console.streams import Streamed
from vedette_console.views.forms import After, Limit, Q
from vedette_console.web import Listing, Problem, need

api = APIRouter(tags=["alerts"])


@api.get("/alerts")
async def get_alerts(
    request: Request, q: Q = "", after: After = "", limit: Limit = 50, who: Principal = need("read")
) -> Listing[AlertRow]:
    """Alerts that the search finds, newest first."""
    return await ask(request, alerts.search, who, q, after, limit)


@api.get("/alerts/facets")
async def get_facets(request: Request, q: Q = "", who: Principal = need("read")) -> Facets:
    """The commonest values of fields in what the search finds."""
    return await ask(request, counting.facets, who, q)


@api.get("/alerts/histogram")
async def get_histogram(
    request: Request, q: Q = "", buckets: Annotated[int, Query(ge=1, le=counting.MAX_BUCKETS)] = 60,
    who: Principal = need("read"),
) -> Histogram:  # fmt: skip
    """What the search finds, by time and level."""
    return await ask(request, counting.histogram, who, q, buckets)


@api.get("/alerts/complete")
async def get_completions(
    request: Request, q: Q = "", at: Annotated[int | None, Query(ge=0, le=MAX_SEARCH)] = None,
    who: Principal = need("read"),
) -> Listing[Completion]:  # fmt: skip
    """What may be written where the character `at` of the search is; without it, at its end."""
    return await ask(request, complete.complete, who, q, len(q) if at is None else at)


@api.get(
    "/alerts/export",
    response_class=StreamingResponse,
    responses={200: {"content": {media: {"schema": {"type": "string"}} for media in export.FORMATS.values()}}},
)
async def export_alerts(
    request: Request, q: Q = "", format: Annotated[str, Query(pattern="^(ndjson|csv)$")] = "ndjson",
    who: Principal = need("export", audit=True),
) -> StreamingResponse:  # fmt: skip
    """All that the search finds, newest first, as NDJSON or CSV."""
    name = f'attachment; filename="alerts-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.{format}"'
    pieces = await unless_gone(request.is_disconnected, pool_of(request).stream(export.lines, who, q, format))
    return Streamed(
        request, who, pieces, export.FORMATS[format], {"Content-Disposition": f'attachment; filename="{name}"'}
    )


@api.get("/alerts/{day}/{agent_id}/{alert_id}")
async def get_alert(request: Request, day: str, agent_id: str, alert_id: str, who: Principal = need("read")) -> Alert:
    """One alert in full."""
    return await ask(request, alerts.alert, who, day, agent_id, alert_id)


@api.get("/alerts/{day}/{agent_id}/{alert_id}/related")
async def get_related(
    request: Request, day: str, agent_id: str, alert_id: str,
    minutes: Annotated[int, Query(ge=alerts.MINUTES[0], le=alerts.MINUTES[1])] = 60, who: Principal = need("read"),
) -> Related:  # fmt: skip
    """Alerts near in time with an entity, the host or the rule in common, and its folds."""
    return await ask(request, alerts.related, who, day, agent_id, alert_id, minutes)


pages = APIRouter()
ROWS = 50
PARTS = ("bars", "facets")
"""Of the page, by id: what counts."""
QUICK = ("level:critical since:24h", "level>=high since:7d", "kind:correlation since:7d", "-technique:* since:7d")
MAX_LINKED = 300
"""Characters of a search or a term that links repeat."""


@pages.get("/alerts")
async def show_alerts(
    request: Request,
    who: Principal = need("read"),
    q: Annotated[str, Query(max_length=4_000)] = "",
    after: Annotated[str, Query(max_length=500)] = "",
) -> Response:
    """The page of a search, newest first; a search that is not understood is shown with what is wrong about it. What
    counts all that it finds comes as parts of its own, which nobody waits for."""
    question = pool_of(request).ask
    wanted = part(request)
    listing, faceted, over_time, saved = await together(
        request,
        nothing() if wanted in PARTS else question(alerts.search, who, q, after, ROWS),
        question(counting.facets, who, q) if wanted == "facets" else nothing(),
        question(counting.histogram, who, q) if wanted == "bars" else nothing(),
        asyncio.to_thread(store_of(request).searches.of, who.name),
    )
    problem = next((answer.body for answer in (listing, faceted, over_time) if isinstance(answer, Problem)), None)
    counted = over_time if isinstance(over_time, Histogram) else None
    return page(
        request,
        "alerts.html.j2",
        400 if problem else 200,
        q=q,
        after=after,
        problem=problem,
        saved=saved,
        listing=listing if isinstance(listing, Listing) else None,
        quick=QUICK,
        levels=levels_of(counted),
        facets=faceted if isinstance(faceted, Facets) else None,
        histogram=counted,
        bars=bars_of(counted, Zone.of(request), q) if counted else None,
        narrowed=lambda term: narrowed(q, term),
        export=lambda form: Markup("/api/v1/alerts/export?format={}&q={}").format(form, quote(q, safe="")),
        first=query_of(request, after=None) if after else "",
        following=query_of(request, after=listing.next) if isinstance(listing, Listing) and listing.next else "",
        later=not wanted,
        itself=query_of(request),
    )


@pages.get("/alerts/{day}/{agent_id}/{alert_id}")
async def show_alert(
    request: Request, day: str, agent_id: str, alert_id: str, who: Principal = need("read")
) -> Response:
    """One alert. Raises Problem 404 when there is none that the asker sees."""
    shown = await ask(request, alerts.alert, who, day, agent_id, alert_id)
    near = await ask(request, alerts.related, who, day, agent_id, alert_id)
    return page(
        request,
        "alert.html.j2",
        alert=shown,
        related=near,
        evidence=await asyncio.to_thread(fleet_of(request).evidence.of, who, alert_id),
    )


def bars_of(counted: Histogram, zone: Zone, q: str) -> Bars:
    """Bars over time of what ``q`` finds; each leads to the same search within its time."""
    return of_histogram(counted, zone, lambda since, until: narrowed(q, within(since, until)))


def levels_of(counted: Histogram | None) -> list[str]:
    """The levels in it, the most severe first; of those without a known one "other"."""
    present = {level for bucket in (counted.buckets if counted else ()) for level in bucket.levels}
    return [level for level in LEVELS if level in present] + ["other"] * bool(present - set(LEVELS))


def within(since: datetime, until: datetime) -> str:
    """The terms for a range of time."""
    return f"from:{since:%Y-%m-%dT%H:%M:%S} to:{until:%Y-%m-%dT%H:%M:%S}"


def narrowed(q: str, term: str) -> str:
    """The address of the alerts that ``q`` and ``term`` find; a new range of time takes the place of one in ``q``.
    Empty for long texts: a page has a hundred such links."""
    if len(q) > MAX_LINKED or len(term) > MAX_LINKED:
        return ""
    words = q.split(" ")
    if term.startswith("from:"):
        words = [word for word in words if not word.startswith(("from:", "to:", "since:"))]
    return search_link(" ".join([*filter(None, words), term]))
