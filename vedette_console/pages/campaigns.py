"""Campaigns: one attack at many sites, as a list and each with its story."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from vedette_console.data.campaigns import campaign as ask_campaign
from vedette_console.data.campaigns import campaigns as ask_campaigns
from vedette_console.pages.render import page, query_of
from vedette_console.pages.shapes import drawing, lanes
from vedette_console.pages.zone import Zone
from vedette_console.security.principal import Principal
from vedette_console.web import need

router = APIRouter()
ROWS = 50
CHOICES = (("", "all"), ("state=open", "open"), ("state=closed", "closed"))


@router.get("/campaigns")
async def campaigns(
    request: Request,
    who: Principal = need("read"),
    state: Annotated[str, Query(max_length=20)] = "",
    after: Annotated[str, Query(max_length=500)] = "",
) -> Response:
    """The ones to look at first on top."""
    found = await request.app.state.pool.ask(ask_campaigns, who, state=state, after=after, limit=ROWS)
    return page(
        request,
        "campaigns.html.j2",
        found=found,
        after=after,
        choices=CHOICES,
        chosen=f"state={state}" if state else "",
        first=query_of(request, after=None) if after else "",
        following=query_of(request, after=found.next) if found.next else "",
    )


@router.get("/campaigns/{campaign_id}")
async def campaign(request: Request, campaign_id: str, who: Principal = need("read")) -> Response:
    """One with its story, its timeline and its graph. Raises Problem 404 when there is none that the asker sees."""
    found = await request.app.state.pool.ask(ask_campaign, who, campaign_id)
    return page(
        request, "campaign.html.j2", one=found, lanes=lanes(found.steps, Zone.of(request)), graph=drawing(found.graph)
    )
