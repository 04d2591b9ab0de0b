"""Waiting in tests: for a state, never for a time.

A wait that ends no other way ends at the one deadline of all waits, which no working machine reaches, however loaded:
a failure then means that the state never comes. pytest-timeout ends what hangs in any other place, later than this.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

DEADLINE = 240.0
"""Seconds; less than pytest's own (``timeout`` in pyproject.toml), so that a wait says what it waited for."""


def pauses(longest: float = 0.25) -> Iterator[float]:
    """How long to pause between two looks, until the deadline: the longer it takes, the more seldom, since what is
    waited for is not to be held up by the asking."""
    began = time.monotonic()
    while (waited := time.monotonic() - began) < DEADLINE:
        yield max(0.005, min(waited / 20, longest))


def until(what: str, check: Callable[[], Any]) -> Any:
    """Wait for a true answer of ``check`` and return it."""
    for pause in pauses():
        if answer := check():
            return answer
        time.sleep(pause)
    raise AssertionError(f"waited in vain for {what}")


async def eventually(what: str, check: Callable[[], Any]) -> Any:
    """``until`` for a coroutine: the event loop goes on meanwhile."""
    for pause in pauses():
        if answer := check():
            return answer
        await asyncio.sleep(pause)
    raise AssertionError(f"waited in vain for {what}")
