"""What the jobs found: campaigns, anomalies, risks; and what people decide about them."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Request

from vedette_console.api.alerts import After, Limit
from vedette_console.data import campaigns, findings, triage
from vedette_console.data.days import MAX_DAYS
from vedette_console.data.models import Anomaly, Campaign, CampaignRow, Listing, Risk
from vedette_console.data.models_fleet import DecisionMade
from vedette_console.data.reader import Pool
from vedette_console.data.triage import Decide
from vedette_console.security.principal import Principal
from vedette_console.web import need, note

router = APIRouter(tags=["findings"])

Days = Annotated[int, Query(ge=1, le=MAX_DAYS)]
Kind = Annotated[str, Query(max_length=100)]


@router.get("/campaigns")
async def get_campaigns(
    request: Request, state: Literal["", "open", "closed"] = "", days: Days = 30, after: After = "",
    limit: Limit = 50, who: Principal = need("read"),
) -> Listing[CampaignRow]:  # fmt: skip
    """Campaigns that were active in the last days, by score."""
    pool: Pool = request.app.state.pool
    return await pool.ask(campaigns.campaigns, who, state, after, limit, days)


@router.get("/campaigns/{campaign_id}")
async def get_campaign(request: Request, campaign_id: str, who: Principal = need("read")) -> Campaign:
    """A campaign with its story, steps, entities and graph."""
    pool: Pool = request.app.state.pool
    return await pool.ask(campaigns.campaign, who, campaign_id)


@router.get("/anomalies")
async def get_anomalies(
    request: Request, kind: Kind = "", days: Days = 7, after: After = "", limit: Limit = 50,
    who: Principal = need("read"),
) -> Listing[Anomaly]:  # fmt: skip
    """Anomalies of the last days, those furthest from the usual first."""
    pool: Pool = request.app.state.pool
    return await pool.ask(findings.anomalies, who, kind, after, limit, days)


@router.get("/risks")
async def get_risks(
    request: Request, kind: Kind = "", over: bool = False, after: After = "", limit: Limit = 50,
    who: Principal = need("read"),
) -> Listing[Risk]:  # fmt: skip
    """Entities of the newest day, those over their threshold first."""
    pool: Pool = request.app.state.pool
    return await pool.ask(findings.risks, who, kind, over, after, limit)


@router.post("/findings/{finding:path}/triage")
async def post_triage(
    finding: Annotated[str, Path(max_length=400)], body: Decide, request: Request, who: Principal = need("triage")
) -> DecisionMade:
    """Decide about a campaign, an anomaly or a risk by its id, or about an alert: `alert:AGENT/ID`."""
    note(request, finding=finding, state=body.state, reason=body.reason, assignee=body.assignee)
    pool: Pool = request.app.state.pool
    made = await pool.ask(triage.decide, who, finding, body)
    request.app.state.hub.publish("now", {"moved": True})
    return made
