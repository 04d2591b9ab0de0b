"""Entities: addresses, users, devices, hosts, sites, and what each has come to."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request

from vedette_console.api.alerts import After, Limit
from vedette_console.api.campaigns import Days, Kind
from vedette_console.data import entities
from vedette_console.data.models import Listing
from vedette_console.data.models_fleet import EntityPage, EntityRow
from vedette_console.data.reader import Pool, unless_gone
from vedette_console.security.principal import Principal
from vedette_console.web import need

router = APIRouter(tags=["entities"])

Part = Annotated[str, Query(max_length=1_000, description="what a name or value is to hold")]


@router.get("/entities")
async def get_entities(
    request: Request, q: Part = "", kind: Kind = "", days: Days = 7, after: After = "", limit: Limit = 50,
    who: Principal = need("read"),
) -> Listing[EntityRow]:  # fmt: skip
    """Entities of the last days, those with the largest risk first, then by alerts."""
    pool: Pool = request.app.state.pool
    return await unless_gone(request.is_disconnected, pool.ask(entities.entities, who, q, kind, days, after, limit))


@router.get("/entities/{kind}/{value:path}")
async def get_entity(
    request: Request, kind: str, value: str, scope: Annotated[str, Query(max_length=300)] = "", days: Days = 14,
    who: Principal = need("read"),
) -> EntityPage:  # fmt: skip
    """One entity: its risk over time, sites, rules, newest alerts; `scope` is `FLEET/SITE`, for that site only."""
    pool: Pool = request.app.state.pool
    return await unless_gone(request.is_disconnected, pool.ask(entities.entity, who, kind, value, scope, days))
