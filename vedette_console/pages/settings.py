"""Settings: how the console looks to one; password, tokens, sessions, searches; and what it was started with."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from vedette_console.pages.filters import span
from vedette_console.pages.render import chosen, page
from vedette_console.pages.zone import names
from vedette_console.security.principal import Principal
from vedette_console.settings import Settings
from vedette_console.store.store import Store
from vedette_console.store.tokens import Token
from vedette_console.web import need

router = APIRouter()


@router.get("/settings")
async def settings(request: Request, who: Principal = need("read")) -> Response:
    """One's own settings; for admins the console's, too."""
    store: Store = request.app.state.store

    def read() -> dict[str, Any]:
        tokens = store.tokens.of("" if who.may("tokens") else who.name)
        return {
            "saved": store.searches.of(who.name),
            "tokens": [{"id": one.id, "owner": one.owner, "label": one.label, "note": note(one)} for one in tokens],
            "sessions": [
                {
                    "id": one.id,
                    "address": one.address,
                    "browser": one.browser,
                    "created": at(one.created),
                    "seen": at(one.seen),
                }
                for one in store.sessions.of(who.name)
            ],
        }

    found = await asyncio.to_thread(read)
    held = {"banner": "", "time_zone": "", **chosen(request)}
    return page(
        request,
        "settings.html.j2",
        zones=sorted(name for name in names() if "/" in name and not name.startswith("Etc")),
        facts=facts(request.app.state.settings),
        chosen=held,
        **found,
    )


def at(moment: int) -> datetime:
    """UTC microseconds as a time."""
    return datetime.fromtimestamp(moment / 1e6, UTC)


def note(token: Token) -> str:
    """A token's rights and times in words; it is the secret alone that is never shown."""
    roles = ", ".join(f"{grant.role.value} {grant.fleet}/{grant.site}" for grant in token.grants) or "all of its owner"
    until = f"until {at(token.expires):%Y-%m-%d}" if token.expires else "without an end"
    used = f"last used {at(token.used):%Y-%m-%d %H:%M} UTC" if token.used else "never used"
    return f"{roles} · {until} · {used}"


def facts(given: Settings) -> list[tuple[str, str]]:
    """What the console was started with; no secret among it."""
    return [
        ("Tables", given.tables),
        ("Database", given.database.partition(":")[0]),
        ("Address", given.url),
        ("Broker", given.broker.url if given.broker else ""),
        ("Fleet", given.fleet),
        ("Fleet's folder", str(given.trust or "")),
        ("Signs as", given.operator),
        ("Signs bundles", "yes" if given.author_key else ""),
        ("Rules", ", ".join(map(str, given.rules))),
        ("Raw logs for backtests", ", ".join(map(str, given.backtest_sources))),
        ("Single sign-on", given.oidc.issuer if given.oidc else ""),
        ("Logged in for", f"{span(given.sessions.idle)} without use, {span(given.sessions.absolute)} at most"),
    ]
