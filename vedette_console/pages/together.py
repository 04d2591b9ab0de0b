"""Questions that a page asks at once, given up when its browser goes away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from fastapi import Request

from vedette_console.data.reader import unless_gone
from vedette_console.web import Problem


async def together(request: Request, *asked: Awaitable[Any]) -> list[Any]:
    """The answers in order; in the place of one that cannot be given is its Problem. Raises what else one raises."""
    gathered = asyncio.gather(*asked, return_exceptions=True)
    found: list[Any] = list(await unless_gone(request.is_disconnected, gathered))
    for one in found:
        if isinstance(one, BaseException) and not isinstance(one, Problem):
            raise one
    return found


async def nothing() -> None:
    """In the place of what is not asked."""
