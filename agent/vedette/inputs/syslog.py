"""``[[input]] type = "syslog"``: its settings. The transport is in ``listen.py``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from vedette.inputs.base import Running, Surroundings
from vedette.inputs.connected import ConnectedInput
from vedette.model.event import LogSource
from vedette.model.settings import Address, Size


@dataclass(frozen=True, slots=True)
class SyslogInput(ConnectedInput):
    """Syslog over UDP, TCP and TLS."""

    format: str = "syslog"
    logsource: LogSource = LogSource(product="linux")
    udp: Address = ""
    receive_buffer: Size = 8 << 20

    def mistakes(self) -> Iterator[str]:
        if not (self.udp or self.tcp or self.tls is not None):
            yield ': needs udp, tcp or tls, e.g. udp = "0.0.0.0:514"'
        yield from ConnectedInput.mistakes(self)

    async def open(self, given: Surroundings, descriptors: int) -> Running:
        from vedette.inputs.listen import SyslogListener

        listener = SyslogListener(self, given.intake, given.counters, given.clock)
        listener.bound(descriptors)
        await listener.start()
        return listener
