"""The fleet as it is: desired against actual, and one agent; questions and commands to it."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request

from vedette.system.within import NAME
from vedette_console.fleet.models import Action, AgentPage, AnswerPage, FleetPage, Job, Question
from vedette_console.security.principal import Principal
from vedette_console.web import MAX_LIMIT, need, note

router = APIRouter(tags=["fleet"])

Name = Annotated[str, Path(pattern=rf"^{NAME}$")]
RequestId = Annotated[str, Path(pattern=r"^[0-9a-f]{32}$")]
Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT)]
Cursor = Annotated[str, Query(max_length=9)]


def fleet_of(request: Request) -> Any:
    """The application's ``fleet.service.Fleet``."""
    return request.app.state.fleet


@router.get("/fleet")
async def get_fleet(
    request: Request, q: Annotated[str, Query(max_length=200)] = "",
    group: Annotated[str | None, Query(max_length=128)] = None, state: Annotated[str, Query(max_length=20)] = "",
    after: Cursor = "", limit: Limit = 100, who: Principal = need("read"),
) -> FleetPage:  # fmt: skip
    """Desired against actual, by group with reasons. `group` empty: agents in none; `state`: as wanted, behind,
    problem, away, no fleet, silent, degraded."""
    page: FleetPage = await fleet_of(request).overview(who, q, group, state, after, limit)
    return page


@router.get("/fleet/{fleet}/{agent}")
async def get_fleet_agent(fleet: Name, agent: Name, request: Request, who: Principal = need("read")) -> AgentPage:
    """One agent, by its newest heartbeat."""
    page: AgentPage = await fleet_of(request).agent(who, fleet, agent)
    return page


@router.post("/fleet/{fleet}/{agent}/ask", status_code=202)
async def ask_agent(
    fleet: Name, agent: Name, body: Question, request: Request, who: Principal = need("fleet.ask")
) -> AnswerPage:
    """Ask an agent for its status, rules, disk or versions, or to explain a rule. Answers within five seconds with what
    came; `/requests/{id}` has the rest."""
    note(request, fleet=fleet, agent=agent, **body.model_dump())
    page: AnswerPage = await fleet_of(request).ask(who, fleet, agent, body)
    note(request, asked=page.job.id)
    return page


@router.post("/fleet/{fleet}/{agent}/do", status_code=202)
async def do_agent(
    fleet: Name, agent: Name, body: Action, request: Request, who: Principal = need("fleet.ask")
) -> AnswerPage:
    """Have an agent reload, release its quarantine, or roll a bundle back."""
    note(request, fleet=fleet, agent=agent, **body.model_dump())
    page: AnswerPage = await fleet_of(request).do(who, fleet, agent, body)
    note(request, asked=page.job.id)
    return page


@router.get("/requests/{id}")
async def get_request(id: RequestId, request: Request, who: Principal = need("read")) -> AnswerPage:
    """What an agent was asked, and what it has answered so far."""
    page: AnswerPage = await fleet_of(request).answer(who, id)
    return page


@router.post("/requests/{id}/cancel")
async def cancel_request(id: RequestId, request: Request, who: Principal = need("fleet.ask")) -> Job:
    """Call off what was asked of an agent."""
    note(request, asked=id)
    found: Job = await fleet_of(request).cancel(who, id)
    return found
