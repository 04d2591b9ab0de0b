"""Regular expressions that Hyperscan does not take (look-around, back references): the ``regex`` module, in bounds.

A backtracking engine may take for ever, so a search ends after ``TIMEOUT`` and all of one event after
``EVENT_TIMEOUT``. A search that was ended is ``Undecided``: never "no match". That is the one answer of the engine
which a second run need not give again, and the one place in it that looks at a clock: that of its own CPU time (as
``regex`` does), so a busy host does not make a rule undecided.
"""

from __future__ import annotations

import time
from typing import Any

TIMEOUT = 0.05
"""Seconds of CPU that one fallback regex may take for one value."""

EVENT_TIMEOUT = 0.2
"""Seconds of CPU that all fallback regexes together may take for one event."""


class Undecided(Exception):
    """A predicate could not be decided within its time bound."""


class Watch:
    """The time that is left for an event; shared by all groups of an evaluator."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = EVENT_TIMEOUT

    def begin(self) -> None:
        """The next event."""
        self._left = EVENT_TIMEOUT

    def found(self, search: Any, value: str) -> bool:
        """True when ``search`` finds something in ``value``; raises Undecided when there was not time enough."""
        if self._left <= 0:
            raise Undecided
        began = time.thread_time()
        try:
            return search(value, timeout=min(TIMEOUT, self._left)) is not None
        except TimeoutError as error:
            raise Undecided from error
        finally:
            self._left -= time.thread_time() - began
