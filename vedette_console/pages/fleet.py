"""The fleet: groups desired and actual, agents, sites on a map; and one agent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from spark_jobs.report.chart import Chart, chart
from spark_jobs.report.figures import Line
from vedette_console.data import models_fleet as landed
from vedette_console.data.agents import agent as ask_agent
from vedette_console.data.agents import agents as ask_agents
from vedette_console.data.agents import sites as ask_sites
from vedette_console.data.rules import titles as ask_titles
from vedette_console.fleet.models import AgentPage, AgentRow, FleetPage, Sample
from vedette_console.pages.render import page, query_of
from vedette_console.pages.shapes import Bars, bars
from vedette_console.pages.together import nothing, together
from vedette_console.pages.zone import Zone
from vedette_console.security.principal import Principal
from vedette_console.web import Problem, need

router = APIRouter()
ROWS = 100
MAX_HISTORY = 120


@router.get("/fleet")
async def fleet(
    request: Request,
    who: Principal = need("read"),
    q: Annotated[str, Query(max_length=300)] = "",
    group: Annotated[str | None, Query(max_length=200)] = None,
    state: Annotated[str, Query(max_length=30)] = "",
    after: Annotated[str, Query(max_length=200)] = "",
) -> Response:
    """All agents that the asker sees: live, or, where no broker is configured, as they have landed. ``group`` "": those
    in none."""
    held = request.app.state
    live = request.headers.get("hx-target") == "agents"
    sites, from_tables = await together(
        request, nothing() if live else held.pool.ask(ask_sites, who), held.pool.ask(ask_agents, who)
    )
    known = [] if isinstance(from_tables, Problem) else from_tables.items
    found: FleetPage = await held.fleet.overview(who, q, group, state, after, ROWS)
    rows: Sequence[AgentRow] = found.items
    if not found.total and found.link.state == "none" and not after:
        rows = [row for row in map(of_landed, known) if q.lower() in f"{row.agent} {row.site}".lower()][:ROWS]
    return page(
        request,
        "fleet.html.j2",
        page=found,
        rows=rows,
        landed=len(known),
        q=q,
        chosen=group is not None or state,
        map=None if sites is None or isinstance(sites, Problem) else map_of(sites.items),
        first=query_of(request, after=None) if after else "",
        following=query_of(request, after=found.next) if found.next else "",
    )


@router.get("/fleet/{fleet}/{agent}")
async def agent(request: Request, fleet: str, agent: str, who: Principal = need("read")) -> Response:
    """One agent by its newest heartbeat and by what has landed. Raises Problem 404 when neither knows it."""
    held = request.app.state
    live, from_tables = await together(
        request,
        held.fleet.agent(who, fleet, agent),
        held.pool.ask(ask_agent, who, fleet, agent),
    )
    heard = live if isinstance(live, AgentPage) else None
    known = from_tables if isinstance(from_tables, landed.AgentAccount) else None
    if heard is None and known is None:
        raise Problem(
            404, f"there is no agent {agent} of fleet {fleet}", what_to_do="it shows up with its first heartbeat"
        )
    history = rates(heard.history if heard else [], Zone.of(request))
    ids = list(heard.alerting) if heard else []
    (titles,) = await together(request, held.pool.ask(lambda reader, _: ask_titles(reader, ids), who))
    return page(
        request,
        "agent.html.j2",
        fleet=fleet,
        agent=agent,
        live=heard,
        landed=known,
        history=history,
        titles={} if isinstance(titles, Problem) else titles,
    )


def of_landed(one: landed.AgentRow) -> AgentRow:
    """An agent as its newest landed heartbeat shows it."""
    health: Any = "silent" if one.silent else one.state if one.state in ("running", "degraded", "lost") else "unknown"
    return AgentRow(
        fleet=one.fleet,
        agent=one.agent_id,
        site=one.site,
        group="",
        state="unknown",
        reasons=one.troubles,
        labels=one.labels,
        health=health,
        version=one.version,
        bundle=one.bundle,
        heard=one.last_seen.isoformat() if one.last_seen else None,
        lag_seconds=one.lag_seconds or 0.0,
        in_outbox=one.in_outbox or 0,
        events_lost=(one.dropped or 0) + (one.lost or 0),
    )


def map_of(sites: Sequence[landed.SiteRow]) -> Chart | None:
    """Sites as the report draws them; None when none has coordinates."""
    return chart(
        [
            Line(
                fleet=one.fleet,
                site=one.site,
                alerts=one.alerts,
                critical=one.critical,
                agents=one.agents,
                troubled=one.troubled,
                name=(one.place.name if one.place else "") or one.site,
                latitude=one.place.latitude if one.place else None,
                longitude=one.place.longitude if one.place else None,
            )
            for one in sites
        ]
    )


def rates(history: Sequence[Sample], zone: Zone) -> Bars:
    """Events a second over time, the newest samples."""
    kept = list(history[-MAX_HISTORY:])
    marks = [str(zone.show(one.time, "clock").striptags()) for one in (kept[:1] + kept[-1:] if len(kept) > 1 else [])]
    return bars([(f"{one.events:,} events a second", "", {"low": one.events}) for one in kept], marks)
