"""Frame by frame, in the log's order: candidates, matches, alerts. A frame is evaluated under one engine throughout.

``run`` yields to the loop every ``STEP_SECONDS``, and to a commit when the alerts that wait for one are many: both
between two events, at which point cursor, counters and alerts agree. ``switch`` takes effect between two frames, so no
event is evaluated under two plans or none. While nothing comes at all, time passes every ``TICK_SECONDS`` for what
waits for it: incomplete audit events (``engine/join.py``), correlations, suppression, windows.

A window's end may give more rows than there is memory for as alerts. Of those that wait
(``stream/network/waiting.py``), ``ROWS`` at a time become alerts, with room for commits between, and for the loop
between these; until none waits, no event is evaluated, no time passes, and no plan is switched.

The loop goes on between two alerts that take long. What statements call in Python answers when it does, and what an
event or a window's end makes them do may take long. Evaluation goes on behind it, in order; the loop, and with it every
input, goes on meanwhile (``system/turns.py``). So nothing else may change the state then: commits, switches of the plan
and ticks wait for the end of that step.

What is under way stands in the black box (``blackbox.py``): each frame, and time's passing. Where an evaluation died
before, ``strict/watched.py`` notes each event and rule as well.

A failure is limited to its event, rule or correlation: ``failures.py``. Rows of statements become alerts by
``alerts/rows.py``, which is imported with the first plan that has statements.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import structlog

from vedette.engine.cache import CACHE_BYTES, Cache
from vedette.engine.join import Joined
from vedette.engine.match import Context, Engine, Match
from vedette.engine.rows import Batch
from vedette.model.counters import Log
from vedette.model.event import Alert, Chunk, Frame
from vedette.runtime.alerts.alerts import AlertBuilder, Credit
from vedette.runtime.pipeline.blackbox import BlackBox, Stage
from vedette.runtime.pipeline.context import EvaluationContext
from vedette.runtime.pipeline.stored import Stored
from vedette.runtime.pipeline.uncommitted import Uncommitted
from vedette.state.state import State
from vedette.stream.opening import NoStatements
from vedette.system.diskhealth import RETRY_SECONDS

if TYPE_CHECKING:
    from vedette.decode.bounded import Guard
    from vedette.system.turns import Turns

log = structlog.get_logger()

STEP_SECONDS = 0.003
"""How long evaluation holds the event loop."""
TICK_SECONDS = 1.0
"""Between two looks at what waits for time to pass while nothing comes."""
TOGETHER = 128
"""Matches whose alerts are made together: the same work for one after the other finds code and tables in the
processor's caches, which is a quarter of the time."""
ROWS = 1000
"""Of statements at most so many become alerts before a commit may begin; the loop goes on between them."""
ALERT_BYTES = 1024
"""What an alert that is not made yet is counted as, about."""
SAMPLED = 61
"""Of so many candidates one tells which rules had to be asked (``agent/status.py``)."""
_NO_CONTEXT = Context()

Alerts = Iterator[None]
"""Makes alerts as it goes on, and stops between two where the loop was held for long enough."""


