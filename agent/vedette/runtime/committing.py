"""One transaction per batch: cursor, counters, file positions, what judging remembers, and the alerts it made.

``take`` collects alerts; ``commit`` writes all that was judged since the last one, never past what the raw log has on
disk: when there are alerts at once, but not more often than every ``ALERT_SECONDS``, else after ``IDLE_SECONDS``. It
runs in the ``writer`` thread; one at a time.

A disk that is full or failing does not end it: an unfinished commit is tried again before the next one. Damage does:
the exception leaves ``commits``, the process ends, and the next start looks at what is on disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from typing import Any

from vedette.delivery import envelope
from vedette.delivery.queue import Outbox
from vedette.model.counters import Counters
from vedette.model.event import Alert, Cursor, FilePosition
from vedette.rawlog import checkpoint
from vedette.rawlog.log import RawLog
from vedette.runtime.failures import Failures
from vedette.runtime.progress import Progress
from vedette.runtime.storing import Storing
from vedette.state.state import State
from vedette.store.store import BEFORE, Store
from vedette.system.trouble import RETRY_SECONDS, STORE, Trouble

ALERT_SECONDS = 0.005
"""From the start of a commit to that of the next: the first alert after a rest is committed at once."""
IDLE_SECONDS = 5.0
BATCH_ALERTS = 1000
"""Alerts after which a batch is committed without waiting."""
COMMIT_BYTES = 4 << 20
"""Of encoded alerts not yet committed: judging waits for the commit, also in the middle of a frame."""
ASKED_SECONDS = 0.1
"""Between two commits that are made because somebody asks how far judging is."""
ANSWER_SECONDS = 0.1
"""How long who asks waits for it."""
QUARANTINED = "quarantined"
"""The store's name for ``Failures.quarantined``."""

_Settled = tuple[Cursor | None, Mapping[str, Any] | None, int, int | None]


