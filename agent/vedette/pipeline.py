"""One batch, top to bottom: chunks into the raw log, frames judged in order, alerts committed with the cursor.

Four tasks share the event loop; everything that waits for a disk runs in the one ``writer`` thread:

* ``store`` (called by inputs) appends a chunk to the raw log. That is all that stands between an input and the disk.
* ``judge`` takes the frames from the cursor on, from memory while they are few (``MEMORY``), else from the log: a
  burst is stored at once and judged when there is time. It yields to the loop every ``STEP_SECONDS``;
  ``switch`` takes effect between two frames, so no event is judged under two plans or none.
* ``commit`` writes cursor, counters, file positions and alerts in one transaction, never past what the raw log has on
  disk: when there are alerts at once, but not more often than every ``ALERT_SECONDS``, else after ``IDLE_SECONDS``.

* what correlations and suppression remember goes with the cursor, so it, too, is as of the last commit; so do audit
  events that are not complete (``engine/join.py``), whose records count as judged when the cursor has passed them.
  While nothing comes at all, time is told to them every ``TICK_SECONDS``.

What a single event, rule or correlation does wrong is its own affair: ``failures.py``.

After a kill the frames behind the cursor are judged again; alert ids come out the same, so nothing is doubled.

A disk that is full, read-only or failing does not stop the agent (``trouble.py``): inputs wait, what they had read
already is held in memory (``HELD_BYTES``) and appended first when the raw log takes it, an unfinished commit is tried
again before the next one, nothing is acknowledged. Damage does: the exception leaves ``run``, the process ends, and the
next start looks at what is on disk.
"""

from __future__ import annotations

import asyncio
import errno
import math
import time
from array import array
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import Any

import structlog

from vedette.alerts import Alerting
from vedette.budgets import resident
from vedette.config import AgentSettings, EngineSettings, StateSettings, SuppressSettings
from vedette.engine.cache import Cache
from vedette.engine.join import Joined
from vedette.engine.match import Context, Engine
from vedette.event import Alert, Chunk, Cursor, FilePosition, Frame
from vedette.failures import Failures
from vedette.outbox import envelope
from vedette.outbox.queue import Outbox
from vedette.quarantine import Quarantine
from vedette.rawlog import note
from vedette.rawlog.log import RawLog
from vedette.report import Counters, Log
from vedette.state.memory import Memory, merged
from vedette.store import Saved, Store
from vedette.trouble import RAW_LOG, RETENTION, RETRY_SECONDS, STORE, SYNC, Trouble

log = structlog.get_logger()

MEMORY = 8 << 20
"""Bytes of stored frames kept in memory for the judge; what is beyond is read back from the log."""

ALERT_SECONDS = 0.005
"""From the start of a commit to that of the next: the first alert after a rest is committed at once."""
IDLE_SECONDS = 5.0
BATCH_ALERTS = 1000
"""Alerts after which a batch is committed without waiting."""
COMMIT_BYTES = 4 << 20
"""Of encoded alerts not yet committed: judging waits for the commit, also in the middle of a frame."""
STEP_SECONDS = 0.003
"""How long judging holds the event loop."""
TIDY_SECONDS = 0.2
"""Between two looks at what the raw log's budget no longer holds."""
MEMORY_SECONDS = 1.0
"""Between two looks at the process's memory."""
ENOUGH = 0.9
"""Share of the budget of memory below which there is enough again."""
HELD_BYTES = 96 << 20
"""Of chunks that the raw log does not take at the moment: what inputs had read when it stopped."""
STALLED_SECONDS = 0.05
"""Before asking again for a sync that brought nothing, because what it is to cover is still held."""
QUARANTINED = "quarantined"
"""The store's name for ``Failures.quarantined``."""
TICK_SECONDS = 1.0
"""Between two looks at what waits for time to pass while nothing comes."""


