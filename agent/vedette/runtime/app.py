"""The agent: the only place that makes its parts, and the order in which they start, change and stop.

Start: store, raw log (recovered), rules, pipeline, uplink, control socket, inputs last. Stop, in the flow's order
(``shutdown.py``): inputs, what is stored is judged and committed, the uplink sends what it can, then log and store are
closed; each step within its share of a deadline. Whatever a step leaves undone is on disk and goes on at the next
start.

SIGHUP reads the configuration again (``reload.py`` says what can change), builds the rules again, and releases what is
in quarantine. One that is not valid is told with its mistakes, and the running one goes on.

While it runs the agent checks its own account (``account.py``) and tells systemd that it is alive: a ping goes out only
after the event loop has come round and the writer thread has done what was before it in its queue.

A part that fails with an error of its own ends the agent with that error: the raw log that cannot be written, the
store that cannot commit, the port in use. A broker that is away, a rule set that cannot be built, a file that cannot
be read do not: they are told, retried, and shown in the status.
"""

from __future__ import annotations

import asyncio
import codecs
import dataclasses
import faulthandler
import gc
import os
import signal
import sys
import time
from collections.abc import Awaitable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from vedette import __version__
from vedette.bundle.seal import BundleRefused
from vedette.config.settings import Config, ConfigError, load
from vedette.delivery.queue import Outbox, Source
from vedette.delivery.sinks import SINKS, Sink
from vedette.delivery.uplink import MqttUplink
from vedette.model.counters import Counters, Log
from vedette.rawlog.log import RawLog
from vedette.runtime import status
from vedette.runtime.account import CHECK_SECONDS, Auditor
from vedette.runtime.arrivals import Arrivals
from vedette.runtime.budgets import resident
from vedette.runtime.control import Control
from vedette.runtime.doors import Doors, contexts
from vedette.runtime.logs import configure_logging, say_suppressed
from vedette.runtime.pipeline import Pipeline
from vedette.runtime.quarantine import Quarantine
from vedette.runtime.reload import Merged, Reloads, merge
from vedette.runtime.rules import Loaded, Rules
from vedette.runtime.shown import Shown, record
from vedette.runtime.shutdown import Shutdown
from vedette.store.rebuild import open_store, settled
from vedette.system import allocator, descriptors
from vedette.system.notify import Notifier
from vedette.system.trouble import Trouble
from vedette.system.wallclock import WallClock

if TYPE_CHECKING:
    from vedette.runtime.metrics import Exporter

log = structlog.get_logger()

INPUTS_SHARE, JUDGING_SHARE = 0.3, 0.6
"""Of ``agent.stop_within``, until when inputs are closed and until when what is stored is judged; the uplink has the
rest."""
UPLINK_SECONDS = 3.0
"""For sending what is in the outbox before another uplink takes its place."""
SWITCH_SECONDS = 0.0005
"""For which a thread keeps the event loop waiting, each time that the loop has let go of the interpreter."""
TRIM_SECONDS = 1.0
"""After a switch of plans, until memory is given back."""
FREE_SECONDS = 60.0
"""Between two times at which free memory is given back."""
SAMPLE_BYTES = 1 << 20
"""Of the newest traffic, for choosing the prefilter's literals."""
MAP_SLACK = 256 << 20
"""What the store may hold besides the outbox: the ring of receipted alerts, positions, free pages."""


