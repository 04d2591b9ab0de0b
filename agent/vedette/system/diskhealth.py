"""Disk health: which parts cannot write or read at the moment. While any cannot, the agent is degraded and retries.

Each part (``RAW_LOG``, ``SYNC``, ``STORE``, ``RETENTION``, ``REPLAY``) calls ``failed`` and ``recovered``. A failure is
logged once, when it begins or its reason changes, and once when it is over.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import structlog

from vedette.model.counters import Log
from vedette.system.descriptors import ADVICE

log = structlog.get_logger()

RAW_LOG, SYNC, STORE, RETENTION, REPLAY = "raw log", "sync", "store", "retention", "replay"
RETRY_SECONDS = 1.0
"""Between two retries."""

_ADVICE = {
    errno.ENOSPC: "free space on this disk, or lower the budgets",
    errno.EDQUOT: "raise the quota, or lower the budgets",
    errno.EROFS: "mount the file system for writing; its kernel log says why it is not",
    errno.EIO: "check the disk: it is failing",
    errno.EMFILE: ADVICE,
    errno.ENFILE: "raise fs.file-max: the host has too many files open",
}
_EFFECT = {
    RAW_LOG: "inputs wait, datagrams are dropped and counted",
    SYNC: "inputs wait, nothing is acknowledged",
    STORE: "evaluation waits, alerts stay uncommitted",
    RETENTION: "old segments stay",
    REPLAY: "evaluation waits, events are still stored",
}


class _One(NamedTuple):
    reason: str
    number: int
    since: int


class DiskHealth:
    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._parts: dict[str, _One] = {}
        self.failures = 0
        """Failed attempts since the start."""

    @property
    def degraded(self) -> bool:
        return bool(self._parts)

    def __contains__(self, part: str) -> bool:
        return part in self._parts

    def full(self) -> bool:
        """Whether any part lacks space on the disk."""
        return any(fault.number == errno.ENOSPC for fault in self._parts.values())

    def failed(self, part: str, error: OSError) -> None:
        self.failures += 1
        number, before = error.errno or 0, self._parts.get(part)
        reason = str(error)
        self._parts[part] = _One(reason, number, before.since if before else self._clock())
        if before is None or before.number != number:
            advice = _ADVICE.get(number, os.strerror(number) if number else "see the reason")
            log.error(Log.DISK_FAILING, part=part, reason=reason, effect=_EFFECT[part], action=f"retrying; {advice}")

    def recovered(self, part: str) -> None:
        if (before := self._parts.pop(part, None)) is not None:
            log.warning(Log.DISK_RECOVERED, part=part, seconds=round((self._clock() - before.since) / 1e6, 1))

    def status(self) -> dict[str, Any]:
        """JSON-able: for each part that fails its ``reason`` and ``since`` (UTC microseconds)."""
        return {part: {"reason": fault.reason, "since": fault.since} for part, fault in self._parts.items()}
