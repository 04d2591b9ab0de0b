"""The inputs that are open: each a door of its own kind, and a task for as long as it is open.

Opened at start, changed by a reload, closed together at the stop. An input that is closed leaves its context: events of
it may still wait to be judged. One that is opened again goes on where its events end in the raw log, judged or not:
files by ``Pipeline.positions``, MQTT by the log's newest messages.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from datetime import tzinfo
from pathlib import Path
from typing import Any, Protocol
from zoneinfo import ZoneInfo

from vedette.config import FileInput, Input, MqttInput, SyslogInput
from vedette.engine.match import Context
from vedette.inputs.listen import SyslogListener
from vedette.inputs.subscribe import MqttSubscription
from vedette.inputs.tail import FileTail
from vedette.pipeline import Pipeline
from vedette.rawlog import read
from vedette.report import Counters


class Source(Protocol):
    """An input's door, as it is stopped."""

    async def stop(self) -> None: ...


class Doors:
    """See the module's text."""

    def __init__(
        self, pipeline: Pipeline, counters: Counters, clock: Callable[[], int], contexts: dict[str, Context],
        group: asyncio.TaskGroup, agent_id: str, raw_dir: Path,
    ) -> None:  # fmt: skip
        """``contexts`` is the pipeline's, and is kept as the inputs are; their tasks run in ``group``."""
        self._pipeline, self._counters, self._clock, self._contexts = pipeline, counters, clock, contexts
        self._group, self._agent_id, self._raw_dir = group, agent_id, raw_dir
        self._open: dict[str, tuple[Source, asyncio.Task[None]]] = {}

    def __len__(self) -> int:
        return len(self._open)

    async def open(self, settings: Input) -> None:
        """Raises OSError when it cannot be opened."""
        source: Source
        work: Callable[[], Coroutine[Any, Any, None]]
        pipeline, counters, clock = self._pipeline, self._counters, self._clock
        match settings:
            case SyslogInput():
                source = listener = SyslogListener(settings, pipeline, counters, clock)
                await listener.start()
                work = listener.wait
            case FileInput():
                source = tail = FileTail(settings, pipeline, counters, pipeline.positions.values(), clock)
                work = tail.run
            case MqttInput():
                recent = await asyncio.to_thread(lambda: list(read.recent_messages(self._raw_dir, settings.name)))
                source = subscription = MqttSubscription(
                    settings, pipeline, counters, agent_id=self._agent_id, recent=recent, clock=clock
                )
                work = subscription.run
        self._contexts[settings.name] = context(settings)
        self._open[settings.name] = source, self._group.create_task(work())

    async def close(self, name: str) -> None:
        source, task = self._open.pop(name)
        await source.stop()
        await asyncio.wait({task})

    async def close_all(self) -> None:
        await asyncio.gather(*(source.stop() for source, _ in self._open.values()))

    async def adopt(self, before: tuple[Input, ...], after: tuple[Input, ...]) -> tuple[tuple[Input, ...], list[str]]:
        """Close what is gone or changed, open what is new or changed; what cannot be opened is as it was.

        Returns the inputs that are open now, and why others are not. Raises OSError when an input that was open cannot
        be opened again.
        """
        old, new = ({item.name: item for item in items} for items in (before, after))
        changed = [name for name in {**old, **new} if old.get(name) != new.get(name)]
        refused: list[str] = []
        now = dict(new)
        for name in changed:
            if name in old:
                await self.close(name)
        for name in changed:
            if name not in new:
                continue
            try:
                await self.open(new[name])
            except OSError as error:
                refused.append(str(error))
                del now[name]
                if name in old:
                    await self.open(old[name])
                    now[name] = old[name]
        return tuple(now.values()), refused


def contexts(inputs: tuple[Input, ...]) -> dict[str, Context]:
    """By input."""
    return {item.name: context(item) for item in inputs}


def context(item: Input) -> Context:
    """What an input's settings say about its events."""
    return Context(
        ZoneInfo(item.timezone) if item.timezone else host_zone(),
        item.logsource,
        socket.gethostname() if isinstance(item, FileInput) else None,
    )


def host_zone() -> tzinfo | None:
    """The host's time zone, of times that name none; None is UTC."""
    try:
        with open("/etc/localtime", "rb") as file:
            return ZoneInfo.from_file(file)
    except (OSError, ValueError):
        return None
