"""The time of an event loop that a test moves on, so that nobody waits for what the loop waits for.

Timers, ``asyncio.sleep`` and ``asyncio.timeout`` go by the loop's time; sockets, threads and other processes do not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class _Later:
    """A clock that is ahead of another."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self.seconds = clock, 0.0

    def __call__(self) -> float:
        return self._clock() + self.seconds


def forward(loop: asyncio.AbstractEventLoop, seconds: float) -> None:
    """The loop's time is so much later from now on; what is due by then is done at its next turn. From any thread."""
    if not isinstance(loop.time, _Later):
        loop.time = _Later(loop.time)  # type: ignore[method-assign]
    loop.time.seconds += seconds
    loop.call_soon_threadsafe(lambda: None)
