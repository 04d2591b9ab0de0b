"""Evidence: the raw lines around an alert, from its host."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request

from vedette.system.within import NAME
from vedette_console.api.fleet import Cursor, RequestId, fleet_of
from vedette_console.fleet.models import EvidenceOrder, EvidencePage, Job
from vedette_console.security.principal import Principal
from vedette_console.web import Page, need, note

router = APIRouter(tags=["evidence"])

Lines = Annotated[int, Query(ge=1, le=5000)]
Alert = Annotated[str, Query(pattern=rf"^{NAME}$")]


@router.post("/evidence", status_code=202)
async def pull_evidence(body: EvidenceOrder, request: Request, who: Principal = need("evidence")) -> EvidencePage:
    """Ask the alert's host for the lines around it; the reason stands in the records of both sides."""
    note(request, **body.model_dump())
    page: EvidencePage = await fleet_of(request).pull(who, body)
    note(request, asked=page.job.id)
    return page


@router.get("/evidence")
async def find_evidence(alert: Alert, request: Request, who: Principal = need("read")) -> Page[EvidencePage]:
    """What was asked for an alert, the newest first and with its lines."""
    items: list[EvidencePage] = await fleet_of(request).evidence_of(who, alert)
    return Page(items=items, total=len(items))


@router.get("/evidence/{job}")
async def get_evidence(
    job: RequestId, request: Request, after: Cursor = "", limit: Lines = 1000, who: Principal = need("read")
) -> EvidencePage:
    """Its lines, the alert's own marked."""
    page: EvidencePage = await fleet_of(request).evidence(who, job, after, limit)
    return page


@router.post("/evidence/{job}/cancel")
async def cancel_evidence(job: RequestId, request: Request, who: Principal = need("evidence")) -> Job:
    """Do not wait for it any longer."""
    note(request, asked=job)
    found: Job = await fleet_of(request).cancel(who, job)
    return found
