"""The agent: the only place that makes its parts, and the order in which they start and stop.

Start: store, raw log (recovered), rules, pipeline, uplink, control socket, inputs last. Stop, in the flow's order:
inputs, what is stored is judged and committed, the uplink sends what it can, then log and store are closed; each step
within a deadline. Whatever a step leaves undone is on disk and goes on at the next start.

A part that fails with an error of its own ends the agent with that error: the raw log that cannot be written, the
store that cannot commit, the port in use. A broker that is away, a rule set that cannot be built, a file that cannot
be read do not: they are told, retried, and shown in the status.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import hashlib
import os
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from datetime import tzinfo
from typing import Any, Protocol
from zoneinfo import ZoneInfo

import orjson
import structlog

from vedette import __version__, status
from vedette.bundle.trust import MAX_BUNDLE, BundleRefused
from vedette.config import Config, FileInput, LogSettings, MqttInput, SyslogInput
from vedette.control import Control
from vedette.engine.match import Context
from vedette.inputs.listen import SyslogListener
from vedette.inputs.subscribe import MqttSubscription
from vedette.inputs.tail import FileTail
from vedette.mqtt import Message
from vedette.outbox.directory import DirectoryUplink
from vedette.outbox.queue import Outbox
from vedette.outbox.topics import blob_topic, manifest_topic
from vedette.outbox.uplink import MqttUplink
from vedette.pipeline import Pipeline
from vedette.quarantine import Quarantine
from vedette.rawlog import read
from vedette.rawlog.log import RawLog
from vedette.report import Counters, Log
from vedette.rules import Loaded, Rules
from vedette.store import Store

log = structlog.get_logger()

DRAIN_SECONDS = 5.0
"""For judging what is stored, at stop."""
UPLINK_SECONDS = 3.0
"""For sending what is in the outbox, at stop."""
SAMPLE_BYTES = 1 << 20
"""Of the newest traffic, for choosing the prefilter's literals."""
MAP_SLACK = 256 << 20
"""What the store may hold besides the outbox: the ring of receipted alerts, positions, free pages."""


class Source(Protocol):
    """An input's door, as the app starts and stops it."""

    async def stop(self) -> None: ...


def now() -> int:
    """UTC microseconds."""
    return time.time_ns() // 1000


def host_zone() -> tzinfo | None:
    """The host's time zone, of times that name none; None is UTC."""
    try:
        with open("/etc/localtime", "rb") as file:
            return ZoneInfo.from_file(file)
    except (OSError, ValueError):
        return None


