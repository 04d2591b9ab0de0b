"""The first page: what to look at first."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from spark_jobs.tables.ask import LEVELS
from vedette_console.data.counting import histogram
from vedette_console.data.models import Histogram
from vedette_console.data.now import now as ask_now
from vedette_console.pages.render import page
from vedette_console.pages.together import together
from vedette_console.security.principal import Principal
from vedette_console.web import Problem, need

router = APIRouter()


@router.get("/")
async def now(
    request: Request, who: Principal = need("read"), days: Annotated[int, Query(ge=1, le=31)] = 2
) -> Response:
    """Cards, what calls for attention, critical alerts, risks, agents in trouble."""
    ask = request.app.state.pool.ask
    found, over_time = await together(request, ask(ask_now, who, days), ask(histogram, who, f"since:{days}d"))
    if isinstance(found, Problem):
        raise found
    shown = None if isinstance(over_time, Problem) or found.empty else plot(over_time)
    return page(request, "now.html.j2", now=found, plot=shown)


def plot(found: Histogram) -> dict[str, Any] | None:
    """The histogram for the chart: seconds UTC, and of each level that there is the alerts of each step."""
    if not found.total:
        return None
    held = {level: [one.levels.get(level, 0) for one in found.buckets] for level in (*reversed(LEVELS), "other")}
    known = set(LEVELS)
    held["other"] = [sum(n for level, n in one.levels.items() if level not in known) for one in found.buckets]
    return {
        "times": [int(one.start.timestamp()) for one in found.buckets],
        "levels": [{"name": level, "alerts": alerts} for level, alerts in held.items() if any(alerts)],
    }
