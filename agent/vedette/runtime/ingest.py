"""Log first: the agent's ``Intake``. A chunk is in the raw log before anything else is done with it.

``store`` appends it; that is all that stands between an input and the disk. ``frames`` gives what is stored in order,
from memory while it is little (``RECENT_BYTES``), else from the log: a burst is stored at once and evaluated when there
is time. ``durable`` waits for the disk; those that wait together share one fsync.

A disk that is full, read-only or failing does not stop the agent (``diskhealth.py``): inputs wait, what they had read
already is held in memory (``HELD_BYTES``) and appended first when the raw log takes it, and nothing is acknowledged.

What waits for the disk runs in the ``writer`` thread; everything else belongs to the event loop.
"""

from __future__ import annotations

import asyncio
import errno
import math
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

from vedette.model.event import Chunk, Frame
from vedette.runtime.context import RunContext
from vedette.system.diskhealth import RAW_LOG, REPLAY, RETENTION, RETRY_SECONDS, SYNC

RECENT_BYTES = 8 << 20
"""Of stored frames kept in memory for the evaluator; what is beyond is read back from the log."""
HELD_BYTES = 96 << 20
"""Of chunks that the raw log does not take at the moment: what inputs had read when it stopped."""
STALLED_SECONDS = 0.05
"""Before asking again for a sync that brought nothing, because what it is to cover is still held."""


class Ingest:
    def __init__(self, context: RunContext) -> None:
        self._log, self._progress, self._health = context.raw_log, context.progress, context.health
        self._writer, self._age_clock = context.writer, context.clock.trusted
        self.fsync_interval = context.config.raw_log.fsync_interval
        """See ``syncs``."""
        self.recent_bytes = RECENT_BYTES
        """Bound of the frames kept for the evaluator."""
        self.arrived = asyncio.Event()
        """Set when something is stored."""
        self.unreadable = False
        self.held_bytes = 0
        self.held: defaultdict[str, int] = defaultdict(int)
        """Events in memory because the raw log does not take them, per input."""
        self._held: deque[Chunk] = deque()
        self._stuck = asyncio.Event()
        self._recent: deque[Frame] = deque()
        self._recent_bytes = 0
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
        if progress.evaluated >= frame.offset:
            progress.waiting_since = chunk.received_at
        if chunk.file is not None:
            progress.positions[chunk.file.file] = chunk.file
        progress.backlog[chunk.input] += len(chunk)
        if self._recent_bytes < self.recent_bytes and (not self._recent or self._recent[-1].end == frame.offset):
            self._recent.append(frame)
            self._recent_bytes += len(chunk.data)
        self.arrived.set()
        self._unsynced.set()
        if self._log.full():
            self._room.clear()
        return frame.end

    def append_held(self) -> bool:
        """What inputs had read, in its order, as far as the raw log takes it; whether that is all of it."""
        while self._held:
            try:
                self._append(self._held[0])
            except OSError as error:
                self._health.failed(RAW_LOG, error)
                return False
            chunk = self._held.popleft()
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
                room = partial(self._log.maintain, self._progress.committed, self._age_clock(), make_room=True)
                await asyncio.get_running_loop().run_in_executor(self._writer, room)

    async def maintain(self) -> None:
        """Delete what the budget no longer holds, compact what is sealed, verify, and look for room."""
        try:
            maintain = partial(self._log.maintain, self._progress.committed, self._age_clock())
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

    # --- out

    def frames(self) -> Iterator[Frame]:
        """The frames from where evaluation is to the log's end now; damaged stretches are passed over. Ends before,
        with ``unreadable`` set, when the log cannot be read just now."""
        try:
            yield from self._frames()
            self.unreadable = False
            self._health.recovered(REPLAY)
        except OSError as error:
            self.unreadable = True
            self._health.failed(REPLAY, error)

    def _frames(self) -> Iterator[Frame]:
        progress = self._progress
        while progress.evaluated < self._log.end:
            while self._recent and self._recent[0].offset < progress.evaluated:
                self._recent_bytes -= len(self._recent.popleft().chunk.data)
            if self._recent and self._recent[0].offset == progress.evaluated:
                frame = self._recent.popleft()
                self._recent_bytes -= len(frame.chunk.data)
                yield frame
            else:
                before = progress.evaluated
                for frame in self._log.frames(progress.evaluated):
                    if self._recent and self._recent[0].offset <= frame.offset:
                        break
                    progress.skip(frame.offset)
                    yield frame
                if progress.evaluated == before:
                    progress.skip(self._recent[0].offset if self._recent else self._log.end)
