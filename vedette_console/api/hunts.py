"""Hunts: rules over what hosts have stored."""

from __future__ import annotations

from fastapi import APIRouter, Request

from vedette_console.api.fleet import Cursor, Limit, RequestId, fleet_of
from vedette_console.fleet.models import HuntOrder, HuntPage, HuntsList, Job
from vedette_console.security.principal import Principal
from vedette_console.web import need, note

router = APIRouter(tags=["hunts"])


@router.get("/hunts")
async def get_hunts(
    request: Request, after: Cursor = "", limit: Limit = 50, who: Principal = need("read")
) -> HuntsList:
    """Hunts of this console, the newest first."""
    page: HuntsList = await fleet_of(request).hunts(who, after, limit)
    return page


@router.post("/hunts", status_code=202)
async def start_hunt(body: HuntOrder, request: Request, who: Principal = need("hunt")) -> HuntPage:
    """Start one; it goes on in the background, also when the console is started again."""
    paths = [one.path for one in body.rules]
    note(request, rules=paths, group=body.group, agents=body.agents, since=body.since, reason=body.reason)
    page: HuntPage = await fleet_of(request).start_hunt(who, body)
    note(request, asked=page.hunt.id)
    return page


@router.get("/hunts/{id}")
async def get_hunt(id: RequestId, request: Request, who: Principal = need("read")) -> HuntPage:
    """What hosts have found so far."""
    page: HuntPage = await fleet_of(request).hunt(who, id)
    return page


@router.post("/hunts/{id}/cancel")
async def cancel_hunt(id: RequestId, request: Request, who: Principal = need("hunt")) -> Job:
    """Stop it on every host; what was found so far comes."""
    note(request, asked=id)
    found: Job = await fleet_of(request).cancel(who, id)
    return found
