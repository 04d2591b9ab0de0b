"""The audit log: who did what."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from vedette_console.pages.render import page, query_of
from vedette_console.security.principal import Principal
from vedette_console.security.roles import ACTS
from vedette_console.store.store import Store
from vedette_console.web import need

router = APIRouter()
ROWS = 100
OWN_ACTS = ("login", "logout", "preferences")


@router.get("/audit")
async def audit(
    request: Request,
    principal: Principal = need("audit.read"),
    who: Annotated[str, Query(max_length=200)] = "",
    act: Annotated[str, Query(max_length=64)] = "",
    after: Annotated[int, Query(ge=1, le=2**53)] | None = None,
) -> Response:
    """Rows, the newest first."""
    store: Store = request.app.state.store
    rows = await asyncio.to_thread(
        lambda: store.audit.read(who=who, act=act, before=2**62 if after is None else after, limit=ROWS + 1)
    )
    following = query_of(request, after=rows[ROWS - 1].seq) if len(rows) > ROWS else ""
    entries = [
        {
            "seq": row.seq,
            "at": datetime.fromtimestamp(row.at / 1e6, UTC),
            "who": row.who,
            "act": row.act,
            "what": row.what,
            "outcome": row.outcome,
            "address": row.address,
        }
        for row in rows[:ROWS]
    ]
    return page(
        request,
        "audit.html.j2",
        entries=entries,
        by=who,
        act=act,
        acts=(*OWN_ACTS, *ACTS),
        first=query_of(request, after=None) if after else "",
        following=following,
    )
