"""API tokens: everybody's own; admins see and revoke all."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from vedette.system.wallclock import utc_now
from vedette_console.api.forms import GrantForm, Label, forms, iso
from vedette_console.security.principal import Principal, limited
from vedette_console.store.accounts import MAX_GRANTS
from vedette_console.store.store import Store
from vedette_console.store.tokens import Token
from vedette_console.web import Done, Page, Problem, need, note, require

router = APIRouter(tags=["tokens"])
DAY = 86_400_000_000


class NewToken(BaseModel):
    """``grants``: null for all that its owner may, at any time; ``acts``: null for all acts of these roles; ``days``:
    how long it is good, null for ever."""

    model_config = ConfigDict(extra="forbid")

    label: Label
    grants: Annotated[list[GrantForm], Field(min_length=1, max_length=MAX_GRANTS)] | None = None
    acts: Annotated[list[Annotated[str, Field(max_length=64)]], Field(min_length=1, max_length=64)] | None = None
    days: Annotated[int, Field(ge=1, le=3_660, strict=True)] | None = 365


class TokenOut(BaseModel):
    """``expires``, ``used``: null for never."""

    id: str
    owner: str
    label: str
    grants: list[GrantForm]
    acts: list[str] | None
    created: str
    expires: str | None
    used: str | None


class MadeToken(BaseModel):
    """``secret`` is shown this once: send it as ``Authorization: Bearer SECRET``."""

    token: TokenOut
    secret: str


@router.get("/tokens")
async def get_tokens(
    request: Request,
    all: Annotated[bool, Query(description="Those of all users; for admins.")] = False,
    who: Principal = need("tokens.own"),
) -> Page[TokenOut]:
    """One's own tokens, the newest first."""
    if all:
        require(who, "tokens")
    store: Store = request.app.state.store
    found = [_out(token) for token in await asyncio.to_thread(store.tokens.of, "" if all else who.name)]
    return Page(items=found, total=len(found))


@router.post("/tokens")
async def post_token(body: NewToken, request: Request, who: Principal = need("tokens.own")) -> MadeToken:
    """A new token, which never gives more than its owner has."""
    note(request, label=body.label)
    if who.kind != "user":
        raise Problem(403, "a token makes no tokens", what_to_do="log in")
    store: Store = request.app.state.store
    wanted = who.grants if body.grants is None else [grant.grant() for grant in body.grants]
    grants = limited(wanted, who.grants)
    if body.grants is not None and set(grants) != set(wanted):
        raise Problem(422, f"{who.name} does not hold all of these grants", where="grants",
                      what_to_do="give a token what you have yourself, or less")  # fmt: skip
    note(request, grants=[f"{grant.role} {grant.fleet}/{grant.site}" for grant in grants], acts=body.acts)
    expires = None if body.days is None else utc_now() + body.days * DAY
    try:
        token, secret = await asyncio.to_thread(
            lambda: store.tokens.add(who.name, body.label, grants, acts=body.acts, expires=expires)
        )
    except ValueError as error:
        raise Problem(422, str(error), where="acts" if "act" in str(error) else "") from error
    note(request, token=token.id)
    return MadeToken(token=_out(token), secret=secret)


@router.delete("/tokens/{id}")
async def delete_token(id: str, request: Request, who: Principal = need("tokens.own")) -> Done:
    """Revoke a token; of others, an admin."""
    note(request, token=id)
    store: Store = request.app.state.store
    try:
        token = await asyncio.to_thread(store.tokens.get, id)
    except KeyError as error:
        raise Problem(404, "there is no such token", where="id") from error
    if token.owner != who.name:
        if not who.may("tokens"):
            raise Problem(404, "there is no such token", where="id")
        note(request, owner=token.owner)
    try:
        await asyncio.to_thread(store.tokens.revoke, id)
    except KeyError as error:
        raise Problem(404, "there is no such token", where="id") from error
    return Done()


def _out(token: Token) -> TokenOut:
    return TokenOut(
        id=token.id, owner=token.owner, label=token.label, grants=forms(token.grants),
        acts=None if token.acts is None else sorted(token.acts), created=iso(token.created),
        expires=None if token.expires is None else iso(token.expires),
        used=None if token.used is None else iso(token.used),
    )  # fmt: skip
