"""Hunts over what hosts have stored, evidence (the raw lines around an alert), and backtests over exported logs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response

from vedette.system.within import NAME
from vedette_console.fleet.models_asked import (
    BacktestOrder,
    BacktestPage,
    BacktestsList,
    EvidenceOrder,
    EvidencePage,
    HuntOrder,
    HuntPage,
    HuntRow,
    Job,
)
from vedette_console.fleet.service import fleet_of
from vedette_console.pages.render import page, pager
from vedette_console.pages.shapes import bars
from vedette_console.security.principal import Principal
from vedette_console.views.forms import START, Limit, RequestId
from vedette_console.web import Listing, need, note

api = APIRouter(tags=["hunts"])


@api.get("/hunts")
def get_hunts(
    request: Request, start: int = START, limit: Limit = 50, who: Principal = need("read")
) -> Listing[HuntRow]:
    """Hunts of this console, the newest first."""
    return fleet_of(request).hunts.listed(who, start, limit)


@api.post("/hunts", status_code=202)
async def start_hunt(body: HuntOrder, request: Request, who: Principal = need("hunt")) -> HuntPage:
    """Start one; it goes on in the background, also when the console is started again."""
    paths = [rule.path for rule in body.rules]
    note(request, rules=paths, group=body.group, agents=body.agents, since=body.since, reason=body.reason)
    started: HuntPage = await fleet_of(request).hunts.start(who, body)
    note(request, asked=started.hunt.id)
    return started


@api.get("/hunts/{id}")
def get_hunt(id: RequestId, request: Request, who: Principal = need("read")) -> HuntPage:
    """What hosts have found so far."""
    return fleet_of(request).hunts.hunt(who, id)


@api.post("/hunts/{id}/cancel")
async def cancel_hunt(id: RequestId, request: Request, who: Principal = need("hunt")) -> Job:
    """Stop it on every host; what was found so far comes."""
    note(request, asked=id)
    return await fleet_of(request).desk.cancel(who, id)


api_evidence = APIRouter(tags=["evidence"])

Lines = Annotated[int, Query(ge=1, le=5000)]
Alert = Annotated[str, Query(pattern=rf"^{NAME}$")]


@api_evidence.post("/evidence", status_code=202)
async def pull_evidence(body: EvidenceOrder, request: Request, who: Principal = need("evidence")) -> EvidencePage:
    """Ask the alert's host for the lines around it; the reason stands in the records of both sides."""
    note(request, **body.model_dump())
    pulled: EvidencePage = await fleet_of(request).evidence.pull(who, body)
    note(request, asked=pulled.job.id)
    return pulled


@api_evidence.get("/evidence")
def find_evidence(alert: Alert, request: Request, who: Principal = need("read")) -> Listing[EvidencePage]:
    """What was asked for an alert, the newest first and with its lines."""
    items: list[EvidencePage] = fleet_of(request).evidence.of(who, alert)
    return Listing(items=items, total=len(items))


@api_evidence.get("/evidence/{job}")
def get_evidence(
    job: RequestId, request: Request, start: int = START, limit: Lines = 1000, who: Principal = need("read")
) -> EvidencePage:
    """Its lines, the alert's own marked."""
    return fleet_of(request).evidence.reply(who, job, start, limit)


@api_evidence.post("/evidence/{job}/cancel")
async def cancel_evidence(job: RequestId, request: Request, who: Principal = need("evidence")) -> Job:
    """Do not wait for it any longer."""
    note(request, asked=job)
    return await fleet_of(request).desk.cancel(who, job)


api_backtests = APIRouter(tags=["backtests"])

BacktestId = Annotated[str, Path(pattern=r"^[0-9a-f]{16}$")]


@api_backtests.get("/backtests")
def get_backtests(
    request: Request, start: int = START, limit: Limit = 50, who: Principal = need("read")
) -> BacktestsList:
    """Backtests, the newest first, and the sources there are."""
    return fleet_of(request).backtests.listed(who, start, limit)


@api_backtests.post("/backtests", status_code=202)
async def start_backtest(body: BacktestOrder, request: Request, who: Principal = need("rules.try")) -> BacktestPage:
    """Start one; one runs at a time."""
    note(request, rules=[rule.path for rule in body.rules], since=body.since, until=body.until, reason=body.reason)
    started: BacktestPage = await fleet_of(request).backtests.begin(who, body)
    note(request, backtest=started.backtest.id)
    return started


@api_backtests.get("/backtests/{id}")
def get_backtest(id: BacktestId, request: Request, who: Principal = need("read")) -> BacktestPage:
    """How far it is, or what it has found."""
    return fleet_of(request).backtests.backtest(who, id)


@api_backtests.post("/backtests/{id}/cancel")
async def cancel_backtest(id: BacktestId, request: Request, who: Principal = need("rules.try")) -> BacktestPage:
    """End it; nothing of it is kept but that it was."""
    note(request, backtest=id)
    return await fleet_of(request).backtests.cancel(who, id)


pages = APIRouter()
ROWS = 50


@pages.get("/hunts")
def show_hunts(request: Request, who: Principal = need("read"), start: int = START) -> Response:
    """All hunts, the newest first, and the newest backtests."""
    hunts, backtests = fleet_of(request).hunts.listed(who, start, ROWS), fleet_of(request).backtests.listed(who)
    return page(
        request,
        "hunts.html.j2",
        page=hunts,
        backtests=backtests.items[:10],
        **pager(request, hunts.next),
    )


@pages.get("/hunts/{id}")
def show_hunt(request: Request, id: str, who: Principal = need("read")) -> Response:
    """One hunt: how far each agent is, and what it found."""
    return page(request, "hunt.html.j2", page=fleet_of(request).hunts.hunt(who, id))


@pages.get("/backtests/{id}")
def show_backtest(request: Request, id: str, who: Principal = need("read")) -> Response:
    """One backtest."""
    result = fleet_of(request).backtests.backtest(who, id)
    columns = [(f"{hour.hour}: {hour.matches:,}", "", {"low": hour.matches}) for hour in result.by_hour]
    marks = [result.by_hour[0].hour, result.by_hour[-1].hour] if len(result.by_hour) > 1 else []
    return page(request, "backtest.html.j2", page=result, hours=bars(columns, marks))
