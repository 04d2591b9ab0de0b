"""Who one is, and how one likes the console."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, ConfigDict, Field

from vedette_console.api.forms import GrantForm, forms, iso
from vedette_console.api.login import attempt
from vedette_console.api.users import hashed
from vedette_console.security.identity import cookie_name
from vedette_console.security.passwords import Busy
from vedette_console.security.principal import Principal
from vedette_console.security.roles import ACTS
from vedette_console.store.secret import digest
from vedette_console.store.store import Store
from vedette_console.web import Done, Page, Problem, address, note, who

router = APIRouter(tags=["me"])


class Preferences(BaseModel):
    """``time_zone``: a name such as Europe/Vienna, "" for that of the browser."""

    model_config = ConfigDict(extra="forbid")

    theme: Literal["auto", "light", "dark"] = "auto"
    time_zone: Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9_+/-]*$")] = ""


class Me(BaseModel):
    """``acts``: what one may somewhere; ``csrf``: to be sent as X-CSRF-Token with whatever changes something."""

    name: str
    kind: Literal["user", "token"]
    role: str | None
    grants: list[GrantForm]
    acts: list[str]
    preferences: Preferences
    csrf: str


@router.get("/me")
async def get_me(request: Request, who: Principal = Depends(who)) -> Me:
    """Who one is, and what one may."""
    user = await asyncio.to_thread(request.app.state.store.accounts.get, who.name)
    return Me(
        name=who.name, kind="user" if who.kind == "user" else "token", role=who.role, grants=forms(who.grants),
        acts=[act for act in ACTS if who.may(act)], preferences=Preferences(**user.preferences),
        csrf=request.state.csrf if who.kind == "user" else "",
    )  # fmt: skip


@router.put("/me/preferences")
async def set_preferences(body: Preferences, request: Request, who: Principal = Depends(who)) -> Done:
    """How one likes the console."""
    request.state.act = "preferences"
    note(request, **body.model_dump())
    _only_users(who)
    await asyncio.to_thread(request.app.state.store.accounts.prefer, who.name, body.model_dump())
    return Done()


class OwnPassword(BaseModel):
    """``old``: the present one, "" for who has none yet."""

    model_config = ConfigDict(extra="forbid")

    old: Annotated[str, Field(max_length=1_024)] = ""
    new: Annotated[str, Field(max_length=1_024)]


class SessionOut(BaseModel):
    """``here``: the one of this request."""

    id: str
    created: str
    seen: str
    address: str
    browser: str
    here: bool


@router.post("/me/password")
async def set_own_password(body: OwnPassword, request: Request, who: Principal = Depends(who)) -> Done:
    """Another password; ends all other sessions."""
    request.state.act = "password"
    _only_users(who)
    state = request.app.state
    store: Store = state.store
    user = await asyncio.to_thread(store.accounts.get, who.name)
    if user.subject is not None:
        raise Problem(409, f"{who.name} logs in by the OpenID provider, and has no password here")
    if user.password:
        try:
            attempt(request, who.name)
            if not await state.passwords.check(user.password, body.old):
                raise Problem(403, "the old password is wrong", where="old")
        except Busy as error:
            state.attempts.taken_back(who.name, address(request))
            raise Problem(503, str(error), what_to_do="try again in a few seconds") from error
        state.attempts.succeeded(who.name, address(request))
    made = await hashed(request, body.new, who.name)
    cookie = request.cookies.get(cookie_name(state.settings), "")

    def change() -> None:
        store.accounts.set_password(who.name, made)
        store.sessions.end_all(who.name, but=cookie)

    await asyncio.to_thread(change)
    return Done()


@router.get("/me/sessions")
async def get_own_sessions(request: Request, who: Principal = Depends(who)) -> Page[SessionOut]:
    """Where one is logged in, the last used first."""
    state = request.app.state
    here = digest(request.cookies.get(cookie_name(state.settings), ""))[:16]
    rows = await asyncio.to_thread(state.store.sessions.of, who.name)
    items = [
        SessionOut(id=row.id, created=iso(row.created), seen=iso(row.seen), address=row.address, browser=row.browser,
                   here=row.id == here)
        for row in rows
    ]  # fmt: skip
    return Page(items=items, total=len(items))


@router.delete("/me/sessions/{id}")
async def delete_own_session(id: str, request: Request, who: Principal = Depends(who)) -> Done:
    """Log out elsewhere."""
    request.state.act = "logout"
    note(request, session=id)
    _only_users(who)
    if not await asyncio.to_thread(request.app.state.store.sessions.end_one, who.name, id):
        raise Problem(404, "there is no such session of yours", where="id")
    return Done()


def _only_users(who: Principal) -> None:
    if who.kind != "user":
        raise Problem(403, "this is not for tokens", what_to_do="log in")
