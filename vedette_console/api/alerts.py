"""Alerts: searched, counted, exported, and one in full."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse

from vedette_console.data import alerts, complete, counting, export, related
from vedette_console.data.models import Alert, AlertRow, Completion, Facets, Histogram, Listing, Related
from vedette_console.data.query import MAX_SEARCH
from vedette_console.data.reader import Pool, unless_gone
from vedette_console.security.principal import Principal
from vedette_console.web import MAX_LIMIT, need

router = APIRouter(tags=["alerts"])

Q = Annotated[str, Query(max_length=MAX_SEARCH, description="a search, as docs/console.md has its language")]
After = Annotated[str, Query(max_length=4_000, description="`next` of the page before")]
Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT)]


@router.get("/alerts")
async def get_alerts(
    request: Request, q: Q = "", after: After = "", limit: Limit = 50, who: Principal = need("read")
) -> Listing[AlertRow]:
    """Alerts that the search finds, newest first."""
    pool: Pool = request.app.state.pool
    return await unless_gone(request.is_disconnected, pool.ask(alerts.search, who, q, after, limit))


@router.get("/alerts/facets")
async def get_facets(request: Request, q: Q = "", who: Principal = need("read")) -> Facets:
    """The commonest values of fields in what the search finds."""
    pool: Pool = request.app.state.pool
    return await unless_gone(request.is_disconnected, pool.ask(counting.facets, who, q))


@router.get("/alerts/histogram")
async def get_histogram(
    request: Request, q: Q = "", buckets: Annotated[int, Query(ge=1, le=counting.MAX_BUCKETS)] = 60,
    who: Principal = need("read"),
) -> Histogram:  # fmt: skip
    """What the search finds, by time and level."""
    pool: Pool = request.app.state.pool
    return await unless_gone(request.is_disconnected, pool.ask(counting.histogram, who, q, buckets))


@router.get("/alerts/complete")
async def get_completions(
    request: Request, q: Q = "", at: Annotated[int | None, Query(ge=0, le=MAX_SEARCH)] = None,
    who: Principal = need("read"),
) -> Listing[Completion]:  # fmt: skip
    """What may be written where the character `at` of the search is; without it, at its end."""
    pool: Pool = request.app.state.pool
    return await pool.ask(complete.complete, who, q, len(q) if at is None else at)


@router.get(
    "/alerts/export",
    response_class=StreamingResponse,
    responses={200: {"content": {media: {"schema": {"type": "string"}} for media in export.FORMATS.values()}}},
)
async def export_alerts(
    request: Request, q: Q = "", format: Annotated[str, Query(pattern="^(ndjson|csv)$")] = "ndjson",
    who: Principal = need("export", audit=True),
) -> StreamingResponse:  # fmt: skip
    """All that the search finds, newest first, as NDJSON or CSV."""
    pool: Pool = request.app.state.pool
    name = f"alerts-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.{format}"
    return StreamingResponse(
        await pool.stream(export.lines, who, q, format),
        media_type=export.FORMATS[format],
        headers={"Content-Disposition": f'attachment; filename="{name}"', "X-Content-Type-Options": "nosniff"},
    )


@router.get("/alerts/{day}/{agent_id}/{alert_id}")
async def get_alert(request: Request, day: str, agent_id: str, alert_id: str, who: Principal = need("read")) -> Alert:
    """One alert in full."""
    pool: Pool = request.app.state.pool
    return await pool.ask(alerts.alert, who, day, agent_id, alert_id)


@router.get("/alerts/{day}/{agent_id}/{alert_id}/related")
async def get_related(
    request: Request, day: str, agent_id: str, alert_id: str,
    minutes: Annotated[int, Query(ge=related.MINUTES[0], le=related.MINUTES[1])] = 60, who: Principal = need("read"),
) -> Related:  # fmt: skip
    """Alerts near in time with an entity, the host or the rule in common, and its folds."""
    pool: Pool = request.app.state.pool
    return await unless_gone(request.is_disconnected, pool.ask(related.related, who, day, agent_id, alert_id, minutes))
