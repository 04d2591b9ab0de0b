"""What tests of the Kafka input share: a running one, and events with numbers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from tests.inputs.intake import Bin, account, agent
from tests.settings import WatchedKafka
from vedette.model.counters import Counters

if TYPE_CHECKING:
    from vedette.inputs.consume import KafkaConsumer

SESSION = 6.0
"""Seconds, Kafka's least by default: no load of the machine ends such a session."""


def numbered(begin: int, end: int) -> list[bytes | None]:
    return [b"event %d" % i for i in range(begin, end)]


def numbers(*bins: Bin) -> list[int]:
    return sorted(int(event.split()[1]) for bin in bins for event in bin.events)


@asynccontextmanager
async def consuming(
    address: str, bin: Bin, counters: Counters, *, who: str = "a", static: bool = False, **settings: Any
) -> AsyncIterator[Any]:
    """A running input that goes on from the bin's positions; stopped afterwards, and the account checked.

    It counts its turns in which no record came: ``empty``; ``a_session`` of them take as long as a session. ``static``
    members are for real brokers: the mock one does not know them when they come again.
    """
    from vedette.inputs.consume import POLL_SECONDS, KafkaConsumer

    class Counted(KafkaConsumer):
        empty = 0
        a_session = int(SESSION / POLL_SECONDS)

        def _take(self) -> Any:
            parts = super()._take()
            self.empty += not parts
            return parts

    settings = {"brokers": (address,), "tls": False, "session_timeout": SESSION, **settings}
    positions = [*bin.positions.values()]
    consumer: KafkaConsumer = Counted(
        WatchedKafka("in", **settings), agent(bin, counters, positions, name=who), backoff=(0.05, 0.2)
    )
    if not static:
        consumer._instance = None  # type: ignore[assignment]
    task = asyncio.create_task(consumer.run())
    try:
        yield consumer
        assert not task.done() or task.exception() is None
    finally:
        await consumer.stop()
        await task
    account(counters, bin, "in")
