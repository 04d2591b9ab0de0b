"""What was evaluated and is not committed yet: alerts and positions of files; when it is committed.

When there are alerts at once, but not more often than every ``ALERT_SECONDS`` (``MANY_SECONDS`` while they are many),
else after ``IDLE_SECONDS``. The agent's own is ``checkpointer.py``, that of the process of a strict rule set
``strict/sender.py``.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable

from vedette.delivery import envelope
from vedette.model.event import Alert, FilePosition
from vedette.runtime.pipeline.context import EvaluationContext

ALERT_SECONDS = 0.005
"""From the start of a commit to that of the next: the first alert after a rest is committed at once."""
MANY_ALERTS, MANY_SECONDS = 20, 0.02
"""After a commit of so many alerts the next one comes later: a commit costs as much as making ten alerts."""
IDLE_SECONDS = 5.0
BATCH_ALERTS = 1000
"""Alerts after which a batch is committed without waiting."""
ROW_SECONDS = 0.1
"""After a commit until one that has only rows for sinks."""
COMMIT_BYTES = 4 << 20
"""Of encoded alerts not yet committed: evaluation waits for the commit, also in the middle of a frame."""


class Uncommitted(ABC):
    """See the module's text. Belongs to the event loop."""

    def __init__(self, context: EvaluationContext) -> None:
        self._restart, self._failures, self._context = context.restart, context.failures, context
        self.outbox_bytes = context.config.uplink.max_bytes
        """From which on evaluation waits."""
        self.due = asyncio.Event()
        """Set to have a commit soon."""
        self.alerts: list[tuple[int, bytes]] = []
        """Taken since the last commit: seq and bytes."""
        self.bytes = 0
        """Of ``alerts``."""
        self.by_rule: Counter[str] = Counter()
        """Alerts since the start, by the id of their rule."""
        self._positions: dict[tuple[str, int], FilePosition] = {}
        self._steady = asyncio.Event()
        """Whether cursor, state and alerts agree."""
        self._steady.set()

    @abstractmethod
    async def commit(self) -> None:
        """All that was evaluated since the last one."""

    @property
    @abstractmethod
    def waiting(self) -> int:
        """Bytes of the alerts without a receipt, as of the last commit."""

    @abstractmethod
    def _count(self, alert: Alert) -> None:
        """``alert`` was made."""

    def take(self, alerts: Iterable[Alert]) -> None:
        """All of ``alerts`` for the next commit, but those that cannot be encoded."""
        for alert in alerts:
            try:
                data = envelope.encode(alert)
            except Exception as error:  # this alert is left out and logged, the others are committed
                self._restart.next_seq = alert.seq  # as if it had not been made: the region would miss its number
                self._failures.step(f"an alert of {alert.rule_title}, which is not sent", error)
                continue
            self._count(alert)
            self.by_rule[alert.rule_id] += 1
            self.alerts.append((alert.seq, data))
            self.bytes += len(data)

    def position(self, position: FilePosition) -> None:
        self._positions[position.file] = position

    # --- room

    def room(self) -> int:
        """Bytes of alerts that may wait for a commit, as of now: asking the store for each event would cost as much as
        evaluating it."""
        rows = self._context.rows
        return min(COMMIT_BYTES, self.outbox_bytes - self.waiting) - (rows.bytes if rows is not None else 0)

    @property
    def due_now(self) -> bool:
        """Whether something waits for the next commit: alerts, or rows for sinks."""
        rows = self._context.rows
        return bool(self.alerts) or (rows is not None and rows.bytes > 0)

    @property
    def full(self) -> bool:
        return self.waiting >= self.outbox_bytes

    async def make_room(self) -> None:
        """Commit, then wait while the outbox is full: that stops evaluation, not ingestion."""
        await self.commit()
        while self.full:
            await asyncio.sleep(0.1)

    # --- out

    def hold(self) -> None:
        """Until ``let_go`` state and alerts may be ahead of the cursor: no commit begins meanwhile."""
        self._steady.clear()

    def let_go(self) -> None:
        self._steady.set()

    async def steady(self) -> None:
        """Until cursor, state and alerts agree."""
        while not self._steady.is_set():
            await self._steady.wait()

    async def commits(self) -> None:
        """Commit when it is due, until cancelled."""
        clock, not_before = asyncio.get_running_loop().time, 0.0
        while True:
            try:
                async with asyncio.timeout(IDLE_SECONDS):
                    await self.due.wait()
                if (pause := not_before - clock()) > 0 and len(self.alerts) < BATCH_ALERTS:
                    await asyncio.sleep(pause)
            except TimeoutError:
                pass
            pause = ALERT_SECONDS if len(self.alerts) < MANY_ALERTS else MANY_SECONDS
            not_before = clock() + (ROW_SECONDS if self.due_now and not self.alerts else pause)
            await self.commit()
