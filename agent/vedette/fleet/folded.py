"""Repeats in an audit record, folded: who floods a host or the centre with what is refused must not fill its disk.

The first event of a kind is written at once, further ones within ``WINDOW`` are counted, and written as one line with
``repeats`` when the window ends (``settle``). Kinds that are kept apart are bounded, too: beyond ``MAX_APART`` the rest
is one kind. So a window has at most ``2 * MAX_APART + 2`` lines, whatever comes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from vedette.fleet.audit import Audit

WINDOW = 600.0
"""Seconds."""
MAX_APART = 16
MAX_TEXT = 200
"""Characters of a fact."""


@dataclass(slots=True)
class _Row:
    since: float
    event: str
    facts: dict[str, Any]
    repeats: int = 0


class Folded:
    """Writes to ``audit``; ``clock`` in monotonic seconds."""

    def __init__(self, audit: Audit, clock: Callable[[], float] = time.monotonic) -> None:
        self._audit, self._clock = audit, clock
        self._rows: dict[tuple[str, ...], _Row] = {}

    def append(self, event: str, apart: tuple[str, ...], times: int = 1, **facts: Any) -> None:
        """``apart``: what tells kinds from each other, besides ``event``; ``times``: how often it happened. Raises
        OSError and ValueError."""
        self.settle()
        key = (event, *apart)
        if key not in self._rows and len(self._rows) >= MAX_APART:
            key, facts = ("other",), {"kind": "other"}
        if (row := self._rows.get(key)) is not None:
            row.repeats += times
            return
        facts = {name: value[:MAX_TEXT] if isinstance(value, str) else value for name, value in facts.items()}
        self._rows[key] = _Row(self._clock(), event, facts, times - 1)
        self._audit.append(event, **facts)

    def settle(self, *, all: bool = False) -> None:
        """Write what was counted in windows that are over, or in all of them. Raises OSError and ValueError."""
        now = self._clock()
        for key, row in [*self._rows.items()]:
            if all or now - row.since >= WINDOW:
                del self._rows[key]
                if row.repeats:
                    self._audit.append(row.event, **row.facts, repeats=row.repeats)
