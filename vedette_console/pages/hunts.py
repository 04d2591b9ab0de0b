"""Hunts over what hosts have stored, and backtests over exported logs: start, progress, results."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from vedette_console.pages.render import page, query_of
from vedette_console.pages.shapes import bars
from vedette_console.security.principal import Principal
from vedette_console.web import need

router = APIRouter()
ROWS = 50


@router.get("/hunts")
async def hunts(
    request: Request, who: Principal = need("read"), after: Annotated[str, Query(max_length=200)] = ""
) -> Response:
    """All hunts, the newest first, and the newest backtests."""
    found = await request.app.state.fleet.hunts(who, after, ROWS)
    backtests = await request.app.state.fleet.backtests(who)
    return page(
        request,
        "hunts.html.j2",
        page=found,
        backtests=backtests.items[:10],
        first=query_of(request, after=None) if after else "",
        following=query_of(request, after=found.next) if found.next else "",
    )


@router.get("/hunts/{id}")
async def hunt(request: Request, id: str, who: Principal = need("read")) -> Response:
    """One hunt: how far each agent is, and what it found."""
    return page(request, "hunt.html.j2", page=await request.app.state.fleet.hunt(who, id))


@router.get("/backtests/{id}")
async def backtest(request: Request, id: str, who: Principal = need("read")) -> Response:
    """One backtest."""
    found = await request.app.state.fleet.backtest(who, id)
    columns = [(f"{one.hour}: {one.matches:,}", "", {"low": one.matches}) for one in found.by_hour]
    marks = [found.by_hour[0].hour, found.by_hour[-1].hour] if len(found.by_hour) > 1 else []
    return page(request, "backtest.html.j2", page=found, hours=bars(columns, marks))
