"""The raw log's one writer: open, append, sync, rotate. Bytes: ``format.py``; after a crash: ``recover.py``.

* ``append`` hands a whole frame to the kernel before it returns: it survives the death of the process. What ``sync``
  has covered (``durable``) survives the death of the host.
* Offsets only rise, and (log_id, offset) never names two events. Every frame takes at least one byte of them.
* A segment is sealed when it reaches ``segment_bytes`` (at most a quarter of ``max_bytes``) or SEGMENT_FRAMES, or has
  been written for a quarter of ``max_age``. Which there are, which go and which are compacted: ``segment_set.py``.
* A write that fails is taken back, so that the log stays whole, and raises: the caller may try again. Where it cannot
  be taken back, the next write begins a new segment, and readers pass over the rest of the old one.
* After a sync that failed the kernel may have forgotten what it could not write, and a second one would say that all is
  well. So what was not synced is written again, to a new segment, and the old one ends before it (``rewrite.py``).
  While that fails, too, ``sync`` raises, ``durable`` stays, and the next ``sync`` tries again.
* The folder is locked (``lock``) against a second writer. Readers need no lock. It belongs to one machine
  (``machine.py``); what a copy of it has to do first is ``runtime/agent/copied.py``'s.

``append`` belongs to one thread (the event loop), ``sync`` and ``maintain`` to one (the writer), which may be another.
Reading (``replay.py``) may be done from any.
"""

from __future__ import annotations

import errno
import os
import secrets
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import structlog

from vedette.config.settings import RawLogSettings
from vedette.model.counters import Counters, Log
from vedette.model.event import Chunk, Cursor, Frame
from vedette.rawlog import format
from vedette.rawlog.checkpoint import Checkpoint
from vedette.rawlog.machine import bind
from vedette.rawlog.read import newest_checkpoint
from vedette.rawlog.recover import (
    APART,
    DAMAGED,
    DAMAGED_BYTES,
    MARK_BYTES,
    Ending,
    Recovery,
    keep_copy,
    recover,
)
from vedette.rawlog.replay import Replay, Span
from vedette.rawlog.rewrite import NEW, Rewritten, Unsynced, rewrite
from vedette.rawlog.segment import TEMPORARY, Segment, segments
from vedette.rawlog.segment_set import Keeper, Kept, SegmentSet
from vedette.rawlog.verify import Verifier
from vedette.system.durable import make_folders, sync_path
from vedette.system.folders import locked_within
from vedette.system.wallclock import utc_now

log = structlog.get_logger()

SHARE = 4
"""A segment takes at most this part of the budget in bytes, and of the age."""
SEGMENT_FRAMES = 1 << 16
"""In one segment: bounds how long a start takes, which looks at each frame of the last."""
UNSYNCED_BYTES = 16 << 20
"""Of frames kept in memory until they are synced; what is beyond would be read back after a failed sync."""
GAP_BYTES = 1 << 20
"""Copied of one damaged place."""


