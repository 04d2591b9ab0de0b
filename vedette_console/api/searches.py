"""Saved searches: everybody's own, and what others share."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field, StrictBool

from vedette_console.api.forms import Label, iso
from vedette_console.security.principal import Principal
from vedette_console.store.saved import Search
from vedette_console.store.store import Store
from vedette_console.web import Done, Page, Problem, need, note

router = APIRouter(tags=["searches"])


class NewSearch(BaseModel):
    """``query``: as ``/alerts?q=`` takes it; ``shared``: others see it."""

    model_config = ConfigDict(extra="forbid")

    name: Label
    query: Annotated[str, Field(max_length=4_000, pattern=r"^[^\x00]*$")]
    shared: StrictBool = False


class SearchOut(BaseModel):
    id: str
    owner: str
    name: str
    query: str
    shared: bool
    created: str


@router.get("/searches")
async def get_searches(request: Request, who: Principal = need("read")) -> Page[SearchOut]:
    """One's own searches and the shared ones, by name."""
    store: Store = request.app.state.store
    found = [_out(search) for search in await asyncio.to_thread(store.searches.of, who.name)]
    return Page(items=found, total=len(found))


@router.post("/searches")
async def post_search(body: NewSearch, request: Request, who: Principal = need("search.save")) -> SearchOut:
    """Save a search; one of the same name is replaced."""
    note(request, name=body.name, query=body.query, shared=body.shared)
    store: Store = request.app.state.store
    try:
        found = await asyncio.to_thread(
            lambda: store.searches.save(who.name, body.name, body.query, shared=body.shared)
        )
    except ValueError as error:
        raise Problem(409, str(error), where="name") from error
    return _out(found)


@router.delete("/searches/{id}")
async def delete_search(id: str, request: Request, who: Principal = need("search.save")) -> Done:
    """Remove one of one's own; of others' an admin."""
    note(request, search=id)
    store: Store = request.app.state.store
    try:
        found = await asyncio.to_thread(store.searches.get, id)
        if found.owner != who.name and not who.may("settings"):
            raise Problem(404, "there is no such search of yours", where="id")
        await asyncio.to_thread(store.searches.remove, id)
    except KeyError as error:
        raise Problem(404, "there is no such search", where="id") from error
    return Done()


def _out(search: Search) -> SearchOut:
    return SearchOut(
        id=search.id, owner=search.owner, name=search.name, query=search.query, shared=search.shared,
        created=iso(search.created),
    )  # fmt: skip
