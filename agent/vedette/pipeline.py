"""One batch, top to bottom: chunks into the raw log, frames judged in order, alerts committed with the cursor.

Three tasks share the event loop; everything that waits for a disk runs in the one ``writer`` thread:

* ``store`` (called by inputs) appends a chunk to the raw log. That is all that stands between an input and the disk.
* ``judge`` takes the frames from the cursor on, from memory while they are few (``MEMORY``), else from the log: a
  burst is stored at once and judged when there is time. Between two frames it yields to the loop; ``switch`` takes
  effect there, so no event is judged under two plans or none.
* ``commit`` writes cursor, counters, file positions and alerts in one transaction, never past what the raw log has on
  disk: within ``ALERT_SECONDS`` when there are alerts, else after ``IDLE_SECONDS``.

After a kill the frames behind the cursor are judged again; alert ids come out the same, so nothing is doubled.
A batch that cannot be committed, or a raw log that cannot be written, stops the agent loudly: the exception leaves
``run``, the process ends, and what is on disk is consistent.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from functools import partial
from pathlib import Path

import structlog

from vedette.alerts import Alerting
from vedette.config import AgentSettings, StateSettings, SuppressSettings
from vedette.engine.match import Aside, Context, Engine
from vedette.event import Chunk, Cursor, FilePosition, Frame
from vedette.outbox import envelope
from vedette.outbox.queue import Outbox
from vedette.quarantine import Quarantine
from vedette.rawlog import read
from vedette.rawlog.log import RawLog
from vedette.report import Counters, Log
from vedette.state.memory import Memory, merged
from vedette.store import Saved, Store

log = structlog.get_logger()

MEMORY = 8 << 20
"""Bytes of stored frames kept in memory for the judge; what is beyond is read back from the log."""

ALERT_SECONDS = 0.01
IDLE_SECONDS = 5.0
BATCH_ALERTS = 1000
"""Alerts after which a batch is committed without waiting."""

TICK_SECONDS = 1.0
"""Between two looks at what waits for time to pass while nothing comes."""


class Pipeline:
    """The agent's ``Intake``, judge and committer."""

    def __init__(
        self,
        agent: AgentSettings,
        engine: Engine,
        contexts: Mapping[str, Context],
        folder: Path,
        log: RawLog,
        store: Store,
        outbox: Outbox,
        counters: Counters,
        writer: Executor,
        clock: Callable[[], int],
        *,
        fsync_interval: float,
        outbox_bytes: int,
        state: StateSettings,
        suppress: tuple[SuppressSettings, ...],
        quarantine: Quarantine | None = None,
    ) -> None:
        """``quarantine`` keeps the events that a rule could not be decided on; without one they are only counted."""
        self.engine = engine
        self.quarantine = quarantine
        if quarantine is not None:
            engine.quarantine_after = quarantine.after
        self.bundle: str | None = None
        self._agent, self._contexts, self._folder, self._clock = agent, contexts, folder, clock
        self._log, self._store, self._outbox, self._counters, self._writer = log, store, outbox, counters, writer
        self._fsync_interval, self._outbox_bytes = fsync_interval, outbox_bytes
        self._recent: deque[Frame] = deque()
        self._recent_bytes = 0
        self._stored = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._syncing: asyncio.Task[None] | None = None
        self._draining = False
        self._alerts: list[tuple[int, bytes]] = []
        self._committing: list[tuple[int, bytes]] = []
        self._positions: dict[tuple[str, int], FilePosition] = {}
        self._changed = asyncio.Event()
        self.backlog: defaultdict[str, int] = defaultdict(int)
        """Events stored and not yet judged, per input."""
        self.judged_at = 0
        """``received_at`` of the last judged frame."""
        saved = store.load()
        self.positions = {position.file: position for position in saved.positions}
        """Where every tailed file ends in the raw log, committed or not: what a tail goes on from."""
        self._next_seq = saved.next_seq
        self._offset = self._committed = self._recover(saved)
        self.alerting = Alerting(agent, engine, contexts, log, self._remember(state), suppress, clock, self._seq)

    def _recover(self, saved: Saved) -> int:
        """Restore the counters as of the cursor, then count what lies behind it in the log; returns where to judge.

        A cursor of another log (a new one was begun because its tail was lost) judges this log from its start.
        """
        if saved.counters is not None:
            self._counters.restore(saved.counters)
        cursor = saved.cursor
        same = cursor is not None and cursor.log_id == self._log.log_id
        offset = max(cursor.offset, self._log.start) if cursor is not None and same else self._log.start
        for header in read.headers(self._folder, offset, log_id=self._log.log_id):
            self.backlog[header.input] += header.events
            if header.file is not None:
                self.positions[header.file.file] = header.file
        # What was counted at the doors since the last commit died with the process; the log knows what it holds.
        snapshot = self._counters.snapshot()["inputs"]
        for name in {*snapshot, *self.backlog}:
            counts = snapshot.get(name, {"dropped": {}, "lost": {}})
            lost, dropped = sum(counts["lost"].values()), sum(counts["dropped"].values())
            self._counters.stored[name] = self._counters.judged[name] + lost + self.backlog[name]
            self._counters.received[name] = self._counters.stored[name] + dropped
        return offset

    # --- intake

    def store(self, chunk: Chunk) -> int:
        """See ``event.Intake``."""
        frame = self._log.append(chunk)
        self.backlog[chunk.input] += len(chunk)
        if self._recent_bytes < MEMORY and (not self._recent or self._recent[-1].end == frame.offset):
            self._recent.append(frame)
            self._recent_bytes += len(chunk.data)
        self._stored.set()
        return frame.end

    async def durable(self, offset: int) -> None:
        """See ``event.Intake``: those that wait together share one fsync."""
        while self._log.durable < offset:
            await self._sync()

    def accepting(self) -> bool:
        return self._room.is_set()

    async def ready(self) -> None:
        await self._room.wait()

    async def _sync(self) -> None:
        if self._syncing is None:
            self._syncing = asyncio.create_task(self._sync_once())
        await asyncio.shield(self._syncing)

    async def _sync_once(self) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self._writer, self._log.sync)
        finally:
            self._syncing = None

    # --- judging

    async def run(self) -> None:
        """Judge, commit, sync and retain until cancelled; raises OSError when a disk cannot be written."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._judge())
            group.create_task(self._commits())
            group.create_task(self._syncs())
            group.create_task(self._ticks())

    async def drain(self, seconds: float) -> None:
        """Judge what is stored and commit it, for at most ``seconds``; what remains is judged after the next start."""
        deadline = asyncio.get_running_loop().time() + seconds
        while self._offset < self._log.end and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.005)
        await self._commit()

    def switch(self, engine: Engine, bundle: str | None) -> None:
        """Judge with another plan from the next frame on; rules that are in quarantine stay there."""
        engine.quarantine({self.engine.plan.rules[i].digest for i in self.engine.quarantined})
        engine.quarantine_after = self.engine.quarantine_after
        self.engine, self.bundle = engine, bundle
        self.alerting.switch(engine, bundle)

    def _frames(self) -> Iterator[Frame]:
        """The frames from ``_offset`` to the log's end now."""
        while self._offset < self._log.end:
            while self._recent and self._recent[0].offset < self._offset:
                self._recent_bytes -= len(self._recent.popleft().chunk.data)
            if self._recent and self._recent[0].offset == self._offset:
                frame = self._recent.popleft()
                self._recent_bytes -= len(frame.chunk.data)
                yield frame
            else:
                before = self._offset
                for frame in self._log.frames(self._offset):
                    if self._recent and self._recent[0].offset <= frame.offset:
                        break
                    self._skip(frame.offset)
                    yield frame
                if self._offset == before:
                    self._skip(self._recent[0].offset if self._recent else self._log.end)

    def _skip(self, offset: int) -> None:
        """Go over a damaged stretch of the log, whose events the log has counted as lost."""
        if offset > self._offset:
            self._offset = offset
            self.backlog.clear()
            self.backlog.update(self._log.backlog(offset))

    async def _judge(self) -> None:
        while True:
            if self._offset >= self._log.end:
                self._stored.clear()
                await self._stored.wait()
            for frame in self._frames():
                self._judge_frame(frame)
                await asyncio.sleep(0)
                while self._outbox.bytes >= self._outbox_bytes:
                    await asyncio.sleep(0.1)  # a full outbox stops judging, not storing

    def _judge_frame(self, frame: Frame) -> None:
        chunk, counters = frame.chunk, self._counters
        candidates = self.engine.tally.candidates
        context = self._contexts.get(chunk.input, Context())
        for alert in self.alerting.frame(frame, self.engine.judge(chunk, context)):
            self._alerts.append((alert.seq, envelope.encode(alert)))
        if aside := self.engine.aside():
            self._keep_undecided(frame, aside)
        events = len(chunk)
        counters.judged[chunk.input] += events
        counters.totals["candidates"] += self.engine.tally.candidates - candidates
        self.backlog[chunk.input] -= events
        self.judged_at = chunk.received_at
        if chunk.file is not None:
            self._positions[chunk.file.file] = self.positions[chunk.file.file] = chunk.file
        self._offset = frame.end
        if self._alerts:
            self._changed.set()

    def _keep_undecided(self, frame: Frame, aside: list[Aside]) -> None:
        """Keep the events that could not be decided, and say which rules are asked no more."""
        self._counters.totals["undecided"] += len(aside)
        for rule, start, end, reason in aside:
            if self.quarantine is not None:
                self.quarantine.put(self.engine.plan.rules[rule], reason, frame, self._log.log_id, start, end)
        for number in {one.rule for one in aside} & self.engine.quarantined:
            rule_id, title = self.engine.plan.rules[number].id, self.engine.plan.rules[number].title
            events, reason = self.engine.tally.undecided[number], self.engine.tally.reasons[number]
            log.error(Log.RULE_QUARANTINED, rule=rule_id, title=title, events=events, reason=reason)

    def _seq(self) -> int:
        """The number of an alert that is made."""
        seq, self._next_seq = self._next_seq, self._next_seq + 1
        self._counters.totals["alerts_made"] += 1
        return seq

    def _remember(self, state: StateSettings) -> Memory:
        """What judging remembered at the last commit."""
        empty = partial(
            Memory,
            self.engine.plan,
            log_id=self._log.log_id,
            lateness=int(state.max_lateness * 1_000_000),
            max_bytes=state.max_bytes,
            settle=state.settle,
        )
        memory = empty()
        try:
            memory.restore(self._store.state())
        except ValueError as error:
            log.error(Log.STATE_LOST, reason=str(error), action="correlations and suppression start empty")
            return empty()
        return memory

    def _tick(self) -> None:
        """Nothing came: time passes all the same, for what waits for it. Only when all that is stored is judged."""
        if self._offset < self._log.end or self._outbox.bytes >= self._outbox_bytes:
            return
        for alert in self.alerting.advance(self._clock()):
            self._alerts.append((alert.seq, envelope.encode(alert)))
        if self._alerts:
            self._changed.set()

    async def _ticks(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self._tick()

    def uncommitted(self, next_seq: int) -> int:
        """Alerts made that an outbox which goes on with ``next_seq`` does not hold yet.

        The writer thread may have committed what the loop has not heard of: only the outbox itself can tell.
        """
        return sum(seq >= next_seq for seq, _ in (*self._committing, *self._alerts))

    # --- committing

    async def _commits(self) -> None:
        while True:
            try:
                async with asyncio.timeout(IDLE_SECONDS):
                    await self._changed.wait()
                if len(self._alerts) < BATCH_ALERTS:
                    await asyncio.sleep(ALERT_SECONDS)
            except TimeoutError:
                pass
            await self._commit()

    async def _commit(self) -> None:
        """One transaction for all that was judged since the last; the log is synced that far before."""
        if self._offset == self._committed and not self._alerts:
            return
        offset, alerts, positions = self._offset, self._alerts, self._positions
        self._alerts, self._positions, self._committing = [], {}, alerts
        self._changed.clear()
        self._counters.totals["commits"] += 1
        cursor, counters = Cursor(self._log.log_id, offset), self._counters.snapshot()
        state = self.alerting.memory.delta()

        def write() -> None:
            if self._log.durable < offset:
                self._log.sync()
            self._store.commit(cursor, counters, positions.values(), alerts, state)
            self._store.merge_state(merged)

        await asyncio.get_running_loop().run_in_executor(self._writer, write)
        self._committed, self._committing = offset, []
        if alerts:
            self._outbox.wake()

    async def _syncs(self) -> None:
        """Sync what came in every interval, and delete what the budget no longer holds."""
        while True:
            await asyncio.sleep(self._fsync_interval)
            if self._log.end > self._log.durable:
                await self._sync()
            retain = partial(self._log.retain, self._committed, self._clock())
            await asyncio.get_running_loop().run_in_executor(self._writer, retain)
            (self._room.clear if self._log.full() else self._room.set)()
