"""Waiting in tests: for a state, never for a time.

A wait that ends no other way ends at the one deadline of all waits, which no working machine reaches, however loaded:
a failure then means that the state never comes. pytest-timeout ends what hangs in any other place, later than this.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
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


def write_as_before(path: Path, data: bytes, *, replaced: bool = False) -> None:
    """Give a file other contents of the same size, and the times that it had, once the clock of its file system has
    ticked. ``replaced``: by another file."""
    before, new = path.stat(), path.with_name(f".{path.name}.new")
    assert len(data) == before.st_size
    until("a tick", lambda: new.write_bytes(data) and new.stat().st_ctime_ns > before.st_ctime_ns)
    if replaced:
        new.replace(path)
    else:
        new.unlink()
        path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
