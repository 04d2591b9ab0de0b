"""The sinks that are open, a task for each, and their places on disk.

Opened at start before anything is evaluated, changed by a reload, closed together at the stop. A sink that is new gets
the alerts made from then on; one whose settings change goes on at its place; that of one that is gone is forgotten. No
sink keeps another, the uplink or evaluation waiting: what one does not take stays in outbox and ring, as far as these
reach. What delivers and what receives is imported with the first sink. A sink that takes rows of statements has a queue
of its own for these (``delivery/rows.py``), and one that takes both a receiver for each.
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

ROWS = " rows"
"""Behind the name of a sink, which has no blank: its part for rows."""
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

    def state(self, *, rows: bool = False) -> list[dict[str, object]]:
        """Of the sinks of alerts, or of those of ``rows``."""
        return [forwarder.state() for name, (forwarder, _) in self._open.items() if name.endswith(ROWS) is rows]

    async def adopt(self, sinks: tuple[SinkSettings, ...]) -> None:
        """From now on these. Raises OSError when the store cannot be written: then nothing has changed."""
        alerting = {sink.name: sink for sink in sinks if sink.takes != "rows"}
        taking = {sink.name: sink for sink in sinks if sink.takes != "alerts"}
        new = {**alerting, **{f"{name}{ROWS}": sink for name, sink in taking.items()}}
        places = await self._context.outbox.open_sinks([*alerting])
        changed = [name for name, (forwarder, _) in self._open.items() if forwarder.settings != new.get(name)]
        await asyncio.gather(*(self._close(name, STOP_SECONDS) for name in changed))
        if taking or self._context.rows is not None or self._context.store.get("rows"):
            from vedette.runtime.alerts.to_sinks import rows_of

            await rows_of(self._context).adopt({name: sink.max_waiting for name, sink in taking.items()})
        for name in [name for name in new if name not in self._open]:
            forwarder = self._forwarder(new[name], places.get(name))
            self._open[name] = forwarder, self._group.create_task(forwarder.run())
        dropped = {name: place.dropped for name, place in places.items()}
        self._dropped = {name: self._dropped.get(name, dropped.get(name, 0)) for name in new}

    def _forwarder(self, settings: SinkSettings, place: Place | None) -> Forwarder:
        """``place``: among alerts; None: it is of rows."""
        from vedette.delivery.forward import Forwarder
        from vedette.sinks.opening import opened

        context = self._context
        folder, receiver = context.config.agent.data_dir / "sinks", opened(settings, __version__)
        if place is not None:
            return Forwarder(settings, receiver, place, context.outbox, folder, context.clock)
        from vedette.delivery.rows import RowForwarder

        assert context.rows is not None  # opened by ``adopt``
        queue = context.rows.of(settings.name)
        queue.begin()
        return RowForwarder(settings, receiver, queue.place, queue, folder, context.clock)

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
        places: dict[str, object] = {name: place.row() for name, place in self._context.store.places.items()}
        if places != self._written:
            await self._context.outbox.keep_sinks()
            self._written = places
        for name, place in self._context.store.places.items():
            self._say_dropped(name, name, "alerts", place.dropped, "uplink.max_bytes")
        if (rows := self._context.rows) is not None:
            await rows.keep()
            for name, queue in rows.queues.items():
                if f"{name}{ROWS}" not in self._open:  # gone, which was said
                    continue
                self._say_dropped(f"{name}{ROWS}", name, "rows", queue.place.dropped, "its max_waiting")

    def _say_dropped(self, key: str, name: str, noun: str, dropped: int, bound: str) -> None:
        if dropped > (before := self._dropped.setdefault(key, dropped)):
            self._dropped[key] = dropped
            log.error(
                Log.SINK_DROPPED, sink=name, **{noun: dropped - before},
                reason=f"the sink is too far behind: what is kept for it reached {bound}",
                action="they are counted, and not sent to this sink",
            )  # fmt: skip
