"""Logging in: name and password, a one-time link, or single sign-on."""

from __future__ import annotations

from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from vedette_console.pages.render import page
from vedette_console.web import maybe

router = APIRouter()
ERRORS = {
    "refused": "The provider refused the login.",
    "no-role": "Your account at the provider has no role here. Ask an admin for one.",
    "too-many": "The provider does not list your groups, as there are too many. Ask an admin for a user.",
    "disabled": "Your user is disabled. Ask an admin.",
}


@router.get("/login")
def login(request: Request, next: str = "/", error: str = "") -> Response:
    """Where one logs in; who is logged in already goes on."""
    then = inside(next)
    if maybe(request) is not None:
        return RedirectResponse(then, 303)
    oidc = request.app.state.settings.oidc
    way = {"name": oidc.name, "link": "/api/v1/login/oidc?next=" + quote(then, safe="")} if oidc else None
    said = ERRORS.get(error, "The provider did not log you in. Try again.") if error else ""
    return page(request, "login.html.j2", next=then, error=said, once="", oidc=way)


@router.get("/login/once")
def once(request: Request, token: str = "") -> Response:
    """A one-time link: reading it changes nothing, so that a mail scanner does not use it up."""
    return page(request, "login.html.j2", next="/", error="", once=token[:200], oidc=None)


def inside(path: str) -> str:
    """``path`` when it is one of this console, else the first page."""
    within = path.startswith("/") and path[1:2] not in ("/", "\\") and "\\" not in path and path.isprintable()
    return path if within and not path.startswith("/login") else "/"
