"""The durable queue of alerts, between the commit that makes them and the region's receipt.

Delivery: an alert is in the queue from the commit that made it (``store.Store.commit``) until a receipt names its seq;
then it moves, in one transaction, to a ring of the newest receipted ones. Reading takes nothing away: what was handed
to the uplink and has no receipt is handed out again after a restart. A receipt twice, or for what is not here, does
nothing; a receipt for another numbering (``log_id``) is set aside.

``totals["alerts_receipted"]`` is set from the store's own count at every look and every receipt, so that it is right
also after a crash between a receipt and the next commit, whose counters are older.
An alert whose bytes fail their checksum is logged once, not handed out, and stays in the queue (``damaged``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from typing import NamedTuple

import structlog

from vedette.config.settings import AgentSettings, UplinkSettings
from vedette.model.counters import Counters, Log
from vedette.store.sinks import Place
from vedette.store.store import Account, Store, StoredAlert
from vedette.system.diskhealth import RETRY_SECONDS, STORE, DiskHealth

log = structlog.get_logger()


class Outbox:
    """Read in the event loop; written in ``writer``, the one thread that holds write transactions."""

    def __init__(self, store: Store, writer: Executor, counters: Counters, health: DiskHealth) -> None:
        """``health`` reports a disk that refuses receipts, which are retried."""
        self._health = health
        self._store, self._writer, self._counters = store, writer, counters
        self._more = asyncio.Event()
        self._watching: set[asyncio.Event] = set()
        self._damaged: set[int] = set()
        self.log_id = self.account().log_id
        """Names the numbering that every ``seq`` here belongs to: goes into batches, comes back in receipts."""

    def pending(self, after_seq: int = 0, limit: int = 1000, size: int = 1 << 62) -> list[tuple[int, bytes]]:
        """The first ``limit`` ``(seq, encoded alert)`` above ``after_seq`` without a receipt, ascending, up to the one
        by which they have ``size`` bytes.

        Empty only when there are none. Raises OSError when the store cannot be read.
        """
        while True:
            whole, damaged = self._store.pending(after_seq, limit, size)
            self._report(damaged)
            if whole or not damaged:
                return whole
            after_seq = damaged[-1]

    def kept(self, after_seq: int, limit: int) -> list[tuple[int, bytes]]:
        """The same with and without a receipt, as far as the ring reaches back: what sinks read."""
        while True:
            whole, damaged = self._store.kept(after_seq, limit)
            self._report(damaged)
            if whole or not damaged:
                return whole
            after_seq = damaged[-1]

    def first_wanted(self) -> int | None:
        """The least seq that the uplink or a sink may still need; None: there is none."""
        pending, places = self.pending(0, 1), self._store.places.values()
        newest = self.newest_seq if places else 0
        wanted = [place.passed + 1 for place in places if place.passed < newest]
        return min([seq for seq, _ in pending] + wanted, default=None)

    def _report(self, damaged: Sequence[int]) -> None:
        for seq in (seq for seq in damaged if seq not in self._damaged):
            self._damaged.add(seq)
            log.error(Log.OUTBOX_DAMAGED, seq=seq, reason="checksum", action="stays where it is, is not sent")

    async def open_sinks(self, names: Sequence[str]) -> Mapping[str, Place]:
        """The places of these sinks, kept from here on; those of others are forgotten. Raises OSError."""
        return await asyncio.get_running_loop().run_in_executor(self._writer, self._store.open_sinks, tuple(names))

    async def keep_sinks(self) -> None:
        """Write down how far the sinks are. Raises OSError."""
        await asyncio.get_running_loop().run_in_executor(self._writer, self._store.keep_sinks)

    async def receipt(self, ranges: Sequence[tuple[int, int]], log_id: str | None = None) -> int:
        """The region has the alerts of ``ranges`` (first and last seq) on disk; returns how many left the queue.

        On disk when it returns; while the store cannot be written it is tried again. ``log_id`` is the receipt's:
        another numbering's is logged and does nothing.
        """
        if log_id is not None and log_id != self.log_id:
            log.warning(Log.RECEIPT_INVALID, log_id=log_id, expected=self.log_id, reason="another outbox's numbering")
            return 0
        while True:
            try:
                moved = await asyncio.get_running_loop().run_in_executor(
                    self._writer, self._store.receipt, tuple(ranges)
                )
                break
            except OSError as error:
                self._health.failed(STORE, error)
            await asyncio.sleep(RETRY_SECONDS)
        self._health.recovered(STORE)
        self.account()
        return moved

    def wake(self) -> None:
        """A commit put alerts into the queue (called in the event loop)."""
        self._more.set()
        for event in self._watching:
            event.set()

    def watch(self, event: asyncio.Event) -> None:
        """``wake`` sets ``event``, too, until ``unwatch``."""
        self._watching.add(event)

    def unwatch(self, event: asyncio.Event) -> None:
        self._watching.discard(event)

    async def more(self, seconds: float) -> bool:
        """True at the next ``wake``, or at once after one that nobody awaited; False after ``seconds``."""
        try:
            async with asyncio.timeout(seconds):  # wait_for of Python 3.11 may swallow a cancellation
                await self._more.wait()
        except TimeoutError:
            return False
        self._more.clear()
        return True

    def account(self) -> Account:
        """The queue in figures, all of one moment: ``made = receipted + depth + lost``."""
        account = self._store.account()
        self._counters.totals["alerts_receipted"] = account.receipted
        return account

    @property
    def newest_seq(self) -> int:
        """Of all alerts made; 0: there are none."""
        return self.account().next_seq - 1

    @property
    def depth(self) -> int:
        """Alerts without a receipt."""
        return self.account().depth

    @property
    def bytes(self) -> int:
        """Bytes of the encoded alerts without a receipt, as of the last commit; reads nothing."""
        return self._store.outbox_bytes

    @property
    def damaged(self) -> int:
        """Alerts found damaged since the start."""
        return len(self._damaged)

    def tail(self, n: int) -> list[StoredAlert]:
        """The newest ``n`` alerts, receipted or not, ascending by seq."""
        return self._store.tail(n)


class Source(NamedTuple):
    """What an uplink is made of. ``heartbeat`` gives the JSON of the agent's state; ``clock``: UTC microseconds."""

    settings: UplinkSettings
    agent: AgentSettings
    outbox: Outbox
    counters: Counters
    heartbeat: Callable[[], bytes]
    clock: Callable[[], int]
