"""How old the lookups are that reload, retained at the broker (``…/steer/lookups``): written by ``refresh.py``, read by
``fleet status`` and the console.

A lookup is in order while it was read, and published, within its time; when nobody refreshes any more it is not either.
So who reads decides by the clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from msgspec import Struct

from vedette.bundle.manifest import rfc3339
from vedette.region.reload.settings import MAX_TABLES
from vedette.system import documents
from vedette.system.documents import Count, Name
from vedette.system.foreign import MAX_TEXT

FORMAT = 1
MAX_BYTES = 1 << 20


class Entry(Struct, frozen=True):
    """``since``: when it was last in order, UTC microseconds; ``old_after``: so many more may pass; ``error``: why
    it is not in order now."""

    name: Name
    since: Count
    old_after: Count
    rows: Count
    error: str = ""

    def trouble(self, now: int) -> str:
        """What is wrong with it at ``now``, empty for nothing."""
        if now <= self.since + self.old_after:
            return ""
        return f"not reloaded since {rfc3339(self.since)}: {self.error[:MAX_TEXT] or 'nobody refreshes it'}"


class _Document(Struct, frozen=True):
    lookups: list[Entry]


def packed(entries: Sequence[Entry]) -> bytes:
    """As it is retained."""
    return msgspec.json.encode({"format": FORMAT, "lookups": entries})


def read(data: bytes) -> list[Entry]:
    """What ``packed`` gave; none for what is not of its form."""
    try:
        return documents.read(_Document, documents.opened(data, MAX_BYTES, FORMAT)).lookups[:MAX_TABLES]
    except ValueError:
        return []


class Trouble(NamedTuple):
    name: str
    since: int
    text: str


def troubles(data: bytes, now: int) -> list[Trouble]:
    """Of the lookups in ``data`` those that are not in order at ``now``."""
    return [Trouble(entry.name, entry.since, text) for entry in read(data) if (text := entry.trouble(now))]