class RawLog(Replay):
    """The log of one agent. Make it with ``open``."""

    durable: int
    """Raw offset up to which all is on disk."""
    recovery: Recovery

    def __init__(
        self, folder: Path, settings: RawLogSettings, counters: Counters, clock: Callable[[], int], lock_fd: int,
        describe: Callable[[], bytes], keeper: Keeper | None,
    ) -> None:  # fmt: skip
        """For ``open``, which sets the rest."""
        super().__init__(counters)
        self._folder, self._clock, self._lock_fd, self._describe = folder, clock, lock_fd, describe
        self._max_bytes, self._max_age = settings.max_bytes, int(settings.max_age * 1e6)
        self._segment_bytes = max(1, min(settings.segment_bytes, settings.max_bytes // SHARE))
        self._state = threading.Lock()  # what append changes
        budget = self._max_bytes, self._max_age, self._segment_bytes
        self._segments = SegmentSet(folder, self._state, *budget, keeper)
        self.verifier = Verifier()
        self._syncing = threading.Lock()  # one sync at a time; only its holder closes sealed files
        self._fd = -1
        self._unsynced: list[int] = []
        self._folder_synced = True
        self._refused = ""
        self._torn = False  # the active segment ends in a write that could not be taken back
        self._suspect = False  # a sync has failed since ``durable``
        self._fresh: deque[Unsynced] = deque()  # frames above ``durable``, the newest UNSYNCED_BYTES of them
        self._fresh_bytes = 0
        self._durable_at = (0, 0, 0)  # of ``durable``: number of the next event, segment's base, position there
        self._frames = 0  # in the active segment
        self._events = 0  # number of the log's next event
        self._newest = 0  # no frame and no segment is newer
        self._opened_at = 0  # when the active segment was begun

    @classmethod
    def open(
        cls,
        folder: Path,
        settings: RawLogSettings,
        counters: Counters,
        *,
        committed: Cursor | None = None,
        certain: bool = True,
        clock: Callable[[], int] = utc_now,
        describe: Callable[[], bytes] = bytes,
        keeper: Keeper | None = None,
        renew: str = "",
    ) -> RawLog:
        """The log in ``folder``, recovered, or a new one; see ``recover.py``. ``recovery`` is what was done.

        ``committed`` is the highest cursor ever committed; when that is not ``certain``, all that can be read is kept,
        and offsets go on APART. ``describe`` gives the checkpoint for a segment that is begun. What ``keeper``
        does not let go stays. ``renew``: why a new log begins, though there is one. A new log is this machine's
        (``machine.py``). Raises OSError, also when another process has the log open.
        """
        make_folders(folder, 0o750)
        reason = "another vedette process writes this raw log; stop it, or give this one its own data_dir"
        lock_fd = locked_within(folder, ".lock", reason)  # the group reads the log
        self = cls(folder, settings, counters, clock, lock_fd, describe, keeper)
        try:
            self._open(committed, certain, renew)
        except BaseException:
            self._release()
            raise
        return self

    def _open(self, committed: Cursor | None, certain: bool, renew: str) -> None:
        for leftover in (*self._folder.glob(f"*{NEW}"), *self._folder.glob(f"*{TEMPORARY}")):
            leftover.unlink()
        every = segments(self._folder)
        log_id = every[-1].log_id if every else ""
        generation = every[-1].generation if every else 0
        committed_end = committed.offset if committed is not None and committed.log_id == log_id else 0
        ending = Ending([])
        if every:
            budget = min(DAMAGED_BYTES, self._max_bytes // 8)
            parts = [segment for segment in every if segment.log_id == log_id]
            ending = recover(self._folder, parts, committed_end, budget, self._clock(), certain=certain)
        self._segments.fill([s for s in every if s.log_id != log_id] + ending.parts)
        self._newest = max([ending.newest, *(entry.sealed_at for entry in self._segments.entries)])
        new, resumed, reason = bool(renew) or not ending.parts, 0, ending.reason or renew
        if new:
            if not reason and committed is not None:
                reason = "the folder holds no log"
            self.log_id, self.end, generation = secrets.token_hex(16), 0, generation + 1
            self._segments.of_log(self.log_id, 0, [])
        else:
            self.log_id, self.end, self._events = log_id, ending.end, ending.events
            self._segments.of_log(log_id, ending.parts[0].base, ending.marks)
            if ending.end < committed_end:
                reason = reason or "frames at its end are missing"
                reason += f"; it ends at {ending.end}, below the committed offset {committed_end}"
            if not certain or ending.end < committed_end:
                self.end = resumed = max(ending.end, committed_end) + (0 if certain else APART)
        self._coder = format.Coder(self.log_id)
        self.durable = self.end
        if new or resumed:
            self._begin(generation)
            os.fsync(self._fd)
            sync_path(self._folder)
            sync_path(self._folder.parent)
            self._folder_synced = True
            if new:
                with suppress(OSError):  # without it the next start begins a new log again
                    bind(self._folder)
        else:
            self._fd = os.open(ending.parts[-1].path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            self._segments.entries[-1].sealed_at = 0
            self._opened_at, self._frames = self._segments.entries[-1].created_at, ending.frames
        active = self._segments.entries[-1]
        self._durable_at = self._events, active.segment.base, active.size
        self.recovery = Recovery(ending.cut_bytes, ending.end, new, reason, resumed)
        if reason:
            log.warning(
                Log.RAW_LOG_CUT,
                folder=str(self._folder),
                cut_bytes=ending.cut_bytes,
                cut_at=ending.end,
                reason=reason,
                kept_in=str(self._folder / DAMAGED),
                new_log=self.log_id if new else None,
                resumed_at=resumed,
            )

    def append(self, chunk: Chunk) -> Frame:
        """Writes ``chunk`` at ``end`` and counts its events as stored.

        A chunk without events writes nothing. Raises ValueError for a chunk over format.MAX_RAW or one that contradicts
        itself, OSError when it cannot be written; then nothing of it is in the log.
        """
        events = len(chunk)
        if not events:
            return Frame(self.end, chunk)
        offset = self.end
        parts = self._coder.encode(chunk, events=events, offset=offset, first_event=self._events, durable=self.durable)
        held = self._segments
        with self._state:
            self._check()
            if self._torn:
                self._mend()
            active, now = held.entries[-1], self._clock()
            self._opened_at = min(self._opened_at, now)  # the clock may have been ahead
            if offset > active.segment.base and (
                active.size >= self._segment_bytes
                or self._frames >= SEGMENT_FRAMES
                or now - self._opened_at > self._max_age // SHARE
            ):
                self._rotate()
                active = held.entries[-1]
            size = self._write(parts, active)
            marks = held.marks
            if not marks or marks[-1][2] != active.segment.base or active.size - marks[-1][3] >= MARK_BYTES:
                marks.append((offset, self._events, active.segment.base, active.size))
            self._fresh.append(Unsynced(offset, self._events, parts, size))
            self._fresh_bytes += size
            while self._fresh_bytes > UNSYNCED_BYTES:
                self._fresh_bytes -= self._fresh.popleft().size
            active.size += size
            held.bytes += size
            self._events += events
            self._frames += 1
            if chunk.received_at > self._newest:
                self._newest = chunk.received_at
            self.end = offset + len(chunk.data)
        self._counters.stored[chunk.input] += events
        return Frame(offset, chunk)

    def _write(self, parts: tuple[bytes, bytes, bytes], active: Kept) -> int:
        """Appends to the active segment all or nothing; returns the bytes."""
        size = sum(map(len, parts))
        try:
            written = os.writev(self._fd, parts)
            if written < size:
                rest = memoryview(b"".join(parts))[written:]
                while rest:
                    rest = rest[os.write(self._fd, rest) :]
        except OSError as error:
            try:
                os.ftruncate(self._fd, active.size)
            except OSError:
                self._torn = True
            raise OSError(
                error.errno, f"the raw log cannot be written: {error.strerror}", str(active.segment.path)
            ) from error
        return size

    def _check(self) -> None:
        if self._refused:
            raise OSError(errno.EIO, f"the raw log takes no more: {self._refused}", str(self._folder))

    def _mend(self) -> None:
        """Take back what is left of a write that failed, or leave it behind in a sealed segment. Raises OSError."""
        try:
            os.ftruncate(self._fd, self._segments.entries[-1].size)
        except OSError:
            if self.end == self._segments.entries[-1].segment.base:  # a new segment would have this one's name
                raise
            self._rotate()
        self._torn = False

    def _begin(self, generation: int) -> None:
        """Makes the segment that starts at ``end`` the active one."""
        path = self._folder / format.segment_name(generation, self.end, self.log_id)
        # What decides about age never goes back, nor below a received_at: see SegmentHeader.
        created_at = self._newest = max(self._newest, self._clock())
        header = format.SegmentHeader(self.log_id, generation, self.end, self._events, created_at, self.durable)
        # What may lie there is what a try before left, that could neither be finished nor removed.
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o640)
        try:
            data = format.encode_segment(header, self._describe())
            if os.write(fd, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            os.close(fd)
            with suppress(OSError):
                path.unlink()
            raise OSError(error.errno, f"a raw log segment cannot be begun: {error.strerror}", str(path)) from error
        self._segments.add(Kept(Segment(generation, self.end, self.log_id, path), len(data), created_at))
        self._fd, self._opened_at, self._folder_synced, self._frames = fd, self._clock(), False, 0

    def _rotate(self) -> None:
        sealed = self._fd
        self._begin(self._segments.entries[-1].segment.generation)
        self._unsynced.append(sealed)

    def sync(self) -> int:
        """fsync of what has been appended; returns ``durable``. For the writer thread.

        Raises OSError when it cannot be made durable, nor be written again elsewhere; the next call tries that again.
        """
        with self._syncing:
            with self._state:
                self._check()
                end, sealed, folder = self.end, list(self._unsynced), not self._folder_synced
                active = self._segments.entries[-1]
                place = self._events, active.segment.base, active.size
                if end == self.durable and not (sealed or folder or self._suspect):
                    return end
                self._folder_synced = True
                files = [*sealed, self._fd]
            try:
                if self._suspect:
                    self._rewrite()
                    return self.durable
                for fd in files:
                    os.fsync(fd)
            except OSError as error:
                self._folder_synced = not folder
                first, self._suspect = not self._suspect, True
                self._counters.totals["sync_failed"] += 1
                if first:
                    log.error(
                        Log.RAW_LOG_SYNC_FAILED,
                        folder=str(self._folder),
                        reason=error.strerror or str(error),
                        action="what was not synced is written again to a new segment",
                    )
                    with suppress(OSError):
                        self._rewrite()
                        return self.durable
                raise OSError(
                    error.errno, f"the raw log cannot be synced: {error.strerror}", str(self._folder)
                ) from error
            if folder:
                self._sync_folder()
            with self._state:
                del self._unsynced[: len(sealed)]
                self._settle(end, place)
            for fd in sealed:
                os.close(fd)
            return end

    def _settle(self, end: int, place: tuple[int, int, int]) -> None:
        """Everything before ``end`` is durable."""
        self.durable, self._durable_at = end, place
        while self._fresh and self._fresh[0].offset < end:
            self._fresh_bytes -= self._fresh.popleft().size

    def _sync_folder(self) -> None:
        """Raises OSError, and the next sync tries again."""
        try:
            sync_path(self._folder)
        except OSError as error:
            self._folder_synced = False
            raise OSError(error.errno, f"the raw log cannot be synced: {error.strerror}", str(self._folder)) from error

    def _rewrite(self) -> None:
        """Write what is above ``durable`` again, to a segment that begins there. Raises OSError; nothing is then lost.

        The frames that come meanwhile are added under the lock; they wait for the next sync.
        """
        with self._state:
            base, until, (event, old_base, position) = self.durable, self.end, self._durable_at
            entries, fresh, newest = list(self._segments.entries), list(self._fresh), max(self._newest, self._clock())
        old = next(entry for entry in reversed(entries) if entry.segment.base == old_base)
        header = format.SegmentHeader(self.log_id, old.segment.generation, base, event, newest, base)
        rewritten = Rewritten(self._folder, header)
        try:
            after = [
                entry.segment
                for entry in entries
                if entry.segment.log_id == self.log_id and entry.segment.base >= old_base
            ]
            rewrite(rewritten, after, fresh, until)
            rewritten.sync()
            synced = rewritten.place
            with self._state:
                if self.end > until:
                    since = [entry.segment for entry in self._segments.entries[len(entries) - len(after) :]]
                    rewrite(rewritten, since, list(self._fresh), self.end)
                gone = self._segments.since(base)
                earlier = old.segment.path if old_base < base else None
                fd = rewritten.take_place([entry.segment.path for entry in gone], earlier, position)
                for stale in (*self._unsynced, self._fd):
                    os.close(stale)
                self._unsynced, self._fd, self._folder_synced = [], fd, False
                if earlier is not None:
                    old.size, old.sealed_at = position, newest
                self._segments.replace(gone, Kept(rewritten.segment, rewritten.size, newest), rewritten.marks)
                self._frames, self._opened_at, self._newest = rewritten.frames, self._clock(), newest
                self._durable_at = event, base, format.SEGMENT_HEADER
                self._suspect = self._torn = False
        except BaseException:
            rewritten.discard()
            raise
        self._counters.totals["rewritten_bytes"] += rewritten.size
        log.warning(Log.RAW_LOG_REWRITTEN, segment=str(rewritten.segment.path), bytes=rewritten.size, offset=base)
        self._sync_folder()
        with self._state:
            self._folder_synced = True
            self._settle(until, (synced[0], base, synced[1]))

    def maintain(self, evaluated: int, now: int, *, make_room: bool = False) -> int:
        """For the writer thread: copies damaged places, deletes what the budget does not hold, compacts a step.

        ``make_room``: the disk is full, so the oldest evaluated segment goes though the budget has room. Returns the
        bytes freed. Raises OSError."""
        while self.damaged:
            gap = self.damaged[-1]
            keep_copy(self._folder, gap.path, gap.position, min(DAMAGED_BYTES, self._max_bytes // 8), now, GAP_BYTES)
            self.damaged.remove(gap)
        freed = self.retain(evaluated, now, make_room=make_room)
        return freed if make_room else freed + self._segments.compact(self.durable)

    def verify(self, busy: bool = False) -> None:
        """For the writer thread: see ``verify.py``. ``busy``: there is something else to do."""
        with self._state:
            checked = [entry.segment for entry in self._segments.entries]
        self.verifier.step(checked, busy)

    def retain(self, evaluated: int, now: int, *, make_room: bool = False) -> int:
        """Deletes sealed segments: see ``SegmentSet.retain``. Raises OSError."""
        return self._segments.retain(evaluated, now, make_room=make_room)

    def final(self) -> list[Kept]:
        """Sealed segments that are on disk and change no more, oldest first. From any thread."""
        return self._segments.final(self.durable)

    def wanted(self, now: int, *, make_room: bool = False) -> int | None:
        """See ``SegmentSet.wanted``."""
        return self._segments.wanted(now, make_room=make_room)

    @property
    def start(self) -> int:
        """Raw offset of the oldest byte kept."""
        return self._segments.start

    @property
    def events(self) -> int:
        """How many events the log has ever held."""
        return self._events

    @property
    def newest(self) -> int:
        """No frame was received after this; 0 for a log that is new."""
        return self._newest if self.end else 0

    def size(self) -> int:
        """Bytes of all segments on disk; what ``damaged/`` holds is not among them."""
        return self._segments.bytes

    def oldest(self) -> int:
        """When the oldest segment was begun."""
        return self._segments.entries[0].created_at

    def full(self) -> bool:
        """Whether the budget is used up. ``retain`` keeps it from being, as long as evaluation keeps up."""
        return self._segments.bytes >= self._max_bytes

    def checkpoint(self) -> Checkpoint:
        """The newest one that says how far the log was evaluated. Raises OSError."""
        return newest_checkpoint(self._folder)

    def _span(self, start: int) -> Span:
        with self._state:
            end = self.end, self._events
            return Span(self._segments.parts(), end, self._segments.mark(start, end[1]))

    def close(self) -> None:
        """Syncs and closes. Closing twice is allowed. Raises OSError when the sync fails; it is closed nevertheless."""
        if self._lock_fd < 0:
            return
        try:
            if not self._refused:
                self.sync()
        finally:
            self._refused = self._refused or "it is closed"
            self._segments.stop_compaction()
            self._release()

    def _release(self) -> None:
        with self._syncing, self._state:
            for fd in (*self._unsynced, self._fd, self._lock_fd):
                if fd >= 0:
                    os.close(fd)
            self._unsynced, self._fd, self._lock_fd = [], -1, -1
