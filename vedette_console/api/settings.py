"""What this console can do as it was started, and what admins set for all."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from vedette_console.security.principal import Principal
from vedette_console.settings import Settings
from vedette_console.store.store import Store
from vedette_console.web import need, note

router = APIRouter(tags=["settings"])


class Chosen(BaseModel):
    """``banner``: a line above every page, "" for none; ``time_zone``: that of pages for who has not chosen one, "" for
    the browser's."""

    model_config = ConfigDict(extra="forbid")

    banner: Annotated[str, Field(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")] = ""
    time_zone: Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9_+/-]*$")] = ""


class Features(BaseModel):
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


class SettingsOut(BaseModel):
    """``streams``: open event streams, of all pages."""

    chosen: Chosen
    features: Features
    streams: int


@router.get("/settings")
async def get_settings(request: Request, who: Principal = need("read")) -> SettingsOut:
    """What is set, and what is configured."""
    return await asyncio.to_thread(_read, request)


@router.put("/settings")
async def put_settings(body: Chosen, request: Request, who: Principal = need("settings")) -> SettingsOut:
    """Set it for all."""
    note(request, **body.model_dump())
    store: Store = request.app.state.store

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


def chosen(store: Store) -> Chosen:
    held = store.choices.all()
    return Chosen(**{key: held[key] for key in Chosen.model_fields if key in held})


def _read(request: Request) -> SettingsOut:
    state = request.app.state
    return SettingsOut(chosen=chosen(state.store), features=features(state.settings), streams=len(state.hub))
