"""Work of a thread that is waited for to its end, also by a caller that is cancelled.

A thread cannot be cancelled: a caller that goes on before it has ended lets the next thread write beside it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


async def to_its_end(work: asyncio.Future[T], hurry: Callable[[], None] = lambda: None) -> T:
    """Return or raise what ``work`` does. Cancelled, however often, it calls ``hurry`` and waits until ``work`` is done
    before it raises CancelledError."""
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        if not work.done():
            hurry()
        while not work.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({work})
        raise
