"""The inputs that are open, a task for each, and whether each that is configured works.

Opened at start, changed by a reload, closed together at the stop. One that cannot be opened keeps no other waiting: it
is tried again until it is open, and ``states`` says why it is not. An input that is closed leaves its context: events
of it may still wait for evaluation. One that is opened again goes on where its events end in the raw log, evaluated or
not: files by ``Progress.positions``, MQTT by the log's newest messages.
"""

from __future__ import annotations

import asyncio
import socket
from datetime import tzinfo
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from zoneinfo import ZoneInfo

import structlog

from vedette.config.private import is_private
from vedette.engine.match import Context
from vedette.inputs.base import Running, Surroundings
from vedette.inputs.condition import OPENING, WORKS, Condition, failing, waiting
from vedette.inputs.opening import opened
from vedette.inputs.settings import InputSettings
from vedette.model.counters import Log
from vedette.model.event import LogSource
from vedette.rawlog import read
from vedette.runtime import shares
from vedette.runtime.context import RunContext
from vedette.runtime.ingest import Ingest
from vedette.system import descriptors
from vedette.system.backoff import Backoff

log = structlog.get_logger()


class Inputs:
    def __init__(self, context: RunContext, ingest: Ingest, group: asyncio.TaskGroup, file: Path | None) -> None:
        """Their tasks run in ``group``; the context's ``input_contexts`` follow the inputs. ``file``: of the
        configuration."""
        self._context, self._ingest, self._group = context, ingest, group
        self._given = Surroundings(
            ingest,
            context.counters,
            context.clock,
            context.config.agent.id,
            positions=lambda: context.progress.positions.values(),
            private=lambda descriptor: is_private(context.config, file, descriptor),
            recent=partial(read.recent_messages, context.config.agent.raw_dir),
        )
        self._open: dict[str, tuple[Running, asyncio.Task[None]]] = {}
        self._refused: dict[str, tuple[InputSettings, str]] = {}
        """Those that could not be opened, and why."""
        self._retrying: asyncio.Task[None] | None = None
        self._changing = asyncio.Lock()
        self._shares = shares.share(descriptors.limit(), ())

    def __len__(self) -> int:
        return len(self._open)

    def share(self, inputs: tuple[InputSettings, ...]) -> None:
        """Give each of ``inputs`` its part of the descriptors, those that are open among them."""
        self._shares = shares.share(descriptors.limit(), inputs)
        if remarks := shares.remarks(self._shares, inputs):
            log.warning(Log.DESCRIPTORS_FEW, limit=self._shares.limit, reason="; ".join(remarks))
        for name, (running, _) in self._open.items():
            running.bound(self._shares.of(name))

    def states(self, inputs: tuple[InputSettings, ...]) -> list[dict[str, Any]]:
        """Of each of ``inputs``, as status, heartbeat and metrics have it; JSON-able."""
        conditions = {settings.name: self._condition(settings.name) for settings in inputs}
        return [{"name": name, "state": state, "reason": reason} for name, (state, reason) in conditions.items()]

    def _condition(self, name: str) -> Condition:
        if name in self._refused:
            return failing(self._refused[name][1])
        if name not in self._open:
            return OPENING
        condition = self._open[name][0].condition
        paused = condition == WORKS and not self._ingest.accepting()
        return waiting("the raw log takes nothing at the moment") if paused else condition

    async def start(self, inputs: tuple[InputSettings, ...]) -> None:
        """Open all that can be opened."""
        self.share(inputs)
        async with self._changing:
            for settings in inputs:
                await self._try(settings)

    async def _try(self, settings: InputSettings) -> None:
        """Open it, or have it tried again."""
        name = settings.name
        try:
            await self._open_one(settings)
        except OSError as error:
            reason = (error.strerror or str(error)).removeprefix(f"input {name!r}: ")
            if (before := self._refused.get(name)) is None or before[1] != reason:
                log.error(Log.CONFIG_REFUSED, mistakes=[f"input {name!r}: {reason}"], action="the input is tried again")
            self._refused[name] = settings, reason
            if self._retrying is None:
                self._retrying = self._group.create_task(self._retry())

    async def _retry(self) -> None:
        backoff = Backoff()
        while self._refused:
            await asyncio.sleep(backoff.failed())
            async with self._changing:
                for settings, _ in [*self._refused.values()]:
                    await self._try(settings)
        self._retrying = None

    async def _open_one(self, settings: InputSettings) -> None:
        """Raises OSError when it cannot be opened."""
        input_context = context_of(settings)
        running = await opened(settings, self._given, self._shares.of(settings.name))
        self._refused.pop(settings.name, None)
        self._context.input_contexts[settings.name] = input_context
        self._open[settings.name] = running, self._group.create_task(running.run())

    async def _close(self, name: str) -> None:
        if self._refused.pop(name, None) is None:
            running, task = self._open.pop(name)
            await running.stop()
            await asyncio.wait({task})

    async def close_all(self) -> None:
        if self._retrying is not None:
            self._retrying.cancel()
            await asyncio.wait({self._retrying})
        await asyncio.gather(*(running.stop() for running, _ in self._open.values()))

    async def adopt(
        self, before: tuple[InputSettings, ...], after: tuple[InputSettings, ...]
    ) -> tuple[tuple[InputSettings, ...], list[str]]:
        """Close what is gone or changed, open what is new or changed; what cannot be opened is as it was.

        Returns the inputs that are in force now, and why others are not.
        """
        async with self._changing:
            return await self._adopt(before, after)

    async def _adopt(
        self, before: tuple[InputSettings, ...], after: tuple[InputSettings, ...]
    ) -> tuple[tuple[InputSettings, ...], list[str]]:
        old, new = ({item.name: item for item in items} for items in (before, after))
        changed = [name for name in {**old, **new} if old.get(name) != new.get(name)]
        refused: list[str] = []
        now = dict(new)
        self.share(after)
        for name in changed:
            if name in old:
                await self._close(name)
        for name in changed:
            if name not in new:
                continue
            try:
                await self._open_in_time(new[name])
            except OSError as error:
                refused.append(str(error))
                del now[name]
                if name in old:
                    await self._try(old[name])
                    now[name] = old[name]
        if refused:
            self.share(tuple(now.values()))
        return tuple(now.values()), refused

    async def _open_in_time(self, settings: InputSettings) -> None:
        """``_open_one``, retried while no file descriptor is left."""
        logged = False
        while True:
            try:
                await self._open_one(settings)
                return
            except OSError as error:
                if error.errno not in descriptors.SPENT:
                    raise
                if not logged:
                    logged = True
                    action = f"retrying; {descriptors.ADVICE}"
                    log.error(Log.DESCRIPTORS_SPENT, input=settings.name, reason=str(error), action=action)
                await asyncio.sleep(descriptors.RETRY_SECONDS)


class Described(Protocol):
    """What an input's settings say about its events."""

    @property
    def timezone(self) -> str: ...
    @property
    def logsource(self) -> LogSource: ...
    @property
    def local(self) -> bool: ...


def context_of(item: Described) -> Context:
    return Context(
        ZoneInfo(item.timezone) if item.timezone else host_zone(),
        item.logsource,
        socket.gethostname() if item.local else None,
    )


def host_zone() -> tzinfo | None:
    """The host's time zone, of times that name none; None is UTC. Raises OSError when no descriptor is left."""
    try:
        with open("/etc/localtime", "rb") as file:
            return ZoneInfo.from_file(file)
    except ValueError:
        return None
    except OSError as error:
        if error.errno in descriptors.SPENT:  # UTC instead would be wrong, and nobody would know
            raise
        return None
