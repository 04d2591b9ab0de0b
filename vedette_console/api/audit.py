"""The audit log: read, taken along, verified."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel
from starlette.responses import StreamingResponse

from vedette.model.times import written_time
from vedette_console.api.forms import iso
from vedette_console.security.principal import Principal
from vedette_console.store.audit import Entry, as_json
from vedette_console.store.store import Store
from vedette_console.web import MAX_LIMIT, Page, Problem, need

router = APIRouter(tags=["audit"])
Text = Annotated[str, Query(max_length=128, pattern=r"^[^\x00-\x1f\x7f]*$")]
MOST = 2**53


class EntryOut(BaseModel):
    """``outcome``: "done", "refused: …" or "failed: …"; ``hash`` covers all else, ``previous`` is that of the row
    before."""

    seq: int
    at: str
    who: str
    act: str
    what: dict[str, Any]
    outcome: str
    address: str
    previous: str
    hash: str


class Verified(BaseModel):
    """``whole``: whether all rows are as they were written; if not, ``broken`` is the first that is not, with the
    reason. ``head``: the last good row's hash: note it elsewhere, and pass it the next time."""

    whole: bool
    rows: int
    head: str
    broken: int | None
    reason: str
    said: str
    """The same in words."""


@router.get("/audit")
async def get_audit(
    request: Request, principal: Principal = need("audit.read"), who: Text = "", act: Text = "", since: Text = "",
    until: Text = "", after: Annotated[int, Query(ge=1, le=MOST)] | None = None,
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT)] = 100,
) -> Page[EntryOut]:  # fmt: skip
    """Rows, the newest first; ``since`` and ``until`` are ISO 8601."""
    store: Store = request.app.state.store
    begin, end = _moment(since, "since", 0), _moment(until, "until", 2**62)
    rows = await asyncio.to_thread(
        lambda: store.audit.read(who=who, act=act, since=begin, until=end, before=after or 2**62, limit=limit + 1)
    )
    more = str(rows[limit - 1].seq) if len(rows) > limit else None
    return Page(items=[_out(row) for row in rows[:limit]], next=more)


@router.get("/audit/export", response_class=StreamingResponse, responses={200: {
    "content": {"application/x-ndjson": {"schema": {"type": "string"}}}, "description": "A line of JSON for each row."
}})  # fmt: skip
async def get_audit_export(
    request: Request, who: Principal = need("audit.read", audit=True)
) -> StreamingResponse:  # fmt: skip
    """The whole log, a row a line, in order; `vedette region console audit verify FILE` verifies it."""
    store: Store = request.app.state.store

    def lines() -> Iterator[str]:
        for entry in store.audit.all():
            yield as_json(entry) + "\n"

    name = 'attachment; filename="vedette-audit.ndjson"'
    return StreamingResponse(lines(), media_type="application/x-ndjson", headers={"Content-Disposition": name})


@router.get("/audit/verify")
async def get_audit_verify(
    request: Request, who: Principal = need("audit.read"),
    seq: Annotated[int, Query(ge=1, le=MOST)] | None = None,
    hash: Annotated[str, Query(pattern=r"^([0-9a-f]{64})?$")] = "",
) -> Verified:  # fmt: skip
    """Whether all rows are as they were written. ``seq`` and ``hash``: a row's that were noted elsewhere."""
    store: Store = request.app.state.store
    if (seq is None) != (hash == ""):
        raise Problem(422, "seq and hash go together", where="hash" if seq else "seq")
    found = await asyncio.to_thread(store.audit.verify, {seq: hash} if seq is not None else None)
    said = f"All {found.rows:,} rows are as they were written."
    if found.broken is not None:
        said = f"Row {found.broken} is not as it was written: {found.reason}."
    return Verified(
        whole=found.broken is None, rows=found.rows, head=found.head, broken=found.broken, reason=found.reason,
        said=f"{said} The last good row's hash, to be noted elsewhere: {found.head}",
    )  # fmt: skip


def _moment(text: str, where: str, default: int) -> int:
    if not text:
        return default
    found = written_time(text)
    if found is None:
        raise Problem(422, f"{text!r} is not a time", where=where, what_to_do="write 2026-11-22T20:00:00Z")
    return found


def _out(entry: Entry) -> EntryOut:
    return EntryOut(
        seq=entry.seq, at=iso(entry.at), who=entry.who, act=entry.act, what=entry.what, outcome=entry.outcome,
        address=entry.address, previous=entry.previous, hash=entry.hash,
    )  # fmt: skip
