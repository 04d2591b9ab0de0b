"""The uplink that needs no broker: alerts land in a local directory, in the layout of the region's landing.

Delivery: an alert leaves the outbox after the Parquet file that holds it is on disk. A crash between the two writes it
a second time under the same ``alert_id``. A folder that cannot be written is logged once and retried with back-off;
the alerts stay in the outbox meanwhile, and what went into one table is not written again because the other failed.
An alert that this version cannot read goes to the ``bad`` table, as in the region.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog

from vedette.delivery.envelope import dead_letter, decode_row, landed, own_row, status_row
from vedette.delivery.landing import LandingFolder, Unwritable
from vedette.delivery.queue import Source
from vedette.delivery.receipts import ranges
from vedette.model.counters import Log
from vedette.system.trouble import BACKOFF, Backoff

log = structlog.get_logger()

GATHER_SECONDS = 1.0
"""From the first alert to the file that holds it."""
BATCH_ALERTS = 1000
"""In one file."""
LEAST_SECONDS = 0.1
"""Shortest heartbeat."""


def unwritable(folder: Path) -> str:
    """Why this user cannot write into ``folder``, or make it; empty where nothing is in the way."""
    try:
        there = next(path for path in (folder, *folder.parents) if path.exists())
        if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
            return ""
    except OSError as error:
        return f"{folder}: {error.strerror}: alerts would wait in the outbox"
    why = "may not be written by this user" if there.is_dir() else "is no folder"
    return f"{there} {why}: alerts would wait in the outbox"


class DirectoryUplink:
    """``[uplink] type = "directory"``: writes into ``path``, or ``data_dir/alerts-landing``."""

    def __init__(
        self, source: Source, *, gather: float = GATHER_SECONDS, backoff: tuple[float, float] = BACKOFF
    ) -> None:
        settings, self._agent, self._outbox, self._counters, self._status, self._clock = source
        self.folder = settings.path or self._agent.data_dir / "alerts-landing"
        self._heartbeat = max(settings.heartbeat, LEAST_SECONDS)
        self._gather = gather
        self._backoff = Backoff(backoff)
        self._collector = f"local:{self._agent.id}"
        self._stopping = asyncio.Event()
        self._ended = asyncio.Event()
        self._running = False
        self._failure = ""
        """Why the folder cannot be written; empty: it can."""
        self._written: set[int] = set()
        """Seqs that are in the landing, and in the outbox still."""

    def state(self) -> dict[str, Any]:
        state = {"type": "directory", "folder": str(self.folder), "connected": not self._failure}
        return state | ({"reason": self._failure} if self._failure else {})

    async def run(self) -> None:
        """Land what the outbox holds and gets, until ``stop`` or cancelled. Raises OSError of the store."""
        self._running = True
        try:
            folder = await asyncio.to_thread(LandingFolder, self.folder, f"local-{self._agent.id}")
            due = time.monotonic()
            while True:
                last = self._stopping.is_set()
                try:
                    if last or time.monotonic() >= due:
                        await self._beat(folder)
                        due = time.monotonic() + self._heartbeat
                    while await self._land(folder):
                        pass
                    self._backoff.reset()
                    self._failure, wait = "", 0.0
                except Unwritable as error:
                    if not self._backoff.failing:
                        action = "alerts stay in the outbox; make the folder writable"
                        log.error(Log.UPLINK_FAILED, folder=str(self.folder), reason=str(error), action=action)
                    self._failure, wait = str(error), self._backoff.failed()
                if last:
                    return
                if wait:
                    await self._sleep(wait)
                elif await self._outbox.more(max(0.0, due - time.monotonic())):
                    await self._sleep(self._gather)
        finally:
            self._ended.set()

    async def stop(self, deadline: float) -> None:
        """Land what is in the outbox now, at most ``deadline`` seconds; ``run`` then returns."""
        self._stopping.set()
        self._outbox.wake()
        if self._running:
            with suppress(TimeoutError):  # the alerts are in the outbox
                async with asyncio.timeout(deadline):
                    await self._ended.wait()

    async def _sleep(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    async def _land(self, folder: LandingFolder) -> bool:
        """Land up to BATCH_ALERTS and take them off the outbox; False when there are none."""
        pending = self._outbox.pending(0, BATCH_ALERTS)
        if not pending:
            return False
        now = self._clock()
        await asyncio.to_thread(self._write, folder, pending, now)
        self._counters.totals["alerts_sent"] += len(pending)
        self._counters.totals["bytes_sent"] += sum(len(data) for _, data in pending)
        await self._outbox.receipt(ranges(seq for seq, _ in pending))
        self._written.clear()
        return True

    def _write(self, folder: LandingFolder, pending: list[tuple[int, bytes]], now: int) -> None:
        """Write what is not in the landing yet; raises Unwritable."""
        left = [(seq, data) for seq, data in pending if seq not in self._written]
        try:  # nearly always this version encoded them all
            rows = {seq: self._landed(own_row(data), now) for seq, data in left}
            if rows:
                folder.write("alerts", list(rows.values()), now)
        except ValueError:
            self._write_checked(folder, left, now)
        self._written.update(seq for seq, _ in left)

    def _write_checked(self, folder: LandingFolder, left: list[tuple[int, bytes]], now: int) -> None:
        alerts: dict[int, dict[str, Any]] = {}
        bad: dict[int, dict[str, Any]] = {}
        for seq, data in left:
            try:
                alerts[seq] = self._landed(decode_row(data), now)
            except ValueError as error:
                bad[seq] = dead_letter(data, topic="", reason=str(error), received_at=now)
        if bad:
            folder.write("bad", list(bad.values()), now)
        self._written.update(bad)
        for seq, row in bad.items():
            log.error(Log.PAYLOAD_UNDECODABLE, seq=seq, reason=row["reason"], action="kept in the table bad")
        if alerts:
            folder.write("alerts", list(alerts.values()), now)

    def _landed(self, row: dict[str, Any], now: int) -> dict[str, Any]:
        return landed(row, received_at=now, collector_id=self._collector, topic="")

    async def _beat(self, folder: LandingFolder) -> None:
        now, agent = self._clock(), self._agent
        about: dict[str, Any] = {"received_at": now, "collector_id": self._collector, "topic": ""}
        row = status_row(self._status(), fleet=agent.fleet, agent_id=agent.id, **about)
        await asyncio.to_thread(folder.write, "status", [row], now)
