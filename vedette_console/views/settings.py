"""Who one is, and how one likes the console: preferences, password, sessions, API tokens (admins see and revoke all),
saved searches; what this console can do as it was started, and what admins set for all.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response
from pydantic import Field, StrictBool

from vedette.system.wallclock import utc_now
from vedette_console.pages.filters import names, span
from vedette_console.pages.render import chosen, page
from vedette_console.security.identity import cookie_name
from vedette_console.security.passwords import Busy
from vedette_console.security.principal import ACTS, Principal, limited
from vedette_console.settings import Settings
from vedette_console.store.accounts import MAX_GRANTS
from vedette_console.store.sessions import Token, digest
from vedette_console.store.store import Store, store_of
from vedette_console.views.forms import GrantForm, Label, Moment, Stored, forms, iso
from vedette_console.views.login import attempt
from vedette_console.views.users import hashed
from vedette_console.web import Done, Listing, Model, Problem, Sent, address, need, note, require, who

api = APIRouter(tags=["settings"])


class Chosen(Sent):
    """``banner``: a line above every page, "" for none; ``time_zone``: that of pages for who has not chosen one, "" for
    the browser's."""

    banner: Annotated[str, Field(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")] = ""
    time_zone: Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9_+/-]*$")] = ""


class Features(Model):
    """What is configured: live fleet state and roll-outs, asking agents, signing bundles, rule files, backtests,
    reports, and single sign-on."""

    fleet: bool
    rollouts: bool
    ask: bool
    sign: bool
    rules: bool
    backtests: bool
    reports: bool
    oidc: bool


class SettingsOut(Model):
    """``streams``: open event streams, of all pages."""

    chosen: Chosen
    features: Features
    streams: int


@api.get("/settings")
async def get_settings(request: Request, who: Principal = need("read")) -> SettingsOut:
    """What is set, and what is configured."""
    return await asyncio.to_thread(_read, request)


@api.put("/settings")
async def put_settings(body: Chosen, request: Request, who: Principal = need("settings")) -> SettingsOut:
    """Set it for all."""
    note(request, **body.model_dump())
    store = store_of(request)

    def write() -> SettingsOut:
        with store.database.transaction("settings"):
            for key, value in body.model_dump().items():
                store.choices.set(key, value)
        return _read(request)

    return await asyncio.to_thread(write)


def features(settings: Settings) -> Features:
    return Features(
        fleet=settings.broker is not None, rollouts=settings.broker is not None and settings.trust is not None,
        ask=settings.operator_key is not None, sign=settings.author_key is not None, rules=bool(settings.rules),
        backtests=bool(settings.backtest_sources), reports=settings.reports is not None, oidc=settings.oidc is not None,
    )  # fmt: skip


def chosen_of(store: Store) -> Chosen:
    choices = store.choices.all()
    return Chosen(**{key: choices[key] for key in Chosen.model_fields if key in choices})


def _read(request: Request) -> SettingsOut:
    state = request.app.state
    return SettingsOut(chosen=chosen_of(state.store), features=features(state.settings), streams=len(state.hub))


api_me = APIRouter(tags=["me"])


class Preferences(Sent):
    """``time_zone``: a name such as Europe/Vienna, "" for that of the browser."""

    theme: Literal["auto", "light", "dark"] = "auto"
    time_zone: Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9_+/-]*$")] = ""


class Me(Model):
    """``acts``: what one may somewhere; ``csrf``: to be sent as X-CSRF-Token with whatever changes something."""

    name: str
    kind: Literal["user", "token"]
    role: str | None
    grants: list[GrantForm]
    acts: list[str]
    preferences: Preferences
    csrf: str


@api_me.get("/me")
async def get_me(request: Request, who: Principal = Depends(who)) -> Me:
    """Who one is, and what one may."""
    user = await asyncio.to_thread(store_of(request).accounts.get, who.name)
    return Me(
        name=who.name, kind="user" if who.kind == "user" else "token", role=who.role, grants=forms(who.grants),
        acts=[act for act in ACTS if who.may(act)], preferences=Preferences(**user.preferences),
        csrf=request.state.csrf if who.kind == "user" else "",
    )  # fmt: skip


@api_me.put("/me/preferences")
async def set_preferences(body: Preferences, request: Request, who: Principal = Depends(who)) -> Done:
    """How one likes the console."""
    request.state.act = "preferences"
    note(request, **body.model_dump())
    _only_users(who)
    await asyncio.to_thread(store_of(request).accounts.prefer, who.name, body.model_dump())
    return Done()


class OwnPassword(Sent):
    """``old``: the present one, "" for who has none yet."""

    old: Annotated[str, Field(max_length=1_024)] = ""
    new: Annotated[str, Field(max_length=1_024)]


