"""One batch, top to bottom: chunks into the raw log, frames judged in order, alerts committed with the cursor.

The stages share the event loop and what is known of the log (``progress.py``); everything that waits for a disk runs in
the one ``writer`` thread:

* ``storing.py``, the inputs' ``Intake``: log first; what was read while the disk takes nothing is held.
* ``judging.py``: frame after frame, each under one engine.
* ``committing.py``: cursor, counters, file positions, alerts and what judging remembers in one transaction.

After a kill the frames behind the cursor are judged again; alert ids come out the same, so nothing is doubled.

Beside the stages the pipeline sees to the raw log's budget (every ``TIDY_SECONDS``) and to that of memory: a process
above ``agent.max_memory`` does without the result cache and without frames in memory.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from functools import partial
from typing import Any

import structlog

from vedette.config.settings import AgentSettings, EngineSettings, StateSettings, SuppressSettings
from vedette.delivery.queue import Outbox
from vedette.engine.match import Context, Engine
from vedette.model.counters import Counters, Log, visible
from vedette.rawlog.log import RawLog
from vedette.runtime.alerts import Alerting
from vedette.runtime.budgets import resident
from vedette.runtime.committing import QUARANTINED, Committing
from vedette.runtime.failures import Failures
from vedette.runtime.judging import Judging
from vedette.runtime.progress import Progress
from vedette.runtime.quarantine import Quarantine
from vedette.runtime.storing import MEMORY, Storing
from vedette.state.state import State
from vedette.store.store import Store
from vedette.system.trouble import STORE, Trouble

log = structlog.get_logger()

TIDY_SECONDS = 0.2
"""Between two looks at what the raw log's budget no longer holds."""
MEMORY_SECONDS = 1.0
"""Between two looks at the process's memory."""
ENOUGH = 0.9
"""Share of the budget of memory below which there is enough again."""


