"""One transaction per batch: cursor, counters, file positions, state, and the alerts that were made.

``take`` collects alerts; ``commit`` writes all that was evaluated since the last one, never past what the raw log has
on disk: when there are alerts at once, but not more often than every ``ALERT_SECONDS`` (``MANY_SECONDS`` while they are
many), else after ``IDLE_SECONDS``. It runs in the ``writer`` thread; one at a time.

A disk that is full or failing does not end it: an unfinished commit is retried before the next one. Damage does: the
exception leaves ``commits``, the process ends, and the next start looks at what is on disk.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from vedette.delivery import envelope
from vedette.model.event import Alert, Cursor, FilePosition
from vedette.rawlog.checkpoint import Checkpoint
from vedette.runtime.context import RunContext
from vedette.runtime.failures import QUARANTINED
from vedette.runtime.ingest import Ingest
from vedette.state.state import State
from vedette.system.diskhealth import RETRY_SECONDS, STORE

ALERT_SECONDS = 0.005
"""From the start of a commit to that of the next: the first alert after a rest is committed at once."""
MANY_ALERTS, MANY_SECONDS = 20, 0.02
"""After a commit of so many alerts the next one comes later: a commit costs as much as making ten alerts."""
IDLE_SECONDS = 5.0
BATCH_ALERTS = 1000
"""Alerts after which a batch is committed without waiting."""
COMMIT_BYTES = 4 << 20
"""Of encoded alerts not yet committed: evaluation waits for the commit, also in the middle of a frame."""
ASKED_SECONDS = 0.1
"""Between two commits for callers of ``asked``."""
ANSWER_SECONDS = 0.1
"""How long a caller of ``asked`` waits for it."""


class Checkpointer:
    """See the module's text. ``commit`` raises OSError or ValueError when the store is damaged."""

    def __init__(self, context: RunContext, ingest: Ingest, state: State) -> None:
        self._log, self._store, self._outbox, self._writer = (
            context.raw_log, context.store, context.outbox, context.writer,
        )  # fmt: skip
        self._counters, self._progress, self._failures = context.counters, context.progress, context.failures
        self._health, self._restart, self._ingest, self._state = context.health, context.restart, ingest, state
        self.outbox_bytes = context.config.uplink.max_bytes
        """From which on evaluation waits."""
        self.due = asyncio.Event()
        """Set to have a commit soon."""
        self.alerts: list[tuple[int, bytes]] = []
        """Taken since the last commit: seq and bytes."""
        self.bytes = 0
        """Of ``alerts``."""
        self.made: Counter[str] = Counter()
        """Alerts since the start, by the id of their rule."""
        self.patient = True
        """Whether a commit that fails is retried."""
        self._committing: list[tuple[int, bytes]] = []
        self._positions: dict[tuple[str, int], FilePosition] = {}
        self._now = asyncio.Lock()
        self._steady = asyncio.Event()
        """Whether cursor, state and alerts agree."""
        self._steady.set()
        self._failed = ""
        self._ask_again = 0.0
        self.counted = self._counters.snapshot()
        """The counters as of the last commit."""
        account = self._outbox.account()
        self._lost, self._repeats = account.lost, account.repeats
        self._before = self._store.rebuilt_before
        self._repeated = 0
        """Of ``_repeats``, taken since the last commit."""
        self._again: list[int] = []
        """Seqs taken since the last commit of alerts that were lost."""
        self._restart.next_seq = account.next_seq
        last = self._place(Cursor(self._log.log_id, self._progress.committed), self.counted, account.next_seq)
        waits = bool(self._outbox.pending(0, 1))
        self._restart.begin(last, self._log.checkpoint() if waits else last)  # which knows since when they wait

    # --- in

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
            self.made[alert.rule_id] += 1
            self.alerts.append((alert.seq, data))
            self.bytes += len(data)

    def _count(self, alert: Alert) -> None:
        """An alert that a lost store had made is not counted as made again, unless it had its receipt."""
        log_id, offset = self._before
        if alert.raw_ref.log_id == log_id and alert.raw_ref.offset < offset:
            if self._repeats:
                self._repeats, self._repeated = self._repeats - 1, self._repeated + 1
            elif self._lost:
                self._lost -= 1
                self._again.append(alert.seq)
                return
        self._counters.totals["alerts_made"] += 1

    def _place(self, cursor: Cursor, counters: Mapping[str, Any], next_seq: int) -> Checkpoint:
        """A commit. Of the alerts made so far, those have their receipt, too, that wait for it."""
        receipted = self._counters.totals["alerts_made"] - self._lost - self._repeats
        return Checkpoint(cursor, counters, next_seq=next_seq, receipted=receipted)

    def position(self, position: FilePosition) -> None:
        self._positions[position.file] = position

    def uncommitted(self, next_seq: int) -> int:
        """Alerts made that an outbox which goes on with ``next_seq`` does not hold yet, nor counts as lost.

        The writer thread may have committed what the loop has not heard of: only the outbox itself can tell.
        """
        way = sum(seq >= next_seq for seq, _ in (*self._committing, *self.alerts))
        return way - sum(seq >= next_seq for seq in self._again)

    # --- room

    def room(self) -> int:
        """Bytes of alerts that may wait for a commit, as of now: asking the store for each event would cost as much as
        evaluating it."""
        return min(COMMIT_BYTES, self.outbox_bytes - self._outbox.bytes)

    @property
    def full(self) -> bool:
        return self._outbox.bytes >= self.outbox_bytes

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
            not_before = clock() + (ALERT_SECONDS if len(self.alerts) < MANY_ALERTS else MANY_SECONDS)
            await self.commit()

    async def asked(self) -> None:
        """Somebody asks for the status, which shows what is committed: commit, but not often, nor wait long."""
        clock, offset = asyncio.get_running_loop().time, self._progress.evaluated
        now = clock()
        if self._progress.committed >= offset or now < self._ask_again:
            return
        self._ask_again = now + ASKED_SECONDS
        self.due.set()
        while self._progress.committed < offset and clock() < now + ANSWER_SECONDS:
            await asyncio.sleep(0.005)

    async def commit(self) -> None:
        """One transaction for all that was evaluated since the last; the log is synced that far before.

        One at a time, and none after one that failed: its alerts would be passed over by a later cursor.
        """
        async with self._now:
            if self._failed:
                raise OSError(f"an earlier commit failed: {self._failed}")
            while not self._steady.is_set():
                await self._steady.wait()
            self.due.clear()
            progress, failures = self._progress, self._failures
            offset, alerts, positions, held = progress.evaluated, self.alerts, self._positions, self._ingest.held
            idle = offset == progress.committed and not (alerts or self._state.joiner.changed or failures.changed)
            if idle and self._counters.snapshot(held) == self.counted:
                return
            self.alerts, self.bytes, self._positions, self._committing = [], 0, {}, alerts
            self._counters.totals["commits"] += 1
            counters = self._counters.snapshot(held)
            if not self._state.rewriting and self._store.state_is_long():
                self._state.rewrite()
                self._store.state_begins()
            cursor, state, whole = Cursor(self._log.log_id, offset), self._state.delta(), self._state.rewritten
            again, self._repeated = (self._repeated, len(self._again)), 0
            next_seq = alerts[-1][0] + 1 if alerts else self._restart.next_place.next_seq
            place = self._place(cursor, counters, next_seq)
            quarantined = dict(failures.quarantined) if failures.changed else None
            failures.changed = False

            done = False

            def write() -> None:
                nonlocal done
                if self._log.durable < offset:
                    self._log.sync()
                if not done:
                    self._store.commit(cursor, counters, positions.values(), alerts, state, whole, again)
                done = True
                if quarantined is not None:
                    self._store.put(QUARANTINED, quarantined)

            while True:
                try:
                    await asyncio.get_running_loop().run_in_executor(self._writer, write)
                    break
                except OSError as error:
                    self._health.failed(STORE, error)
                    if not self.patient:
                        self._failed = str(error)
                        raise
                    await self._ingest.make_disk_room()
                    await asyncio.sleep(RETRY_SECONDS)
                except BaseException as error:
                    self._failed = str(error) or type(error).__name__
                    raise
            self._health.recovered(STORE)
            progress.committed, self.counted, self._committing = offset, counters, []
            del self._again[: again[1]]
            waiting = self._outbox.pending(0, 1)
            self._restart.committed(place, waiting[0][0] if waiting else None)
        if alerts:
            self._outbox.wake()
