"""Roll-outs: changes on their way from ring to ring, what waits for signatures, and one change."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from vedette_console.pages.render import page
from vedette_console.security.principal import Principal
from vedette_console.web import need

router = APIRouter()


@router.get("/rollouts")
async def rollouts(request: Request, who: Principal = need("read")) -> Response:
    """All changes that the controller reports, and this console's proposals."""
    fleet = request.app.state.fleet
    found, proposals = await fleet.rollouts(who), await fleet.proposals(who)
    return page(request, "rollouts.html.j2", page=found, proposals=proposals.items[:10])


@router.get("/rollouts/{change}")
async def rollout(request: Request, change: str, who: Principal = need("read")) -> Response:
    """One change: rings, gates, agents, record."""
    return page(request, "rollout.html.j2", page=await request.app.state.fleet.rollout(who, change))
