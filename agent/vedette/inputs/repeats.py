"""Which messages of a sender that has reconnected the raw log holds already. Facts only: bytes in, an answer out.

A RELP sender numbers its messages afresh at every connection and sends again, first of all, what it holds without an
answer: so a repeat is known by its bytes alone, among the first REPEATED messages of a connection. Two messages of the
same bytes are one message where they have a time to the microsecond and were stored once: a **repeat**, which is not
stored again. Anything less is **perhaps** one: it is stored, flagged ``Flag.DUP``.
"""

from __future__ import annotations

import enum
import re
from collections import deque
from collections.abc import Iterable
from hashlib import md5

REPEATED = 1024
"""Messages at the beginning of a connection that may be repeats: eight windows of librelp's default size."""
KEPT = 32_768
"""Messages that are remembered of all senders: 256 windows, 4 MB."""

_TIME = re.compile(rb"<[0-9]{1,3}>(?:1 )?[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}")
"""How a message begins whose own time is of the microsecond (RFC 5424, or rsyslog's RSYSLOG_ForwardFormat)."""


class Repeat(enum.Enum):
    NO = 0
    PERHAPS = 1
    YES = 2


class Repeats:
    """The newest KEPT messages that are stored, by sender. ``recent``: sender and MD5 of those at the raw log's end."""

    def __init__(self, recent: Iterable[tuple[str, bytes]] = ()) -> None:
        self._order: deque[int] = deque()
        self._times: dict[int, int] = {}
        for origin, digest in recent:
            self._add(hash((origin, digest)))

    def add(self, origin: str, message: bytes) -> None:
        """``message`` is stored."""
        self._add(_key(origin, message))

    def _add(self, key: int) -> None:
        self._order.append(key)
        self._times[key] = self._times.get(key, 0) + 1
        if len(self._order) > KEPT:
            oldest = self._order.popleft()
            if left := self._times[oldest] - 1:
                self._times[oldest] = left
            else:
                del self._times[oldest]

    def check(self, origin: str, message: bytes, repeated: set[int]) -> Repeat:
        """Whether a message is stored. ``repeated`` is kept for a connection: each stored one comes again but once."""
        key = _key(origin, message)
        times = self._times.get(key, 0)
        if not times:
            return Repeat.NO
        if times > 1 or key in repeated or not _TIME.match(message):
            return Repeat.PERHAPS
        repeated.add(key)
        return Repeat.YES


def _key(origin: str, message: bytes) -> int:
    return hash((origin, md5(message, usedforsecurity=False).digest()))
