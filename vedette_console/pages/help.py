"""Help: the search language by examples, the way of an analyst, keys, roles."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from vedette_console.data.query import FIELDS
from vedette_console.pages.render import page
from vedette_console.security.principal import Principal
from vedette_console.security.roles import ACTS, Role
from vedette_console.web import need

router = APIRouter()
LANGUAGE = (
    ("level>=high since:24h", "the last day's high and critical alerts"),
    ('site:vienna -rule:"Local Account Created"', "all of a site but one rule; NOT is a minus, too"),
    ("ip:198.51.100.23", "an address, wherever an entity is it; so with user, hash, domain, url, device"),
    ("(host:web1* OR host:db*) technique:T1059", "either of two hosts; a star stands for anything"),
    ("fields.CommandLine:*curl* since:7d", "part of a field's value"),
    ('"connection refused" since:7d', "words in titles, raw events and values, of at most 14 days"),
    ("from:2026-11-01 to:2026-11-07T12:00", "a range of time, UTC"),
)


@router.get("/help")
def help(request: Request, who: Principal = need("read")) -> Response:
    """How the console works."""
    roles = [(role.value, [act for act, least in ACTS.items() if least is role]) for role in Role]
    return page(request, "help.html.j2", language=LANGUAGE, fields=sorted(FIELDS.items()), roles=roles)
