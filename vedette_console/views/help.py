"""Help (the search language by examples, keys, roles), and the API as a page, from the console's
own OpenAPI document."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any, NamedTuple

from fastapi import APIRouter, Request
from fastapi.responses import Response

from vedette_console.data.query import FIELDS
from vedette_console.pages.render import page
from vedette_console.security.principal import ACTS, Principal, Role
from vedette_console.web import need

pages = APIRouter()
LANGUAGE = (
    ("level>=high since:24h", "the last day's high and critical alerts"),
    ('site:vienna -rule:"Local Account Created"', "all of a site but one rule; NOT is a minus, too"),
    ("ip:198.51.100.23", "an address, wherever an entity is it; so with user, hash, domain, url, device"),
    ("(host:web1* OR host:db*) technique:T1059", "either of two hosts; a star stands for anything"),
    ("fields.CommandLine:*curl* since:7d", "part of a field's value"),
    ('"connection refused" since:7d', "words in titles, raw events and values, of at most 14 days"),
    ("from:2026-11-01 to:2026-11-07T12:00", "a range of time, UTC"),
)


@pages.get("/help")
def show_help(request: Request, who: Principal = need("read")) -> Response:
    """The page of help."""
    roles = [(role.value, [act for act, least in ACTS.items() if least is role]) for role in Role]
    return page(request, "help.html.j2", language=LANGUAGE, fields=sorted(FIELDS.items()), roles=roles)


class Route(NamedTuple):
    """``parameters``: their names; ``body``: fields of what is sent, those that must be there with a star."""

    method: str
    path: str
    text: str
    parameters: list[str]
    body: list[str]


@pages.get("/api")
async def show_api(request: Request, who: Principal = need("read")) -> Response:
    """All routes by noun."""
    document = await asyncio.to_thread(request.app.openapi)
    return page(request, "api.html.j2", nouns=routes(document), about=document["info"]["description"])


def routes(document: dict[str, Any]) -> dict[str, list[Route]]:
    """Routes of an OpenAPI document by their first tag, in its order."""
    nouns: defaultdict[str, list[Route]] = defaultdict(list)
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            parameters = [parameter["name"] for parameter in operation.get("parameters", ())]
            tag = (operation.get("tags") or ["other"])[0]
            nouns[tag].append(
                Route(method.upper(), path, operation.get("description", ""), parameters, _body(operation, document))
            )
    return dict(sorted(nouns.items()))


def _body(route: dict[str, Any], document: dict[str, Any]) -> list[str]:
    content = route.get("requestBody", {}).get("content", {}).get("application/json", {})
    name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
    schema = document.get("components", {}).get("schemas", {}).get(name, {})
    must = set(schema.get("required", ()))
    return [field + "*" * (field in must) for field in schema.get("properties", {})]
