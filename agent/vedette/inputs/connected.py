"""Settings that all inputs have which others connect to by TCP and TLS. The sockets are in ``connections.py``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vedette.inputs.base import InputSettings
from vedette.model.settings import Address, Seconds


@dataclass(frozen=True, slots=True)
class TlsListener:
    """Where to listen by TLS, who we are, and whose clients may send; no ``client_ca``: anybody's."""

    address: Address
    cert: Path
    key: Path
    client_ca: Path | None = None


@dataclass(frozen=True, slots=True)
class ConnectedInput(InputSettings):
    """What senders connect to, and how many of them may."""

    tcp: Address = ""
    tls: TlsListener | None = None
    max_connections: int = 1000
    max_connections_per_peer: int = 100
    message_timeout: Seconds = 60.0

    @property
    def connections(self) -> int:
        return self.max_connections if self.tcp or self.tls is not None else 0

    def needed_files(self) -> tuple[Path | None, ...]:
        return () if self.tls is None else (self.tls.cert, self.tls.key, self.tls.client_ca)

    def mistakes(self) -> Iterator[str]:
        if self.tls is not None and not self.tls.address:
            yield '.tls.address: must not be empty, e.g. "0.0.0.0:6514"'