class Pipeline:
    """The stages, and what concerns all of them."""

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
        bundle: str | None = None,
        shown: Mapping[str, Any] | None = None,
    ) -> None:
        """``quarantine`` keeps the events that a rule could not be decided on; without one they are only counted.

        ``judging``: how large a cache engines get; None: as they come. ``contexts`` may change while the pipeline runs.
        ``age_clock`` tells what is too old to keep; None: ``clock`` does. ``bundle``: the one that ``engine`` is of.
        ``shown``: the counters that were last shown.
        """
        self.quarantine = quarantine
        self.trouble = trouble or Trouble(clock)
        if quarantine is not None:
            engine.quarantine_after = quarantine.after
        self._max_memory, self.lean = agent.max_memory, False
        """``lean``: the process has more memory than its budget, and does with less."""
        self._log, self._clock = log, clock
        saved = store.load()
        self.progress = Progress(log, counters, saved, shown)
        self.failures = Failures(counters, quarantine, log.log_id, store.get(QUARANTINED))
        engine.quarantine(self.failures.digests())
        memory = _remembered(engine, log, store, state)
        memory.correlator.mute(self.failures.muted(engine.plan.correlations))
        self.storing = Storing(
            log, self.progress, self.trouble, writer, age_clock or clock, fsync_interval=fsync_interval
        )
        self.committing = Committing(
            log, store, outbox, counters, writer, self.progress, self.storing, memory, self.failures, self.trouble,
            next_seq=saved.next_seq, outbox_bytes=outbox_bytes,
        )  # fmt: skip
        self.alerting = Alerting(
            agent, engine, contexts, log, memory, suppress, clock, self.committing.seq, self.failures.event
        )
        self.alerting.bundle = bundle
        self.judging = Judging(
            engine, contexts, counters, self.progress, self.storing, self.committing, self.alerting, self.failures,
            clock,
        )  # fmt: skip
        self.judging.configure(judging, suppress)
        self.judging.give_cache(engine)

    @property
    def engine(self) -> Engine:
        """What the frame under way is judged with."""
        return self.judging.engine

    @property
    def backlog(self) -> Mapping[str, int]:
        """Events stored and not yet judged, per input."""
        return self.progress.backlog

    def visible(self) -> dict[str, Any]:
        """Counters and backlog to be shown: see ``report.visible``."""
        return visible(self.committing.counters, self.committing.counted, self.backlog)

    def lag(self) -> float:
        """Seconds for which the oldest event that is not judged has been waiting."""
        return self.progress.lag(self._clock())

    # --- its life

    async def run(self) -> None:
        """Judge, commit, sync and retain until cancelled; raises ValueError when the store is damaged."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.judging.run())
            group.create_task(self.committing.commits())
            group.create_task(self.storing.syncs())
            group.create_task(self._tidies())
            group.create_task(self.storing.append_again())
            group.create_task(self.judging.ticks())

    async def drain(self, seconds: float) -> None:
        """Judge what is stored and commit it, for at most ``seconds``; what remains is judged after the next start."""
        deadline, storing = asyncio.get_running_loop().time() + seconds, self.storing
        while asyncio.get_running_loop().time() < deadline:
            if storing.append_held() and self.progress.caught_up:
                break
            await asyncio.sleep(0.005)
        self.committing.patient = False
        if storing.held_bytes:
            log.error(
                Log.RAW_LOG_UNWRITABLE,
                events=sum(storing.held.values()),
                bytes=storing.held_bytes,
                reason="the raw log took them not before the agent had to stop",
                action="what came by TCP and UDP is lost; files and MQTT QoS 1 messages come again",
            )
        try:
            await self.committing.commit()
        except OSError as error:
            log.error(Log.DISK_TROUBLE, part=STORE, reason=str(error), action="judged again after the next start")

    async def close(self) -> None:
        """The last commit, after the uplink has ended: what it sent is in the account."""
        await self.committing.commit()

    # --- other rules and settings

    def configure(
        self, judging: EngineSettings, suppress: tuple[SuppressSettings, ...], quarantine: Quarantine
    ) -> None:
        """Other settings, in force with the next ``switch``."""
        self.judging.configure(judging, suppress)
        self.quarantine = quarantine
        self.failures.keep_in(quarantine)

    def switch(self, engine: Engine, bundle: str | None) -> None:
        """Judge with another plan from the next frame on; rules that are in quarantine stay there."""
        self.judging.switch(engine, bundle, None if self.quarantine is None else self.quarantine.after)

    def release(self) -> None:
        """Ask rules and correlations in quarantine again."""
        if released := self.failures.release():
            self.judging.release()
            self.committing.due.set()
            log.info(Log.QUARANTINE_RELEASED, rules=released)

    # --- budgets

    async def _tidies(self) -> None:
        """Delete what the budget no longer holds, and pack what is sealed."""
        looked = time.monotonic()
        while True:
            await asyncio.sleep(TIDY_SECONDS)
            if time.monotonic() - looked >= MEMORY_SECONDS:
                looked = time.monotonic()
                self._look_at_memory()
            await self.storing.tidy()
            if self._log.full() and self.progress.committed < self.progress.judged:
                self.committing.due.set()  # only what is committed may be deleted

    def _look_at_memory(self) -> None:
        """Do with less while the process has more than its budget: no cache, no frames in memory."""
        used, most = resident(), self._max_memory
        lean = used > (most * ENOUGH if self.lean else most)
        if lean == self.lean:
            return
        self.lean, self.storing.memory = lean, 0 if lean else MEMORY
        log.warning(
            Log.MEMORY_HIGH,
            bytes=used,
            max_memory=most,
            action="the result cache is off, frames are judged from disk" if lean else "over: the cache is on again",
        )
        self.judging.lean(lean)


def _remembered(engine: Engine, raw_log: RawLog, store: Store, state: StateSettings) -> State:
    """What judging remembered at the last commit."""
    empty = partial(
        State,
        engine.plan,
        log_id=raw_log.log_id,
        lateness=int(state.max_lateness * 1_000_000),
        max_bytes=state.max_bytes,
        settle=state.settle,
    )
    memory = empty()
    try:
        memory.restore(store.state())
    except ValueError as error:
        log.error(Log.STATE_LOST, reason=str(error), action="correlations and suppression start empty")
        return empty()
    return memory
