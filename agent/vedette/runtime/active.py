"""The active ruleset: what the pipeline evaluates with, and everything that replaces it while the agent runs.

One change at a time. A change that fails leaves the active ruleset in place; its reason is in the log and the status.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Coroutine
from typing import Any

import structlog

from vedette.config.settings import Config
from vedette.model.counters import Log
from vedette.rawlog.log import RawLog
from vedette.runtime.deadrules import dead_rules
from vedette.runtime.pipeline import Pipeline
from vedette.runtime.rules import Loaded, Rules
from vedette.system import allocator, descriptors

log = structlog.get_logger()

SAMPLE_BYTES = 1 << 20
"""Of the newest traffic, for choosing the prefilter's literals."""
TRIM_SECONDS = 1.0
"""After a switch of plans, until memory is given back."""


def newest_lines(raw_log: RawLog) -> bytes:
    """A sample of the traffic. Raises OSError."""
    parts = []
    for frame in raw_log.frames(max(raw_log.start, raw_log.end - SAMPLE_BYTES), count_lost=False):
        chunk = frame.chunk
        parts.append(chunk.data if chunk.ends is None else b"\n".join(chunk.data[a:b] for a, b in chunk.spans()))
    return b"\n".join(parts)


def freeze() -> None:
    """Take what lives as long as its plan out of the collector's sight: for 3,000 rules a full run takes 40 ms."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


async def _trim() -> None:
    """Give back the memory of a plan that is gone, once the frame under way is evaluated."""
    await asyncio.sleep(TRIM_SECONDS)
    await asyncio.to_thread(allocator.trim)


class ActiveRules:
    def __init__(self, pipeline: Pipeline, rules: Rules, loaded: Loaded) -> None:
        """``loaded``: what ``pipeline`` began with, from ``rules``."""
        self._pipeline, self._context = pipeline, pipeline.context
        self.rules, self.loaded = rules, loaded
        self._changing = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._log_loaded()

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    def switch(self, loaded: Loaded | None = None) -> None:
        """Evaluate with ``loaded``, or with the same rules under other settings."""
        if loaded is None:
            self._pipeline.evaluator.switch(self.loaded.engine, self.loaded.bundle)
            return
        self.loaded = loaded
        self._pipeline.evaluator.switch(loaded.engine, loaded.bundle)
        self._context.counters.totals["replans"] += 1
        self._log_loaded()
        freeze()
        self.start(_trim())

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _log_loaded(self) -> None:
        plan = self.loaded.engine.plan
        log.info(
            Log.RULES_LOADED,
            origin=self.loaded.origin,
            running=len(plan.detections),
            correlations=len(plan.correlations),
            statements=len(plan.statements),
            dead=len(dead_rules(self._context.config, self.loaded).reasons),
            always=len(plan.always),
            plan=plan.digest[:12],
            literals=plan.literal_digest[:12],
        )

    # --- changes

    async def change(self, loading: Awaitable[Loaded | None]) -> None:
        """Switch to what ``loading`` gives, if anything."""
        async with self._changing:
            try:
                loaded = await loading
            except (ValueError, OSError):
                return  # already logged
            if loaded is not None:
                self.switch(loaded)

    async def check(self) -> None:
        """Reload what has changed on disk, or retune the prefilter when that is due."""
        if await asyncio.to_thread(self.rules.changed):
            await self.change(self.rules.reload())
        elif self.rules.retune_due(self._pipeline.evaluator.engine, time.monotonic()):
            await self.change(self._retune())

    async def _retune(self) -> Loaded | None:
        return await self.rules.retune(self.loaded)  # as it is once a change under way is done

    async def replace(self, config: Config) -> None:
        """Take the rules from where ``config`` has them. Raises ValueError or OSError, with nothing changed."""
        async with self._changing:
            rules = Rules(config, lambda: newest_lines(self._context.raw_log))
            loaded = await rules.start()
            self.rules = rules
            self.switch(loaded)

    def install(self, data: bytes) -> None:
        self.start(self.change(self._install(data)))

    async def _install(self, data: bytes) -> Loaded:
        """Raises ValueError or OSError; retried while no descriptor is left, as the region does not send it again."""
        while True:
            try:
                return await self.rules.install(data)
            except OSError as error:
                if error.errno not in descriptors.SPENT:
                    raise
            await asyncio.sleep(descriptors.RETRY_SECONDS)

    async def rollback(self, version: int | None = None) -> Any:
        """Go back to the bundle before ``version``, the current one, even if the caller goes away meanwhile. Raises
        ValueError or OSError."""
        return await asyncio.shield(self.start(self._rollback(version)))

    async def _rollback(self, version: int | None) -> dict[str, Any]:
        async with self._changing:
            if (loaded := await self.rules.rollback(version)) is not None:
                self.switch(loaded)
            withdrawn = self.rules.bundles.withdrawn()
            return {"bundle": self.loaded.bundle, "withdrawn": withdrawn, "done": loaded is not None}
