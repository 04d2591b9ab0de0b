"""The three stages over one context: chunks into the raw log, frames evaluated in order, alerts committed.

* ``ingest.py``, the inputs' ``Intake``: log first; what was read while the disk takes nothing is held.
* ``evaluator.py``: frame after frame, each under one engine.
* ``checkpointer.py``: cursor, counters, file positions, alerts and state in one transaction.

After a kill the frames behind the cursor are evaluated again; alert ids come out the same, so nothing is doubled.

Beside the stages runs maintenance: every ``MAINTENANCE_SECONDS`` the raw log's budget, every ``MEMORY_SECONDS`` that of
memory. Under memory pressure (more than ``agent.max_memory``) there is no result cache and no frame is kept in memory.

What runs functions in Python (``udf/``) is imported where ``[functions]`` allows them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import structlog

from vedette.engine.match import Engine
from vedette.model.counters import Log
from vedette.runtime.alerts.alerts import Credit
from vedette.runtime.pipeline.blackbox import NOWHERE, Stage
from vedette.runtime.pipeline.checkpointer import Checkpointer
from vedette.runtime.pipeline.context import RunContext
from vedette.runtime.pipeline.evaluator import Evaluator
from vedette.runtime.pipeline.ingest import Ingest
from vedette.runtime.pipeline.lives import UnderWay
from vedette.runtime.pipeline.stored import RECENT_BYTES
from vedette.state.state import State
from vedette.system.diskhealth import STORE
from vedette.system.memory import resident

if TYPE_CHECKING:
    from vedette.runtime.strict.sets import StrictSets
    from vedette.stream.operators.base import AtWork
    from vedette.udf.host import Host

log = structlog.get_logger()

MAINTENANCE_SECONDS = 0.2
MEMORY_SECONDS = 1.0
RELIEVED = 0.9
"""Share of ``agent.max_memory`` below which memory pressure is over."""


class Pipeline:
    def __init__(self, context: RunContext, engine: Engine, bundle: Credit, under_way: UnderWay) -> None:
        """``bundle``: what ``engine`` is of."""
        self.context = context
        self.functions = _functions(context)
        box, deaths = under_way.box, under_way.deaths
        with box.within(Stage.RESTORING, NOWHERE):
            self.state = _restored(context, engine, self.functions, box.at_work if under_way.careful else None)
        self.ingest = Ingest(context)
        self.checkpointer = Checkpointer(context, self.ingest, self.state)
        of_evaluator = context, self.ingest, self.checkpointer, self.state, engine, box, bundle
        if deaths is None:
            self.evaluator = Evaluator(*of_evaluator)
        else:
            from vedette.runtime.strict.watched import Watched

            self.evaluator = Watched(*of_evaluator, blamed=deaths.blamed)
            deaths.settle()
        self.strict: StrictSets | None = None
        """Rule sets in strict isolation; None: there was none yet."""
        self._group: asyncio.TaskGroup | None = None
        self.memory_pressure = False
        """Whether the process has more memory than its budget."""

    @property
    def backlog(self) -> Mapping[str, int]:
        """Events stored and not yet evaluated, per input."""
        return self.context.progress.backlog

    async def run(self) -> None:
        """Evaluate, commit, sync and maintain until cancelled; raises ValueError when the store is damaged."""
        async with asyncio.TaskGroup() as self._group:
            group = self._group
            group.create_task(self.evaluator.run())
            group.create_task(self.checkpointer.commits())
            group.create_task(self.ingest.syncs())
            group.create_task(self._maintain())
            group.create_task(self.ingest.append_again())
            group.create_task(self.evaluator.ticks())
            if self.strict is not None:
                group.create_task(self.strict.run())

    def isolate(self) -> StrictSets:
        """Return the rule sets in strict isolation, of which there may be some from now on."""
        if self.strict is None:
            from vedette.runtime.strict.sets import StrictSets

            self.strict = StrictSets(self.context, self.checkpointer)
            if self._group is not None:
                self._group.create_task(self.strict.run())
        return self.strict

    def close(self) -> None:
        """End what runs beside it."""
        if self.strict is not None:
            self.strict.close()
        if self.functions is not None:
            self.functions.close()

    async def drain(self, seconds: float) -> None:
        """Evaluate what is stored and commit it, for at most ``seconds``; the rest follows after the next start."""
        deadline, ingest, strict = asyncio.get_running_loop().time() + seconds, self.ingest, self.strict
        if strict is not None:
            strict.finish()
        while asyncio.get_running_loop().time() < deadline:
            if ingest.append_held() and self.evaluator.idle and (strict is None or strict.caught_up):
                break
            await asyncio.sleep(0.005)
        self.checkpointer.patient = False
        if ingest.held_bytes:
            log.error(
                Log.RAW_LOG_UNWRITABLE,
                events=sum(ingest.held.values()),
                bytes=ingest.held_bytes,
                reason="raw log was still unwritable at shutdown; events dropped",
                action="TCP and UDP events are lost; files and MQTT QoS 1 messages are read again",
            )
        # Not ended by who stops waiting for it: no commit can follow one that was cut off.
        self._last = asyncio.create_task(self.checkpointer.commit())
        try:
            await asyncio.shield(self._last)
        except OSError as error:
            log.error(
                Log.DISK_FAILING, part=STORE, reason=str(error), action="evaluation is repeated after the next start"
            )

    def release(self) -> None:
        """Evaluate rules and correlations in quarantine again, but for those of strict rule sets."""
        if released := self.context.failures.release():
            self.evaluator.release()
            self.checkpointer.due.set()
            log.info(Log.QUARANTINE_RELEASED, rules=released)

    async def _maintain(self) -> None:
        """Keep raw log and memory within their budgets."""
        checked, progress = time.monotonic(), self.context.progress
        while True:
            await asyncio.sleep(MAINTENANCE_SECONDS)
            if time.monotonic() - checked >= MEMORY_SECONDS:
                checked = time.monotonic()
                self._check_memory()
            await self.ingest.maintain()
            if self.context.raw_log.full() and progress.committed < progress.evaluated:
                self.checkpointer.due.set()  # only what is committed may be deleted

    def _check_memory(self) -> None:
        used, most = resident(), self.context.config.agent.max_memory
        pressure = used > (most * RELIEVED if self.memory_pressure else most)
        if pressure == self.memory_pressure:
            return
        self.memory_pressure, self.ingest.recent_bytes = pressure, 0 if pressure else RECENT_BYTES
        log.warning(
            Log.MEMORY_PRESSURE,
            bytes=used,
            max_memory=most,
            action="the result cache is off, frames are read back from disk" if pressure else "over: the cache is on",
        )
        self.evaluator.save_memory(pressure)


def _functions(context: RunContext) -> Host | None:
    settings = context.config.functions
    if not settings.allow:
        return None
    from vedette.udf.host import Host, Limits

    return Host(Limits(settings.max_seconds, settings.max_memory))


def _restored(context: RunContext, engine: Engine, functions: Host | None, at_work: AtWork | None) -> State:
    settings = context.config.state
    empty = partial(
        State,
        engine.plan,
        log_id=context.raw_log.log_id,
        lateness=int(settings.max_lateness * 1_000_000),
        max_bytes=settings.max_bytes,
        settle=settings.settle,
        functions=functions,
        at_work=at_work,
    )
    state = empty()
    try:
        state.restore(context.store.state.parts())
    except ValueError as error:
        log.error(Log.STATE_LOST, reason=str(error), action="correlations and suppression start empty")
        return empty()
    return state
