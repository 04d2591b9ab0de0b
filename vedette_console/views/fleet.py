"""The fleet: groups desired and actual, agents live and as they have landed, sites on a map; one agent, and questions
and commands to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response

from spark_jobs.report.chart import Chart, chart
from spark_jobs.report.figures import Line
from vedette.system.within import NAME
from vedette_console.data import agents
from vedette_console.data import models_fleet as landed
from vedette_console.data.models_fleet import AgentAccount, AgentListing, SiteRow
from vedette_console.data.reader import ask, pool_of
from vedette_console.data.rows import titles
from vedette_console.fleet.models import AgentPage, AgentRow, FleetPage, Sample
from vedette_console.fleet.models_asked import Action, AnswerPage, Job, Question
from vedette_console.fleet.service import fleet_of
from vedette_console.pages.filters import Zone
from vedette_console.pages.render import nothing, page, pager, together
from vedette_console.pages.shapes import Bars, bars
from vedette_console.security.principal import Principal
from vedette_console.views.forms import START, After, Days, Limit, Part, RequestId
from vedette_console.web import Listing, Problem, need, note

api = APIRouter(tags=["fleet"])

Name = Annotated[str, Path(pattern=rf"^{NAME}$")]


@api.get("/fleet")
def get_fleet(
    request: Request, q: Annotated[str, Query(max_length=200)] = "",
    group: Annotated[str | None, Query(max_length=128)] = None, state: Annotated[str, Query(max_length=20)] = "",
    start: int = START, limit: Limit = 100, who: Principal = need("read"),
) -> FleetPage:  # fmt: skip
    """Desired against actual, by group with reasons. `group` empty: agents in none; `state`: as wanted, behind,
    problem, away, no fleet, silent, degraded."""
    return fleet_of(request).overview.page(who, q, group, state, start, limit)


@api.get("/fleet/{fleet}/{agent}")
def get_fleet_agent(fleet: Name, agent: Name, request: Request, who: Principal = need("read")) -> AgentPage:
    """One agent, by its newest heartbeat."""
    return fleet_of(request).overview.agent(who, fleet, agent)


@api.post("/fleet/{fleet}/{agent}/ask", status_code=202)
async def ask_agent(
    fleet: Name, agent: Name, body: Question, request: Request, who: Principal = need("fleet.ask")
) -> AnswerPage:
    """Ask an agent for its status, rules, disk or versions, or to explain a rule. Answers within five seconds with what
    came; `/requests/{id}` has the rest."""
    note(request, fleet=fleet, agent=agent, **body.model_dump())
    page: AnswerPage = await fleet_of(request).questions.ask(who, fleet, agent, body)
    note(request, asked=page.job.id)
    return page


@api.post("/fleet/{fleet}/{agent}/do", status_code=202)
async def do_agent(
    fleet: Name, agent: Name, body: Action, request: Request, who: Principal = need("fleet.ask")
) -> AnswerPage:
    """Have an agent reload, release its quarantine, or roll a bundle back."""
    note(request, fleet=fleet, agent=agent, **body.model_dump())
    page: AnswerPage = await fleet_of(request).questions.do(who, fleet, agent, body)
    note(request, asked=page.job.id)
    return page


@api.get("/requests/{id}")
def get_request(id: RequestId, request: Request, who: Principal = need("read")) -> AnswerPage:
    """What an agent was asked, and what it has answered so far."""
    return fleet_of(request).questions.answer(who, id)


@api.post("/requests/{id}/cancel")
async def cancel_request(id: RequestId, request: Request, who: Principal = need("fleet.ask")) -> Job:
    """Call off what was asked of an agent."""
    note(request, asked=id)
    return await fleet_of(request).desk.cancel(who, id)


api_agents = APIRouter(tags=["agents"])


@api_agents.get("/agents")
async def get_agents(
    request: Request, q: Part = "", state: Literal["", "troubled", "lost", "silent"] = "", after: After = "",
    limit: Limit = 100, who: Principal = need("read"),
) -> AgentListing:  # fmt: skip
    """Agents by their newest heartbeats, those in trouble first."""
    return await ask(request, agents.agents, who, q, state, after, limit)


@api_agents.get("/agents/{fleet}/{agent_id}")
async def get_agent_account(request: Request, fleet: str, agent_id: str, who: Principal = need("read")) -> AgentAccount:
    """An agent with what its newest heartbeat says."""
    return await ask(request, agents.agent, who, fleet, agent_id)


@api_agents.get("/sites")
async def get_sites(request: Request, days: Days = 1, who: Principal = need("read")) -> Listing[SiteRow]:
    """Every site with its place, alerts and agents."""
    return await ask(request, agents.sites, who, days)


pages = APIRouter()
ROWS = 100
MAX_HISTORY = 120


@pages.get("/fleet")
async def show_fleet(
    request: Request,
    who: Principal = need("read"),
    q: Annotated[str, Query(max_length=300)] = "",
    group: Annotated[str | None, Query(max_length=200)] = None,
    state: Annotated[str, Query(max_length=30)] = "",
    start: int = START,
) -> Response:
    """All agents that the asker sees: live, or, where no broker is configured, as they have landed. ``group`` "": those
    in none."""
    question = pool_of(request).ask
    live = request.headers.get("hx-target") == "agents"
    sites, from_tables = await together(
        request, nothing() if live else question(agents.sites, who), question(agents.agents, who)
    )
    from_heartbeats = [] if isinstance(from_tables, Problem) else from_tables.items
    overview = await asyncio.to_thread(fleet_of(request).overview.page, who, q, group, state, start, ROWS)
    rows: Sequence[AgentRow] = overview.items
    if not overview.total and overview.link.state == "none" and not start:
        rows = [row for row in map(of_landed, from_heartbeats) if q.lower() in f"{row.agent} {row.site}".lower()][:ROWS]
    return page(
        request,
        "fleet.html.j2",
        page=overview,
        rows=rows,
        landed=len(from_heartbeats),
        q=q,
        chosen=group is not None or state,
        map=None if sites is None or isinstance(sites, Problem) else map_of(sites.items),
        **pager(request, overview.next),
    )


@pages.get("/fleet/{fleet}/{agent}")
async def show_agent(request: Request, fleet: str, agent: str, who: Principal = need("read")) -> Response:
    """One agent by its newest heartbeat and by what has landed. Raises Problem 404 when neither knows it."""
    live, from_tables = await together(
        request,
        asyncio.to_thread(fleet_of(request).overview.agent, who, fleet, agent),
        pool_of(request).ask(agents.agent, who, fleet, agent),
    )
    heard = live if isinstance(live, AgentPage) else None
    account = from_tables if isinstance(from_tables, landed.AgentAccount) else None
    if heard is None and account is None:
        raise Problem(
            404, f"there is no agent {agent} of fleet {fleet}", what_to_do="it shows up with its first heartbeat"
        )
    history = rates(heard.history if heard else [], Zone.of(request))
    ids = list(heard.alerting) if heard else []
    (titled,) = await together(request, pool_of(request).ask(lambda reader: titles(reader, ids), who))
    return page(
        request,
        "agent.html.j2",
        fleet=fleet,
        agent=agent,
        live=heard,
        landed=account,
        history=history,
        titles={} if isinstance(titled, Problem) else titled,
    )


def of_landed(row: landed.AgentRow) -> AgentRow:
    """An agent as its newest landed heartbeat shows it."""
    health: Any = "silent" if row.silent else row.state if row.state in ("running", "degraded", "lost") else "unknown"
    return AgentRow(
        fleet=row.fleet,
        agent=row.agent_id,
        site=row.site,
        group="",
        state="unknown",
        reasons=row.troubles,
        labels=row.labels,
        health=health,
        version=row.version,
        bundle=row.bundle,
        heard=row.last_seen.isoformat() if row.last_seen else None,
        lag_seconds=row.lag_seconds or 0.0,
        in_outbox=row.in_outbox or 0,
        events_lost=(row.dropped or 0) + (row.lost or 0),
    )


def map_of(sites: Sequence[landed.SiteRow]) -> Chart | None:
    """Sites as the report draws them; None when none has coordinates."""
    return chart(
        [
            Line(
                **row.model_dump(include={"fleet", "site", "alerts", "critical", "agents", "troubled"}),
                name=(row.place.name if row.place else "") or row.site,
                latitude=row.place.latitude if row.place else None,
                longitude=row.place.longitude if row.place else None,
            )
            for row in sites
        ]
    )


def rates(history: Sequence[Sample], zone: Zone) -> Bars:
    """Events a second over time, the newest samples."""
    newest = list(history[-MAX_HISTORY:])
    marks = [
        str(zone.show(sample.time, "clock").striptags())
        for sample in (newest[:1] + newest[-1:] if len(newest) > 1 else [])
    ]
    return bars([(f"{sample.events:,} events a second", "", {"low": sample.events}) for sample in newest], marks)
