"""Backtests: rules over exported raw logs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request

from vedette_console.api.fleet import Cursor, Limit, fleet_of
from vedette_console.fleet.models import BacktestOrder, BacktestPage, BacktestsList
from vedette_console.security.principal import Principal
from vedette_console.web import need, note

router = APIRouter(tags=["backtests"])

BacktestId = Annotated[str, Path(pattern=r"^[0-9a-f]{16}$")]


@router.get("/backtests")
async def get_backtests(
    request: Request, after: Cursor = "", limit: Limit = 50, who: Principal = need("read")
) -> BacktestsList:
    """Backtests, the newest first, and the sources there are."""
    page: BacktestsList = await fleet_of(request).backtests(who, after, limit)
    return page


@router.post("/backtests", status_code=202)
async def start_backtest(body: BacktestOrder, request: Request, who: Principal = need("rules.try")) -> BacktestPage:
    """Start one; one runs at a time."""
    note(request, rules=[one.path for one in body.rules], since=body.since, until=body.until, reason=body.reason)
    page: BacktestPage = await fleet_of(request).start_backtest(who, body)
    note(request, backtest=page.backtest.id)
    return page


@router.get("/backtests/{id}")
async def get_backtest(id: BacktestId, request: Request, who: Principal = need("read")) -> BacktestPage:
    """How far it is, or what it has found."""
    page: BacktestPage = await fleet_of(request).backtest(who, id)
    return page


@router.post("/backtests/{id}/cancel")
async def cancel_backtest(id: BacktestId, request: Request, who: Principal = need("rules.try")) -> BacktestPage:
    """End it; nothing of it is kept but that it was."""
    note(request, backtest=id)
    page: BacktestPage = await fleet_of(request).stop_backtest(who, id)
    return page
