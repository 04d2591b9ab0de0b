"""Reports: the daily page as a file, made on request or by schedule."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request
from fastapi.responses import Response

from vedette_console.pages.render import page
from vedette_console.security.principal import Principal
from vedette_console.web import need

router = APIRouter()


@router.get("/reports")
async def reports(request: Request, who: Principal = need("read")) -> Response:
    """Those that were made, the newest first."""
    rows = await asyncio.to_thread(request.app.state.reports.rows, who)
    return page(request, "reports.html.j2", found=rows, kept=request.app.state.settings.reports is not None)
