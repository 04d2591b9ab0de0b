"""Regular expressions that Hyperscan does not take (look-around, back references): the ``regex`` module, in bounds.

A backtracking engine may take for ever, so a search ends after ``TIMEOUT`` and all of one event after
``EVENT_TIMEOUT``, but for ``LEAST`` that each pattern has: what others used up makes no fast one undecided. A search
that was ended is ``Undecided``: never "no match". That is the one answer of the engine which a second run need not give
again, and the one place in it that looks at a clock: that of its own CPU time (as ``regex`` does), so a busy host does
not make a rule undecided.
"""

from __future__ import annotations

import time
from typing import Any

TIMEOUT = 0.05
"""Seconds of CPU that one fallback regex may take for one value."""

EVENT_TIMEOUT = 0.2
"""Seconds of CPU that all fallback regexes together may take for one event."""

LEAST = 0.001
"""Seconds of CPU that one pattern may take when these are over, for all values of the event together."""


class Undecided(Exception):
    """A predicate could not be decided within its time bound."""


class Watch:
    """The time that is left for an event; shared by all groups of an evaluator."""

    __slots__ = ("_late", "_left")

    def __init__(self) -> None:
        self._left = EVENT_TIMEOUT
        self._late: dict[Any, float] = {}
        """By search what it has left of ``LEAST``."""

    def begin(self) -> None:
        """The next event."""
        self._left = EVENT_TIMEOUT
        self._late.clear()

    def finds(self, search: Any, value: str) -> bool:
        """True when ``search`` finds something in ``value``; raises Undecided when there was not time enough."""
        late = self._left < LEAST
        left = self._late.get(search, LEAST) if late else min(TIMEOUT, self._left)
        if left <= 0:
            raise Undecided
        began = time.thread_time()
        try:
            return search(value, timeout=left) is not None
        except TimeoutError as error:
            raise Undecided from error
        finally:
            spent = time.thread_time() - began
            self._left -= spent
            if late:
                self._late[search] = left - spent
