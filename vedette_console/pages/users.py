"""Users, their roles, and how they log in."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from vedette_console.pages.render import page
from vedette_console.security.principal import Principal
from vedette_console.store.store import Store
from vedette_console.web import need

router = APIRouter()


@router.get("/users")
async def users(request: Request, who: Principal = need("users")) -> Response:
    """All of them, by name."""
    store: Store = request.app.state.store

    def read() -> list[dict[str, Any]]:
        return [
            {
                "name": user.name,
                "grants": user.grants,
                "disabled": user.disabled,
                "by": "single sign-on" if user.subject else "password" if user.password else "one-time link",
                "sessions": len(store.sessions.of(user.name)),
            }
            for user in store.accounts.all()
        ]

    return page(request, "users.html.j2", users=await asyncio.to_thread(read))
