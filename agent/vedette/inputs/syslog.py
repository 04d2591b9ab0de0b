"""``[[input]] type = "syslog"``: its settings. The transport is in ``listen.py``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vedette.inputs.base import InputSettings, Running, Surroundings
from vedette.model.event import LogSource
from vedette.model.settings import Address, Seconds, Size


@dataclass(frozen=True, slots=True)
class TlsListener:
    """Syslog over TLS (RFC 5425): where, who we are, and whose clients may send; no ``client_ca``: anybody's."""

    address: Address
    cert: Path
    key: Path
    client_ca: Path | None = None


@dataclass(frozen=True, slots=True)
class SyslogInput(InputSettings):
    """Syslog over UDP, TCP and TLS."""

    format: str = "syslog"
    logsource: LogSource = LogSource(product="linux")
    udp: Address = ""
    tcp: Address = ""
    tls: TlsListener | None = None
    max_connections: int = 1000
    max_connections_per_peer: int = 100
    message_timeout: Seconds = 60.0
    receive_buffer: Size = 8 << 20

    @property
    def connections(self) -> int:
        return self.max_connections if self.tcp or self.tls is not None else 0

    def mistakes(self) -> Iterator[str]:
        if not (self.udp or self.tcp or self.tls is not None):
            yield ': needs udp, tcp or tls, e.g. udp = "0.0.0.0:514"'
        if self.tls is not None and not self.tls.address:
            yield '.tls.address: must not be empty, e.g. "0.0.0.0:6514"'

    async def open(self, given: Surroundings, descriptors: int) -> Running:
        from vedette.inputs.listen import SyslogListener

        listener = SyslogListener(self, given.intake, given.counters, given.clock)
        listener.bound(descriptors)
        await listener.start()
        return listener
