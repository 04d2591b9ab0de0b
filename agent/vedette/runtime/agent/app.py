"""The agent: the only place that makes its parts, and the order in which they start, change and stop.

Start: store, raw log (recovered), rules, pipeline, uplink, control socket, inputs last; in a data folder that is a copy
the log is brought to its end before (``copied.py``). Stop, in the flow's order (``shutdown.py``): inputs, what is
stored is evaluated and committed, the uplink sends what it can, then log and store are closed; each step within its
share of a deadline. Whatever a step leaves undone is on disk and continues at the next start.

SIGHUP reads the configuration again (``reload.py``), builds the rules again, and releases what is in quarantine. An
invalid configuration is logged with its mistakes, and the running one stays in force.

While it runs the agent checks its own account (``pipeline/account.py``) and pings systemd: a ping goes out only after
the event loop has come round and the writer thread has done what was queued before it.

A part that fails with an error of its own ends the agent with that error: the raw log that cannot be written, the
store that cannot commit. A broker that is away, a port in use, a rule set that cannot be built, a file that cannot be
read do not: they are logged, retried, and shown in the status.

What only some configurations have is opened by ``optional.py``; what a fleet has, here, with ``[fleet] root``.
"""

from __future__ import annotations

import asyncio
import codecs
import faulthandler
import gc
import os
import signal
import sys
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import structlog

from vedette.config.read import ConfigError
from vedette.config.settings import Config
from vedette.decode.formats import base as formats
from vedette.delivery import uplinks
from vedette.delivery.queue import Source
from vedette.engine.artifact import uncollected
from vedette.model.counters import Counters, Log
from vedette.rawlog.checkpoint import RestartPoint
from vedette.rawlog.log import RawLog
from vedette.rawlog.machine import bind
from vedette.runtime.agent import health, optional, status
from vedette.runtime.agent.commands import Commands
from vedette.runtime.agent.control import Control
from vedette.runtime.agent.heartbeat import heartbeat
from vedette.runtime.agent.logs import configure_logging, report_suppressed
from vedette.runtime.agent.reload import Merged, Reloads, merge
from vedette.runtime.agent.shutdown import Shutdown
from vedette.runtime.options.inputs import Inputs, context_of
from vedette.runtime.pipeline.account import CHECK_SECONDS, Auditor
from vedette.runtime.pipeline.context import RunContext
from vedette.runtime.pipeline.lives import LASTING, Lives, Reported, UnderWay, record
from vedette.runtime.pipeline.pipeline import Pipeline
from vedette.runtime.rulesets.active import POLL_SECONDS, ActiveRules, newest_lines
from vedette.runtime.rulesets.sets import RuleSets
from vedette.store.rebuild import open_store
from vedette.system import descriptors, memory
from vedette.system.durable import make_folders
from vedette.system.memory import resident
from vedette.system.notify import Notifier
from vedette.system.wallclock import WallClock
from vedette.version import __version__

if TYPE_CHECKING:
    from vedette.archive.index import Index
    from vedette.delivery.uplink import MqttUplink
    from vedette.runtime.agent.exporter import Exporter
    from vedette.runtime.member.fleet import Fleet
    from vedette.runtime.member.membership import Membership
    from vedette.runtime.member.requests import Requests
    from vedette.runtime.options.archiving import Archiving
    from vedette.runtime.options.response import Response
    from vedette.runtime.options.sinks import Sinks
    from vedette.runtime.rulesets.arrivals import Arrivals
    from vedette.runtime.rulesets.lookups import Lookups
    from vedette.sinks.base import SinkSettings

log = structlog.get_logger()

INPUTS_SHARE, EVALUATION_SHARE = 0.3, 0.6
"""Of ``agent.stop_within``, until when inputs are closed and until when what is stored is evaluated; the uplink has the
rest."""
UPLINK_SECONDS = 3.0
"""For sending what is in the outbox before another uplink takes its place."""
SWITCH_SECONDS = 0.0005
"""For which a thread keeps the event loop waiting, each time that the loop has let go of the interpreter."""
FREE_SECONDS = 60.0
"""Between two times at which free memory is given back."""
MAP_SLACK = 9 << 28
"""256 MiB for the ring, positions and free pages, and twice the rows that may wait for sinks (``config/read.py``)."""