class Committing:
    """See the module's text. ``commit`` raises OSError or ValueError when the store is damaged."""

    def __init__(
        self, log: RawLog, store: Store, outbox: Outbox, counters: Counters, writer: Executor, progress: Progress,
        storing: Storing, memory: State, failures: Failures, trouble: Trouble, *, next_seq: int, outbox_bytes: int,
    ) -> None:  # fmt: skip
        """``next_seq``: of the first alert to be made; ``outbox_bytes``: from which on judging waits."""
        self._log, self._store, self._outbox, self.counters, self._writer = log, store, outbox, counters, writer
        self._progress, self._storing, self._memory, self._failures = progress, storing, memory, failures
        self._trouble, self._next_seq, self.outbox_bytes = trouble, next_seq, outbox_bytes
        self.due = asyncio.Event()
        """Set to have a commit soon."""
        self.alerts: list[tuple[int, bytes]] = []
        """Taken since the last commit: seq and bytes."""
        self.bytes = 0
        """Of ``alerts``."""
        self.patient = True
        """Whether a commit that fails is tried again."""
        self._committing: list[tuple[int, bytes]] = []
        self._positions: dict[tuple[str, int], FilePosition] = {}
        self._now = asyncio.Lock()
        self._failed = ""
        self._ask_again = 0.0
        self.counted = counters.snapshot()
        """The counters as of the last commit."""
        account = outbox.account()
        self._lost, self._repeats = account.lost, account.repeats
        self._before: tuple[str, int] = tuple(store.get(BEFORE) or ("", 0))
        self._repeated = 0
        """Of ``_repeats``, taken since the last commit."""
        self._again: list[int] = []
        """Seqs taken since the last commit of alerts that were lost."""
        self._settling: _Settled = Cursor(log.log_id, progress.committed), self.counted, next_seq, self._receipted()
        """As of a commit: cursor, counters, next seq, receipted alerts; not all of its alerts are receipted."""
        self._settled: _Settled = self._settling
        """As of an earlier commit: every alert of it is receipted."""
        if outbox.pending(0, 1):  # since when they wait, the newest checkpoint knows
            told = log.checkpoint()
            self._settled = told.cursor, told.counters, told.next_seq, told.receipted
        log.describe = self._describe

    # --- in

    def seq(self) -> int:
        """The number of an alert that is made."""
        seq, self._next_seq = self._next_seq, self._next_seq + 1
        return seq

    def take(self, alerts: Iterable[Alert]) -> None:
        """All of ``alerts`` for the next commit, but those that cannot be encoded."""
        for alert in alerts:
            try:
                data = envelope.encode(alert)
            except Exception as error:  # one alert is told and left out, the others are committed
                self._next_seq = alert.seq  # as if it had not been made: the region would miss its number
                self._failures.step(f"an alert of {alert.rule_title}, which is not sent", error)
                continue
            self._count(alert)
            self.alerts.append((alert.seq, data))
            self.bytes += len(data)

    def _count(self, alert: Alert) -> None:
        """An alert that a lost store had made is not made once more, unless it had its receipt."""
        log_id, offset = self._before
        if alert.raw_ref.log_id == log_id and alert.raw_ref.offset < offset:
            if self._repeats:
                self._repeats, self._repeated = self._repeats - 1, self._repeated + 1
            elif self._lost:
                self._lost -= 1
                self._again.append(alert.seq)
                return
        self.counters.totals["alerts_made"] += 1

    def _receipted(self) -> int:
        """Of the alerts made so far, once those have it that wait."""
        return self.counters.totals["alerts_made"] - self._lost - self._repeats

    def position(self, position: FilePosition) -> None:
        """A file is judged so far."""
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
        judging it."""
        return min(COMMIT_BYTES, self.outbox_bytes - self._outbox.bytes)

    @property
    def full(self) -> bool:
        """Whether the outbox takes no more."""
        return self._outbox.bytes >= self.outbox_bytes

    async def make_room(self) -> None:
        """Commit, then wait while the outbox is full: that stops judging, not storing."""
        await self.commit()
        while self.full:
            await asyncio.sleep(0.1)

    # --- out

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
            not_before = clock() + ALERT_SECONDS
            await self.commit()

    async def asked(self) -> None:
        """Somebody asks how far judging is, and is told what is committed: commit, but not often, nor wait long."""
        clock, offset = asyncio.get_running_loop().time, self._progress.judged
        now = clock()
        if self._progress.committed >= offset or now < self._ask_again:
            return
        self._ask_again = now + ASKED_SECONDS
        self.due.set()
        while self._progress.committed < offset and clock() < now + ANSWER_SECONDS:
            await asyncio.sleep(0.005)

    async def commit(self) -> None:
        """One transaction for all that was judged since the last; the log is synced that far before.

        One at a time, and none after one that failed: its alerts would be passed over by a later cursor.
        """
        async with self._now:
            if self._failed:
                raise OSError(f"an earlier commit failed: {self._failed}")
            self.due.clear()
            progress, failures = self._progress, self._failures
            offset, alerts, positions, held = progress.judged, self.alerts, self._positions, self._storing.held
            counters = self.counters.snapshot(held)
            same = offset == progress.committed and counters == self.counted
            if same and not alerts and not self._memory.joiner.changed and not failures.changed:
                return
            self.alerts, self.bytes, self._positions, self._committing = [], 0, {}, alerts
            self.counters.totals["commits"] += 1
            counters = self.counters.snapshot(held)
            if not self._memory.rewriting and self._store.state_is_long():
                self._memory.rewrite()
                self._store.state_begins()
            cursor, state, whole = Cursor(self._log.log_id, offset), self._memory.delta(), self._memory.rewritten
            again, self._repeated = (self._repeated, len(self._again)), 0
            settled = cursor, counters, alerts[-1][0] + 1 if alerts else self._settling[2], self._receipted()
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
                    self._trouble.failed(STORE, error)
                    if not self.patient:
                        self._failed = str(error)
                        raise
                    await self._storing.make_disk_room()
                    await asyncio.sleep(RETRY_SECONDS)
                except BaseException as error:
                    self._failed = str(error) or type(error).__name__
                    raise
            self._trouble.well(STORE)
            progress.committed, self.counted, self._committing = offset, counters, []
            del self._again[: again[1]]
            self._settle(settled)
        if alerts:
            self._outbox.wake()

    # --- what a rebuilt store would go on from

    def _settle(self, commit: _Settled) -> None:
        """After a commit: how far every alert has its receipt, by the first that has none."""
        waiting = self._outbox.pending(0, 1)
        if not waiting:
            self._settled = self._settling = commit
        elif waiting[0][0] >= self._settling[2]:
            self._settled, self._settling = self._settling, commit

    def _describe(self) -> bytes:
        """The checkpoint of a segment that is begun."""
        cursor, counters, _, receipted = self._settled
        positions, made = tuple(self._progress.positions.values()), self.counters.totals["alerts_made"]
        return checkpoint.encode(checkpoint.Checkpoint(cursor, counters, positions, self._next_seq, made, receipted))
