"""The API as a page: each route with its parameters, from the console's own OpenAPI document."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any, NamedTuple

from fastapi import APIRouter, Request
from fastapi.responses import Response

from vedette_console.pages.render import page
from vedette_console.security.principal import Principal
from vedette_console.web import need

router = APIRouter()


class Route(NamedTuple):
    """``given``: names of its parameters; ``body``: fields of what is sent, those that must be there with a star."""

    method: str
    path: str
    text: str
    given: list[str]
    body: list[str]


@router.get("/api")
async def api(request: Request, who: Principal = need("read")) -> Response:
    """All routes by noun."""
    document = await asyncio.to_thread(request.app.openapi)
    return page(request, "api.html.j2", nouns=routes(document), about=document["info"]["description"])


def routes(document: dict[str, Any]) -> dict[str, list[Route]]:
    """Routes of an OpenAPI document by their first tag, in its order."""
    found: defaultdict[str, list[Route]] = defaultdict(list)
    for path, methods in document["paths"].items():
        for method, one in methods.items():
            given = [parameter["name"] for parameter in one.get("parameters", ())]
            tag = (one.get("tags") or ["other"])[0]
            found[tag].append(Route(method.upper(), path, one.get("description", ""), given, _body(one, document)))
    return dict(sorted(found.items()))


def _body(route: dict[str, Any], document: dict[str, Any]) -> list[str]:
    content = route.get("requestBody", {}).get("content", {}).get("application/json", {})
    name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
    schema = document.get("components", {}).get("schemas", {}).get(name, {})
    must = set(schema.get("required", ()))
    return [field + "*" * (field in must) for field in schema.get("properties", {})]
