"""Log first: the agent's ``Intake``. A chunk is in the raw log before anything else is done with it.

``store`` appends it; that is all that stands between an input and the disk. ``durable`` waits for the disk; those that
wait together share one fsync. What is stored comes out again in order (``stored.py``).

What one frame does not hold goes in several; an event that none holds is dropped and counted (UNFRAMED): what comes
with it, and after it, is stored, and its sender has its answer.

A disk that is full, read-only or failing does not stop the agent (``diskhealth.py``): inputs wait, what they had read
already is held in memory (``HELD_BYTES``) and appended first when the raw log takes it, and nothing is acknowledged.

What waits for the disk runs in the ``writer`` thread; everything else belongs to the event loop.
"""

from __future__ import annotations

import asyncio
import errno
import math
from collections import defaultdict, deque
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import structlog

from vedette.model.counters import Dropped, Log
from vedette.model.event import Chunk
from vedette.rawlog.log import RawLog
from vedette.runtime.pipeline.context import RunContext
from vedette.runtime.pipeline.stored import Stored
from vedette.system.diskhealth import RAW_LOG, RETENTION, RETRY_SECONDS, SYNC

log = structlog.get_logger()

HELD_BYTES = 96 << 20
"""Of chunks that the raw log does not take at the moment: what inputs had read when it stopped."""
STALLED_SECONDS = 0.05
"""Before asking again for a sync that brought nothing, because what it is to cover is still held."""


