"""``[[input]] type = "relp"``: its settings. The transport is in ``relp_listen.py``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from vedette.inputs.base import Running, Surroundings
from vedette.inputs.connected import ConnectedInput
from vedette.model.event import LogSource


@dataclass(frozen=True, slots=True)
class RelpInput(ConnectedInput):
    """Syslog by RELP, over TCP and TLS: acknowledged once the raw log holds it on disk."""

    format: str = "syslog"
    logsource: LogSource = LogSource(product="linux")

    def mistakes(self) -> Iterator[str]:
        if not (self.tcp or self.tls is not None):
            yield ': needs tcp or tls, e.g. tcp = "0.0.0.0:2514"'
        yield from ConnectedInput.mistakes(self)

    async def open(self, given: Surroundings, descriptors: int) -> Running:
        import asyncio

        from vedette.inputs.relp_listen import RelpListener

        recent = await asyncio.to_thread(lambda: list(given.recent(self.name)))
        listener = RelpListener(self, given.intake, given.counters, recent=recent, clock=given.clock)
        listener.bound(descriptors)
        await listener.start()
        return listener