class Pipeline:
    """The agent's ``Intake``, judge and committer."""

    def __init__(
        self,
        agent: AgentSettings,
        engine: Engine,
        contexts: Mapping[str, Context],
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
        judging: EngineSettings | None = None,
        trouble: Trouble | None = None,
        age_clock: Callable[[], int] | None = None,
    ) -> None:
        """``quarantine`` keeps the events that a rule could not be decided on; without one they are only counted.

        ``judging``: how large a cache engines get; None: as they come. ``contexts`` may change while the pipeline runs.
        ``age_clock`` tells what is too old to keep; None: ``clock`` does.
        """
        self.engine = engine
        self.quarantine = quarantine
        self.trouble = trouble or Trouble(clock)
        self._held: deque[Chunk] = deque()
        self.held_bytes = 0
        self.held: defaultdict[str, int] = defaultdict(int)
        """Events in memory because the raw log does not take them, per input."""
        self._stuck = asyncio.Event()
        self._patient = True
        """Whether a commit that fails is tried again."""
        if quarantine is not None:
            engine.quarantine_after = quarantine.after
        self._judging, self._suppress, self._cache_failure = judging, suppress, ""
        self._max_memory, self.lean, self._cache_due = agent.max_memory, False, False
        """``lean``: the process has more memory than its budget, and does with less."""
        self._give_cache(engine)
        self.bundle: str | None = None
        self._in_frame = False
        self._next: tuple[Engine, str | None] | None = None
        """What to judge with when the frame under way is judged."""
        self._contexts, self._clock, self._age_clock = contexts, clock, age_clock or clock
        self._log, self._store, self._outbox, self._counters, self._writer = log, store, outbox, counters, writer
        self._fsync_interval, self._outbox_bytes = fsync_interval, outbox_bytes
        self._recent: deque[Frame] = deque()
        self._recent_bytes = 0
        self.memory = MEMORY
        """Bytes of frames kept for the judge."""
        self._stored = asyncio.Event()
        self._unsynced = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._syncing: asyncio.Task[None] | None = None
        self._alerts: list[tuple[int, bytes]] = []
        self._alert_bytes = 0
        self._counted = 0
        """Events of the frame under way that are counted as judged."""
        self._committing: list[tuple[int, bytes]] = []
        self._positions: dict[tuple[str, int], FilePosition] = {}
        self._changed = asyncio.Event()
        self._committing_now = asyncio.Lock()
        self._failed = ""
        self.backlog: defaultdict[str, int] = defaultdict(int)
        """Events stored and not yet judged, per input."""
        self.waiting_since = 0
        """``received_at`` of the oldest frame that is not judged to its end; 0: there is none."""
        self.inherited: list[str] = []
        """What did not add up in the account of the life before."""
        saved = store.load()
        self.positions = {position.file: position for position in saved.positions}
        """Where every tailed file ends in the raw log, committed or not: what a tail goes on from."""
        self._next_seq = saved.next_seq
        self._offset = self._committed = self._recover(saved)
        self._committed_counters = self._counters.snapshot()
        self._settled = self._settling = (Cursor(log.log_id, self._committed), self._committed_counters, saved.next_seq)
        """As of a commit: cursor, counters, next seq. Every alert of the first is receipted; of the second not yet."""
        log.describe = self._describe
        self.failures = Failures(counters, quarantine, log.log_id, store.get(QUARANTINED))
        engine.quarantine(self.failures.digests())
        memory = self._remember(state)
        memory.correlator.mute(self.failures.muted(engine.plan.correlations))
        self.alerting = Alerting(agent, engine, contexts, log, memory, suppress, clock, self._seq, self.failures.event)

    def _recover(self, saved: Saved) -> int:
        """Restore the counters as of the cursor, then count what lies behind it in the log; returns where to judge.

        A cursor of another log (a new one was begun because its tail was lost) judges this log from its start.
        """
        if saved.counters is not None:
            self._counters.restore(saved.counters)
            self.inherited = self._counters.inherited()
        cursor = saved.cursor
        same = cursor is not None and cursor.log_id == self._log.log_id
        offset = max(cursor.offset, self._log.start) if cursor is not None and same else self._log.start
        behind = []
        for header in self._log.headers(offset):
            self.backlog[header.input] += header.events
            self.waiting_since = self.waiting_since or header.received_at
            behind.append((header.input, header.events, header.bytes, header.cut))
            if header.file is not None:
                self.positions[header.file.file] = header.file
        self._counters.settle(behind)
        return offset

    # --- intake

    def store(self, chunk: Chunk) -> int:
        """See ``event.Intake``. What the raw log does not take is held in memory; raises OSError beyond HELD_BYTES."""
        if not self._held:
            try:
                return self._append(chunk)
            except OSError as error:
                self.trouble.failed(RAW_LOG, error)
        if self.held_bytes + len(chunk.data) > HELD_BYTES:
            raise OSError(errno.ENOSPC, f"more than {HELD_BYTES} bytes wait for the raw log, which takes nothing")
        self._held.append(chunk)
        self.held_bytes += len(chunk.data)
        self.held[chunk.input] += len(chunk)
        self._room.clear()
        self._stuck.set()
        return self._log.end + self.held_bytes

    def _append(self, chunk: Chunk) -> int:
        frame = self._log.append(chunk)
        if self._offset >= frame.offset:
            self.waiting_since = chunk.received_at
        if chunk.file is not None:
            self.positions[chunk.file.file] = chunk.file
        self.backlog[chunk.input] += len(chunk)
        if self._recent_bytes < self.memory and (not self._recent or self._recent[-1].end == frame.offset):
            self._recent.append(frame)
            self._recent_bytes += len(chunk.data)
        self._stored.set()
        self._unsynced.set()
        if self._log.full():
            self._room.clear()
        return frame.end

    def _append_held(self) -> None:
        """What inputs had read, in its order, as far as the raw log takes it."""
        while self._held:
            try:
                self._append(self._held[0])
            except OSError as error:
                self.trouble.failed(RAW_LOG, error)
                return
            chunk = self._held.popleft()
            self.held_bytes -= len(chunk.data)
            self.held[chunk.input] -= len(chunk)
        self.trouble.well(RAW_LOG)
        self._stuck.clear()
        self._look_for_room()

    async def _append_again(self) -> None:
        while True:
            await self._stuck.wait()
            await asyncio.sleep(RETRY_SECONDS)
            await self._make_disk_room()
            self._append_held()

    async def _make_disk_room(self) -> None:
        """On a full disk the oldest judged segment goes, although the budget would hold it."""
        if self.trouble.full():
            with suppress(OSError):
                room = partial(self._log.tidy, self._committed, self._age_clock(), make_room=True)
                await asyncio.get_running_loop().run_in_executor(self._writer, room)

    def _look_for_room(self) -> None:
        """Let inputs go on, or make them wait."""
        wait = self._log.full() or self._held or SYNC in self.trouble
        (self._room.clear if wait else self._room.set)()

    async def durable(self, offset: int) -> None:
        """See ``event.Intake``: those that wait together share one fsync."""
        while (before := self._log.durable) < offset:
            await self._sync()
            if self._log.durable == before:
                await asyncio.sleep(STALLED_SECONDS)

    @property
    def caught_up(self) -> bool:
        """Whether all that is stored is judged."""
        return self._offset >= self._log.end

    def lag(self) -> float:
        """Seconds for which the oldest event that is not judged has been waiting."""
        return 0.0 if self.caught_up or not self.waiting_since else max(0.0, (self._clock() - self.waiting_since) / 1e6)

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
        except OSError as error:
            self.trouble.failed(SYNC, error)
            self._room.clear()
            await asyncio.sleep(RETRY_SECONDS)
        else:
            if SYNC in self.trouble:
                self.trouble.well(SYNC)
                self._look_for_room()
        finally:
            self._syncing = None

    # --- judging

    async def run(self) -> None:
        """Judge, commit, sync and retain until cancelled; raises ValueError when the store is damaged."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._judge())
            group.create_task(self._commits())
            group.create_task(self._syncs())
            group.create_task(self._tidies())
            group.create_task(self._append_again())
            group.create_task(self._ticks())

    async def drain(self, seconds: float) -> None:
        """Judge what is stored and commit it, for at most ``seconds``; what remains is judged after the next start."""
        deadline = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < deadline:
            self._append_held()
            if self._offset >= self._log.end and not self._held:
                break
            await asyncio.sleep(0.005)
        self._patient = False
        if self._held:
            log.error(
                Log.RAW_LOG_UNWRITABLE,
                events=sum(self.held.values()),
                bytes=self.held_bytes,
                reason="the raw log took them not before the agent had to stop",
                action="what came by TCP and UDP is lost; files and MQTT QoS 1 messages come again",
            )
        try:
            await self._commit()
        except OSError as error:
            log.error(Log.DISK_TROUBLE, part=STORE, reason=str(error), action="judged again after the next start")

    def configure(
        self, judging: EngineSettings, suppress: tuple[SuppressSettings, ...], quarantine: Quarantine
    ) -> None:
        """Other settings, in force with the next ``switch``."""
        self._judging, self._suppress = judging, suppress
        self.quarantine = quarantine
        self.failures.keep_in(quarantine)

    def release(self) -> None:
        """Ask rules and correlations in quarantine again."""
        if released := self.failures.release():
            self.engine.release()
            if self._next is not None:
                self._next[0].release()
            self.alerting.memory.correlator.mute(())
            self._changed.set()
            log.info(Log.QUARANTINE_RELEASED, rules=released)

    def switch(self, engine: Engine, bundle: str | None) -> None:
        """Judge with another plan from the next frame on; rules that are in quarantine stay there."""
        engine.quarantine(self.failures.digests())
        engine.quarantine({self.engine.plan.rules[i].digest for i in self.engine.quarantined})
        engine.quarantine_after = self.engine.quarantine_after if self.quarantine is None else self.quarantine.after
        self._give_cache(engine)
        self._next = engine, bundle
        if not self._in_frame:
            self._use_next()

    def _give_cache(self, engine: Engine) -> None:
        """A plan of its own, a cache of its own."""
        if self._judging is not None:
            engine.remember(Cache(0 if self.lean else self._judging.cache_bytes, self._judging.verify_sample))

    def _look_at_memory(self) -> None:
        """Do with less while the process has more than its budget: no cache, no frames in memory."""
        used, most = resident(), self._max_memory
        lean = used > (most * ENOUGH if self.lean else most)
        if lean == self.lean:
            return
        self.lean, self.memory = lean, 0 if lean else MEMORY
        log.warning(
            Log.MEMORY_HIGH,
            bytes=used,
            max_memory=most,
            action="the result cache is off, frames are judged from disk" if lean else "over: the cache is on again",
        )
        if self._in_frame:
            self._cache_due = True
        else:
            self._give_cache(self.engine)

    def _use_next(self) -> None:
        if self._cache_due:
            self._cache_due = False
            self._give_cache(self.engine)
        if self._next is not None:
            (self.engine, self.bundle), self._next = self._next, None
            self.alerting.switch(self.engine, self.bundle, self._suppress)
            self.alerting.memory.correlator.mute(self.failures.muted(self.engine.plan.correlations))

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
                self._in_frame = True
                await self._judge_frame(frame)
                self._in_frame = False
                self._use_next()
                await asyncio.sleep(0)

    async def _judge_frame(self, frame: Frame) -> None:
        """Judge the events of ``frame`` from ``_offset`` on, all under the engine that is in place now.

        Gives way to the loop every ``STEP_SECONDS``, and to a commit when the alerts not yet committed are many: both
        between two events, at which point offset, counters and alerts agree, so the frame can be gone on with.
        """
        engine, chunk, joiner = self.engine, frame.chunk, self.alerting.memory.joiner
        first = max(0, self._offset - frame.offset)
        self._counted = chunk.index(first) if first else 0
        until, room = time.perf_counter() + STEP_SECONDS, self._room_for_alerts()
        self.waiting_since = chunk.received_at
        if not first:
            joiner.advance(chunk.received_at)
            while (waited := self._due(engine)) is not None:
                if self._alert_bytes >= room or time.perf_counter() >= until:
                    await self._give_way(frame, 0)
                    until, room = time.perf_counter() + STEP_SECONDS, self._room_for_alerts()
                self._judge_event(engine, waited)
                joiner.judged()
            self._step("time", self.alerting.advance(chunk.received_at))
        for event in self._candidates(engine, frame, first):
            if self._alert_bytes >= room or time.perf_counter() >= until:
                await self._give_way(frame, event.at)
                until, room = time.perf_counter() + STEP_SECONDS, self._room_for_alerts()
            self._judge_event(engine, event)
        self._step("suppression", self.alerting.folds())
        if chunk.file is not None:
            self._positions[chunk.file.file] = chunk.file
        self._advance(frame, len(chunk.data))

    def _due(self, engine: Engine) -> Joined | None:
        """An audit event whose time is over; one that cannot be made is left out."""
        joiner = self.alerting.memory.joiner
        while len(joiner):
            try:
                return engine.due(joiner, self._contexts)
            except Exception as error:
                self.failures.step("an audit event that waited for further records", error)
                joiner.judged()
        return None

    def _candidates(self, engine: Engine, frame: Frame, first: int) -> Iterator[Joined]:
        """``Engine.candidates``. When it raises, the rest of the frame goes through it event by event, and the events
        on which it raises again are set aside; audit records may then be in their event twice."""
        joiner, chunk, reached = self.alerting.memory.joiner, frame.chunk, first
        context = self._contexts.get(chunk.input, Context())
        try:
            for event in engine.candidates(frame, joiner, context, first):
                reached = event.at + 1
                yield event
            return
        except Exception:
            pass
        for start, end in chunk.spans():
            if start < reached or start == end:
                continue
            marks = tuple((0, bits) for at, bits in chunk.marks if at == start)
            alone = Chunk(
                chunk.input, chunk.codec, chunk.received_at, chunk.data[start:end], array("I", [end - start]),
                (chunk.origin(start),), marks=marks,
            )  # fmt: skip
            try:
                found = list(engine.candidates(Frame(frame.offset + start, alone), joiner, context))
            except Exception as error:
                self.failures.event(frame, start, end, error)
                continue
            for event in found:
                if event.frame.chunk is alone:
                    event = event._replace(frame=frame, start=event.start + start, end=event.end + start)
                yield event._replace(at=start)

    async def _give_way(self, frame: Frame, position: int) -> None:
        """To a commit, when one is needed, or to the loop, with the cursor at ``position`` of ``frame``."""
        self._advance(frame, position)
        if self._alert_bytes >= self._room_for_alerts():
            await self._make_room()
        else:
            await asyncio.sleep(0)

    def _judge_event(self, engine: Engine, event: Joined) -> None:
        """What follows from one event; it or nothing."""
        frame, totals = event.frame, self._counters.totals
        totals["candidates"] += 1
        try:
            matches = engine.matches(frame.chunk, event, self._contexts.get(frame.chunk.input, Context()))
            totals["matches"] += len(matches)
            if matches:
                self._take(self.alerting.event(frame, matches))
        except Exception as error:  # whatever an event does to a decoder, the others are judged
            self.failures.event(frame, event.start, event.end, error)
        if aside := engine.aside():
            self.failures.undecided(engine, frame, aside, self._clock())
        if failed := self.alerting.memory.correlator.failures():
            self.failures.correlations(failed, self._clock())

    def _step(self, what: str, alerts: Iterable[Alert]) -> None:
        """``_take`` of what no single event is about."""
        try:
            self._take(alerts)
        except Exception as error:
            self.failures.step(what, error)
        if failed := self.alerting.memory.correlator.failures():
            self.failures.correlations(failed, self._clock())

    def _take(self, alerts: Iterable[Alert]) -> None:
        """All of ``alerts`` for the next commit, but those that cannot be encoded."""
        for alert in alerts:
            try:
                data = envelope.encode(alert)
            except Exception as error:
                self._next_seq = alert.seq  # as if it had not been made: the region would miss its number
                self.failures.step(f"an alert of {alert.rule_title}, which is not sent", error)
                continue
            self._counters.totals["alerts_made"] += 1
            self._alerts.append((alert.seq, data))
            self._alert_bytes += len(data)

    def _advance(self, frame: Frame, position: int) -> None:
        """The events of ``frame`` before ``position``, where one begins or the frame ends, are judged."""
        chunk = frame.chunk
        done = len(chunk) if position == len(chunk.data) else chunk.index(position)
        self._counters.judged[chunk.input] += done - self._counted
        self.backlog[chunk.input] -= done - self._counted
        self._counted = done
        self._offset = frame.offset + position
        if self.engine.cache.failure != self._cache_failure:
            self._cache_failure = self.engine.cache.failure
            if self._cache_failure:
                log.error(
                    Log.CACHE_WRONG,
                    reason=self._cache_failure,
                    action="it is off until the next rule set; please report this",
                )
        if self._alerts:
            self._changed.set()

    def _room_for_alerts(self) -> int:
        """Bytes of alerts that may wait for a commit, as of now: asking the store for each event would cost as much as
        judging it."""
        return min(COMMIT_BYTES, self._outbox_bytes - self._outbox.bytes)

    async def _make_room(self) -> None:
        """Commit, then wait while the outbox is full: that stops judging, not storing."""
        await self._commit()
        while self._outbox.bytes >= self._outbox_bytes:
            await asyncio.sleep(0.1)

    def _seq(self) -> int:
        """The number of an alert that is made."""
        seq, self._next_seq = self._next_seq, self._next_seq + 1
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
        now, until = self._clock(), time.perf_counter() + STEP_SECONDS
        if self._offset < self._log.end or self._outbox.bytes >= self._outbox_bytes:
            return
        engine, joiner = self.engine, self.alerting.memory.joiner
        joiner.advance(now)
        while (event := self._due(engine)) is not None:
            self._judge_event(engine, event)
            joiner.judged()
            if time.perf_counter() >= until:
                break  # the rest at the next frame or tick; time does not go on before them
        else:
            self._step("time", self.alerting.advance(now))
        if self._alerts or joiner.changed:  # no frame tells a replay what the clock has completed
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
        clock, not_before = asyncio.get_running_loop().time, 0.0
        while True:
            try:
                async with asyncio.timeout(IDLE_SECONDS):
                    await self._changed.wait()
                if (pause := not_before - clock()) > 0 and len(self._alerts) < BATCH_ALERTS:
                    await asyncio.sleep(pause)
            except TimeoutError:
                pass
            not_before = clock() + ALERT_SECONDS
            await self._commit()

    async def _commit(self) -> None:
        """One transaction for all that was judged since the last; the log is synced that far before.

        One at a time, and none after one that failed: its alerts would be passed over by a later cursor.
        """
        async with self._committing_now:
            if self._failed:
                raise OSError(f"an earlier commit failed: {self._failed}")
            self._changed.clear()
            offset, alerts, positions, counters = self._offset, self._alerts, self._positions, self._counters.snapshot()
            waited = self.alerting.memory.joiner.changed
            same = offset == self._committed and counters == self._committed_counters
            if same and not alerts and not waited and not self.failures.changed:
                return
            self._alerts, self._alert_bytes, self._positions, self._committing = [], 0, {}, alerts
            self._counters.totals["commits"] += 1
            counters = self._counters.snapshot()
            cursor, state = Cursor(self._log.log_id, offset), self.alerting.memory.delta()
            quarantined = dict(self.failures.quarantined) if self.failures.changed else None
            self.failures.changed = False

            done = False

            def write() -> None:
                nonlocal done
                if self._log.durable < offset:
                    self._log.sync()
                if not done:
                    self._store.commit(cursor, counters, positions.values(), alerts, state)
                done = True
                if quarantined is not None:
                    self._store.put(QUARANTINED, quarantined)
                self._store.merge_state(merged)

            while True:
                try:
                    await asyncio.get_running_loop().run_in_executor(self._writer, write)
                    break
                except OSError as error:
                    self.trouble.failed(STORE, error)
                    if not self._patient:
                        self._failed = str(error)
                        raise
                    await self._make_disk_room()
                    await asyncio.sleep(RETRY_SECONDS)
                except BaseException as error:
                    self._failed = str(error) or type(error).__name__
                    raise
            self.trouble.well(STORE)
            self._committed, self._committed_counters, self._committing = offset, counters, []
            self._settle(cursor, counters, alerts[-1][0] + 1 if alerts else self._settling[2])
        if alerts:
            self._outbox.wake()

    def _settle(self, cursor: Cursor, counters: dict[str, Any], next_seq: int) -> None:
        """After a commit: how far every alert has its receipt, by the first that has none."""
        waiting = self._outbox.pending(0, 1)
        if not waiting:
            self._settled = self._settling = cursor, counters, next_seq
        elif waiting[0][0] >= self._settling[2]:
            self._settled, self._settling = self._settling, (cursor, counters, next_seq)

    def _describe(self) -> bytes:
        """The note of a segment that is begun."""
        cursor, counters, _ = self._settled
        return note.encode(note.Note(cursor, counters, tuple(self.positions.values()), self._next_seq))

    async def close(self) -> None:
        """The last commit, after the uplink has ended: what it sent is in the account."""
        await self._commit()

    async def _syncs(self) -> None:
        """Sync what came in, by the policy: every interval; at once (0); not for its own sake (infinite)."""
        while math.isfinite(self._fsync_interval):
            if self._fsync_interval:
                await asyncio.sleep(self._fsync_interval)
            else:
                await self._unsynced.wait()
                self._unsynced.clear()
            if self._log.end > self._log.durable:
                await self._sync()

    async def _tidies(self) -> None:
        """Delete what the budget no longer holds, and pack what is sealed."""
        looked = time.monotonic()
        while True:
            await asyncio.sleep(TIDY_SECONDS)
            if time.monotonic() - looked >= MEMORY_SECONDS:
                looked = time.monotonic()
                self._look_at_memory()
            try:
                tidy = partial(self._log.tidy, self._committed, self._age_clock())
                await asyncio.get_running_loop().run_in_executor(self._writer, tidy)
                self.trouble.well(RETENTION)
            except OSError as error:
                self.trouble.failed(RETENTION, error)
            if SYNC in self.trouble:  # a commit may have synced since
                await self._sync()
            self._look_for_room()
            if self._log.full() and self._committed < self._offset:
                self._changed.set()  # only what is committed may be deleted
