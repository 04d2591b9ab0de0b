"""Messages at which a reader failed as nobody foresaw: each is passed over, and logged once a sender.

A service of the region hears every member of it: what one of them sends must not end it for the others, nor again at
each start, where the broker retains it. Errors of the host (OSError) are the service's own, and go on to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from vedette.model.counters import Log

log = structlog.get_logger()

MAX_SENDERS = 10_000
"""That are logged by name."""


class Guard:
    def __init__(self) -> None:
        self._logged: set[str] = set()

    @contextmanager
    def over(self, topic: str) -> Iterator[None]:
        """Around the reading of one message of ``topic``."""
        try:
            yield
        except OSError:
            raise
        except Exception as error:
            if topic not in self._logged and len(self._logged) < MAX_SENDERS:
                self._logged.add(topic)
                reason, action = f"{type(error).__name__}: {error}"[:500], "passed over; please report it"
                log.error(Log.PAYLOAD_UNDECODABLE, topic=topic, reason=reason, action=action, exc_info=True)
