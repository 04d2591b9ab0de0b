"""The one who asks, from the request: by the cookie of a session, or by an API token."""

from __future__ import annotations

from starlette.requests import HTTPConnection

from vedette.system.wallclock import utc_now
from vedette_console.security.principal import Principal, limited
from vedette_console.settings import Settings
from vedette_console.store.sessions import PREFIX
from vedette_console.store.store import Store

COOKIE = "vedette"


def cookie_name(settings: Settings) -> str:
    """The cookie's name; with HTTPS one that browsers give to no other host and no other path."""
    return f"__Host-{COOKIE}" if settings.secure else COOKIE


def bearer(request: HTTPConnection) -> str | None:
    """The token of the header Authorization, None without that header; "" for one of another kind."""
    header = request.headers.get("authorization")
    if header is None:
        return None
    kind, _, text = header.partition(" ")
    return text.strip() if kind.lower() == "bearer" else ""


def identify(request: HTTPConnection, store: Store, settings: Settings) -> Principal | None:
    """Blocking. A token goes before a cookie: a request with a bad token is nobody's."""
    text = bearer(request)
    if text is not None:
        return _of_token(text, store, settings)
    cookie = request.cookies.get(cookie_name(settings), "")
    name = store.sessions.check(cookie) if cookie else None
    return None if name is None else principal(name, store, settings.sessions.confirmed)


def principal(name: str, store: Store, within: float) -> Principal | None:
    """The user of that name as they are now; None when they are gone or disabled, or the OpenID provider, of which they
    are, has not let them in ``within`` so many seconds."""
    try:
        user = store.accounts.get(name)
    except KeyError:
        return None
    good = not user.disabled and user.confirmed_within(within, utc_now())
    return Principal(user.name, "user", user.grants) if good else None


def _of_token(text: str, store: Store, settings: Settings) -> Principal | None:
    token = store.tokens.check(text) if text.startswith(PREFIX) else None
    owner = None if token is None else principal(token.owner, store, settings.sessions.tokens_confirmed)
    if token is None or owner is None:
        return None
    return Principal(owner.name, "token", limited(token.grants, owner.grants), token.acts, token.label)
