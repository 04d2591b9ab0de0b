"""The process's half of a commit: what was evaluated goes to the agent, one batch at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from vedette.model.event import Alert
from vedette.runtime.pipeline.blackbox import NOWHERE, BlackBox, Stage
from vedette.runtime.pipeline.context import EvaluationContext
from vedette.runtime.pipeline.uncommitted import Uncommitted
from vedette.state.state import State


class Sender(Uncommitted):
    """``send`` takes a message (``messages.py``) to the agent."""

    def __init__(
        self, context: EvaluationContext, state: State, send: Callable[[list[Any]], None], waiting: int,
        blackbox: BlackBox,
    ) -> None:  # fmt: skip
        self._box = blackbox
        super().__init__(context)
        self._counters, self._progress, self._state, self._send = context.counters, context.progress, state, send
        self._outbox_bytes, self._long = waiting, False
        self._batch_counts: dict[str, tuple[str, int]] = {}
        """Of ``alerts``: by the id of their rule its title, and how many."""
        self._now = asyncio.Lock()
        self._answered = asyncio.Event()

    @property
    def waiting(self) -> int:
        return self._outbox_bytes

    def outbox(self, waiting: int) -> None:
        """So many bytes wait there for a receipt."""
        self._outbox_bytes = waiting

    def done(self, long: bool, waiting: int) -> None:
        """What was sent is committed."""
        self._long, self._outbox_bytes = long, waiting
        self._answered.set()

    def _count(self, alert: Alert) -> None:
        self._counters.totals["alerts_made"] += 1
        _, before = self._batch_counts.get(alert.rule_id, ("", 0))
        self._batch_counts[alert.rule_id] = alert.rule_title, before + 1

    async def commit(self) -> None:
        async with self._now:
            await self.steady()
            self.due.clear()
            progress, failures, state = self._progress, self._failures, self._state
            offset, alerts = progress.evaluated, self.alerts
            changed = alerts or state.joiner.changed or failures.changed
            if offset == progress.committed and not changed:
                return
            begins = self._long and not state.rewriting
            with self._box.within(Stage.WRITING, NOWHERE):
                if begins:
                    state.rewrite()
                delta, whole = state.delta(), state.rewritten
            rows_wait = bool(state.statements.waiting)
            self.alerts, self.bytes, self._positions = [], 0, {}
            batch_counts, self._batch_counts = self._batch_counts, {}
            quarantined = dict(failures.quarantined) if failures.changed else None
            failures.changed = False
            self._answered.clear()
            data = [data for _, data in alerts]
            counters = self._counters.snapshot()
            self._send(["batch", offset, counters, data, batch_counts, delta, begins, whole, quarantined, rows_wait])
            await self._answered.wait()
            progress.committed = offset
