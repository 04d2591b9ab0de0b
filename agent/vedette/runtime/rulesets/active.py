"""The active ruleset: what the pipeline evaluates with, and everything that replaces it while the agent runs.

One change at a time. A change that fails leaves the active ruleset in place; its reason is in the log and the status.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import ref

import structlog

from vedette.config.settings import DEFAULT_SET, Config
from vedette.engine.match import Engine
from vedette.model.counters import Log
from vedette.rawlog.log import RawLog
from vedette.runtime.pipeline.pipeline import Pipeline
from vedette.runtime.rulesets.deadrules import dead_rules
from vedette.runtime.rulesets.rules import AGAIN_SECONDS, Loaded, Rules
from vedette.runtime.rulesets.sets import RuleSets
from vedette.system import descriptors, memory

if TYPE_CHECKING:
    from vedette.runtime.strict.supervisor import Isolated

log = structlog.get_logger()

SAMPLE_BYTES = 1 << 20
"""Of the newest traffic, for choosing the prefilter's literals."""
POLL_SECONDS = 2.0
"""Between two looks at folders of rules and of lookups."""
TRIM_SECONDS, MAX_TRIM_SECONDS = 1.0, 60.0
"""After a switch of plans, until memory is given back; and the longest pause until this is tried again."""


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


async def give_back(old: ref[Engine]) -> None:
    """Free the memory of a plan that was replaced. The frame under way is evaluated with it to its end, which on a busy
    machine may take long: what was frozen meanwhile is looked at again until ``old`` is gone, ever more seldom."""
    wait = TRIM_SECONDS
    while True:
        await asyncio.sleep(wait)
        freeze()
        if old() is None or wait > MAX_TRIM_SECONDS:
            break
        wait *= 2
    await asyncio.to_thread(memory.trim)


class Newest:
    """Of the bundles that arrive while a change is under way the last of each rule set: those before it are superseded,
    and a bundle may have 64 MiB."""

    def __init__(self) -> None:
        self._waiting: dict[str, bytes] = {}

    def put(self, ruleset: str, data: bytes) -> bool:
        """Whether it is the first, for which somebody has to come."""
        first = ruleset not in self._waiting
        self._waiting[ruleset] = data
        return first

    def take(self, ruleset: str) -> bytes | None:
        return self._waiting.pop(ruleset, None)


