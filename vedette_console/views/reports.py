"""Reports: listed, read, asked for."""

from __future__ import annotations

import asyncio
from datetime import date
from typing import Annotated

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response
from pydantic import Field

from vedette_console.data.models_fleet import ReportRow
from vedette_console.data.reports import MAX_DAYS, Reports
from vedette_console.pages.render import page
from vedette_console.security.principal import Principal
from vedette_console.web import Listing, Sent, need, note

api = APIRouter(tags=["reports"])


class NewReport(Sent):
    """``days`` up to ``until``, or null: today."""

    days: Annotated[int, Field(ge=1, le=MAX_DAYS)] = 1
    until: date | None = None


@api.get("/reports")
async def get_reports(request: Request, who: Principal = need("read")) -> Listing[ReportRow]:
    """Reports, the newest first; those that are being made, too."""
    reports: Reports = request.app.state.reports
    rows = await asyncio.to_thread(reports.rows, who)
    return Listing(items=rows, total=len(rows))


@api.get("/reports/{name}", response_class=HTMLResponse)
async def get_report(request: Request, name: str, who: Principal = need("read")) -> HTMLResponse:
    """The page of a report, which loads nothing and has a content security policy of its own."""
    reports: Reports = request.app.state.reports
    html = await asyncio.to_thread(reports.read, who, name)
    return HTMLResponse(html, headers={"Content-Disposition": f'attachment; filename="{name}.html"'})


@api.post("/reports", status_code=202)
async def post_report(body: NewReport, request: Request, who: Principal = need("report")) -> ReportRow:
    """Ask for a report, which is made in the background."""
    note(request, days=body.days, **({"until": str(body.until)} if body.until else {}))
    reports: Reports = request.app.state.reports
    return await reports.asked(who, body.days, body.until)


pages = APIRouter()


@pages.get("/reports")
async def show_reports(request: Request, who: Principal = need("read")) -> Response:
    """Those that were made, the newest first."""
    rows = await asyncio.to_thread(request.app.state.reports.rows, who)
    return page(request, "reports.html.j2", reports=rows, enabled=request.app.state.settings.reports is not None)
