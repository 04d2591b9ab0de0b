"""One transaction per batch: cursor, counters, file positions, state, and the alerts that were made.

``commit`` writes all that was evaluated since the last one (``uncommitted.py`` says when), never past what the raw log
has on disk. It runs in the ``writer`` thread; one at a time.

A disk that is full or failing does not end it: an unfinished commit is retried before the next one. Damage does: the
exception leaves ``commits``, the process ends, and the next start looks at what is on disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from vedette.delivery import envelope
from vedette.model.event import Alert, Cursor
from vedette.rawlog.checkpoint import Checkpoint
from vedette.runtime.pipeline.context import RunContext
from vedette.runtime.pipeline.failures import QUARANTINED
from vedette.runtime.pipeline.ingest import Ingest
from vedette.runtime.pipeline.progress import SETS
from vedette.runtime.pipeline.uncommitted import Uncommitted
from vedette.state.state import State
from vedette.store.store import OfSet
from vedette.system.diskhealth import RETRY_SECONDS, STORE

if TYPE_CHECKING:
    from vedette.runtime.strict.account import Sent

ASKED_SECONDS = 0.1
"""Between two commits for callers of ``asked``."""
ANSWER_SECONDS = 0.1
"""How long a caller of ``asked`` waits for it."""


class Checkpointer(Uncommitted):
    """See the module's text. ``commit`` raises OSError or ValueError when the store is damaged."""

    def __init__(self, context: RunContext, ingest: Ingest, state: State) -> None:
        self._log, self._store, self._outbox, self._writer = (
            context.raw_log, context.store, context.outbox, context.writer,
        )  # fmt: skip
        self._counters, self._progress = context.counters, context.progress
        self._health, self._ingest, self._state = context.health, ingest, state
        super().__init__(context)
        self._context: RunContext = context
        self.patient = True
        """Whether a commit that fails is retried."""
        self._committing: list[tuple[int, bytes]] = []
        self._sent: list[Sent] = []
        """Of rule sets in strict isolation, since the last commit."""
        self._now = asyncio.Lock()
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
        waits = self._outbox.first_wanted() is not None or self._store.get("rows")  # of sinks: perhaps
        self._restart.begin(last, self._log.checkpoint() if waits else last)  # which knows since when they wait

    # --- in

    def _count(self, alert: Alert) -> None:
        self._count_made(alert.seq, alert.raw_ref.log_id, alert.raw_ref.offset)

    def _count_made(self, seq: int, log_id: str, at: int) -> None:
        """An alert that a lost store had made is not counted as made again, unless it had its receipt."""
        if (self._lost or self._repeats) and log_id == self._before[0] and at < self._before[1]:
            if self._repeats:
                self._repeats, self._repeated = self._repeats - 1, self._repeated + 1
            elif self._lost:
                self._lost -= 1
                self._again.append(seq)
                return
        self._counters.totals["alerts_made"] += 1

    def take_sent(self, sent: Sent) -> None:
        """What the process of a rule set in strict isolation has evaluated, for the next commit. Its alerts get their
        numbers here. Raises ValueError for one that is none, with nothing taken."""
        rows = map(envelope.decode_row, sent.alerts if self._lost or self._repeats else ())
        refs = [(row["raw_ref"]["log_id"], row["raw_ref"]["offset"]) for row in rows]
        begun = [envelope.renumbered(data) for data in sent.alerts]
        for number, numbered in enumerate(begun):
            seq = self._restart.take_seq()
            self._count_made(seq, *(refs[number] if refs else ("", 0)))
            data = numbered(seq)
            self.alerts.append((seq, data))
            self.bytes += len(data)
        sent.account.committing = True
        self._sent.append(sent)
        self.due.set()

    def _place(self, cursor: Cursor, counters: Mapping[str, Any], next_seq: int) -> Checkpoint:
        """A commit. Of the alerts made so far, those have their receipt, too, that wait for it."""
        receipted = self._counters.totals["alerts_made"] - self._lost - self._repeats
        return Checkpoint(cursor, counters, next_seq=next_seq, receipted=receipted)

    def uncommitted(self, next_seq: int) -> int:
        """Alerts made that an outbox which goes on with ``next_seq`` does not hold yet, nor counts as lost.

        The writer thread may have committed what the loop has not heard of: only the outbox itself can tell.
        """
        way = sum(seq >= next_seq for seq, _ in (*self._committing, *self.alerts))
        return way - sum(seq >= next_seq for seq in self._again)

    # --- out

    @property
    def waiting(self) -> int:
        return self._outbox.bytes

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

    def _snapshot(self, held: Mapping[str, int], sent: list[Sent]) -> dict[str, Any]:
        """The counters of a commit."""
        accounts = self._context.accounts
        rows = {} if accounts is None else accounts.rows(sent)
        return {**self._counters.snapshot(held), **({SETS: rows} if rows else {})}

    async def commit(self) -> None:
        """One transaction for all that was evaluated since the last; the log is synced that far before.

        One at a time, and none after one that failed: its alerts would be passed over by a later cursor.
        """
        async with self._now:
            if self._failed:
                raise OSError(f"an earlier commit failed: {self._failed}")
            await self.steady()
            self.due.clear()
            progress, failures = self._progress, self._failures
            offset, alerts, positions, held = progress.evaluated, self.alerts, self._positions, self._ingest.held
            changed = self.due_now or self._sent or self._state.joiner.changed or failures.changed
            if offset == progress.committed and not changed and self._snapshot(held, self._sent) == self.counted:
                return
            self.alerts, self.bytes, self._positions, self._committing = [], 0, {}, alerts
            sent, self._sent = self._sent, []
            self._counters.totals["commits"] += 1
            counters = self._snapshot(held, sent)
            if not self._state.rewriting and self._store.state.is_long():
                self._state.rewrite()
                self._store.state.begins()
            rows_wait = self._state.statements.waiting
            cursor, state, whole = Cursor(self._log.log_id, offset), self._state.delta(), self._state.rewritten
            again, self._repeated = (self._repeated, len(self._again)), 0
            next_seq = alerts[-1][0] + 1 if alerts else self._restart.next_place.next_seq
            place = self._place(cursor, counters, next_seq)
            quarantined = dict(failures.quarantined) if failures.changed else None
            failures.changed = False
            sets = [OfSet(part.account.name, part.state, part.begins, part.whole, part.quarantined) for part in sent]
            furthest = max([offset, *(part.offset for part in sent)])
            rows = self._context.rows
            put = None if rows is None else rows.change().write

            done = False

            def write() -> None:
                nonlocal done
                if self._log.durable < furthest:
                    self._log.sync()
                if not done:
                    self._store.commit(cursor, counters, positions.values(), alerts, state, whole, again, sets, put)
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
            if rows is not None:
                rows.committed()
            for part in sent:
                part.account.take(part)
                part.account.committing = False
                part.done.set_result(None)
            accounts = self._context.accounts
            if not (rows_wait or (accounts is not None and accounts.rows_wait)):  # a rebuilt store would not have them
                settle = self._restart.committed if rows is None else partial(rows.settle, self._restart)
                settle(place, self._outbox.first_wanted())
        if alerts:
            self._outbox.wake()
