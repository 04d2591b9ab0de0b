"""Findings of the jobs: campaigns with their stories, anomalies, risks; and what people decide about them."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response

from vedette_console.data import campaigns, findings
from vedette_console.data.findings import Decide
from vedette_console.data.models import Anomaly, Campaign, CampaignRow, Risk
from vedette_console.data.models_fleet import DecisionMade
from vedette_console.data.reader import ask, pool_of
from vedette_console.pages.filters import Zone
from vedette_console.pages.render import page, pager
from vedette_console.pages.shapes import drawing, lanes
from vedette_console.security.principal import Principal
from vedette_console.views.forms import After, Days, Kind, Limit
from vedette_console.web import Listing, need, note

api = APIRouter(tags=["findings"])


@api.get("/campaigns")
async def get_campaigns(
    request: Request, state: Literal["", "open", "closed"] = "", days: Days = 30, after: After = "",
    limit: Limit = 50, who: Principal = need("read"),
) -> Listing[CampaignRow]:  # fmt: skip
    """Campaigns that were active in the last days, by score."""
    return await ask(request, campaigns.campaigns, who, state, after, limit, days)


@api.get("/campaigns/{campaign_id}")
async def get_campaign(request: Request, campaign_id: str, who: Principal = need("read")) -> Campaign:
    """A campaign with its story, steps, entities and graph."""
    return await ask(request, campaigns.campaign, who, campaign_id)


@api.get("/anomalies")
async def get_anomalies(
    request: Request, kind: Kind = "", days: Days = 7, after: After = "", limit: Limit = 50,
    who: Principal = need("read"),
) -> Listing[Anomaly]:  # fmt: skip
    """Anomalies of the last days, those furthest from the usual first."""
    return await ask(request, findings.anomalies, who, kind, after, limit, days)


@api.get("/risks")
async def get_risks(
    request: Request, kind: Kind = "", over: bool = False, after: After = "", limit: Limit = 50,
    who: Principal = need("read"),
) -> Listing[Risk]:  # fmt: skip
    """Entities of the newest day, those over their threshold first."""
    return await ask(request, findings.risks, who, kind, over, after, limit)


@api.post("/findings/{finding:path}/triage")
async def post_triage(
    finding: Annotated[str, Path(max_length=400)], body: Decide, request: Request, who: Principal = need("triage")
) -> DecisionMade:
    """Decide about a campaign, an anomaly or a risk by its id, or about an alert: `alert:AGENT/ID`."""
    note(request, finding=finding, state=body.state, reason=body.reason, assignee=body.assignee)
    decision = await pool_of(request).ask(findings.decide, who, finding, body)
    request.app.state.hub.publish("now", {"moved": True})
    return decision


pages = APIRouter()
ROWS = 50
CHOICES = (("", "all"), ("state=open", "open"), ("state=closed", "closed"))


@pages.get("/campaigns")
async def show_campaigns(
    request: Request,
    who: Principal = need("read"),
    state: Annotated[str, Query(max_length=20)] = "",
    after: Annotated[str, Query(max_length=500)] = "",
) -> Response:
    """The ones to look at first on top."""
    listing = await ask(request, campaigns.campaigns, who, state=state, after=after, limit=ROWS)
    return page(
        request,
        "campaigns.html.j2",
        listing=listing,
        after=after,
        choices=CHOICES,
        chosen=f"state={state}" if state else "",
        **pager(request, listing.next),
    )


@pages.get("/campaigns/{campaign_id}")
async def show_campaign(request: Request, campaign_id: str, who: Principal = need("read")) -> Response:
    """One with its story, its timeline and its graph. Raises Problem 404 when there is none that the asker sees."""
    shown = await ask(request, campaigns.campaign, who, campaign_id)
    timeline = lanes(shown.steps, Zone.of(request))
    return page(request, "campaign.html.j2", campaign=shown, lanes=timeline, graph=drawing(shown.graph))
