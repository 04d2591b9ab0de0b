"""What following the fleet needs of the agent around it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from vedette.runtime.lookups import Lookups


class Host(NamedTuple):
    path: Path
    """Of the local configuration."""
    reload: Callable[[], Awaitable[str | None]]
    """Reads the configuration again; returns why it was refused, or None."""
    unwell: Callable[[], str]
    """Why the agent is not healthy and connected; empty: it is."""
    lookups: Callable[[], Lookups]
    """Those that come by themselves, as they are in force."""
    waiting: Callable[[], bool]
    """Whether events wait to be evaluated."""