def settle_memory() -> None:
    """Take what lives as long as its plan out of the collector's sight: for 3,000 rules a full run takes 40 ms."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


async def give_memory_back() -> None:
    """What a plan that is gone has left, when the frame under way is judged."""
    await asyncio.sleep(TRIM_SECONDS)
    await asyncio.to_thread(allocator.trim)


def run(config: Config, path: Path | None = None) -> None:
    """Run the agent until SIGTERM or SIGINT. ``path``: the file that ``config`` is from, read again on SIGHUP.

    Raises OSError or ValueError when it cannot start or go on.
    """
    configure_logging(config.log)
    _log_warnings(config)
    descriptors.raise_limit()
    descriptors.SPARE.keep()
    resident()  # whose file stays open
    codecs.lookup("idna")  # of names to connect to: a first look-up without a descriptor would fail for good
    allocator.settle()
    sys.setswitchinterval(SWITCH_SECONDS)
    faulthandler.enable()  # the watchdog ends a hung agent with SIGABRT: where it hung is then in the journal
    os.umask(0o027)  # raw logs, alerts and the store are nobody else's
    try:
        asyncio.run(Agent(config, path).run())
    except BaseExceptionGroup as group:  # not `except*`: what it raises comes out as a group in Python 3.11.2
        expected, other = group.split((OSError, ValueError))
        if other is not None or expected is None:
            raise
        error: BaseException = expected
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None


def _log_warnings(config: Config) -> None:
    for line in config.warnings:
        log.warning(Log.CONFIG_OLD_NAME, reason=line)


class Agent:
    """One running agent."""

    def __init__(self, config: Config, path: Path | None = None) -> None:
        self.config = config
        self.counters = Counters()
        self.clock = WallClock()
        self.reloads = Reloads()
        self._path = path
        self._started_at = self.clock()
        self._notifier = Notifier.from_environment()
        self._shutdown = Shutdown()
        self._reload = asyncio.Event()
        self._switching = asyncio.Lock()
        self._metrics: Exporter | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self) -> None:
        """See the module's text."""
        config, agent = self.config, self.config.agent
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._shutdown.ask)
        loop.add_signal_handler(signal.SIGHUP, self._reload.set)
        loop.set_exception_handler(_tell)
        agent.data_dir.mkdir(parents=True, exist_ok=True)
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="writer")
        self.trouble = Trouble(self.clock)
        map_bytes = config.uplink.max_bytes * 2 + MAP_SLACK
        self.shown = Shown(agent.shown_file)
        opened = open_store(
            agent.store_dir, agent.raw_dir, map_bytes=map_bytes, clock=self.clock, shown=self.shown.last
        )
        with opened.store as store:
            saved, self.rebuilt = store.load(), store.get("rebuilt")
            self.raw_log = RawLog.open(
                agent.raw_dir, config.raw_log, self.counters, committed=saved.cursor, certain=not opened.anew,
                clock=self.clock,
            )  # fmt: skip
            self._least = {} if opened.anew or self.shown.last is None else self.shown.last.get("memory", {})
            if opened.anew:
                settled(store)
            self.clock.begin(self.raw_log.newest)
            try:
                self.outbox = Outbox(store, self._writer, self.counters, self.trouble)
                self.rules = Rules(config, self._sample)
                self.loaded = await self.rules.start()
                self._say_loaded()
                self.contexts = contexts(config.input)
                self.pipeline = Pipeline(
                    agent,
                    self.loaded.engine,
                    self.contexts,
                    self.raw_log,
                    store,
                    self.outbox,
                    self.counters,
                    self._writer,
                    self.clock,
                    fsync_interval=config.raw_log.fsync_interval,
                    outbox_bytes=config.uplink.max_bytes,
                    state=config.state,
                    suppress=config.suppress,
                    quarantine=_quarantine(config),
                    judging=config.engine,
                    trouble=self.trouble,
                    age_clock=self.clock.trusted,
                    bundle=self.loaded.bundle,
                    shown=self.shown.last,
                )
                self._auditor = Auditor(self.counters, self.pipeline, self.outbox)
                await self._serve()
            finally:
                self._writer.shutdown(wait=True)
                self.raw_log.close()
            account = store.account()
        self.shown.close()
        self._shutdown.done()
        log.info(Log.STOPPED, agent=agent.id, unjudged=sum(self.pipeline.backlog.values()), in_outbox=account.entries)
        self._notifier.close()

    async def _serve(self) -> None:
        config = self.config
        control = Control(
            config.agent.control_socket, {"status": self._status_command, "rollback": self._rollback_command}
        )
        settle_memory()
        allocator.trim()
        try:
            async with asyncio.TaskGroup() as self._group:
                group = self._group
                pipeline = group.create_task(self.pipeline.run())
                self._doors = Doors(
                    self.pipeline, self.counters, self.clock, self.contexts, group, config.agent.id,
                    config.agent.raw_dir,
                )  # fmt: skip
                self._start_uplink()
                background = [group.create_task(self._renew()), group.create_task(self._keep_house())]
                if self._notifier.interval:
                    background.append(group.create_task(self._ping()))
                await control.start()
                await self._serve_metrics()
                self._doors.share(config.input)
                for settings in config.input:
                    await self._doors.open(settings)
                log.info(
                    Log.STARTED, agent=config.agent.id, version=__version__, inputs=len(self._doors),
                    descriptors=descriptors.limit(),
                )  # fmt: skip
                self._notifier.ready(f"{len(self._doors)} inputs open")
                await self._shutdown.asked.wait()
                log.info(Log.STOPPING, agent=config.agent.id)
                self._notifier.stopping()
                self._shutdown.begin(self.config.agent.stop_within)
                background[0].cancel()
                await self._stop_in_order()
                for task in (pipeline, self._uplink_task, *background, *self._tasks):
                    task.cancel()
        finally:
            await control.stop()
            if self._metrics is not None:
                await self._metrics.stop()

    async def _stop_in_order(self) -> None:
        stop = self._shutdown
        await stop.stage("inputs", self._doors.close_all(), INPUTS_SHARE)
        await stop.stage("judging", self.pipeline.drain(stop.left(JUDGING_SHARE)), JUDGING_SHARE + 0.05)
        await stop.stage("uplink", self.uplink.stop(stop.left(0.95)))
        await self.pipeline.close()
        self._auditor.look()

    async def _ping(self) -> None:
        """Tell the watchdog that the loop comes round and the writer thread is not stuck."""
        while True:
            await asyncio.get_running_loop().run_in_executor(self._writer, _nothing)
            self._notifier.ping()
            await asyncio.sleep(self._notifier.interval)

    async def _keep_house(self) -> None:
        trimmed = time.monotonic()
        while True:
            if time.monotonic() - trimmed >= FREE_SECONDS:  # what groups that come and go leave between those that stay
                await asyncio.to_thread(allocator.trim)
                trimmed = time.monotonic()
            self._auditor.look()
            say_suppressed()
            lag = sum(self.pipeline.backlog.values())
            judged = sum(self.counters.judged.values())
            self._notifier.status(f"{judged} events judged, {lag} waiting, {self.outbox.depth} alerts in the outbox")
            await asyncio.sleep(CHECK_SECONDS)

    # --- parts

    def _start_uplink(self) -> None:
        config = self.config
        source = Source(config.uplink, config.agent, self.outbox, self.counters, self._heartbeat, self.clock)
        self.uplink: Sink = SINKS[config.uplink.type](source)
        if config.uplink.warning:
            log.warning(Log.RECEIPTS_UNAUTHENTICATED, broker=config.uplink.broker.url, reason=config.uplink.warning)
        if isinstance(self.uplink, MqttUplink) and not self.rules.directory and config.bundles.trusted_keys:
            Arrivals(
                config, self.uplink, self.rules, lambda: self.loaded.sha256,
                lambda data: self._later(self._guarded(self._install(data))),
            )  # fmt: skip
        self._uplink_task = self._group.create_task(self.uplink.run())

    async def _serve_metrics(self) -> None:
        """Raises OSError when the address cannot be had."""
        if self._metrics is not None:
            await self._metrics.stop()
            self._metrics = None
        if self.config.metrics.listen:
            from vedette.runtime.metrics import Exporter

            exporter = Exporter(self.config.metrics.listen, self._status_command)
            await exporter.start()
            self._metrics = exporter

    # --- status

    def status(self) -> dict[str, Any]:
        """See ``status.collect``."""
        now = self.clock()
        found = status.collect(
            self.config, self._started_at, now, self.counters, self.pipeline, self.raw_log, self.outbox, self.rules,
            self.loaded, self.uplink.state(), self.reloads.status(),
            {"steps": self.clock.steps, "ahead_seconds": self.clock.ahead}, self.rebuilt,
        )  # fmt: skip
        for name, least in self._least.items():
            found["memory"][name] = max(found["memory"][name], least)
        account = self.outbox.account()
        self.shown.keep(record(account.log_id, account.commits, found))
        return found

    def _heartbeat(self) -> bytes:
        return status.heartbeat(self.status())

    async def _status_command(self) -> dict[str, Any]:
        await self.pipeline.committing.asked()
        return self.status()

    # --- rules

    def _sample(self) -> bytes:
        """The newest stored lines."""
        start = max(self.raw_log.start, self.raw_log.end - SAMPLE_BYTES)
        parts = []
        for frame in self.raw_log.frames(start, count_lost=False):
            chunk = frame.chunk
            parts.append(chunk.data if chunk.ends is None else b"\n".join(chunk.data[a:b] for a, b in chunk.spans()))
        return b"\n".join(parts)

    def _switch(self, loaded: Loaded) -> None:
        self.loaded = loaded
        self.pipeline.switch(loaded.engine, loaded.bundle)
        self.counters.totals["replans"] += 1
        self._say_loaded()
        settle_memory()
        self._later(give_memory_back())

    def _say_loaded(self) -> None:
        plan = self.loaded.engine.plan
        log.info(
            Log.RULES_LOADED,
            origin=self.loaded.origin,
            running=len(plan.rules),
            correlations=len(plan.correlations),
            dead=len(status.dead_rules(self.config, self.loaded).reasons),
            always=len(plan.always),
            plan=plan.digest[:12],
            literals=plan.literal_digest[:12],
        )

    async def _renew(self) -> None:
        """Reload on SIGHUP; build the rule directory again when it changed."""
        while True:
            try:
                async with asyncio.timeout(self.config.rules.poll):
                    await self._reload.wait()
            except TimeoutError:
                if await asyncio.to_thread(self.rules.changed):
                    await self._guarded(self.rules.reload())
                elif self.rules.due(self.pipeline.engine, time.monotonic()):
                    await self._choose_literals()
                continue
            self._reload.clear()
            self._notifier.reloading()
            rules = self.rules
            await self._reload_config()
            self.pipeline.release()
            if self.rules is rules:
                await self._guarded(rules.again())
            self._notifier.ready("reloaded")

    async def _choose_literals(self) -> None:
        """Judge on with literals that suit the traffic better, if there are any: the same plan, found faster."""
        async with self._switching:
            if (chosen := await self.rules.choose(self.loaded)) is not None:
                self._switch(chosen)

    async def _rollback_command(self, version: int | None = None) -> Any:
        """Judge with the bundle before ``version``, the current one; whoever asked may go away meanwhile."""
        done = asyncio.get_running_loop().create_task(self._rollback(version))
        self._tasks.add(done)
        done.add_done_callback(self._tasks.discard)
        return await asyncio.shield(done)

    async def _rollback(self, version: int | None) -> dict[str, Any]:
        """Raises ValueError or OSError, with the current one going on."""
        async with self._switching:
            if (loaded := await self.rules.rollback(version)) is not None:
                self._switch(loaded)
            done = loaded is not None
            return {"bundle": self.loaded.bundle, "withdrawn": self.rules.bundles.withdrawn(), "done": done}

    async def _reload_config(self) -> None:
        """Read the configuration again; one that is not valid changes nothing."""
        if self._path is None:
            return
        try:
            new = await asyncio.to_thread(load, self._path)
        except ConfigError as error:
            if isinstance(error.__cause__, OSError) and error.__cause__.errno in descriptors.SPENT:
                asyncio.get_running_loop().call_later(descriptors.RETRY_SECONDS, self._reload.set)
            self.reloads.error = str(error)
            log.error(Log.CONFIG_REFUSED, mistakes=error.mistakes, action="the running configuration goes on")
            return
        self.reloads.error = None
        _log_warnings(new)
        merged = merge(self.config, new)
        await self._adopt(merged)
        self.reloads.needs_restart = merged.later
        self.reloads.count += 1
        if merged.later:
            log.warning(Log.CONFIG_NEEDS_RESTART, settings=list(merged.later), action="restart the agent for these")
        log.info(Log.RELOADED, changed=list(merged.live))

    async def _adopt(self, merged: Merged) -> None:
        """Put the live part of a new configuration in force."""
        old, new = self.config, merged.config
        self.config = new
        configure_logging(new.log)
        self.pipeline.configure(new.engine, new.suppress, _quarantine(new))
        if (new.rules, new.bundles) != (old.rules, old.bundles):
            await self._adopt_rules(old)
        elif (new.engine, new.suppress) != (old.engine, old.suppress):
            self.pipeline.switch(self.loaded.engine, self.loaded.bundle)
        inputs, refused = await self._doors.adopt(old.input, new.input)
        if new.input != old.input:
            await self.rules.adopt(inputs, self.loaded.engine)
        if refused:
            self._cannot("; ".join(refused), input=inputs)
        if (new.uplink, new.bundles) != (old.uplink, old.bundles) or bool(new.rules.paths) != bool(old.rules.paths):
            await self.uplink.stop(UPLINK_SECONDS)
            await asyncio.wait({self._uplink_task})
            self._start_uplink()
        if new.metrics != old.metrics:
            try:
                await self._serve_metrics()
            except OSError as error:
                self._cannot(str(error), metrics=old.metrics)

    async def _adopt_rules(self, old: Config) -> None:
        async with self._switching:
            rules = Rules(self.config, self._sample)
            try:
                loaded = await rules.start()
            except (ValueError, OSError) as error:
                self._cannot(f"rules: {error}", rules=old.rules, bundles=old.bundles)
                return
            self.rules = rules
            self._switch(loaded)

    def _cannot(self, reason: str, **kept: Any) -> None:
        """A part of a new configuration does not work: the running one has ``kept`` instead."""
        self.config = dataclasses.replace(self.config, **kept)
        self.reloads.error = reason
        log.error(Log.CONFIG_REFUSED, mistakes=[reason], action="this part stays as it was")

    async def _guarded(self, loading: Awaitable[Loaded | None]) -> None:
        """Switch to what ``loading`` gives; when it fails, the reason is in the log and the status already."""
        async with self._switching:
            try:
                loaded = await loading
            except (ValueError, OSError):
                return
            if loaded is not None:
                self._switch(loaded)

    async def _install(self, data: bytes) -> Loaded:
        """Raises ValueError or OSError; while there is no descriptor it waits, as the region does not send it again."""
        while True:
            try:
                return await self.rules.install(data)
            except BundleRefused as error:
                raise ValueError(str(error)) from error
            except OSError as error:
                if error.errno not in descriptors.SPENT:
                    raise
            await asyncio.sleep(descriptors.RETRY_SECONDS)

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _quarantine(config: Config) -> Quarantine:
    return Quarantine(config.agent.quarantine_dir, config.rules.quarantine_bytes, config.rules.quarantine_after)


def _tell(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What the event loop could not do for anybody: most often a server of asyncio's that cannot accept."""
    error = context.get("exception")
    if isinstance(error, OSError) and error.errno in descriptors.SPENT:
        action = f"tried again; {descriptors.ADVICE}"
        log.error(Log.DESCRIPTORS_SPENT, reason=f"{context['message']}: {error.strerror}", action=action)
    else:
        loop.default_exception_handler(context)


def _nothing() -> None:
    """For the writer thread to do: what it was given before is done then."""
