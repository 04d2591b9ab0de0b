"""The kinds of settings. Rooms declare theirs as dataclasses with these; ``config/`` reads them from TOML."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

Size = Annotated[int, "size"]
"""Bytes."""
Seconds = Annotated[float, "seconds"]
Share = Annotated[float, "share"]
"""From 0 to 1."""
Address = Annotated[str, "address"]
"""``host:port`` or ``[v6]:port``; empty: not used."""
Name = Annotated[str, "name"]
"""What appears in topics, file names and reports: letters, digits, ``. _ -``."""
Fsync = Annotated[str, "fsync"]
"""When the raw log is synced: ``interval:DURATION``, ``batch`` or ``never``."""
Labels = Annotated[Mapping[str, str], "labels"]
"""Names and values by which a fleet's groups mean an agent."""
Options = Annotated[Mapping[str, Any], "options"]
"""Settings that a plugin reads by itself."""
Zone = Annotated[str, "zone"]
"""An IANA time zone; empty: the host's."""


def split_address(value: str) -> tuple[str, int]:
    """``("::1", 514)`` from ``"[::1]:514"``; raises ValueError."""
    match = re.fullmatch(r"(?:\[([0-9a-fA-F:.%\w]+)\]|([^\[\]:\s]*)):(\d{1,5})", value)
    if match is None or int(match[3]) > 65535:
        raise ValueError(f'expects "host:port", not {value!r}')
    return match[1] or match[2] or "0.0.0.0", int(match[3])
