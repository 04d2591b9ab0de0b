"""Users, their grants, and how they log in: for admins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, TypeVar

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import Field, StrictBool

from vedette_console.pages.render import page
from vedette_console.security.identity import cookie_name
from vedette_console.security.passwords import Busy, mistake
from vedette_console.security.principal import Principal
from vedette_console.store.accounts import MAX_GRANTS, LastAdmin, User
from vedette_console.store.database import Conflict
from vedette_console.store.store import Store, store_of
from vedette_console.views.forms import GrantForm, UserName, forms, iso
from vedette_console.web import Done, Listing, Model, Problem, Sent, need, note

api = APIRouter(tags=["users"])
T = TypeVar("T")
Grants = Annotated[list[GrantForm], Field(min_length=1, max_length=MAX_GRANTS)]


class NewUser(Sent):
    """Without a password the user gets a one-time link."""

    name: UserName
    grants: Grants
    password: str | None = None


class ChangedUser(Sent):
    """What is null stays. ``follows``: true: the role at the OpenID provider is the user's again, in place of
    ``grants``."""

    grants: Grants | None = None
    follows: StrictBool | None = None
    disabled: StrictBool | None = None


class NewPassword(Sent):
    """null: none any more."""

    password: str | None


class UserOut(Model):
    """``origin``: "local", or "oidc" for one of the OpenID provider; ``password``: whether there is one; ``grants``: as
    they were given, ``follows``: by the provider; ``provided``: the role there, which caps them, "" for none."""

    name: str
    origin: str
    password: bool
    disabled: bool
    created: str
    grants: list[GrantForm]
    follows: bool
    provided: str
    sessions: int


class MadeUser(Model):
    """``link``: where the user logs in, once; "" with a password."""

    user: UserOut
    link: str


class Link(Model):
    """Where the user logs in, once, within the next minutes."""

    link: str


@api.get("/users")
async def get_users(request: Request, who: Principal = need("users")) -> Listing[UserOut]:
    """All users, by name."""
    users = await asyncio.to_thread(_all, store_of(request))
    return Listing(items=users, total=len(users))


@api.post("/users")
async def post_user(body: NewUser, request: Request, who: Principal = need("users")) -> MadeUser:
    """A new user."""
    note(request, user=body.name, grants=_written(body.grants))
    store = store_of(request)
    password = await hashed(request, body.password, body.name) if body.password is not None else ""
    grants = [grant.grant() for grant in body.grants]
    user = await _try(lambda: store.accounts.add(body.name, grants, password=password))
    token = "" if password else await asyncio.to_thread(store.sessions.offer, body.name)
    out = await asyncio.to_thread(_out, user, store)
    return MadeUser(user=out, link=_link(request, token) if token else "")


@api.put("/users/{name}")
async def put_user(name: UserName, body: ChangedUser, request: Request, who: Principal = need("users")) -> UserOut:
    """Other grants, or those of the provider again; disabled or not."""
    store = store_of(request)
    note(request, user=name)
    if body.grants is not None and body.follows:
        raise Problem(422, "either grants, or those of the provider", where="follows", what_to_do="leave one out")

    def change() -> UserOut:
        with store.database.transaction("users"):
            user = store.accounts.get(name)
            if body.grants is not None:
                user = store.accounts.grant(name, [grant.grant() for grant in body.grants])
            if body.follows is not None:
                user = store.accounts.follow(name, body.follows)
            if body.disabled is not None:
                user = store.accounts.disable(name, body.disabled)
                if body.disabled:
                    store.sessions.end_all(name)
        return _out(user, store)

    if body.grants is not None:
        note(request, grants=_written(body.grants))
    if body.follows is not None:
        note(request, follows=body.follows)
    if body.disabled is not None:
        note(request, disabled=body.disabled)
    return await _try(change)


@api.put("/users/{name}/password")
async def put_user_password(
    name: UserName, body: NewPassword, request: Request, who: Principal = need("users")
) -> Done:  # fmt: skip
    """Another password; ends the user's sessions, and no token."""
    store = store_of(request)
    note(request, user=name, password="removed" if body.password is None else "changed")
    await _try(lambda: store.accounts.get(name))
    password = "" if body.password is None else await hashed(request, body.password, name)

    def change() -> None:
        store.accounts.set_password(name, password)
        here = request.cookies.get(cookie_name(request.app.state.settings), "")
        store.sessions.end_all(name, but=here if name == who.name else "")

    await _try(change)
    return Done()


@api.post("/users/{name}/link")
async def post_user_link(name: UserName, request: Request, who: Principal = need("users")) -> Link:
    """A one-time link by which the user logs in."""
    store = store_of(request)
    note(request, user=name)
    await _try(lambda: store.accounts.get(name))
    return Link(link=_link(request, await asyncio.to_thread(store.sessions.offer, name)))


@api.delete("/users/{name}")
async def delete_user(name: UserName, request: Request, who: Principal = need("users")) -> Done:
    """Remove a user, with sessions, tokens and searches."""
    note(request, user=name)
    await _try(lambda: store_of(request).accounts.remove(name))
    return Done()


async def hashed(request: Request, password: str, name: str) -> str:
    """A new password's hash. Raises Problem 422 and 503."""
    if why := mistake(password, name):
        raise Problem(422, why, where="password", what_to_do="choose a longer one, such as several words")
    try:
        digest: str = await request.app.state.passwords.make(password)
    except Busy as error:
        raise Problem(503, str(error), what_to_do="try again in a few seconds", headers={"Retry-After": "5"}) from error
    return digest


async def _try(function: Callable[[], T]) -> T:
    """Raises Problem for what the store refuses."""
    try:
        return await asyncio.to_thread(function)
    except KeyError as error:
        raise Problem(404, f"there is no user {error.args[0]}", where="name") from error
    except Conflict as error:
        raise Problem(409, "there is a user of that name already, or was one", where="name",
                      what_to_do="take another") from error  # fmt: skip
    except LastAdmin as error:
        raise Problem(409, str(error), what_to_do="give another user the role admin, everywhere") from error
    except ValueError as error:
        raise Problem(422, str(error)) from error


def _all(store: Store) -> list[UserOut]:
    return [_out(user, store) for user in store.accounts.all()]


def _out(user: User, store: Store) -> UserOut:
    return UserOut(
        name=user.name, origin="oidc" if user.subject else "local", password=bool(user.password),
        disabled=user.disabled, created=iso(user.created), grants=forms(user.granted),
        follows=user.follows, provided=user.provided or "", sessions=len(store.sessions.of(user.name)),
    )  # fmt: skip


def _written(grants: list[GrantForm]) -> str:
    return ", ".join(f"{grant.role} {grant.fleet}/{grant.site}" for grant in grants)


def _link(request: Request, token: str) -> str:
    return f"{request.app.state.settings.url}/login/once?token={token}"


pages = APIRouter()


@pages.get("/users")
async def show_users(request: Request, who: Principal = need("users")) -> Response:
    """All of them, by name."""
    return page(request, "users.html.j2", users=await asyncio.to_thread(_all, store_of(request)))