def configure_logging(settings: LogSettings) -> None:
    """The agent's own log: one line per event on standard error."""
    levels = {"debug": 10, "info": 20, "warning": 30, "error": 40}
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer()
            if settings.format == "json"
            else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(levels[settings.level]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def settle_memory() -> None:
    """Take what lives as long as its plan out of the collector's sight: for 3,000 rules a full run takes 40 ms.

    What loading took and needs no more goes back to the system, which the C library (glibc) would not do by itself.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def run(config: Config) -> None:
    """Run the agent until SIGTERM or SIGINT. Raises OSError or ValueError when it cannot start or go on."""
    configure_logging(config.log)
    os.umask(0o027)  # raw logs, alerts and the store are nobody else's
    try:
        asyncio.run(Agent(config).run())
    except* (OSError, ValueError) as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None


class Agent:
    """One running agent."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.counters = Counters()
        self._started_at = now()
        self._stop = asyncio.Event()
        self._reload = asyncio.Event()
        self._switching = asyncio.Lock()
        self._fetching: str | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """See the module's text."""
        config, agent = self.config, self.config.agent
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload.set)
        agent.data_dir.mkdir(parents=True, exist_ok=True)
        writer = ThreadPoolExecutor(1, thread_name_prefix="writer")
        with Store.open(agent.store_dir, map_bytes=config.uplink.max_bytes * 2 + MAP_SLACK) as store:
            saved = store.load()
            self.raw_log = RawLog.open(agent.raw_dir, config.raw_log, self.counters, committed=saved.cursor)
            try:
                self.outbox = Outbox(store, writer, self.counters)
                self.rules = Rules(config, self._sample)
                self.loaded = await self.rules.start()
                self._say_loaded()
                self.pipeline = Pipeline(
                    agent,
                    self.loaded.engine,
                    self._contexts(),
                    self.raw_log,
                    store,
                    self.outbox,
                    self.counters,
                    writer,
                    now,
                    fsync_interval=config.raw_log.fsync_interval,
                    outbox_bytes=config.uplink.max_bytes,
                    state=config.state,
                    suppress=config.suppress,
                    quarantine=Quarantine(
                        agent.quarantine_dir, config.rules.quarantine_bytes, config.rules.quarantine_after
                    ),
                    judging=config.engine,
                )
                self.pipeline.bundle = self.pipeline.alerting.bundle = self.loaded.bundle
                await self._serve()
            finally:
                writer.shutdown(wait=True)
                self.raw_log.close()
        log.info(Log.STOPPED, agent=agent.id)

    async def _serve(self) -> None:
        config = self.config
        self.uplink = self._make_uplink()
        control = Control(config.agent.control_socket, {"status": self._status_command})
        sources: list[Source] = []
        settle_memory()
        try:
            async with asyncio.TaskGroup() as group:
                pipeline = group.create_task(self.pipeline.run())
                uplink = group.create_task(self.uplink.run())
                renew = group.create_task(self._renew_rules())
                await control.start()
                for settings in config.input:
                    source, work = self._make_source(settings)
                    sources.append(source)
                    if isinstance(source, SyslogListener):
                        await source.start()
                    group.create_task(work())
                log.info(Log.STARTED, agent=config.agent.id, version=__version__, inputs=len(sources))
                await self._stop.wait()
                log.info(Log.STOPPING, agent=config.agent.id)
                renew.cancel()
                await asyncio.gather(*(source.stop() for source in sources))
                await self.pipeline.drain(DRAIN_SECONDS)
                await self.uplink.stop(UPLINK_SECONDS)
                await self.pipeline.close()
                for task in (pipeline, uplink, *self._tasks):
                    task.cancel()
        finally:
            await control.stop()

    # --- parts

    def _contexts(self) -> dict[str, Context]:
        local = host_zone()
        return {
            item.name: Context(
                ZoneInfo(item.timezone) if item.timezone else local,
                item.logsource,
                socket.gethostname() if isinstance(item, FileInput) else None,
            )
            for item in self.config.input
        }

    def _make_source(
        self, settings: SyslogInput | FileInput | MqttInput
    ) -> tuple[Source, Callable[[], Coroutine[Any, Any, None]]]:
        """An input's door, and what runs as long as it is open."""
        match settings:
            case SyslogInput():
                listener = SyslogListener(settings, self.pipeline, self.counters)
                return listener, listener.wait
            case FileInput():
                tail = FileTail(settings, self.pipeline, self.counters, self.pipeline.positions.values())
                return tail, tail.run
            case MqttInput():
                subscription = MqttSubscription(
                    settings,
                    self.pipeline,
                    self.counters,
                    agent_id=self.config.agent.id,
                    recent=read.recent_messages(self.config.agent.raw_dir, settings.name),
                )
                return subscription, subscription.run

    def _make_uplink(self) -> MqttUplink | DirectoryUplink:
        config = self.config
        if config.uplink.type == "directory":
            return DirectoryUplink(config.uplink, config.agent, self.outbox, self.counters, self._heartbeat)
        uplink = MqttUplink(config.uplink, config.agent, self.outbox, self.counters, self._heartbeat)
        if not self.rules.directory and config.bundles.trusted_keys:
            uplink.subscribe(manifest_topic(config.agent.fleet, config.bundles.channel), self._manifest)
        return uplink

    # --- status

    def status(self) -> dict[str, Any]:
        """See ``status.collect``."""
        if isinstance(self.uplink, MqttUplink):
            uplink = {
                "type": "mqtt",
                "broker": self.config.uplink.url,
                "connected": self.uplink.client.connected.is_set(),
            }
        else:
            uplink = {"type": "directory", "folder": str(self.uplink.folder)}
        return status.collect(
            self.config, self._started_at, now(), self.counters, self.pipeline, self.raw_log, self.outbox, self.rules,
            self.loaded, uplink,
        )  # fmt: skip

    def _heartbeat(self) -> bytes:
        found = self.status()
        if found["identity_broken"]:
            log.error(Log.IDENTITY_BROKEN, reasons=found["identity_broken"])
        return orjson.dumps(found)

    async def _status_command(self) -> Any:
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

    def _say_loaded(self) -> None:
        plan = self.loaded.engine.plan
        log.info(
            Log.RULES_LOADED,
            origin=self.loaded.origin,
            running=len(plan.rules),
            correlations=len(plan.correlations),
            dead=len(status.dead_rules(self.config, plan)),
            always=len(plan.always),
            plan=plan.digest[:12],
            literals=plan.literal_digest[:12],
        )

    async def _renew_rules(self) -> None:
        """Build the rule directory again when it changed or on SIGHUP."""
        while True:
            try:
                async with asyncio.timeout(self.config.rules.poll):
                    await self._reload.wait()
                self._reload.clear()
                anew = wanted = self.rules.directory
            except TimeoutError:
                anew, wanted = False, await asyncio.to_thread(self.rules.changed)
            if wanted:
                await self._guarded(self.rules.reload(anew=anew))
            elif self.rules.due(self.pipeline.engine, time.monotonic()):
                await self._choose_literals()

    async def _choose_literals(self) -> None:
        """Judge on with literals that suit the traffic better, if there are any: the same plan, found faster."""
        async with self._switching:
            if (chosen := await self.rules.choose(self.loaded)) is not None:
                self._switch(chosen)

    async def _guarded(self, loading: Awaitable[Loaded]) -> None:
        """Switch to what ``loading`` gives; when it fails, the reason is in the log and the status already."""
        async with self._switching:
            try:
                loaded = await loading
            except (ValueError, OSError):
                return
            self._switch(loaded)

    def _manifest(self, message: Message) -> None:
        """A bundle is announced: fetch it, unless it runs already."""
        if not message.payload:
            return
        try:
            announced = orjson.loads(message.payload)
            sha256, version, size = str(announced["sha256"]), int(announced["version"]), int(announced["size"])
            if len(bytes.fromhex(sha256)) != 32:
                raise ValueError("sha256: expects 64 hex digits")
            if size > MAX_BUNDLE:
                raise ValueError(f"size: {size} is more than {MAX_BUNDLE}")
        except (ValueError, TypeError, KeyError) as error:
            self._refuse(message, f"not an announcement of a bundle: {error}")
            return
        if sha256 == self.loaded.sha256:
            self.rules.error = self.rules.bundles.refused = None  # what the region wants runs
            return
        installed = self.rules.bundles.installed()
        if installed is not None and version < installed.version:
            self._refuse(message, f"version {version} is older than the installed version {installed.version}")
            return
        topic = blob_topic(self.config.agent.fleet, self.config.bundles.channel, sha256)
        if self._fetching is not None:
            self.uplink.unsubscribe(self._fetching)  # type: ignore[union-attr]
        self._fetching = topic
        self.uplink.subscribe(topic, self._blob)  # type: ignore[union-attr]

    def _blob(self, message: Message) -> None:
        """A bundle's bytes: install them in the background."""
        if not message.payload or message.topic != self._fetching:
            return
        self.uplink.unsubscribe(message.topic)  # type: ignore[union-attr]
        self._fetching = None
        if hashlib.sha256(message.payload).hexdigest() != message.topic.rpartition("/")[2]:
            self._refuse(message, "the blob is not what its topic's digest says")
            return
        self._later(self._guarded(self._install(message.payload)))

    def _refuse(self, message: Message, reason: str) -> None:
        self.rules.error = f"{message.topic}: {reason}"
        log.error(Log.BUNDLE_REFUSED, topic=message.topic, reason=reason)

    async def _install(self, data: bytes) -> Loaded:
        try:
            return await self.rules.install(data)
        except BundleRefused as error:
            raise ValueError(str(error)) from error

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