class SessionOut(Stored):
    """``here``: the one of this request."""

    id: str
    created: Moment
    seen: Moment
    address: str
    browser: str
    here: bool = False


@api_me.post("/me/password")
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
    password = await hashed(request, body.new, who.name)
    cookie = request.cookies.get(cookie_name(state.settings), "")

    def change() -> None:
        store.accounts.set_password(who.name, password)
        store.sessions.end_all(who.name, but=cookie)

    await asyncio.to_thread(change)
    return Done()


@api_me.get("/me/sessions")
async def get_own_sessions(request: Request, who: Principal = Depends(who)) -> Listing[SessionOut]:
    """Where one is logged in, the last used first."""
    state = request.app.state
    here = digest(request.cookies.get(cookie_name(state.settings), ""))[:16]
    rows = await asyncio.to_thread(store_of(request).sessions.of, who.name)
    items = [SessionOut.model_validate(row).model_copy(update={"here": row.id == here}) for row in rows]
    return Listing(items=items, total=len(items))


@api_me.delete("/me/sessions/{id}")
async def delete_own_session(id: str, request: Request, who: Principal = Depends(who)) -> Done:
    """Log out elsewhere."""
    request.state.act = "logout"
    note(request, session=id)
    _only_users(who)
    if not await asyncio.to_thread(store_of(request).sessions.end_one, who.name, id):
        raise Problem(404, "there is no such session of yours", where="id")
    return Done()


def _only_users(who: Principal) -> None:
    if who.kind != "user":
        raise Problem(403, "this is not for tokens", what_to_do="log in")


api_tokens = APIRouter(tags=["tokens"])
DAY = 86_400_000_000


class NewToken(Sent):
    """``grants``: null for all that its owner may, at any time; ``acts``: null for all acts of these roles; ``days``:
    how long it is good, null for ever."""

    label: Label
    grants: Annotated[list[GrantForm], Field(min_length=1, max_length=MAX_GRANTS)] | None = None
    acts: Annotated[list[Annotated[str, Field(max_length=64)]], Field(min_length=1, max_length=64)] | None = None
    days: Annotated[int, Field(ge=1, le=3_660, strict=True)] | None = 365


class TokenOut(Model):
    """``expires``, ``used``: null for never."""

    id: str
    owner: str
    label: str
    grants: list[GrantForm]
    acts: list[str] | None
    created: str
    expires: str | None
    used: str | None


class MadeToken(Model):
    """``secret`` is shown this once: send it as ``Authorization: Bearer SECRET``."""

    token: TokenOut
    secret: str


@api_tokens.get("/tokens")
async def get_tokens(
    request: Request,
    all: Annotated[bool, Query(description="Those of all users; for admins.")] = False,
    who: Principal = need("tokens.own"),
) -> Listing[TokenOut]:
    """One's own tokens, the newest first."""
    if all:
        require(who, "tokens")
    tokens = await asyncio.to_thread(store_of(request).tokens.of, "" if all else who.name)
    return Listing(items=[*map(token_out, tokens)], total=len(tokens))


@api_tokens.post("/tokens")
async def post_token(body: NewToken, request: Request, who: Principal = need("tokens.own")) -> MadeToken:
    """A new token, which never gives more than its owner has."""
    note(request, label=body.label)
    if who.kind != "user":
        raise Problem(403, "a token makes no tokens", what_to_do="log in")
    wanted = who.grants if body.grants is None else [grant.grant() for grant in body.grants]
    grants = limited(wanted, who.grants)
    if body.grants is not None and set(grants) != set(wanted):
        raise Problem(422, f"{who.name} does not hold all of these grants", where="grants",
                      what_to_do="give a token what you have yourself, or less")  # fmt: skip
    note(request, grants=[f"{grant.role} {grant.fleet}/{grant.site}" for grant in grants], acts=body.acts)
    expires = None if body.days is None else utc_now() + body.days * DAY
    try:
        token, secret = await asyncio.to_thread(
            lambda: store_of(request).tokens.add(who.name, body.label, grants, acts=body.acts, expires=expires)
        )
    except ValueError as error:
        raise Problem(422, str(error), where="acts" if "act" in str(error) else "") from error
    note(request, token=token.id)
    return MadeToken(token=token_out(token), secret=secret)


@api_tokens.delete("/tokens/{id}")
async def delete_token(id: str, request: Request, who: Principal = need("tokens.own")) -> Done:
    """Revoke a token; of others, an admin."""
    note(request, token=id)
    store = store_of(request)
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