class ActiveRules:
    def __init__(self, pipeline: Pipeline, sets: RuleSets, loaded: Loaded) -> None:
        """``loaded``: what ``pipeline`` began with, from ``sets``."""
        self._pipeline, self._context = pipeline, pipeline.context
        self.sets, self.loaded = sets, loaded
        self._changing = asyncio.Lock()
        self._arrived = Newest()
        self._merge_again = 0.0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._log_loaded()

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    def switch(self, loaded: Loaded | None = None) -> None:
        """Evaluate with ``loaded``, or with the same rules under other settings."""
        if loaded is None:
            self._pipeline.evaluator.switch(self.loaded.engine, self.loaded.credit)
            return
        old, self.loaded = ref(self.loaded.engine), loaded
        self._pipeline.evaluator.switch(loaded.engine, loaded.credit)
        self._context.counters.totals["replans"] += 1
        self._log_loaded()
        self.start(give_back(old))

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
            without_functions=len(self._pipeline.state.statements.refused),
            dead=len(dead_rules(self._context.config, self.loaded.engine).reasons),
            always=len(plan.always),
            plan=plan.digest[:12],
            literals=plan.literal_digest[:12],
        )

    # --- changes

    async def change(self, ruleset: str, load: Callable[[Rules], Awaitable[Loaded | None]]) -> None:
        """Evaluate with what ``load`` makes of a rule set, if anything."""
        async with self._changing:
            if (rules := self.sets.members.get(ruleset)) is None:
                self._arrived.take(ruleset)
                return  # it went meanwhile
            with suppress(ValueError, OSError):  # already logged
                loaded = await load(rules)
                if loaded is not None:
                    await self._take(ruleset, loaded)

    async def _take(self, ruleset: str, loaded: Loaded) -> None:
        """A rule set has ``loaded``. Raises ValueError or OSError."""
        merged = await self.sets.take(ruleset, loaded)
        if merged is None:
            self._context.counters.totals["replans"] += 1
        else:
            self.switch(merged)
        await self.isolate()

    async def isolate(self) -> None:
        """Have the strict rule sets evaluate with what they are now. Raises ValueError or OSError."""
        isolated = await self.sets.isolated()
        await self._keep(self.sets)
        self._update(isolated)

    async def _keep(self, sets: RuleSets) -> None:
        """End the strict rule sets that are none in ``sets``. Raises OSError."""
        if sets.strict or self._context.accounts is not None:
            await self._pipeline.isolate().keep({*sets.strict})

    def _update(self, isolated: Mapping[str, Isolated]) -> None:
        for name, isolation in isolated.items():
            self._pipeline.isolate().update(self.sets.strict[name], isolation, self._pipeline.evaluator.position)

    async def check(self) -> None:
        """Reload what has changed on disk, or retune the prefilter when that is due."""
        changed = False
        for name, rules in [*self.sets.members.items()]:
            if await asyncio.to_thread(rules.changed):
                changed = True
                await self.change(name, lambda rules: rules.reload())
        if changed:
            return
        if self.sets.unmerged and time.monotonic() >= self._merge_again:
            self._merge_again = time.monotonic() + AGAIN_SECONDS
            await self._switch(self.sets.again)
        elif self.sets.first.retune_due(self._pipeline.evaluator.engine, time.monotonic()):
            await self._switch(self._retune)

    async def again(self) -> None:
        """At the operator's word: all rule sets once more."""
        for name in [*self.sets.members]:
            await self.change(name, lambda rules: rules.again())

    async def _switch(self, loading: Callable[[], Awaitable[Loaded | None]]) -> None:
        async with self._changing:
            with suppress(ValueError, OSError):  # already logged
                if (loaded := await loading()) is not None:
                    self.switch(loaded)
                await self.isolate()

    async def relook(self) -> None:
        """The same rules with the lookups that are installed now, and what was refused for want of one."""
        await self._switch(self._relook)
        for name, rules in [*self.sets.members.items()]:
            if rules.error and not rules.folder:
                await self.change(name, lambda rules: rules.again())

    async def _relook(self) -> Loaded | None:
        return await self.sets.relooked(self.loaded)  # as it is once a change under way is done

    async def _retune(self) -> Loaded | None:
        return await self.sets.retune(self.loaded)  # as it is once a change under way is done

    async def replace(self, config: Config) -> None:
        """Take the rules from where ``config`` has them. Raises ValueError or OSError, with nothing changed."""
        async with self._changing:
            sets = RuleSets(config, lambda: newest_lines(self._context.raw_log))
            loaded = await sets.start()
            isolated = await sets.isolated()
            await self._keep(sets)  # before the others evaluate with their rules
            self.sets = sets
            self.switch(loaded)
            self._update(isolated)  # in the same step: a set that is strict now begins where the others go on

    def install(self, ruleset: str, data: bytes) -> None:
        if self._arrived.put(ruleset, data):
            self.start(self._install_arrived(ruleset))

    async def _install_arrived(self, ruleset: str) -> None:
        async def newest(rules: Rules) -> Loaded | None:
            data = self._arrived.take(ruleset)
            return None if data is None else await self._install(data, rules)

        await self.change(ruleset, newest)

    async def _install(self, data: bytes, rules: Rules) -> Loaded:
        """Raises ValueError or OSError; retried while no descriptor is left, as the region does not send it again."""
        while True:
            try:
                return await rules.install(data)
            except OSError as error:
                if error.errno not in descriptors.SPENT:
                    raise
            await asyncio.sleep(descriptors.RETRY_SECONDS)

    async def take(self, ruleset: str, data: bytes) -> None:
        """Switch a rule set to the bundle ``data``, which the fleet's documents name. Raises ValueError or OSError."""
        async with self._changing:
            if (rules := self.sets.members.get(ruleset)) is None:
                raise ValueError(f"no rule set {ruleset!r}; there are: {', '.join(self.sets.members)}")
            await self._take(ruleset, await rules.install(data, by_fleet=True))

    async def rollback(self, version: int | None = None, ruleset: str = DEFAULT_SET) -> Any:
        """Go back to the bundle of a rule set before ``version``, the current one, even if the caller goes away
        meanwhile. Raises ValueError or OSError."""
        return await asyncio.shield(self.start(self._rollback(version, ruleset)))

    async def _rollback(self, version: int | None, ruleset: str) -> dict[str, Any]:
        async with self._changing:
            if (rules := self.sets.members.get(ruleset)) is None:
                raise ValueError(f"no rule set {ruleset!r}; there are: {', '.join(self.sets.members)}")
            if (loaded := await rules.rollback(version)) is not None:
                await self._take(ruleset, loaded)
            bundle = self.bundle(ruleset)
            return {"bundle": bundle, "withdrawn": rules.withdrawn(), "done": loaded is not None}

    def bundle(self, ruleset: str) -> str | None:
        """Name and version of the bundle that a rule set runs."""
        part = self.sets.parts.get(ruleset)
        return part.bundle if part else self.loaded.bundle

    def sha256(self, ruleset: str) -> str | None:
        """Of the bundle's file that a rule set runs."""
        part = self.sets.parts.get(ruleset)
        return part.sha256 if part else self.loaded.sha256
