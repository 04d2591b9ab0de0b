"""Logging in and out: by password, by a one-time link, by an OpenID provider."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request
from fastapi.responses import RedirectResponse, Response
from pydantic import Field

from vedette_console.pages.render import page
from vedette_console.security import csrf
from vedette_console.security.identity import cookie_name
from vedette_console.security.oidc import CALLBACK, Provider, Refused, local
from vedette_console.security.oidc import COOKIE as FLOW_COOKIE
from vedette_console.security.passwords import Busy
from vedette_console.security.principal import Principal
from vedette_console.settings import Settings
from vedette_console.store.accounts import User
from vedette_console.store.store import Store, store_of
from vedette_console.web import Done, Model, Problem, Sent, address, maybe, note, who

api = APIRouter(tags=["login"])


class Login(Sent):
    name: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[^\x00-\x1f\x7f]+$")]
    password: Annotated[str, Field(min_length=1, max_length=1_024)]


class Once(Sent):
    token: Annotated[str, Field(min_length=1, max_length=100)]


class LoggedIn(Model):
    """``csrf``: to be sent as X-CSRF-Token with whatever changes something."""

    name: str
    csrf: str


class Ways(Model):
    """How one can log in; ``oidc``: what the provider is called, "" without one."""

    password: bool
    oidc: str


def ways(settings: Settings) -> Ways:
    return Ways(password=True, oidc=settings.oidc.name if settings.oidc else "")


@api.get("/login/ways")
async def get_login_ways(request: Request) -> Ways:
    """How one can log in."""
    return ways(request.app.state.settings)


@api.post("/login")
async def post_login(body: Login, request: Request, response: Response) -> LoggedIn:
    """Log in by name and password; sets the cookie of a session."""
    state = request.app.state
    _audited(request, body.name, way="password")
    attempt(request, body.name)
    user = await asyncio.to_thread(_user, state.store, body.name)
    try:
        good = await state.passwords.check(user.password if user is not None else "", body.password)
    except Busy as error:
        state.attempts.taken_back(body.name, address(request))
        raise Problem(503, str(error), what_to_do="try again in a few seconds", headers={"Retry-After": "5"}) from error
    if not good or user is None or user.disabled:
        raise Problem(401, "the name or the password is wrong", what_to_do="after several attempts each takes longer")
    state.attempts.succeeded(body.name, address(request))
    return await _start(request, response, user.name)


@api.post("/login/once")
async def post_login_once(body: Once, request: Request, response: Response) -> LoggedIn:
    """Log in by the token of a one-time link; the first one makes the first admin."""
    store = store_of(request)
    _audited(request, "", way="one-time link")
    name = await asyncio.to_thread(_redeem, store, body.token)
    if name is None:
        request.state.audit = False
        raise Problem(401, "this link was used, or is too old", where="token",
                      what_to_do="have a new one made: vedette region console user login NAME")  # fmt: skip
    request.state.actor = name
    return await _start(request, response, name)


@api.post("/logout")
async def post_logout(request: Request, response: Response, who: Principal = Depends(who)) -> Done:
    """End this session."""
    request.state.act = "logout"
    settings: Settings = request.app.state.settings
    if who.kind != "user":
        raise Problem(403, "a token has no session", what_to_do="revoke the token")
    name = cookie_name(settings)
    await asyncio.to_thread(store_of(request).sessions.end, request.cookies.get(name, ""))
    response.delete_cookie(name, path="/", secure=settings.secure, httponly=True, samesite="lax")
    return Done()


@api.get("/login/oidc", include_in_schema=False)
async def get_login_oidc(request: Request, next: str = "/") -> Response:
    """Go to the OpenID provider."""
    try:
        return await _provider(request).start(request, next)
    except Refused as refused:
        return _back(request, refused)


@api.get("/login/oidc/callback", include_in_schema=False)
async def get_login_oidc_callback(request: Request) -> Response:
    """Come back from the OpenID provider."""
    provider = _provider(request)
    try:
        claims, then = await provider.finish(request)
        user = await asyncio.to_thread(provider.enter, claims, store_of(request))
    except Refused as refused:
        return _back(request, refused)
    _audited(request, user.name, way=provider.settings.name)
    answer = RedirectResponse(then, 303)
    await _start(request, answer, user.name)
    answer.delete_cookie(FLOW_COOKIE, path=CALLBACK)
    return answer


def _provider(request: Request) -> Provider:
    provider: Provider | None = request.app.state.oidc
    if provider is None:
        raise Problem(404, "no OpenID provider is configured", what_to_do="start the console with --oidc-issuer")
    return provider


def _back(request: Request, refused: Refused) -> Response:
    _audited(request, "", way="OpenID")
    note(request, reason=str(refused))
    answer = RedirectResponse(f"/login?error={refused.code}", 303)
    answer.delete_cookie(FLOW_COOKIE, path=CALLBACK)
    request.state.outcome = f"refused: {refused}"
    return answer


def _audited(request: Request, name: str, way: str) -> None:
    request.state.audit, request.state.act, request.state.actor = True, "login", name
    note(request, way=way)


def attempt(request: Request, name: str) -> None:
    """Count an attempt as failed before its password is looked at, so that many at once do not slip through; who finds
    that it has not takes it back. Raises Problem 429."""
    attempts, now = request.app.state.attempts, time.monotonic()
    wait = attempts.wait(name, address(request), now)
    if wait > 0:
        request.state.audit = False
        seconds = math.ceil(wait)
        raise Problem(429, f"too many attempts: wait for {seconds} s", what_to_do="wait, then try again",
                      headers={"Retry-After": str(seconds)})  # fmt: skip
    attempts.failed(name, address(request), now)


def _user(store: Store, name: str) -> User | None:
    try:
        return store.accounts.get(name)
    except KeyError:
        return None


def _redeem(store: Store, token: str) -> str | None:
    """The user of a one-time secret, None when it is good for nothing."""
    redeemed = store.sessions.redeem(token)
    if redeemed is None:
        return None
    name, first = redeemed
    user = store.accounts.first() if first else _user(store, name)
    return None if user is None or user.disabled else user.name


async def _start(request: Request, response: Response, name: str) -> LoggedIn:
    """A new session in place of the one that this browser had."""
    state = request.app.state
    settings: Settings = state.settings
    cookie_is = cookie_name(settings)
    old = request.cookies.get(cookie_is, "")
    if old:
        await asyncio.to_thread(store_of(request).sessions.end, old)
    cookie = await asyncio.to_thread(
        store_of(request).sessions.start, name, address=address(request), browser=request.headers.get("user-agent", "")
    )
    response.set_cookie(
        cookie_is, cookie, max_age=round(settings.sessions.absolute), path="/", secure=settings.secure, httponly=True,
        samesite="lax",
    )  # fmt: skip
    return LoggedIn(name=name, csrf=csrf.token(cookie))


pages = APIRouter()
ERRORS = {
    "refused": "The provider refused the login.",
    "no-role": "Your account at the provider has no role here. Ask an admin for one.",
    "too-many": "The provider does not list your groups, as there are too many. Ask an admin for a user.",
    "disabled": "Your user is disabled. Ask an admin.",
}


@pages.get("/login")
def show_login(request: Request, next: str = "/", error: str = "") -> Response:
    """The page to log in; who is logged in already goes on."""
    then = "/" if next.startswith("/login") else local(next)
    if maybe(request) is not None:
        return RedirectResponse(then, 303)
    oidc = request.app.state.settings.oidc
    way = {"name": oidc.name, "link": "/api/v1/login/oidc?next=" + quote(then, safe="")} if oidc else None
    said = ERRORS.get(error, "The provider did not log you in. Try again.") if error else ""
    return page(request, "login.html.j2", next=then, error=said, once="", oidc=way)


@pages.get("/login/once")
def show_once(request: Request, token: str = "") -> Response:
    """A one-time link: reading it changes nothing, so that a mail scanner does not use it up."""
    return page(request, "login.html.j2", next="/", error="", once=token[:200], oidc=None)
