"""*Now*, the first page: what to look at first."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from vedette_console.data import counting, now
from vedette_console.data.models_fleet import Now
from vedette_console.data.reader import ask, pool_of
from vedette_console.pages.filters import Zone
from vedette_console.pages.render import page, together
from vedette_console.security.principal import Principal
from vedette_console.views.alerts import bars_of, levels_of
from vedette_console.views.forms import Days
from vedette_console.web import Problem, need

api = APIRouter(tags=["now"])


@api.get("/now")
async def get_now(request: Request, days: Days = 1, who: Principal = need("read")) -> Now:
    """What to look at first, of the last days."""
    return await ask(request, now.now, who, days)


pages = APIRouter()


@pages.get("/")
async def show_now(
    request: Request, who: Principal = need("read"), days: Annotated[int, Query(ge=1, le=31)] = 2
) -> Response:
    """Cards, what calls for attention, critical alerts, risks, agents in trouble."""
    question = pool_of(request).ask
    first, over_time = await together(
        request, question(now.now, who, days), question(counting.histogram, who, f"since:{days}d")
    )
    if isinstance(first, Problem):
        raise first
    counted = None if isinstance(over_time, Problem) or first.empty or not over_time.total else over_time
    return page(
        request,
        "now.html.j2",
        now=first,
        levels=levels_of(counted),
        bars=bars_of(counted, Zone.of(request), f"since:{days}d") if counted else None,
    )