class Ingest(Stored):
    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._log: RawLog = context.raw_log
        self._context, self._writer, self._age_clock = context, context.writer, context.clock.trusted
        self.fsync_interval = context.config.raw_log.fsync_interval
        """See ``syncs``."""
        self.last_event: int | None = None
        """When an event came in last, UTC microseconds; None: none has since the start."""
        self.held_bytes = 0
        self.held: defaultdict[str, int] = defaultdict(int)
        """Events in memory because the raw log does not take them, per input."""
        self._held: deque[Chunk] = deque()
        self._stuck = asyncio.Event()
        self._unsynced = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._syncing: asyncio.Task[None] | None = None

    # --- in

    def store(self, chunk: Chunk) -> int:
        """See ``event.Intake``. What the raw log does not take is held in memory; raises OSError beyond HELD_BYTES."""
        if not self._held:
            try:
                return self._append(chunk)
            except ValueError as error:
                for part in self._parts(chunk, error):
                    self.store(part)
                return self._log.end + self.held_bytes
            except OSError as error:
                self._health.failed(RAW_LOG, error)
        if self.held_bytes + len(chunk.data) > HELD_BYTES:
            raise OSError(errno.ENOSPC, f"more than {HELD_BYTES} bytes wait for the raw log, which takes nothing")
        self._held.append(chunk)
        self.held_bytes += len(chunk.data)
        self.held[chunk.input] += len(chunk)
        self._room.clear()
        self._stuck.set()
        return self._log.end + self.held_bytes

    def _append(self, chunk: Chunk) -> int:
        frame, progress = self._log.append(chunk), self._progress
        self.last_event = chunk.received_at
        if chunk.file is not None:
            progress.positions[chunk.file.file] = chunk.file
        progress.stored(chunk.input, len(chunk), frame.offset)
        if (accounts := self._context.accounts) is not None:
            accounts.stored(chunk.input, len(chunk), frame.offset)
        self.keep(frame)
        self.arrived.set()
        self._unsynced.set()
        if self._log.full():
            self._room.clear()
        return frame.end

    def _parts(self, chunk: Chunk, error: ValueError) -> Sequence[Chunk]:
        """What no frame holds as two; none of a single event."""
        if len(chunk) > 1:
            from vedette.rawlog.halves import halves

            return halves(chunk, chunk.file and self._progress.positions.get(chunk.file.file))
        self._context.counters.dropped[chunk.input, Dropped.UNFRAMED] += 1
        log.error(Log.EVENT_DROPPED, input=chunk.input, reason=str(error), action="please report this")
        return ()

    def append_held(self) -> bool:
        """What inputs had read, in its order, as far as the raw log takes it; whether that is all of it."""
        while self._held:
            chunk = self._held.popleft()
            try:
                self._append(chunk)
            except ValueError as error:
                if parts := self._parts(chunk, error):
                    self._held.extendleft(reversed(parts))
                    continue
            except OSError as error:
                self._held.appendleft(chunk)
                self._health.failed(RAW_LOG, error)
                return False
            self.held_bytes -= len(chunk.data)
            self.held[chunk.input] -= len(chunk)
        self._health.recovered(RAW_LOG)
        self._stuck.clear()
        self.look_for_room()
        return True

    async def append_again(self) -> None:
        """While something is held, try, until cancelled."""
        while True:
            await self._stuck.wait()
            await asyncio.sleep(RETRY_SECONDS)
            await self.make_disk_room()
            self.append_held()

    # --- room

    def accepting(self) -> bool:
        return self._room.is_set()

    async def ready(self) -> None:
        await self._room.wait()

    def look_for_room(self) -> None:
        """Let inputs go on, or make them wait."""
        wait = self._log.full() or self._held or SYNC in self._health
        (self._room.clear if wait else self._room.set)()

    async def make_disk_room(self) -> None:
        """On a full disk the oldest evaluated segment goes, although the budget would hold it."""
        if self._health.full():
            with suppress(OSError):
                needed = await self._needed(force=True)
                room = partial(self._log.maintain, needed, self._age_clock(), make_room=True)
                await asyncio.get_running_loop().run_in_executor(self._writer, room)

    async def maintain(self) -> None:
        """Delete what the budget no longer holds, compact what is sealed, verify, and look for room."""
        try:
            needed = await self._needed()
            maintain = partial(self._log.maintain, needed, self._age_clock())
            await asyncio.get_running_loop().run_in_executor(self._writer, maintain)
            self._health.recovered(RETENTION)
            if not self._health.degraded:
                busy = not self._progress.caught_up
                await asyncio.get_running_loop().run_in_executor(self._writer, self._log.verify, busy)
        except OSError as error:
            self._health.failed(RETENTION, error)
        if SYNC in self._health:  # a commit may have synced since
            await self._sync()
        self.look_for_room()

    async def _needed(self, *, force: bool = False) -> int:
        """Return the raw offset below which no rule set needs the log; ``force``: room is needed now. Raises
        OSError."""
        committed, accounts = self._progress.committed, self._context.accounts
        return committed if accounts is None else await accounts.release(committed, self._age_clock(), force=force)

    # --- to the disk

    async def durable(self, offset: int) -> None:
        while (before := self._log.durable) < offset:
            await self._sync()
            if self._log.durable == before:
                await asyncio.sleep(STALLED_SECONDS)

    async def syncs(self) -> None:
        """Sync what came in, by the policy, until cancelled: every ``fsync_interval`` seconds; at once (0); not for its
        own sake (infinite)."""
        while math.isfinite(self.fsync_interval):
            if self.fsync_interval:
                await asyncio.sleep(self.fsync_interval)
            else:
                await self._unsynced.wait()
                self._unsynced.clear()
            if self._log.end > self._log.durable:
                await self._sync()

    async def _sync(self) -> None:
        if self._syncing is None:
            self._syncing = asyncio.create_task(self._sync_once())
        await asyncio.shield(self._syncing)

    async def _sync_once(self) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self._writer, self._log.sync)
        except OSError as error:
            self._health.failed(SYNC, error)
            self._room.clear()
            await asyncio.sleep(RETRY_SECONDS)
        else:
            if SYNC in self._health:
                self._health.recovered(SYNC)
                self.look_for_room()
        finally:
            self._syncing = None