class Evaluator:
    """See the module's text. The context's ``input_contexts`` may change while it runs."""

    def __init__(
        self, context: EvaluationContext, stored: Stored, uncommitted: Uncommitted, state: State, engine: Engine,
        box: BlackBox, bundle: Credit = None,
    ) -> None:  # fmt: skip
        """``bundle``: what ``engine`` is of."""
        self._box = box
        self._span = (0, 0)
        """First and last raw offset of the frame under way."""
        self.engine = engine
        """Evaluates the frame under way."""
        self._context, self._contexts, self._counters = context, context.input_contexts, context.counters
        self._progress, self._failures, self._clock = context.progress, context.failures, context.clock
        self._stored, self._uncommitted, self._state = stored, uncommitted, state
        self._quarantine_again(engine)
        self._turns: Turns | None = None
        """By which steps of statements give way; None: there were none yet."""
        self._alerts = self._builder(engine, bundle)
        self._next: tuple[Engine, Credit] | None = None
        """What to go on with after the frame under way."""
        self._under_way = asyncio.Lock()
        """Held for each frame and each tick."""
        self._released = False
        """Whether quarantine is over after the frame under way."""
        self._frame_end = 0
        self._low_memory = False
        self._cache_failure = ""
        self._panics = 0
        self._kernel_wrong = ""
        self._slow_formats: dict[str, Guard] = {}
        """By name the guards of declared formats whose quarantine is logged."""
        self._counted = 0
        """Events of the frame under way that are counted as evaluated."""
        self._matched: list[tuple[Joined, list[Match]]] = []
        """Events whose alerts are not made yet; none whenever the loop goes on."""
        self._waiting = 0
        """Their matches."""
        self._rows_wait = bool(state.statements.waiting)
        """Whether statements have given rows whose alerts are not made: of an earlier life, or since the last batch."""
        self._rows_until = 0
        """How many rows may be taken before a commit may begin, of all since the start."""
        self._dropped = 0
        """Rows that had no room to wait, as logged."""
        self._until_sample = SAMPLED
        self._since = 0.0
        """When the frame under way was last gone on with."""
        self._give_cache(engine)

    @property
    def position(self) -> int:
        """Raw offset from which on a plan that is switched to now evaluates."""
        return max(self._frame_end, self._progress.evaluated)

    # --- what it evaluates with

    def switch(self, engine: Engine, bundle: Credit) -> None:
        """Evaluate with another plan, by the context's settings, from the next frame on; rules in quarantine stay
        there."""
        self._give_cache(engine)
        self._next = engine, bundle
        if not (self._under_way.locked() or self._rows_wait):
            self._between()

    @property
    def idle(self) -> bool:
        """Whether all that is stored is evaluated, and no row waits to be an alert."""
        return self._progress.caught_up and not self._rows_wait

    def release(self) -> None:
        """Nothing is in quarantine any more, from the next frame on."""
        self._released = True
        if not self._under_way.locked():
            self._between()

    def _between(self) -> None:
        """What was asked for while a frame was under way."""
        if self._released:
            self._released = False
            self.engine.release()
            self._state.correlator.mute(())
            self._state.statements.mute(())
        if self._next is not None:
            before, (self.engine, bundle), self._next = self.engine, self._next, None
            self.engine.quarantine({before.plan.rules[i].digest for i in before.quarantined})
            self._state.switch(self.engine.plan)
            self._alerts = self._builder(self.engine, bundle)
            self._quarantine_again(self.engine)

    def save_memory(self, low: bool) -> None:
        """Do without a cache, or with one again."""
        self._low_memory = low
        self._give_cache(self.engine)
        if self._next is not None:
            self._give_cache(self._next[0])

    def _give_cache(self, engine: Engine) -> None:
        """A plan of its own, a cache of its own."""
        engine.remember(Cache(0 if self._low_memory else CACHE_BYTES))

    def _builder(self, engine: Engine, bundle: Credit) -> AlertBuilder:
        """Makes the alerts of ``engine``, by the context's settings and the state as it is."""
        statements = self._state.statements
        if isinstance(statements, NoStatements):
            return AlertBuilder(self._context, self._state, engine, bundle)
        from vedette.runtime.alerts.rows import RowBuilder
        from vedette.system.turns import Turns

        self._turns = self._turns or Turns("statements")
        return RowBuilder(self._context, self._state, engine, bundle, statements)

    def _quarantine_again(self, engine: Engine) -> None:
        """Rules and correlations that were quarantined before, in this life or an earlier one."""
        engine.quarantine(self._failures.digests())
        self._state.correlator.mute(self._failures.muted(engine.plan.correlations))
        self._state.statements.mute(self._failures.muted(engine.plan.statements))

    # --- frames

    async def run(self) -> None:
        """Evaluate what is stored until cancelled."""
        while True:
            if self._rows_wait:
                async with self._under_way:
                    await self._make_rows()
                self._between()
            if self._progress.caught_up:
                self._stored.arrived.clear()
                await self._stored.arrived.wait()
            for frame in self._stored.frames():
                async with self._under_way:
                    self._frame_end = frame.end
                    await self.frame(frame)
                self._between()
                await asyncio.sleep(0)
            if self._stored.unreadable:
                await asyncio.sleep(RETRY_SECONDS)

    async def frame(self, frame: Frame) -> None:
        """Evaluate the events of ``frame`` from where evaluation is, all under the engine that is in place now."""
        engine, chunk, joiner, uncommitted = self.engine, frame.chunk, self._state.joiner, self._uncommitted
        self._span = self._span_of(frame)
        self._box.note(Stage.FRAME, *self._span)
        await self._make_rows()
        uncommitted.hold()
        first = max(0, self._progress.evaluated - frame.offset)
        self._counted = chunk.index(first) if first else 0
        self._since = time.perf_counter()
        until, room = self._since + STEP_SECONDS, uncommitted.room()
        if not first:
            joiner.advance(chunk.received_at)
            while (waited := self._due(engine)) is not None:
                if self._enough(room, until):
                    await self._give_way(frame, 0)
                    until, room = time.perf_counter() + STEP_SECONDS, uncommitted.room()
                self.event(engine, waited)
                joiner.evaluated()
            await self._make_alerts()
            await self._do(self._pass_time(chunk.received_at))
        for event in self._alerts.parts(self._candidates(engine, frame, first), TOGETHER):
            if self._enough(room, until):
                await self._give_way(frame, event.at)
                until, room = time.perf_counter() + STEP_SECONDS, uncommitted.room()
            if isinstance(event, Batch):
                await self._make_alerts()
                await self._do(self._batch(engine, frame, event))
                continue
            self.event(engine, event)
            if self._waiting >= TOGETHER:
                await self._make_alerts()
        await self._make_alerts()
        if chunk.file is not None:
            uncommitted.position(chunk.file)
        self._advance(frame, len(chunk.data))
        self._spent()
        uncommitted.let_go()
        await self._make_rows()
        self._box.rest()

    def _span_of(self, frame: Frame) -> tuple[int, int]:
        """Return the raw offsets of the first event of ``frame`` that is to be evaluated, and of its last byte."""
        return max(frame.offset, self._progress.evaluated), frame.end - 1

    def _spent(self) -> None:
        """The time since evaluation was last let in is the engine's."""
        self.engine.tally.seconds += time.perf_counter() - self._since

    def event(self, engine: Engine, event: Joined) -> None:
        """Evaluate one event; its alerts are made by ``_make_alerts``."""
        frame, totals = event.frame, self._counters.totals
        totals["candidates"] += 1
        self._until_sample -= 1
        if not self._until_sample:
            self._until_sample = SAMPLED
            engine.tally.asked.update(event.rules)
        try:
            matches = self._matches(engine, event)
            totals["matches"] += len(matches)
            if matches:
                self._matched.append((event, matches))
                self._waiting += len(matches)
        except Exception as error:  # whatever an event does to a decoder, the others are evaluated
            self._failures.event(frame, event.start, event.end, error)
        if engine.undecided:
            self._failures.undecided(engine, frame, engine.undecided_events(), self._clock())

    def _batch(self, engine: Engine, frame: Frame, batch: Batch) -> Alerts:
        """Evaluate events that only give rows of statements' tables; the alerts of all before them are made."""
        count, totals = len(batch.spans), self._counters.totals
        totals["candidates"] += count
        totals["matches"] += engine.taken(batch)
        self._until_sample -= count
        while self._until_sample <= 0:
            self._until_sample += SAMPLED
            engine.tally.asked.update(batch.rules)
        if self._alerts.filters(batch):
            yield from self._step("statements", self._alerts.of_batch(frame, batch))
        else:
            try:
                self._alerts.take(frame, batch)
            except Exception as error:  # the events that follow are evaluated
                self._failures.step("statements", error)
        yield from self._follow()

    def _matches(self, engine: Engine, event: Joined) -> list[Match]:
        return engine.matches(event.frame.chunk, event, self._contexts.get(event.frame.chunk.input, _NO_CONTEXT))

    async def _do(self, alerts: Alerts) -> None:
        """Make ``alerts``, and those of the rows that statements give then, as many as one commit may have; no commit
        begins meanwhile."""
        statements, uncommitted = self._state.statements, self._uncommitted
        self._rows_until = statements.taken + ROWS
        await self._by_turns(alerts)
        if not self._rows_wait:
            return
        with self._box.within(Stage.ROWS, self._progress.evaluated):
            while self._rows_wait and statements.taken < self._rows_until and uncommitted.bytes < uncommitted.room():
                await self._pause()
                await self._by_turns(self._follow())

    async def _by_turns(self, alerts: Alerts) -> None:
        """Make ``alerts``. The loop goes on between two that take long, and within what statements do for them."""
        turns = self._turns if self._state.statements.slow else None
        while not (next(alerts, True) if turns is None else await self._in_turn(turns, alerts)):
            await self._pause()

    async def _in_turn(self, turns: Turns, alerts: Alerts) -> bool | None:
        self._spent()
        before = turns.seconds
        done = await turns.run(lambda: next(alerts, True))
        self.engine.tally.seconds += turns.seconds - before
        self._since = time.perf_counter()
        return done

    async def _pause(self) -> None:
        self._spent()
        await asyncio.sleep(0)
        self._since = time.perf_counter()

    async def _make_alerts(self) -> None:
        """What follows from the events that matched, in their order; of each all or nothing."""
        await self._do(self._make())

    def _make(self) -> Alerts:
        events, self._matched, self._waiting = self._matched, [], 0
        alerts = self._alerts.of([(event.frame, matches) for event, matches in events])
        for (event, _), of_event in zip(events, alerts, strict=True):
            try:
                yield from self._taken(of_event)
            except Exception as error:  # the events that follow get their alerts
                self._failures.event(event.frame, event.start, event.end, error)
        if events:
            yield from self._follow()
        elif failed := self._state.correlator.failures():
            self._failures.correlations(failed, self._clock())

    def _pass_time(self, received_at: int) -> Alerts:
        """The alerts that follow from time having come to ``received_at``."""
        at = self._progress.evaluated
        self._box.note(Stage.TIME, at, at)  # for each frame: ``within`` takes three times as long
        yield from self._step("time", self._alerts.advance(received_at))
        yield from self._follow()
        self._box.note(Stage.FRAME, *self._span)

    def _follow(self) -> Alerts:
        """The alerts of the next rows of statements, and what suppression has closed."""
        statements = self._state.statements
        rows = self._as_far_as_fits(self._alerts.statements(self._rows_until - statements.taken))
        yield from self._step("statements", rows)
        yield from self._step("suppression", self._alerts.folds())
        self._rows_wait = bool(statements.waiting)
        if statements.dropped > self._dropped:
            log.error(
                Log.STATEMENT_ROWS_DROPPED,
                rows=statements.dropped - self._dropped,
                reason="more rows of statements came at once than state.max_bytes lets wait",
                action="their alerts are not made; let statements give fewer rows, or raise state.max_bytes",
            )
        self._dropped = statements.dropped

    def _as_far_as_fits(self, alerts: Iterator[Alert]) -> Iterator[Alert]:
        """``alerts`` until they fill what may wait for a commit, or this turn of the loop has taken long enough."""
        room, until = self._uncommitted.room(), self._since + STEP_SECONDS
        for alert in alerts:
            yield alert
            if self._uncommitted.bytes >= room or time.perf_counter() >= until:
                return

    async def _make_rows(self) -> None:
        """Make alerts of all rows that wait, as many at a time as a commit takes; a commit may begin before each."""
        if not self._rows_wait:
            return
        with self._box.within(Stage.ROWS, self._progress.evaluated):
            while self._rows_wait:
                if self._uncommitted.bytes >= self._uncommitted.room():
                    await self._uncommitted.make_room()
                self._since = time.perf_counter()
                self._uncommitted.hold()
                await self._do(self._follow())
                self._uncommitted.let_go()
                if self._uncommitted.due_now:
                    self._uncommitted.due.set()
                await asyncio.sleep(0)

    def _taken(self, alerts: Iterable[Alert]) -> Alerts:
        for alert in alerts:
            self._uncommitted.take((alert,))
            if time.perf_counter() >= self._since + STEP_SECONDS:
                yield

    def _step(self, what: str, alerts: Iterable[Alert]) -> Alerts:
        """Take ``alerts`` that no single event is about."""
        try:
            yield from self._taken(alerts)
        except Exception as error:  # the events that follow are evaluated
            self._failures.step(what, error)
        if raised := self._state.statements.failures():
            self._failures.statements(raised, self._clock())
        if failed := self._state.correlator.failures():
            self._failures.correlations(failed, self._clock())

    def _candidates(self, engine: Engine, frame: Frame, first: int) -> Iterator[Joined | Batch]:
        """``Engine.gathered``. When it raises, the rest of the frame goes through it event by event, and the events
        on which it raises again become dead letters; audit records may then be in their event twice."""
        chunk, reached = frame.chunk, first
        context = self._contexts.get(chunk.input, _NO_CONTEXT)
        try:
            for each in engine.gathered(frame, self._state.joiner, context, first):
                reached = each.end if isinstance(each, Batch) else each.at + 1
                yield each
            return
        except Exception as error:  # logged below, with the event that it is about or by itself
            fault: Exception | None = error
        for start, end in chunk.spans():
            if start < reached or start == end:
                continue
            try:
                events = self._prefiltered(engine, frame, start, end)
            except Exception as error:  # this event is a dead letter, the others are evaluated
                self._failures.event(frame, start, end, error)
                fault = None
                continue
            yield from events
        if fault is not None:
            self._failures.step("prefiltering a whole frame (each event was prefiltered alone instead)", fault)

    def _prefiltered(self, engine: Engine, frame: Frame, start: int, end: int) -> list[Joined]:
        """What ``Engine.candidates`` gives for one event of ``frame`` by itself."""
        chunk, context = frame.chunk, self._contexts.get(frame.chunk.input, _NO_CONTEXT)
        alone = Chunk(
            chunk.input, chunk.codec, chunk.received_at, chunk.data[start:end], array("I", [end - start]),
            (chunk.origin(start),), marks=((0, int(chunk.flags(start))),),
        )  # fmt: skip
        candidates = engine.candidates(Frame(frame.offset + start, alone), self._state.joiner, context)
        return [
            event._replace(frame=frame, start=event.start + start, end=event.end + start, at=start)
            if event.frame.chunk is alone
            else event._replace(at=start)
            for event in candidates
        ]

    def _enough(self, room: int, until: float) -> bool:
        """Whether the alerts of what is evaluated fill ``room``, or it is ``until``."""
        full = self._rows_wait or self._uncommitted.bytes + ALERT_BYTES * self._waiting >= room
        return full or time.perf_counter() >= until

    async def _give_way(self, frame: Frame, position: int) -> None:
        """To a commit, when one is needed, or to the loop, with the cursor at ``position`` of ``frame``."""
        await self._make_alerts()
        self._advance(frame, position)
        self._spent()
        self._uncommitted.let_go()
        if self._uncommitted.bytes >= self._uncommitted.room():
            await self._uncommitted.make_room()
        else:
            await asyncio.sleep(0)
        await self._make_rows()
        self._uncommitted.hold()
        self._since = time.perf_counter()

    def _advance(self, frame: Frame, position: int) -> None:
        """The events of ``frame`` before ``position``, where one begins or the frame ends, are evaluated, and their
        alerts made."""
        chunk = frame.chunk
        done = len(chunk) if position == len(chunk.data) else chunk.index(position)
        self._progress.advance(chunk.input, done - self._counted, frame.offset + position)
        self._counted = done
        if self.engine.cache.failure != self._cache_failure:
            self._cache_failure = self.engine.cache.failure
            if self._cache_failure:
                log.error(
                    Log.CACHE_WRONG,
                    reason=self._cache_failure,
                    action="the cache is off until the next rule set; please report this",
                )
        if self._uncommitted.due_now:
            self._uncommitted.due.set()

    def _look_at_kernel(self) -> None:
        if self.engine.kernel_wrong != self._kernel_wrong:
            self._kernel_wrong = self.engine.kernel_wrong
            if self._kernel_wrong:
                log.error(
                    Log.KERNEL_WRONG,
                    reason=self._kernel_wrong,
                    action="events of that structure go without it until the next rule set; please report this",
                )
        panics = self.engine.kernel().get("panics", 0)
        if panics > self._panics:
            log.error(
                Log.KERNEL_PANICKED, panics=panics, action="the events were evaluated without it; please report this"
            )
        self._panics = panics
        for declared in self.engine.plan.formats:
            if declared.guard.quarantined and self._slow_formats.get(declared.name) is not declared.guard:
                self._slow_formats[declared.name] = declared.guard
                log.error(
                    Log.FORMAT_QUARANTINED,
                    format=declared.name,
                    file=declared.path,
                    reason=f"its patterns took too long on {declared.guard.overruns} messages",
                    action="its messages have no fields but message until the rule set changes: change the patterns",
                )

    # --- time

    async def ticks(self) -> None:
        """Let time pass until cancelled."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            if not self._under_way.locked():
                async with self._under_way:
                    await self.tick()
                    await self._make_rows()
                self._between()

    async def tick(self) -> None:
        """Let time pass although nothing came. Only when all that is stored is evaluated."""
        self._look_at_kernel()
        now, until = self._clock(), time.perf_counter() + STEP_SECONDS
        if not self._progress.caught_up or self._uncommitted.full or self._rows_wait:
            return
        engine, joiner, at = self.engine, self._state.joiner, self._progress.evaluated
        self._span = at, at
        self._box.note(Stage.FRAME, at, at)
        self._since = time.perf_counter()
        self._uncommitted.hold()
        joiner.advance(now)
        while (event := self._due(engine)) is not None:
            self.event(engine, event)
            await self._make_alerts()
            joiner.evaluated()
            if time.perf_counter() >= until:
                break  # the rest at the next frame or tick; time does not go on before them
        else:
            await self._do(self._pass_time(now))
        self._uncommitted.let_go()
        if self._uncommitted.due_now or joiner.changed:  # no frame tells a replay what the clock has completed
            self._uncommitted.due.set()
        self._box.rest()

    def _due(self, engine: Engine) -> Joined | None:
        """An audit event whose time is over; one that cannot be made is left out."""
        joiner = self._state.joiner
        while len(joiner):
            try:
                return engine.due(joiner, self._contexts)
            except Exception as error:  # its records are given up, others wait on
                self._failures.step("an audit event that waited for further records", error)
                joiner.evaluated()
        return None
