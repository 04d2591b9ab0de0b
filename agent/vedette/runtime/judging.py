"""Frame by frame, in the log's order: candidates, matches, alerts. A frame is judged under one engine, first to last.

``run`` yields to the loop every ``STEP_SECONDS``, and to a commit when the alerts that wait for one are many: both
between two events, at which point cursor, counters and alerts agree. ``switch`` takes effect between two frames, so no
event is judged under two plans or none. While nothing comes at all, time is told every ``TICK_SECONDS`` to what waits
for it: audit events that are not complete (``engine/join.py``), correlations, suppression.

What a single event, rule or correlation does wrong is its own affair: ``failures.py``.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping

import structlog

from vedette.config.settings import EngineSettings, SuppressSettings
from vedette.engine.cache import Cache
from vedette.engine.join import Joined
from vedette.engine.match import Context, Engine
from vedette.model.counters import Counters, Log
from vedette.model.event import Alert, Chunk, Frame
from vedette.runtime.alerts import Alerting
from vedette.runtime.committing import Committing
from vedette.runtime.failures import Failures
from vedette.runtime.progress import Progress
from vedette.runtime.storing import Storing
from vedette.system.trouble import RETRY_SECONDS

log = structlog.get_logger()

STEP_SECONDS = 0.003
"""How long judging holds the event loop."""
TICK_SECONDS = 1.0
"""Between two looks at what waits for time to pass while nothing comes."""


class Judging:
    """See the module's text. ``contexts`` (by input) may change while it runs."""

    def __init__(
        self, engine: Engine, contexts: Mapping[str, Context], counters: Counters, progress: Progress,
        storing: Storing, committing: Committing, alerting: Alerting, failures: Failures, clock: Callable[[], int],
    ) -> None:  # fmt: skip
        self.engine = engine
        self._contexts, self._counters, self._progress, self._storing = contexts, counters, progress, storing
        self._committing, self.alerting, self._failures, self._clock = committing, alerting, failures, clock
        self._settings: EngineSettings | None = None
        self._suppress: tuple[SuppressSettings, ...] | None = None
        self._next: tuple[Engine, str | None] | None = None
        """What to judge with when the frame under way is judged."""
        self._in_frame = False
        self._lean = False
        self._cache_failure = ""
        self._counted = 0
        """Events of the frame under way that are counted as judged."""

    # --- what it judges with

    def configure(self, settings: EngineSettings | None, suppress: tuple[SuppressSettings, ...]) -> None:
        """``settings``: how large a cache engines get; None: as they come. In force with the next ``switch``."""
        self._settings, self._suppress = settings, suppress

    def switch(self, engine: Engine, bundle: str | None, quarantine_after: int | None) -> None:
        """Judge with another plan from the next frame on; rules that are in quarantine by then stay there."""
        engine.quarantine_after = self.engine.quarantine_after if quarantine_after is None else quarantine_after
        self.give_cache(engine)
        self._next = engine, bundle
        if not self._in_frame:
            self._use_next()

    def release(self) -> None:
        """Ask rules and correlations in quarantine again."""
        self.engine.release()
        self.alerting.memory.correlator.mute(())

    def lean(self, lean: bool) -> None:
        """Do without a cache, or with one again."""
        self._lean = lean
        self.give_cache(self.engine)
        if self._next is not None:
            self.give_cache(self._next[0])

    def give_cache(self, engine: Engine) -> None:
        """A plan of its own, a cache of its own."""
        if self._settings is not None:
            engine.remember(Cache(0 if self._lean else self._settings.cache_bytes, self._settings.verify_sample))

    def _use_next(self) -> None:
        if self._next is not None:
            before, (self.engine, bundle), self._next = self.engine, self._next, None
            self.engine.quarantine(self._failures.digests())
            self.engine.quarantine({before.plan.rules[i].digest for i in before.quarantined})
            self.alerting.switch(self.engine, bundle, self._suppress)
            self.alerting.memory.correlator.mute(self._failures.muted(self.engine.plan.correlations))

    # --- frames

    async def run(self) -> None:
        """Judge what is stored until cancelled."""
        while True:
            if self._progress.caught_up:
                self._storing.arrived.clear()
                await self._storing.arrived.wait()
            for frame in self._storing.frames():
                self._in_frame = True
                await self.frame(frame)
                self._in_frame = False
                self._use_next()
                await asyncio.sleep(0)
            if self._storing.unreadable:
                await asyncio.sleep(RETRY_SECONDS)

    async def frame(self, frame: Frame) -> None:
        """Judge the events of ``frame`` from where judging is, all under the engine that is in place now."""
        engine, chunk, joiner, committing = self.engine, frame.chunk, self.alerting.memory.joiner, self._committing
        first = max(0, self._progress.judged - frame.offset)
        self._counted = chunk.index(first) if first else 0
        until, room = time.perf_counter() + STEP_SECONDS, committing.room()
        self._progress.waiting_since = chunk.received_at
        if not first:
            joiner.advance(chunk.received_at)
            while (waited := self._due(engine)) is not None:
                if committing.bytes >= room or time.perf_counter() >= until:
                    await self._give_way(frame, 0)
                    until, room = time.perf_counter() + STEP_SECONDS, committing.room()
                self.event(engine, waited)
                joiner.evaluated()
            self._step("time", self.alerting.advance(chunk.received_at))
        for event in self._candidates(engine, frame, first):
            if committing.bytes >= room or time.perf_counter() >= until:
                await self._give_way(frame, event.at)
                until, room = time.perf_counter() + STEP_SECONDS, committing.room()
            self.event(engine, event)
        self._step("suppression", self.alerting.folds())
        if chunk.file is not None:
            committing.position(chunk.file)
        self._advance(frame, len(chunk.data))

    def event(self, engine: Engine, event: Joined) -> None:
        """What follows from one event; it or nothing."""
        frame, totals = event.frame, self._counters.totals
        totals["candidates"] += 1
        try:
            matches = engine.matches(frame.chunk, event, self._contexts.get(frame.chunk.input, Context()))
            totals["matches"] += len(matches)
            if matches:
                self._committing.take(self.alerting.event(frame, matches))
        except Exception as error:  # whatever an event does to a decoder, the others are judged
            self._failures.event(frame, event.start, event.end, error)
        if engine.undecided:
            self._failures.undecided(engine, frame, engine.undecided_events(), self._clock())
        if failed := self.alerting.memory.correlator.failures():
            self._failures.correlations(failed, self._clock())

    def _step(self, what: str, alerts: Iterable[Alert]) -> None:
        """Take ``alerts`` that no single event is about."""
        try:
            self._committing.take(alerts)
        except Exception as error:  # the events that follow are judged
            self._failures.step(what, error)
        if failed := self.alerting.memory.correlator.failures():
            self._failures.correlations(failed, self._clock())

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
        except Exception as error:  # told below, of the event that it is about or, when that is none, by itself
            fault: Exception | None = error
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
            except Exception as error:  # this event is set aside, the others are judged
                self._failures.event(frame, start, end, error)
                fault = None
                continue
            for event in found:
                if event.frame.chunk is alone:
                    event = event._replace(frame=frame, start=event.start + start, end=event.end + start)
                yield event._replace(at=start)
        if fault is not None:
            self._failures.step("looking for a frame's candidates at once (each event was looked at instead)", fault)

    async def _give_way(self, frame: Frame, position: int) -> None:
        """To a commit, when one is needed, or to the loop, with the cursor at ``position`` of ``frame``."""
        self._advance(frame, position)
        if self._committing.bytes >= self._committing.room():
            await self._committing.make_room()
        else:
            await asyncio.sleep(0)

    def _advance(self, frame: Frame, position: int) -> None:
        """The events of ``frame`` before ``position``, where one begins or the frame ends, are judged."""
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
                    action="it is off until the next rule set; please report this",
                )
        if self._committing.alerts:
            self._committing.due.set()

    # --- time

    async def ticks(self) -> None:
        """Let time pass until cancelled."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self.tick()

    def tick(self) -> None:
        """Nothing came: time passes all the same, for what waits for it. Only when all that is stored is judged."""
        now, until = self._clock(), time.perf_counter() + STEP_SECONDS
        if not self._progress.caught_up or self._committing.full:
            return
        engine, joiner = self.engine, self.alerting.memory.joiner
        joiner.advance(now)
        while (event := self._due(engine)) is not None:
            self.event(engine, event)
            joiner.evaluated()
            if time.perf_counter() >= until:
                break  # the rest at the next frame or tick; time does not go on before them
        else:
            self._step("time", self.alerting.advance(now))
        if self._committing.alerts or joiner.changed:  # no frame tells a replay what the clock has completed
            self._committing.due.set()

    def _due(self, engine: Engine) -> Joined | None:
        """An audit event whose time is over; one that cannot be made is left out."""
        joiner = self.alerting.memory.joiner
        while len(joiner):
            try:
                return engine.due(joiner, self._contexts)
            except Exception as error:  # its records are given up, others wait on
                self._failures.step("an audit event that waited for further records", error)
                joiner.evaluated()
        return None