def token_out(token: Token) -> TokenOut:
    return TokenOut(
        id=token.id, owner=token.owner, label=token.label, grants=forms(token.grants),
        acts=None if token.acts is None else sorted(token.acts), created=iso(token.created),
        expires=None if token.expires is None else iso(token.expires),
        used=None if token.used is None else iso(token.used),
    )  # fmt: skip


api_searches = APIRouter(tags=["searches"])


class NewSearch(Sent):
    """``query``: as ``/alerts?q=`` takes it; ``shared``: others see it."""

    name: Label
    query: Annotated[str, Field(max_length=4_000, pattern=r"^[^\x00]*$")]
    shared: StrictBool = False


class SearchOut(Stored):
    id: str
    owner: str
    name: str
    query: str
    shared: bool
    created: Moment


@api_searches.get("/searches")
async def get_searches(request: Request, who: Principal = need("read")) -> Listing[SearchOut]:
    """One's own searches and the shared ones, by name."""
    searches = await asyncio.to_thread(store_of(request).searches.of, who.name)
    return Listing(items=[*map(SearchOut.model_validate, searches)], total=len(searches))


@api_searches.post("/searches")
async def post_search(body: NewSearch, request: Request, who: Principal = need("search.save")) -> SearchOut:
    """Save a search; one of the same name is replaced."""
    note(request, name=body.name, query=body.query, shared=body.shared)
    try:
        search = await asyncio.to_thread(
            lambda: store_of(request).searches.save(who.name, body.name, body.query, shared=body.shared)
        )
    except ValueError as error:
        raise Problem(409, str(error), where="name") from error
    return SearchOut.model_validate(search)


@api_searches.delete("/searches/{id}")
async def delete_search(id: str, request: Request, who: Principal = need("search.save")) -> Done:
    """Remove one of one's own; of others' an admin."""
    note(request, search=id)
    store = store_of(request)
    try:
        search = await asyncio.to_thread(store.searches.get, id)
        if search.owner != who.name and not who.may("settings"):
            raise Problem(404, "there is no such search of yours", where="id")
        await asyncio.to_thread(store.searches.remove, id)
    except KeyError as error:
        raise Problem(404, "there is no such search", where="id") from error
    return Done()


pages = APIRouter()


@pages.get("/settings")
async def show_settings(request: Request, who: Principal = need("read")) -> Response:
    """One's own settings; for admins the console's, too."""
    store = store_of(request)

    def read() -> dict[str, Any]:
        tokens = store.tokens.of("" if who.may("tokens") else who.name)
        return {
            "saved": store.searches.of(who.name),
            "tokens": [
                {"id": token.id, "owner": token.owner, "label": token.label, "note": token_note(token)}
                for token in tokens
            ],
            "sessions": [SessionOut.model_validate(row) for row in store.sessions.of(who.name)],
        }

    own = await asyncio.to_thread(read)
    choices = {"banner": "", "time_zone": "", **chosen(request)}
    return page(
        request,
        "settings.html.j2",
        zones=sorted(name for name in names() if "/" in name and not name.startswith("Etc")),
        facts=facts(request.app.state.settings),
        chosen=choices,
        **own,
    )


def at(moment: int) -> datetime:
    """UTC microseconds as a time."""
    return datetime.fromtimestamp(moment / 1e6, UTC)


def token_note(token: Token) -> str:
    """A token's rights and times in words; it is the secret alone that is never shown."""
    roles = ", ".join(f"{grant.role.value} {grant.fleet}/{grant.site}" for grant in token.grants) or "all of its owner"
    until = f"until {at(token.expires):%Y-%m-%d}" if token.expires else "without an end"
    used = f"last used {at(token.used):%Y-%m-%d %H:%M} UTC" if token.used else "never used"
    return f"{roles} · {until} · {used}"


def facts(settings: Settings) -> list[tuple[str, str]]:
    """Facts that the console was started with; no secret among it."""
    return [
        ("Tables", settings.tables),
        ("Database", settings.database.partition(":")[0]),
        ("Address", settings.url),
        ("Broker", settings.broker.url if settings.broker else ""),
        ("Fleet", settings.fleet),
        ("Fleet's folder", str(settings.trust or "")),
        ("Signs as", settings.operator),
        ("Signs bundles", "yes" if settings.author_key else ""),
        ("Rules", ", ".join(map(str, settings.rules))),
        ("Raw logs for backtests", ", ".join(map(str, settings.backtest_sources))),
        ("Single sign-on", settings.oidc.issuer if settings.oidc else ""),
        ("Logged in for", f"{span(settings.sessions.idle)} without use, {span(settings.sessions.absolute)} at most"),
    ]