def run(config: Config, path: Path | None = None) -> None:
    """Run the agent until SIGTERM or SIGINT. ``path``: the file that ``config`` is from, read again on SIGHUP.

    Raises OSError or ValueError when it cannot start or go on.
    """
    configure_logging(config.log)
    descriptors.raise_limit()
    descriptors.SPARE.keep()
    formats.load = descriptors.importing
    resident()  # whose file stays open
    codecs.lookup("idna")  # of names to connect to: a first look-up without a descriptor would fail for good
    memory.settle()
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


class Agent:
    def __init__(self, config: Config, path: Path | None = None) -> None:
        self._started_with, self._path = config, path
        self._reloads = Reloads()
        self._notifier = Notifier.from_environment()
        self._shutdown = Shutdown()
        self._hangup = asyncio.Event()
        self._metrics: Exporter | None = None
        self._arrivals: list[Arrivals] = []
        self.membership: Membership | None = None
        self._membership_task: asyncio.Task[None] | None = None
        self.fleet: Fleet | None = None
        self.requests: Requests | None = None
        self.response: Response | None = None
        self._sinks: Sinks | None = None
        self._sinks_task: asyncio.Task[None] | None = None
        self.lookups: Lookups | None = None
        self._lookups_task: asyncio.Task[None] | None = None
        self._archived: Index | None = None
        self._archiving: Archiving | None = None
        self._changing_config = asyncio.Lock()
        self._reloading = asyncio.Lock()

    async def run(self) -> None:
        config, counters, clock = self._started_with, Counters(), WallClock()
        agent, loop = config.agent, asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._shutdown.ask)
        loop.add_signal_handler(signal.SIGHUP, self._hangup.set)
        make_folders(agent.data_dir)
        if not await optional.settled(config, self._shutdown.asked):
            return
        self._reported = Reported(agent.shown_file)
        last, map_bytes = self._reported.last, config.uplink.max_bytes * 4 + MAP_SLACK
        store = open_store(agent.store_dir, agent.raw_dir, map_bytes=map_bytes, clock=clock, reported=last)
        with store:
            self._lives = Lives(agent.lives_file)
            restart = RestartPoint(counters)
            self._archived = optional.archived(config)
            raw_log = RawLog.open(
                agent.raw_dir, config.raw_log, counters, committed=store.load().cursor, certain=not store.uncertain,
                clock=clock, describe=restart.describe, keeper=self._archived,
            )  # fmt: skip
            with suppress(OSError):  # a disk that takes nothing does not prevent the start
                bind(agent.raw_dir)
            self._least = {} if store.uncertain or last is None else last.get("memory", {})
            if store.uncertain:
                store.settle()
            clock.begin(raw_log.newest)
            store.sink_bytes = max(store.sink_bytes, config.uplink.max_bytes)
            self.context = RunContext(config, raw_log, store, counters, clock, restart, last)
            try:
                self._under_way = UnderWay(self.context, self._lives.crashed)
                await self._load_rules()
                self._auditor = Auditor(self.pipeline)
                try:
                    await self._serve()
                finally:
                    self.pipeline.close()
                    self._under_way.box.close()
            finally:
                self.context.close()
            account = store.account()
        self._reported.close()
        self._lives.stopped()
        self._shutdown.done()
        log.info(Log.STOPPED, agent=agent.id, backlog=sum(self.pipeline.backlog.values()), in_outbox=account.entries)
        self._notifier.close()

    async def _load_rules(self) -> None:
        """Set up ``pipeline`` and ``active``, which alone keep the ruleset: a replaced one gives its memory back."""
        context = self.context
        optional.adopt_decoders(context.config, self._under_way)
        sets = RuleSets(context.config, lambda: newest_lines(context.raw_log))
        with uncollected():
            loaded = await sets.start()
            context.input_contexts.update((settings.name, context_of(settings)) for settings in context.config.input)
            self.pipeline = Pipeline(context, loaded.engine, loaded.credit, self._under_way)
            self.active = ActiveRules(self.pipeline, sets, loaded)
            self._commands = Commands(self, self._reload_command)
            await self.active.isolate()
            gc.freeze()  # as ``active.freeze``; a start leaves nothing worth the 40 ms of a collection

    async def _serve(self) -> None:
        config = self.context.config
        try:
            await self._follow_fleet()
        except (ValueError, OSError) as error:
            self.context.config = replace(config, fleet=replace(config.fleet, root=None))
            self._reloads.error = f"fleet.root: {error}"
            action = "the agent runs without its fleet: put the file right, then reload"
            log.error(Log.FLEET_REFUSED, kind="root", reason=str(error), action=action)
        control = Control(config.agent.control_socket, self._commands.by_name)
        memory.trim()
        try:
            async with asyncio.TaskGroup() as self._group:
                group = self._group
                self._inputs = Inputs(self.context, self.pipeline.ingest, group, self._path)
                asyncio.get_running_loop().set_exception_handler(partial(_log_loop_error, self._inputs))
                await self._adopt_sinks(config)
                tasks = [group.create_task(self.pipeline.run())]
                self._start_uplink()
                self._start_lookups()
                reloading = group.create_task(self._reload())
                tasks.append(group.create_task(self._maintain()))
                self._changing = [reloading]
                self._run_fleet()
                self._archiving = optional.archiving(self.context, self._archived)
                if self._notifier.interval:
                    tasks.append(group.create_task(self._ping()))
                await control.start()
                await self._serve_metrics()
                await self._inputs.start(config.input)
                asyncio.get_running_loop().call_later(LASTING, self._under_way.last)
                log.info(
                    Log.STARTED, agent=config.agent.id, version=__version__, inputs=len(self._inputs),
                    descriptors=descriptors.limit(),
                )  # fmt: skip
                self._notifier.ready(f"{len(self._inputs)} inputs open")
                await self._shutdown.asked.wait()
                log.info(Log.STOPPING, agent=config.agent.id)
                self._notifier.stopping()
                self._shutdown.begin(self.context.config.agent.stop_within)
                for change in self._changing:
                    change.cancel()
                await self._stop_in_order()
                for task in (*tasks, self._uplink_task, self._sinks_task, self._lookups_task, self._membership_task):
                    if task is not None:
                        task.cancel()
                self.active.stop()
        finally:
            if self._archiving is not None:
                await asyncio.to_thread(self._archiving.stop)
            await control.stop()
            if self._metrics is not None:
                await self._metrics.stop()

    async def _stop_in_order(self) -> None:
        stop = self._shutdown
        await stop.stage("inputs", self._inputs.close_all(), INPUTS_SHARE)
        await stop.stage("evaluation", self.pipeline.drain(stop.left(EVALUATION_SHARE)), EVALUATION_SHARE + 0.05)
        await stop.stage("uplink", self._stop_delivery(stop.left(0.9)), 0.95)
        await self.pipeline.checkpointer.commit()  # what the uplink sent is in the account
        self._auditor.check()

    async def _stop_delivery(self, seconds: float) -> None:
        parts = (self.uplink, self._sinks)
        await asyncio.gather(*(part.stop(seconds) for part in parts if part is not None))

    async def _ping(self) -> None:
        """Tell the watchdog that the loop comes round and the writer thread is not stuck."""
        while True:
            await asyncio.get_running_loop().run_in_executor(self.context.writer, lambda: None)
            self._notifier.ping()
            await asyncio.sleep(self._notifier.interval)

    async def _maintain(self) -> None:
        trimmed = time.monotonic()
        while True:
            if time.monotonic() - trimmed >= FREE_SECONDS:  # what groups that come and go leave between those that stay
                await asyncio.to_thread(memory.trim)
                trimmed = time.monotonic()
            self._auditor.check()
            report_suppressed()
            backlog, evaluated = sum(self.pipeline.backlog.values()), sum(self.context.counters.judged.values())
            depth = self.context.outbox.depth
            self._notifier.status(f"{evaluated} events evaluated, {backlog} waiting, {depth} alerts in the outbox")
            await asyncio.sleep(CHECK_SECONDS)

    # --- parts

    async def _follow_fleet(self) -> None:
        """Read what the fleet has signed so far; nothing without ``[fleet] root``."""
        if self.context.config.fleet.root is not None and self._path is not None:
            from vedette.runtime.member.fleet import Fleet

            fleet = await asyncio.to_thread(
                Fleet,
                self.context,
                self.active,
                self._path,
                reload=self._reload_config,
                unwell=self._unwell,
                lookups=self._followed_lookups,
                waiting=self._waiting,
            )
            from vedette.fleet.job import Services
            from vedette.runtime.member.requests import Requests

            services = Services(lambda: self.context.config, self._commands.asked, self._commands.declared)
            self.requests = await asyncio.to_thread(Requests, self.context, fleet, services)
            self.fleet = fleet

    async def _join_fleet(self) -> None:
        """The first root of trust came with the enrolment."""
        if self.lookups is None:  # which the fleet tells of from its first moment
            self._start_lookups()
        try:
            await self._follow_fleet()
        except (ValueError, OSError) as error:
            self._keep(f"fleet.root: {error}", fleet=replace(self.context.config.fleet, root=None))
        self._run_fleet()
        self._attach_fleet()

    def _run_fleet(self) -> None:
        for part in (self.fleet, self.requests):
            if part is not None:
                self._changing.append(self._group.create_task(part.run()))

    def _attach_fleet(self) -> None:
        if self._mqtt is not None:
            for part in (self.fleet, self.requests):
                if part is not None:
                    part.attach(self._mqtt)

    def _start_uplink(self) -> None:
        context, config = self.context, self.context.config
        source = Source(config.uplink, config.agent, context.outbox, context.counters, self._heartbeat, context.clock)
        self.uplink = uplinks.opened(source)
        self._mqtt = cast("MqttUplink", self.uplink) if config.uplink.type == "mqtt" else None
        if config.uplink.warning:
            log.warning(Log.RECEIPTS_UNAUTHENTICATED, broker=config.uplink.broker.url, reason=config.uplink.warning)
        self._attach_fleet()
        self._arrivals = optional.arrivals(config, self.active, self._mqtt, self._governed)
        if self.membership is None:
            self.membership = optional.membership(config, self._mqtt, self._hangup.set)
            if self.membership is not None:
                self._membership_task = self._group.create_task(self.membership.run())
        if self.membership is not None:
            self.membership.attach(self._mqtt)
        self._uplink_task = self._group.create_task(self.uplink.run())

    def _start_lookups(self) -> None:
        """Follow the lookups of the configuration in force, over the uplink in force."""
        self.lookups = optional.lookups(self.context, self.active, self._lookups_replaced, self._mqtt)
        self._lookups_task = None if self.lookups is None else self._group.create_task(self.lookups.run())

    def _followed_lookups(self) -> Lookups:
        """Return those that a fleet may name: with a fleet they are always followed."""
        assert self.lookups is not None
        return self.lookups

    def _lookups_replaced(self) -> None:
        """A bundle that was refused for want of a lookup may be good now."""
        if self.active.sets.error:
            for arrivals in self._arrivals:
                arrivals.subscribe()

    def _governed(self, ruleset: str) -> bool:
        """Whether the fleet's signed documents say which bundle a rule set runs, and no announcement does."""
        return self.fleet is not None and self.fleet.governs(ruleset)

    def _waiting(self) -> bool:
        """Whether events wait to be evaluated."""
        return any(self.pipeline.backlog.values())

    def _unwell(self) -> str:
        """Why the agent is not healthy and connected to its region; empty: it is."""
        if self._reloads.error:
            return f"its configuration is refused: {self._reloads.error}"
        if self.context.health.degraded:
            return "a disk is failing"
        if self.uplink.state().get("connected") is False:
            return "the agent is not connected to its region"
        return ""

    def _with_response(self, config: Config) -> tuple[SinkSettings, ...]:
        """The sinks, and what takes alerts to the firewall where that is enabled."""

        def opened(part: Response) -> None:
            self.response = part

        return (*config.sink, *optional.response(self.context, self.pipeline.checkpointer, opened))

    async def _adopt_sinks(self, config: Config) -> None:
        """Deliver to the sinks of ``config`` from now on, and forget the places of others. Raises OSError, with nothing
        changed."""
        sinks = self._with_response(config)
        if self._sinks is None:
            if not (sinks or self.context.store.places or self.context.store.get("rows")):
                return
            from vedette.runtime.options.sinks import Sinks

            self._sinks = Sinks(self.context, self._group)
            self._sinks_task = self._group.create_task(self._sinks.run())
        await self._sinks.adopt(sinks)

    async def _serve_metrics(self) -> None:
        """Raises OSError when the address is unavailable."""
        if self._metrics is not None:
            await self._metrics.stop()
            self._metrics = None
        self._metrics = await optional.exporter(self.context.config, self._commands.status)

    # --- status

    def status(self) -> dict[str, Any]:
        lookups = {"incoming": [], "refused": []} if self.lookups is None else self.lookups.status()
        answer = status.collect(self.pipeline, self.active, self.uplink.state(), self._reloads, lookups)
        answer["sinks"] = [] if self._sinks is None else self._sinks.state()
        answer["row_sinks"] = [] if self._sinks is None else self._sinks.state(rows=True)
        answer["plugins"] = optional.plugin_status(self.context.config)
        answer["response"] = None if self.response is None else self.response.state()
        if self.membership is not None:
            answer["membership"] = self.membership.state()
        answer["process"] = {**self._lives.status(), "cpu_seconds": round(time.process_time(), 2)}
        for name, least in self._least.items():
            answer["correlation_state"][name] = max(answer["correlation_state"][name], least)
        if self._archiving is not None:
            answer["archive"] = self._archiving.status()
        if self.fleet is not None:
            answer["actual"] = self.fleet.actual()
        answer["input_states"] = self._inputs.states(self.context.config.input)
        answer["problems"] = health.problems(answer)
        account = self.context.outbox.account()
        self._reported.keep(record(account.log_id, account.commits, answer))
        return answer

    def _heartbeat(self) -> bytes:
        answer = self.status()
        if self.context.config.redact:
            from vedette.runtime.agent import outward

            answer = outward.status(answer)
        return heartbeat(answer)

    # --- reloads

    async def _reload_command(self) -> dict[str, Any]:
        """As SIGHUP does; to its end, even if the caller goes away meanwhile."""
        await asyncio.shield(self._group.create_task(self._reload_once()))
        return {"reloads": self._reloads.reloads, "error": self._reloads.error, "restart": self._reloads.needs_restart}

    async def _reload(self) -> None:
        """Reload on SIGHUP or command; check the rules now and then."""
        while True:
            try:
                async with asyncio.timeout(POLL_SECONDS):
                    await self._hangup.wait()
            except TimeoutError:
                await self.active.check()
                continue
            self._hangup.clear()
            await self._reload_once()

    async def _reload_once(self) -> None:
        async with self._reloading:
            self._notifier.reloading()
            sets = self.active.sets
            await self._reload_config()
            self.pipeline.release()
            if self.pipeline.strict is not None:
                await self.pipeline.strict.release()
            if self.active.sets is sets:
                await self.active.again()
            self._notifier.ready("reloaded")

    async def _reload_config(self) -> str | None:
        """Read the configuration again, with the fleet's overlay over it. Returns why it, or a part of it, is refused:
        that changes nothing."""
        async with self._changing_config:
            await self._change_config()
            return self._reloads.error

    async def _change_config(self) -> None:
        if self._path is None:
            return
        try:
            new = await asyncio.to_thread(optional.configuration, self._path)
        except ConfigError as error:
            if isinstance(error.__cause__, OSError) and error.__cause__.errno in descriptors.SPENT:
                asyncio.get_running_loop().call_later(descriptors.RETRY_SECONDS, self._hangup.set)
            self._reloads.error = str(error)
            log.error(Log.CONFIG_REFUSED, mistakes=error.mistakes, action="the running configuration stays in force")
            return
        self._reloads.error = None
        merged = merge(self.context.config, new)
        await self._adopt(merged)
        self._reloads.needs_restart = list(merged.later)
        self._reloads.reloads += 1
        if merged.later:
            log.warning(Log.CONFIG_NEEDS_RESTART, settings=list(merged.later), action="restart the agent for these")
        log.info(Log.RELOADED, changed=list(merged.live))

    async def _adopt(self, merged: Merged) -> None:
        """Put the live part of a new configuration in force."""
        old, new, active = self.context.config, merged.config, self.active
        self.context.config = new
        configure_logging(new.log)
        if new.rulesets != old.rulesets or new.bundles != old.bundles:
            try:
                await active.replace(new)
            except (ValueError, OSError) as error:
                self._keep(f"rules: {error}", rules=old.rules, bundles=old.bundles, ruleset=old.ruleset)
        elif _of_alerts(new) != _of_alerts(old):
            active.switch()
        strict, begun_with = self.pipeline.strict, (*_of_alerts(old), old.input, old.log, old.rules)
        if strict is not None and (*_of_alerts(new), new.input, new.log, new.rules) != begun_with:
            strict.restart()
        inputs, refused = await self._inputs.adopt(old.input, new.input)
        if new.input != old.input:
            await active.sets.adopt(inputs, active.loaded.engine)
        if refused:
            self._keep("; ".join(refused), input=inputs)
        if self.fleet is None and new.fleet.root is not None:
            await self._join_fleet()
        if (new.uplink, new.bundles, new.rulesets) != (old.uplink, old.bundles, old.rulesets):
            await self.uplink.stop(UPLINK_SECONDS)
            await asyncio.wait({self._uplink_task})
            self._start_uplink()
            await self._restart_lookups()
        elif new.lookups != old.lookups:
            await self._restart_lookups()
        if (new.sink, new.response) != (old.sink, old.response) or self.response is not None:
            same = new.response.live and new.response.table == old.response.table
            if self.response is not None and self.response.settings.live and not same:
                await self.response.withdraw()
            try:
                await self._adopt_sinks(new)
            except OSError as error:
                self._keep(f"sink: {error}", sink=old.sink, response=old.response)
            if not new.response.enabled:
                self.response = None
        if new.metrics != old.metrics:
            try:
                await self._serve_metrics()
            except OSError as error:
                self._keep(str(error), metrics=old.metrics)

    async def _restart_lookups(self) -> None:
        if self._lookups_task is not None:
            self._lookups_task.cancel()
            await asyncio.wait({self._lookups_task})
        self._start_lookups()

    def _keep(self, reason: str, **settings: Any) -> None:
        """A part of a new configuration does not work: these settings of the old one stay in force."""
        self.context.config = replace(self.context.config, **settings)
        self._reloads.error = reason
        log.error(Log.CONFIG_REFUSED, mistakes=[reason], action="these settings stay as they were")


def _of_alerts(config: Config) -> tuple[object, ...]:
    """The settings with which evaluation makes alerts."""
    agent = config.agent
    return config.suppress, config.enrich, config.response, config.redact, config.sink, agent.redact_key


def _log_loop_error(inputs: Inputs, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log errors of the event loop itself: most often a server of asyncio's that cannot accept. A fault of one of
    ``inputs`` makes that failing."""
    error = context.get("exception")
    if isinstance(error, OSError) and error.errno in descriptors.SPENT:
        action = f"retrying; {descriptors.ADVICE}"
        log.error(Log.DESCRIPTORS_SPENT, reason=f"{context['message']}: {error.strerror}", action=action)
    elif not inputs.blamed(error):
        loop.default_exception_handler(context)
