"""What an agent does first whose data folder is a copy of another's (``rawlog/machine.py``): begin a log of its own.

1. What the copied log holds behind the cursor is evaluated to its end, with no input open, and committed. These alerts
   get the ids that the first host gives them, so the region keeps each once, whether that host still runs or not.
2. Alerts get a numbering of their own (``Store.renumber``): a receipt for the first host's seq is none for this one's.
   Those that wait in the outbox keep their ids.
3. A new log begins, and the folder is this machine's. Segments of the copied one stay, to be searched, until retention
   takes them; positions of inputs stay.

A kill in between repeats it, and an event that kills is left out as ever (``deaths.py``). What correlations and windows
remember is of the copied log, and ends with it. A strict rule set that does not come forward for STUCK_SECONDS is not
waited for; what it has not evaluated is lost to it, as MISSING. Nor is an outbox without room, though it may grow to
GROWTH times its bound.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import structlog

from vedette.config.settings import Config
from vedette.model.counters import Counters, Log
from vedette.rawlog.checkpoint import RestartPoint
from vedette.rawlog.log import RawLog
from vedette.runtime.options.inputs import context_of
from vedette.runtime.pipeline.context import RunContext
from vedette.runtime.pipeline.lives import Lives, Reported, UnderWay
from vedette.runtime.pipeline.pipeline import Pipeline
from vedette.runtime.rulesets.active import ActiveRules, newest_lines
from vedette.runtime.rulesets.sets import RuleSets
from vedette.store.rebuild import open_store
from vedette.system.wallclock import WallClock

log = structlog.get_logger()

STUCK_SECONDS = 60.0
GROWTH = 8
MAP_SLACK = 256 << 20


class AsItIs:
    """A keeper (``segment_set.py``) who lets no segment go: the archive knows more, and is not open yet."""

    def lets_go(self, segment: str) -> bool:
        return False

    def claims(self, segment: str) -> bool:
        return True


async def settle(config: Config, reason: str, stop: asyncio.Event) -> bool:
    """Whether the data folder, a copy for this ``reason``, is this machine's at last: not, when ``stop`` was set
    before. Raises OSError."""
    raw = config.agent.raw_dir
    action = "what is stored is evaluated, then a new log begins; see docs/install.md, Images and copies"
    log.warning(Log.COPY_NOTICED, folder=str(config.agent.data_dir), reason=reason, action=action)
    config = replace(config, uplink=replace(config.uplink, max_bytes=config.uplink.max_bytes * GROWTH))
    counters, clock, reported = Counters(), WallClock(), Reported(config.agent.shown_file)
    reported.close()
    map_bytes = config.uplink.max_bytes * 4 + MAP_SLACK
    with open_store(config.agent.store_dir, raw, map_bytes=map_bytes, clock=clock, reported=reported.last) as store:
        lives, restart = Lives(config.agent.lives_file), RestartPoint(counters)
        raw_log = RawLog.open(
            raw, config.raw_log, counters, committed=store.load().cursor, certain=not store.uncertain, clock=clock,
            describe=restart.describe, keeper=AsItIs(),
        )  # fmt: skip
        if store.uncertain:
            store.settle()
        clock.begin(raw_log.newest)
        context = RunContext(config, raw_log, store, counters, clock, restart, reported.last)
        try:
            under_way = UnderWay(context, lives.crashed)
            try:
                await _evaluate(context, under_way, stop)
            finally:
                under_way.box.close()
        finally:
            context.close()
        if not stop.is_set():
            store.renumber()
            new = RawLog.open(raw, config.raw_log, Counters(), clock=clock, describe=restart.describe, renew=reason)
            new.close()
        lives.stopped()
    return not stop.is_set()


async def _evaluate(context: RunContext, under_way: UnderWay, stop: asyncio.Event) -> None:
    """Evaluate and commit what is stored, until ``stop``. Raises OSError when it cannot be committed."""
    config, raw_log = context.config, context.raw_log
    if config.plugins.allow:
        from vedette.runtime.options import decoders

        decoders.adopt(config, decoders.Calls(under_way.box, under_way.forbidden, careful=under_way.careful))
    sets = RuleSets(config, lambda: newest_lines(raw_log))
    loaded = await sets.start()
    context.input_contexts.update((settings.name, context_of(settings)) for settings in config.input)
    pipeline = Pipeline(context, loaded.engine, loaded.credit, under_way)
    active = ActiveRules(pipeline, sets, loaded)
    try:
        await active.isolate()
        async with asyncio.TaskGroup() as group:
            running = group.create_task(pipeline.run())
            await _to_the_end(pipeline, stop)
            await pipeline.drain(0.0 if stop.is_set() else STUCK_SECONDS)
            running.cancel()
    finally:
        active.stop()
        pipeline.close()
    if context.progress.committed != context.progress.evaluated and not stop.is_set():
        raise OSError(f"{config.agent.data_dir}: what was evaluated of a copied log cannot be committed")


async def _to_the_end(pipeline: Pipeline, stop: asyncio.Event) -> None:
    """Until all rule sets have evaluated the log, or none comes forward."""
    context = pipeline.context
    before, moved = -1, time.monotonic()
    if pipeline.strict is not None:
        pipeline.strict.finish()
    while not stop.is_set():
        strict = {} if context.accounts is None else context.accounts.open
        reached = [context.progress.evaluated, *(account.committed for account in strict.values())]
        behind = sum(context.raw_log.end - offset for offset in reached)
        if behind != before:
            before, moved = behind, time.monotonic()
        if not behind or time.monotonic() - moved > STUCK_SECONDS:
            return
        await asyncio.sleep(0.02)
