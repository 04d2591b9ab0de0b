"""Agents by their heartbeats, and sites on the map."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Request

from vedette_console.api.alerts import After, Limit
from vedette_console.api.campaigns import Days
from vedette_console.api.entities import Part
from vedette_console.data import agents
from vedette_console.data.models import Listing
from vedette_console.data.models_fleet import AgentAccount, AgentListing, SiteRow
from vedette_console.data.reader import Pool
from vedette_console.security.principal import Principal
from vedette_console.web import need

router = APIRouter(tags=["agents"])


@router.get("/agents")
async def get_agents(
    request: Request, q: Part = "", state: Literal["", "troubled", "lost", "silent"] = "", after: After = "",
    limit: Limit = 100, who: Principal = need("read"),
) -> AgentListing:  # fmt: skip
    """Agents by their newest heartbeats, those in trouble first."""
    pool: Pool = request.app.state.pool
    return await pool.ask(agents.agents, who, q, state, after, limit)


@router.get("/agents/{fleet}/{agent_id}")
async def get_agent_account(request: Request, fleet: str, agent_id: str, who: Principal = need("read")) -> AgentAccount:
    """An agent with what its newest heartbeat says."""
    pool: Pool = request.app.state.pool
    return await pool.ask(agents.agent, who, fleet, agent_id)


@router.get("/sites")
async def get_sites(request: Request, days: Days = 1, who: Principal = need("read")) -> Listing[SiteRow]:
    """Every site with its place, alerts and agents."""
    pool: Pool = request.app.state.pool
    return await pool.ask(agents.sites, who, days)
