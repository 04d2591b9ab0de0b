"""The audit log: read, taken along, verified."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from starlette.concurrency import iterate_in_threadpool
from starlette.responses import StreamingResponse

from vedette.model.times import written_time
from vedette_console.pages.render import page, pager
from vedette_console.security.principal import ACTS, Principal
from vedette_console.store.audit import as_json
from vedette_console.store.store import store_of
from vedette_console.streams import Streamed
from vedette_console.views.forms import Moment, Stored
from vedette_console.web import MAX_LIMIT, Listing, Model, Problem, need

api = APIRouter(tags=["audit"])
Text = Annotated[str, Query(max_length=128, pattern=r"^[^\x00-\x1f\x7f]*$")]
MOST = 2**53


class EntryOut(Stored):
    """``outcome``: "done", "refused: …" or "failed: …"; ``hash`` covers all else, ``previous`` is that of the row
    before."""

    seq: int
    at: Moment
    who: str
    act: str
    what: dict[str, Any]
    outcome: str
    address: str
    previous: str
    hash: str


class Verified(Model):
    """``whole``: whether all rows are as they were written; if not, ``broken`` is the first that is not, with the
    reason. ``head``: the last good row's hash: note it elsewhere, and pass it the next time."""

    whole: bool
    rows: int
    head: str
    broken: int | None
    reason: str
    said: str
    """The same in words."""


@api.get("/audit")
async def get_audit(
    request: Request, principal: Principal = need("audit.read"), who: Text = "", act: Text = "", since: Text = "",
    until: Text = "", after: Annotated[int, Query(ge=1, le=MOST)] | None = None,
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT)] = 100,
) -> Listing[EntryOut]:  # fmt: skip
    """Rows, the newest first; ``since`` and ``until`` are ISO 8601."""
    return await _rows(
        request, limit, after, who=who, act=act, since=_moment(since, "since", 0), until=_moment(until, "until", 2**62)
    )


async def _rows(request: Request, limit: int, after: int | None, **wanted: Any) -> Listing[EntryOut]:
    """``limit`` rows before ``after``, the newest first; ``wanted``: as ``Audit.read`` has it."""
    read = partial(store_of(request).audit.read, **wanted, before=after or 2**62, limit=limit + 1)
    rows = await asyncio.to_thread(read)
    following = str(rows[limit - 1].seq) if len(rows) > limit else None
    return Listing(items=[EntryOut.model_validate(row) for row in rows[:limit]], next=following)


@api.get("/audit/export", response_class=StreamingResponse, responses={200: {
    "content": {"application/x-ndjson": {"schema": {"type": "string"}}}, "description": "A line of JSON for each row."
}})  # fmt: skip
async def get_audit_export(
    request: Request, who: Principal = need("audit.read", audit=True)
) -> StreamingResponse:  # fmt: skip
    """The whole log, a row a line, in order; `vedette region console audit verify FILE` verifies it."""

    async def lines() -> AsyncGenerator[bytes]:
        async for entry in iterate_in_threadpool(store_of(request).audit.all()):
            yield f"{as_json(entry)}\n".encode()

    name = 'attachment; filename="vedette-audit.ndjson"'
    return Streamed(request, who, lines(), "application/x-ndjson", {"Content-Disposition": name})


@api.get("/audit/verify")
async def get_audit_verify(
    request: Request, who: Principal = need("audit.read"),
    seq: Annotated[int, Query(ge=1, le=MOST)] | None = None,
    hash: Annotated[str, Query(pattern=r"^([0-9a-f]{64})?$")] = "",
) -> Verified:  # fmt: skip
    """Whether all rows are as they were written. ``seq`` and ``hash``: a row's that were noted elsewhere."""
    if (seq is None) != (hash == ""):
        raise Problem(422, "seq and hash go together", where="hash" if seq else "seq")
    result = await asyncio.to_thread(store_of(request).audit.verify, {seq: hash} if seq is not None else None)
    said = f"All {result.rows:,} rows are as they were written."
    if result.broken is not None:
        said = f"Row {result.broken} is not as it was written: {result.reason}."
    return Verified(
        whole=result.broken is None, rows=result.rows, head=result.head, broken=result.broken, reason=result.reason,
        said=f"{said} The last good row's hash, to be noted elsewhere: {result.head}",
    )  # fmt: skip


def _moment(text: str, where: str, default: int) -> int:
    if not text:
        return default
    moment = written_time(text)
    if moment is None:
        raise Problem(422, f"{text!r} is not a time", where=where, what_to_do="write 2026-11-22T20:00:00Z")
    return moment


pages = APIRouter()
ROWS = 100
OWN_ACTS = ("login", "logout", "preferences")


@pages.get("/audit")
async def show_audit(
    request: Request,
    principal: Principal = need("audit.read"),
    who: Annotated[str, Query(max_length=200)] = "",
    act: Annotated[str, Query(max_length=64)] = "",
    after: Annotated[int, Query(ge=1, le=2**53)] | None = None,
) -> Response:
    """Rows, the newest first."""
    rows = await _rows(request, ROWS, after, who=who, act=act)
    return page(
        request,
        "audit.html.j2",
        entries=rows.items,
        by=who,
        act=act,
        acts=(*OWN_ACTS, *ACTS),
        **pager(request, rows.next),
    )
