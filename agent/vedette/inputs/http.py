"""``[[input]] type = "http"``: its settings. The transport is in ``http_listen.py``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vedette.inputs.base import Running, Surroundings
from vedette.inputs.connected import ConnectedInput
from vedette.model.settings import Size


@dataclass(frozen=True, slots=True)
class HttpInput(ConnectedInput):
    """What senders push by HTTP (OTLP, HEC, ``_bulk``, Loki, lines): answered once the raw log holds it on disk."""

    token_file: Path | None = None
    max_body: Size = 8 << 20
    max_rate: Size = 0

    def needed_files(self) -> tuple[Path | None, ...]:
        return (self.token_file, *ConnectedInput.needed_files(self))

    def mistakes(self) -> Iterator[str]:
        if not (self.tcp or self.tls is not None):
            yield ': needs tcp or tls, e.g. tcp = "127.0.0.1:8088"'
        yield from ConnectedInput.mistakes(self)

    async def open(self, given: Surroundings, descriptors: int) -> Running:
        from vedette.inputs.http_listen import HttpListener

        listener = HttpListener(self, given.intake, given.counters, given.clock)
        listener.bound(descriptors)
        await listener.start()
        return listener
