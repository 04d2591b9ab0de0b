"""The inputs that are open, and a task for each.

Opened at start, changed by a reload, closed together at the stop. An input that is closed leaves its context: events of
it may still wait for evaluation. One that is opened again goes on where its events end in the raw log, evaluated or
not: files by ``Progress.positions``, MQTT by the log's newest messages.
"""

from __future__ import annotations

import asyncio
import socket
from datetime import tzinfo
from functools import partial
from typing import Protocol
from zoneinfo import ZoneInfo

import structlog

from vedette.engine.match import Context
from vedette.inputs.base import InputSettings, Running, Surroundings
from vedette.model.counters import Log
from vedette.model.event import LogSource
from vedette.rawlog import read
from vedette.runtime import shares
from vedette.runtime.context import RunContext
from vedette.runtime.ingest import Ingest
from vedette.system import descriptors

log = structlog.get_logger()


class Inputs:
    def __init__(self, context: RunContext, ingest: Ingest, group: asyncio.TaskGroup) -> None:
        """Their tasks run in ``group``; the context's ``input_contexts`` follow the inputs."""
        self._context, self._group = context, group
        self._given = Surroundings(
            ingest,
            context.counters,
            context.clock,
            context.config.agent.id,
            positions=lambda: context.progress.positions.values(),
            recent=partial(read.recent_messages, context.config.agent.raw_dir),
        )
        self._open: dict[str, tuple[Running, asyncio.Task[None]]] = {}
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

    async def open(self, settings: InputSettings) -> None:
        """Raises OSError when it cannot be opened."""
        input_context = context_of(settings)
        running = await settings.open(self._given, self._shares.of(settings.name))
        self._context.input_contexts[settings.name] = input_context
        self._open[settings.name] = running, self._group.create_task(running.run())

    async def close(self, name: str) -> None:
        running, task = self._open.pop(name)
        await running.stop()
        await asyncio.wait({task})

    async def close_all(self) -> None:
        await asyncio.gather(*(running.stop() for running, _ in self._open.values()))

    async def adopt(
        self, before: tuple[InputSettings, ...], after: tuple[InputSettings, ...]
    ) -> tuple[tuple[InputSettings, ...], list[str]]:
        """Close what is gone or changed, open what is new or changed; what cannot be opened is as it was.

        Returns the inputs that are open now, and why others are not. Raises OSError when an input that was open cannot
        be opened again.
        """
        old, new = ({item.name: item for item in items} for items in (before, after))
        changed = [name for name in {**old, **new} if old.get(name) != new.get(name)]
        refused: list[str] = []
        now = dict(new)
        self.share(after)
        for name in changed:
            if name in old:
                await self.close(name)
        for name in changed:
            if name not in new:
                continue
            try:
                await self._open_in_time(new[name])
            except OSError as error:
                refused.append(str(error))
                del now[name]
                if name in old:
                    await self._open_in_time(old[name])
                    now[name] = old[name]
        if refused:
            self.share(tuple(now.values()))
        return tuple(now.values()), refused

    async def _open_in_time(self, settings: InputSettings) -> None:
        """``open``, retried while no file descriptor is left."""
        logged = False
        while True:
            try:
                await self.open(settings)
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
