"""The sinks that are open, a task for each, and their places on disk.

Opened at start before anything is evaluated, changed by a reload, closed together at the stop. A sink that is new gets
the alerts made from then on; one whose settings change goes on at its place; that of one that is gone is forgotten. No
sink keeps another, the uplink or evaluation waiting: what one does not take stays in outbox and ring, as far as these
reach. What delivers and what receives is imported with the first sink.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from vedette.model.counters import Log
from vedette.runtime.pipeline.context import RunContext
from vedette.sinks.base import SinkSettings
from vedette.store.sinks import Place
from vedette.system.diskhealth import RETRY_SECONDS, STORE
from vedette.version import __version__

if TYPE_CHECKING:
    from vedette.delivery.forward import Forwarder

log = structlog.get_logger()

KEEP_SECONDS = 0.5
"""Between two times that places are written down."""
STOP_SECONDS = 3.0
"""For a sink that changes to deliver what it has."""


class Sinks:
    def __init__(self, context: RunContext, group: asyncio.TaskGroup) -> None:
        """Their tasks run in ``group``."""
        self._context, self._group = context, group
        self._open: dict[str, tuple[Forwarder, asyncio.Task[None]]] = {}
        self._written: dict[str, object] = {}
        self._dropped: dict[str, int] = {}

    def state(self) -> list[dict[str, object]]:
        return [forwarder.state() for forwarder, _ in self._open.values()]

    async def adopt(self, sinks: tuple[SinkSettings, ...]) -> None:
        """From now on these. Raises OSError when the store cannot be written: then nothing has changed."""
        new = {sink.name: sink for sink in sinks}
        places = await self._context.outbox.open_sinks([*new])
        changed = [name for name, (forwarder, _) in self._open.items() if forwarder.settings != new.get(name)]
        await asyncio.gather(*(self._close(name, STOP_SECONDS) for name in changed))
        for name in [name for name in new if name not in self._open]:
            forwarder = self._forwarder(new[name], places[name])
            self._open[name] = forwarder, self._group.create_task(forwarder.run())
        self._dropped = {name: self._dropped.get(name, place.dropped) for name, place in places.items()}

    def _forwarder(self, settings: SinkSettings, place: Place) -> Forwarder:
        from vedette.delivery.forward import Forwarder
        from vedette.sinks.opening import opened

        context = self._context
        return Forwarder(
            settings, opened(settings, __version__), place, context.outbox, context.config.agent.data_dir / "sinks",
            context.clock,
        )  # fmt: skip

    async def run(self) -> None:
        """Write places down until cancelled, and log what the ring could not keep."""
        while True:
            await asyncio.sleep(KEEP_SECONDS)
            try:
                await self._keep()
            except OSError as error:
                self._context.health.failed(STORE, error)
                await asyncio.sleep(RETRY_SECONDS)

    async def stop(self, seconds: float) -> None:
        """Deliver what there is, at most so many seconds, and write places down. Raises OSError of the store."""
        await asyncio.gather(*(self._close(name, seconds) for name in [*self._open]))
        await self._keep()

    async def _close(self, name: str, seconds: float) -> None:
        forwarder, task = self._open.pop(name)
        await forwarder.stop(seconds, task)

    async def _keep(self) -> None:
        rows: dict[str, object] = {name: place.row() for name, place in self._context.store.places.items()}
        if rows != self._written:
            await self._context.outbox.keep_sinks()
            self._written = rows
        for name, place in self._context.store.places.items():
            if (dropped := place.dropped) > self._dropped.get(name, 0):
                log.error(
                    Log.SINK_DROPPED, sink=name, alerts=dropped - self._dropped.get(name, 0),
                    reason="the sink is too far behind: what is kept for sinks reached uplink.max_bytes",
                    action="they are counted, and not sent to this sink",
                )  # fmt: skip
                self._dropped[name] = dropped
