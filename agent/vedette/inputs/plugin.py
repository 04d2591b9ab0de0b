"""``[[input]]`` of a plugin's type: a thread of its own in which the plugin runs, and hands over events.

Delivery: ``put`` returns when the events are in the raw log, ``flush`` when they are on disk. While the agent takes
nothing ``put`` waits, so nothing piles up here.

A plugin that ends or raises before it is to end is made again after a second, then twice as long each time, up to 30 s;
after ``FAULTS`` in a row it is in quarantine until its settings change or the agent starts. One that does not end when
it is to end is left behind: its thread keeps nothing of the agent waiting, and what it hands over raises ``Stopped``.
One at which the agent has died again and again is not begun at all (``runtime/agent/deaths.py``).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import structlog

from vedette.inputs.base import Surroundings
from vedette.inputs.condition import OPENING, WORKS, Condition, failing
from vedette.inputs.framing import run_of
from vedette.inputs.settings import InputSettings
from vedette.model.counters import Log
from vedette.model.event import CHUNK_BYTES, Chunk
from vedette.model.plugins import Input, Stopped
from vedette.model.settings import Options
from vedette.system.plugins import Entry, OfPlugin, health
from vedette.system.trouble import BACKOFF, Backoff

log = structlog.get_logger()
T = TypeVar("T")

STOP_SECONDS = 3.0
"""For a plugin to end by itself."""
MAX_ORIGIN = 256
"""Characters of a peer's name."""


@dataclass(frozen=True, slots=True)
class PluginInput(OfPlugin, InputSettings):
    """An input of a plugin; ``options`` are its own settings."""

    options: Options = field(default_factory=dict)


class PluginRun:
    """One input of a plugin, and the thread in which the plugin runs."""

    def __init__(
        self, settings: PluginInput, entry: Entry, agent: Surroundings, *, backoff: tuple[float, float] = BACKOFF,
        stop_seconds: float = STOP_SECONDS,
    ) -> None:  # fmt: skip
        self._settings = settings
        self._entry = entry
        self._agent = agent
        self._health = health(entry, f"input {settings.name}")
        self._backoff = Backoff(backoff)
        self._stop_seconds = stop_seconds
        self._loop = asyncio.get_running_loop()
        self._ending = asyncio.Event()
        self._over = threading.Event()
        """The ``_ending`` of the plugin's thread."""
        self._closed = False
        self._broken: OSError | None = None
        self._last = 0
        self._began: float | None = None
        """When the plugin was begun that runs (of the loop's clock); None: it does not run."""

    @property
    def condition(self) -> Condition:
        """Without what the plugin raised, which may quote an event: ``plugins`` of the status has it. One that goes on
        longer than the pause after a fault works again, also when nothing has come."""
        began = self._began
        health = self._health
        if health.error and (began is None or self._loop.time() - began < self._backoff.longest):
            return failing(f"the plugin {health.plugin} {'is in quarantine' if health.quarantined else 'has failed'}")
        return OPENING if began is None else WORKS

    async def run(self) -> None:
        while not self._ending.is_set():
            if self._health.condemned:
                await self._rest("not run: install another version, or release it with SIGHUP, and start again")
                break
            self._began = self._loop.time()
            ended = asyncio.Event()
            threading.Thread(
                target=self._work, args=(ended,), name=f"plugin-{self._settings.name}"[:15], daemon=True
            ).start()
            stopping = asyncio.create_task(self._ending.wait())
            running = asyncio.create_task(ended.wait())
            try:
                await asyncio.wait({stopping, running}, return_when=asyncio.FIRST_COMPLETED)
                if self._ending.is_set() and not ended.is_set():
                    await asyncio.wait({running}, timeout=self._stop_seconds)
            finally:
                stopping.cancel()
                running.cancel()
                self._began = None
            if self._broken is not None:
                raise self._broken
            if self._ending.is_set():
                if not ended.is_set():
                    self._fault(f"did not end within {self._stop_seconds:g} s: left behind")
                break
            if self._health.quarantined:
                await self._rest("not run again before its settings change")
                break
            with suppress(TimeoutError):
                async with asyncio.timeout(self._backoff.failed()):
                    await self._ending.wait()
        self._closed = True

    async def _rest(self, action: str) -> None:
        log.error(Log.PLUGIN_QUARANTINED, plugin=self._entry.label, input=self._settings.name,
                  reason=self._health.error, action=action)  # fmt: skip
        await self._ending.wait()

    async def stop(self) -> None:
        self._ending.set()
        self._over.set()

    def bound(self, descriptors: int) -> None:
        pass

    # --- the plugin's thread

    def _work(self, ended: asyncio.Event) -> None:
        try:
            with self._health.at_work():
                plugin: Input = self._entry.load()(self._settings.options)
                plugin.run(self)
            error: BaseException | str = "it ended before it was to end"
        except Stopped:
            error = ""
        except BaseException as raised:  # its fault, whatever it is
            error = raised
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._ended, ended, error)

    def _ended(self, ended: asyncio.Event, error: BaseException | str) -> None:
        if error and not self._ending.is_set() and self._broken is None:
            self._fault(error)
        ended.set()

    def _fault(self, error: BaseException | str) -> None:
        reason = self._health.fault(error)
        log.error(Log.PLUGIN_FAILED, plugin=self._entry.label, input=self._settings.name, reason=reason)

    def put(self, events: Sequence[bytes], origin: str = "") -> None:
        """``model.plugins.Feed``."""
        if not isinstance(events, list | tuple) or not all(isinstance(event, bytes) for event in events):
            raise TypeError(f"put expects a list of bytes, not {events!r:.80}")
        if not isinstance(origin, str):
            raise TypeError(f"put expects a text as origin, not {origin!r:.80}")
        first = 0
        while first < len(events):
            last = first
            size = 0
            while last < len(events) and (last == first or size + len(events[last]) <= CHUNK_BYTES):
                size += len(events[last])
                last += 1
            self._on_loop(self._store(events[first:last], origin[:MAX_ORIGIN]))
            first = last

    def flush(self) -> None:
        """``model.plugins.Feed``."""
        self._on_loop(self._durable())

    def wait(self, seconds: float) -> bool:
        """``model.plugins.Feed``."""
        return self._over.wait(seconds)

    def _on_loop(self, doing: Coroutine[Any, Any, T]) -> T:
        try:
            handed = asyncio.run_coroutine_threadsafe(doing, self._loop)
        except RuntimeError:  # the loop is closed
            doing.close()
            raise Stopped from None
        try:
            return handed.result()
        except CancelledError:
            raise Stopped from None

    # --- the event loop

    async def _store(self, events: Sequence[bytes], origin: str) -> None:
        await self._agent.intake.ready()
        if self._closed or self._broken is not None:
            raise Stopped
        run = run_of([event or b"\n" for event in events])
        name, codec = self._settings.name, self._settings.codec
        chunk = Chunk(name, codec, self._agent.clock(), run.data, run.ends, (origin,), marks=run.marks)
        try:
            self._last = self._agent.deliver(chunk)
        except OSError as error:
            self._broken = error
            self._ending.set()
            self._over.set()
            raise Stopped from None
        self._health.well()
        self._backoff.reset()

    async def _durable(self) -> None:
        if self._closed:
            raise Stopped
        await self._agent.intake.durable(self._last)
