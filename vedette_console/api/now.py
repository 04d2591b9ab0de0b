"""*Now*: what to look at first."""

from __future__ import annotations

from fastapi import APIRouter, Request

from vedette_console.api.campaigns import Days
from vedette_console.data import now
from vedette_console.data.models_fleet import Now
from vedette_console.data.reader import Pool
from vedette_console.security.principal import Principal
from vedette_console.web import need

router = APIRouter(tags=["now"])


@router.get("/now")
async def get_now(request: Request, days: Days = 1, who: Principal = need("read")) -> Now:
    """What to look at first, of the last days."""
    pool: Pool = request.app.state.pool
    return await pool.ask(now.now, who, days)
