"""``[[input]] type = "audit"``: its settings. The transport is in ``multicast.py``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vedette.inputs.base import InputSettings, Running, Surroundings
from vedette.model.event import LogSource
from vedette.model.settings import Size


@dataclass(frozen=True, slots=True)
class AuditInput(InputSettings):
    """The Linux audit log of this host, as the kernel makes it."""

    format: str = "auditd"
    logsource: LogSource = LogSource(product="linux")
    receive_buffer: Size = 8 << 20

    local: ClassVar[bool] = True

    async def open(self, given: Surroundings, descriptors: int) -> Running:
        from vedette.inputs.multicast import AuditListener

        return AuditListener(self, given.intake, given.counters, given.positions(), given.clock)
