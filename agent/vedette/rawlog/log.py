"""The raw log's one writer: append, sync, rotate, retain. Bytes: ``format.py``; after a crash: ``recover.py``.

* ``append`` hands a whole frame to the kernel before it returns: it survives the death of the process. What ``sync``
  has covered (``durable``) survives the death of the host.
* Offsets only rise, and (log_id, offset) never names two events. Every frame takes at least one byte of them.
* A segment is sealed when it reaches ``segment_bytes`` (at most a quarter of ``max_bytes``) or SEGMENT_FRAMES, or has
  been written for a quarter of ``max_age``; ``retain`` deletes sealed segments only, oldest first, and only what is
  judged. Sealed segments of small frames are packed (``repack.py``).
* A write that fails is taken back, so that the log stays whole, and raises: the caller may try again. Where it cannot
  be taken back, the next write begins a new segment, and readers pass over the rest of the old one.
* After a sync that failed the kernel may have forgotten what it could not write, and a second one would say that all is
  well. So what was not synced is written again, to a new segment, and the old one ends before it (``rewrite.py``).
  While that fails, too, ``sync`` raises, ``durable`` stays, and the next ``sync`` tries again.
* The folder is locked (``lock``) against a second writer. Readers need no lock.

``append`` belongs to one thread (the event loop), ``sync`` and ``tidy`` to one (the writer), which may be another.
``frames``, ``headers`` and ``backlog`` may be called from any.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import threading
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import structlog

from vedette.config import RawLogSettings
from vedette.event import Chunk, Cursor, Frame
from vedette.rawlog import format, read
from vedette.rawlog.recover import MARK_BYTES, QUARANTINE_BYTES, Ending, Recovery, recover, set_aside, sync_path
from vedette.rawlog.repack import PACKED, Done, Repack, is_small
from vedette.rawlog.rewrite import NEW, Rewritten, Unsynced, rewrite
from vedette.rawlog.segment import Located, Segment, SegmentFile, segments
from vedette.report import Counters, Log, Lost

log = structlog.get_logger()

SHARE = 4
"""A segment takes at most this part of the budget in bytes, and of the age."""
SEGMENT_FRAMES = 1 << 16
"""In one segment: bounds how long a start takes, which looks at each frame of the last."""
UNSYNCED_BYTES = 16 << 20
"""Of frames kept in memory until they are synced; what is beyond would be read back after a failed sync."""
GAP_BYTES = 1 << 20
"""Set aside of one damaged place."""


def _now() -> int:
    return time.time_ns() // 1000


@dataclass(slots=True)
class _Kept:
    """A segment that exists; ``sealed_at``: no frame in it was received after this (0: still written)."""

    segment: Segment
    size: int
    created_at: int
    sealed_at: int = 0
    packed: bool = False
    """Packed, or not worth it."""


class RawLog:
    """The log of one agent. Make it with ``open``."""

    log_id: str
    start: int
    """Raw offset of the oldest byte kept."""
    end: int
    """Raw offset of the next byte to be written."""
    durable: int
    """Raw offset up to which all is on disk."""
    recovery: Recovery
    describe: Callable[[], bytes]
    """Gives the note for a segment that is begun; called by ``append``."""

    def __init__(
        self, folder: Path, settings: RawLogSettings, counters: Counters, clock: Callable[[], int], lock_fd: int
    ) -> None:
        """For ``open``, which sets the rest."""
        self._folder, self._counters, self._clock, self._lock_fd = folder, counters, clock, lock_fd
        self._max_bytes = settings.max_bytes
        self._max_age = int(settings.max_age * 1e6)
        self._segment_bytes = max(1, min(settings.segment_bytes, settings.max_bytes // SHARE))
        self._state = threading.Lock()  # what append changes
        self._syncing = threading.Lock()  # one sync at a time; only its holder closes sealed files
        self._fd = -1
        self._unsynced: list[int] = []
        self._folder_synced = True
        self._refused = ""
        self.describe = bytes
        self._torn = False  # the active segment ends in a write that could not be taken back
        self._suspect = False  # a sync has failed since ``durable``
        self._fresh: deque[Unsynced] = deque()  # frames above ``durable``, the newest UNSYNCED_BYTES of them
        self._fresh_bytes = 0
        self._durable_at = (0, 0, 0)  # of ``durable``: number of the next event, segment's base, position there
        self._damaged: list[read.Gap] = []
        self._repack: Repack | None = None
        self._frames = 0  # in the active segment
        self._kept: list[_Kept] = []
        self._bytes = 0
        self._events = 0  # number of the log's next event
        self._newest = 0  # no frame and no segment is newer
        self._opened_at = 0  # when the active segment was begun
        self._marks: list[read.Mark] = []
        self._lost_to = 0  # damage below this offset is counted

    @classmethod
    def open(
        cls,
        folder: Path,
        settings: RawLogSettings,
        counters: Counters,
        *,
        committed: Cursor | None = None,
        certain: bool = True,
        clock: Callable[[], int] = _now,
    ) -> RawLog:
        """The log in ``folder``, recovered, or a new one; see ``recover.py``. ``recovery`` tells what was done.

        ``committed`` is the highest cursor ever committed; when that is not ``certain``, a new log begins also when
        anything had to be cut off. Raises OSError, also when another process has the log open.
        """
        folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        lock_fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock_fd)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            reason = "another vedette process writes this raw log; stop it, or give this one its own data_dir"
            raise BlockingIOError(error.errno, reason, str(folder)) from error
        self = cls(folder, settings, counters, clock, lock_fd)
        try:
            self._open(committed, certain)
        except BaseException:
            self._release()
            raise
        return self

    def _open(self, committed: Cursor | None, certain: bool) -> None:
        for leftover in (*self._folder.glob(f"*{NEW}"), *self._folder.glob(f"*{PACKED}")):
            leftover.unlink()
        every = segments(self._folder)
        log_id = every[-1].log_id if every else ""
        generation = every[-1].generation if every else 0
        known = committed.offset if committed is not None and committed.log_id == log_id else 0
        ending = Ending([], 0, 0, 0, [], 0, "")
        if every:
            budget = min(QUARANTINE_BYTES, self._max_bytes // 8)
            parts = [segment for segment in every if segment.log_id == log_id]
            ending = recover(self._folder, parts, known, budget, self._clock())
        self._kept = self._measure([s for s in every if s.log_id != log_id] + ending.parts)
        self._bytes = sum(kept.size for kept in self._kept)
        self._newest = max([ending.newest, *(kept.sealed_at for kept in self._kept)])
        new = not ending.parts or ending.end < known or (bool(ending.cut_bytes) and not certain)
        reason = ending.reason
        if new:
            if ending.parts:
                reason = reason or "frames at its end are missing"
                known_as = (
                    f"below the committed offset {known}" if certain else "and how far it was judged is not known"
                )
                reason += f"; it ends at {ending.end}, {known_as}, so a new log begins"
            elif not reason and committed is not None:
                reason = "the folder holds no log"
            self.log_id, self.start, self.end = secrets.token_hex(16), 0, 0
            self._coder = format.Coder(self.log_id)
            self.durable = 0
            self._begin(generation + 1)
            os.fsync(self._fd)
            sync_path(self._folder)
            sync_path(self._folder.parent)
            self._folder_synced = True
        else:
            self.log_id, self.start, self.end = log_id, ending.parts[0].base, ending.end
            self._coder = format.Coder(log_id)
            self.durable, self._events, self._marks = ending.end, ending.events, ending.marks
            self._fd = os.open(ending.parts[-1].path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            self._kept[-1].sealed_at = 0
            self._opened_at, self._frames = self._kept[-1].created_at, ending.frames
        self._durable_at = self._events, self._kept[-1].segment.base, self._kept[-1].size
        self.recovery = Recovery(ending.cut_bytes, ending.end, new, reason)
        if reason:
            log.warning(
                Log.RAW_LOG_CUT,
                folder=str(self._folder),
                cut_bytes=ending.cut_bytes,
                cut_at=ending.end,
                reason=reason,
                kept_in=str(self._folder / "quarantine"),
                new_log=self.log_id if new else None,
            )

    def _measure(self, every: list[Segment]) -> list[_Kept]:
        """Sizes, and as the time a segment was sealed the one its successor was created."""
        kept = []
        for segment in every:
            size, created_at, packed = segment.path.stat().st_size, int(segment.path.stat().st_mtime * 1e6), False
            with suppress(ValueError), SegmentFile(segment, format.SEGMENT_HEADER) as file:
                created_at, packed = file.header().created_at, bool(file.header().packed)
            kept.append(_Kept(segment, size, created_at, packed=packed))
        for earlier, later in pairwise(kept):
            earlier.sealed_at = later.created_at
        if kept:
            kept[-1].sealed_at = int(kept[-1].segment.path.stat().st_mtime * 1e6)
        return kept

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
        with self._state:
            self._check()
            if self._torn:
                self._mend()
            active = self._kept[-1]
            if offset > active.segment.base and (
                active.size >= self._segment_bytes
                or self._frames >= SEGMENT_FRAMES
                or self._clock() - self._opened_at > self._max_age // SHARE
            ):
                self._rotate()
                active = self._kept[-1]
            size = self._write(parts, active)
            if (
                not self._marks
                or self._marks[-1][2] != active.segment.base
                or active.size - self._marks[-1][3] >= MARK_BYTES
            ):
                self._marks.append((offset, self._events, active.segment.base, active.size))
            self._fresh.append(Unsynced(offset, self._events, parts, size))
            self._fresh_bytes += size
            while self._fresh_bytes > UNSYNCED_BYTES:
                self._fresh_bytes -= self._fresh.popleft().size
            active.size += size
            self._bytes += size
            self._events += events
            self._frames += 1
            if chunk.received_at > self._newest:
                self._newest = chunk.received_at
            self.end = offset + len(chunk.data)
        self._counters.stored[chunk.input] += events
        return Frame(offset, chunk)

    def _write(self, parts: tuple[bytes, bytes, bytes], active: _Kept) -> int:
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
            os.ftruncate(self._fd, self._kept[-1].size)
        except OSError:
            if self.end == self._kept[-1].segment.base:  # a new segment would have this one's name
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
            data = format.encode_segment(header, self.describe())
            if os.write(fd, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            os.close(fd)
            with suppress(OSError):
                path.unlink()
            raise OSError(error.errno, f"a raw log segment cannot be begun: {error.strerror}", str(path)) from error
        if self._kept:
            self._kept[-1].sealed_at = created_at
        self._kept.append(_Kept(Segment(generation, self.end, self.log_id, path), len(data), created_at))
        self._bytes += len(data)
        self._fd, self._opened_at, self._folder_synced, self._frames = fd, self._clock(), False, 0

    def _rotate(self) -> None:
        sealed = self._fd
        self._begin(self._kept[-1].segment.generation)
        self._unsynced.append(sealed)

    def sync(self) -> int:
        """fsync of what has been appended; returns ``durable``. For the writer thread.

        Raises OSError when it cannot be made durable, nor be written again elsewhere; the next call tries that again.
        """
        with self._syncing:
            with self._state:
                self._check()
                end, sealed, folder = self.end, list(self._unsynced), not self._folder_synced
                place = self._events, self._kept[-1].segment.base, self._kept[-1].size
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
            kept, fresh, newest = list(self._kept), list(self._fresh), max(self._newest, self._clock())
        old = next(one for one in reversed(kept) if one.segment.base == old_base)
        header = format.SegmentHeader(self.log_id, old.segment.generation, base, event, newest, base)
        made = Rewritten(self._folder, header)
        try:
            after = [one.segment for one in kept if one.segment.log_id == self.log_id and one.segment.base >= old_base]
            rewrite(made, after, fresh, until)
            made.sync()
            synced = made.place
            with self._state:
                if self.end > until:
                    since = [one.segment for one in self._kept[len(kept) - len(after) :]]
                    rewrite(made, since, list(self._fresh), self.end)
                gone = [one for one in self._kept if one.segment.log_id == self.log_id and one.segment.base >= base]
                earlier = old.segment.path if old_base < base else None
                fd = made.take_place([one.segment.path for one in gone], earlier, position)
                for stale in (*self._unsynced, self._fd):
                    os.close(stale)
                self._unsynced, self._fd, self._folder_synced = [], fd, False
                self._kept = [one for one in self._kept if one not in gone]
                if earlier is not None:
                    old.size, old.sealed_at = position, newest
                self._kept.append(_Kept(made.segment, made.size, newest))
                self._bytes = sum(one.size for one in self._kept)
                self._marks = [mark for mark in self._marks if mark[0] < base] + made.marks
                self._frames, self._opened_at, self._newest = made.frames, self._clock(), newest
                self._durable_at = event, base, format.SEGMENT_HEADER
                self._suspect = self._torn = False
        except BaseException:
            made.discard()
            raise
        self._counters.totals["rewritten_bytes"] += made.size
        log.warning(Log.RAW_LOG_REWRITTEN, segment=str(made.segment.path), bytes=made.size, offset=base)
        self._sync_folder()
        with self._state:
            self._folder_synced = True
            self._settle(until, (synced[0], base, synced[1]))

    def tidy(self, judged: int, now: int, *, make_room: bool = False) -> int:
        """For the writer thread, at leisure: set damage aside, ``retain``, go on packing a sealed segment.

        ``make_room``: the disk is full, so the oldest judged segment goes though the budget has room. Returns the bytes
        freed. Raises OSError.
        """
        while self._damaged:
            gap = self._damaged.pop()
            set_aside(self._folder, gap.path, gap.position, min(QUARANTINE_BYTES, self._max_bytes // 8), now, GAP_BYTES)
        freed = self.retain(judged, now, make_room=make_room)
        return freed if make_room else freed + self._pack()

    def _pack(self) -> int:
        """A step of packing; returns the bytes freed."""
        if self._repack is None:
            with self._state:
                chosen = next((a for a, follower in pairwise(self._kept) if self._packable(a, follower)), None)
            if chosen is None:
                return 0
            self._repack = Repack(chosen.segment)
        segment = self._repack.segment
        kept = next((one for one in self._kept if one.segment == segment), None)  # this thread alone takes any away
        try:
            done = self._repack.step()
        except OSError:  # it stays as it is, until the next start
            done = Done(self._repack, 0)
        if done is None:
            return 0
        self._repack = None
        if kept is None:
            done.repack.discard()
            return 0
        with self._state:
            kept.packed = True
            if not done.take_place():
                return 0
            freed, kept.size = kept.size - done.size, done.size
            self._bytes -= freed
            self._marks = [mark for mark in self._marks if mark[2] != segment.base]
        sync_path(self._folder)
        log.info(Log.SEGMENT_PACKED, segment=str(segment.path), bytes=done.size, freed=freed)
        return freed

    def _packable(self, one: _Kept, follower: _Kept) -> bool:
        """Whether it is sealed, on disk, and worth it."""
        if one.packed or one.segment.log_id != self.log_id or follower.segment.base > self.durable:
            return False
        return is_small(follower.segment.base - one.segment.base, one.size)

    def retain(self, judged: int, now: int, *, make_room: bool = False) -> int:
        """Deletes sealed segments, oldest first, that end at or before raw offset ``judged``: those over ``max_age`` at
        ``now``, and others until one more segment fits into ``max_bytes``; with ``make_room`` one more. Returns the
        bytes deleted. Raises OSError.
        """
        deleted = 0
        while True:
            with self._state:
                if len(self._kept) < 2:
                    return deleted
                oldest, follower = self._kept[0], self._kept[1].segment
                aged = now - oldest.sealed_at > self._max_age
                over = self._bytes > self._max_bytes - self._segment_bytes
                unjudged = oldest.segment.log_id == self.log_id and follower.base > judged
                if unjudged or not (aged or over or (make_room and not deleted)):
                    return deleted
            with suppress(FileNotFoundError):
                oldest.segment.path.unlink()
            with self._state:
                del self._kept[0]
                self._bytes -= oldest.size
                if follower.log_id == self.log_id:
                    self.start = follower.base
                    del self._marks[: bisect_right(self._marks, (follower.base, -1))]
            deleted += oldest.size
            log.info(
                Log.SEGMENT_DELETED,
                segment=str(oldest.segment.path),
                bytes=oldest.size,
                reason="over max_age" if aged else "over max_bytes" if over else "the disk is full",
            )

    @property
    def newest(self) -> int:
        """No frame was received after this; 0 for a log that is new."""
        return self._newest if self.end else 0

    def size(self) -> int:
        """Bytes of all segments on disk; what ``quarantine/`` holds is not among them."""
        return self._bytes

    def oldest(self) -> int:
        """When the oldest segment was begun."""
        return self._kept[0].created_at

    def full(self) -> bool:
        """Whether the budget is used up. ``retain`` keeps it from being, as long as judging keeps up."""
        return self._bytes >= self._max_bytes

    def frames(self, start: int, *, count_lost: bool = True) -> Iterator[Frame]:
        """Frames from the one that holds raw offset ``start`` to ``end`` as it is now.

        Damaged ones are passed over with a log line; with ``count_lost`` their events are counted as lost, once.
        Raises OSError.
        """
        on_gap = self._on_gap(count_lost)
        for file, at in self._entries(start, on_gap, read.BODY_WINDOW):
            if (chunk := read.chunk(file, at, on_gap)) is not None:
                yield Frame(at.header.offset, chunk)

    def headers(self, start: int) -> Iterator[read.Header]:
        """What lies from raw offset ``start``, where an event begins, to ``end``: a frame each, in order.

        Frames that damage hides are one of input UNKNOWN: they count as lost when ``frames`` comes to them, not before,
        so that losses and the cursor always agree. Reads bodies as ``read.headers`` does. Raises OSError.
        """
        gaps: list[read.Gap] = []
        for file, at in self._entries(start, gaps.append, None):
            yield from map(read.hidden, gaps)
            gaps.clear()
            yield read.header_of(file, at, start)
        yield from map(read.hidden, gaps)

    def backlog(self, start: int) -> dict[str, int]:
        """Events of ``headers``, by input."""
        counts: dict[str, int] = {}
        for header in self.headers(start):
            counts[header.input] = counts.get(header.input, 0) + header.events
        return counts

    def _entries(self, start: int, on_gap: read.OnGap, window: int | None) -> Iterator[tuple[SegmentFile, Located]]:
        with self._state:
            parts = [kept.segment for kept in self._kept if kept.segment.log_id == self.log_id]
            end = (self.end, self._events)
            i = bisect_right(self._marks, (start, end[1] + 1)) - 1
            mark = self._marks[i] if i >= 0 else None
        if start >= end[0]:
            return iter(())
        return read.entries(parts, start, on_gap=on_gap, end=end, mark=mark, window=window)

    def _on_gap(self, count_lost: bool) -> read.OnGap:
        def on_gap(gap: read.Gap) -> None:
            if count_lost and gap.offset >= self._lost_to:
                self._lost_to = gap.end
                self._counters.lost[gap.input, Lost.DAMAGED] += gap.events
                if len(self._damaged) < 100:
                    self._damaged.append(gap)
                read.report(gap)
            elif not count_lost:
                read.report(gap)

        return on_gap

    def close(self) -> None:
        """Syncs and closes. Closing twice is allowed. Raises OSError when the sync fails; it is closed all the same."""
        if self._lock_fd < 0:
            return
        try:
            if not self._refused:
                self.sync()
        finally:
            self._refused = self._refused or "it is closed"
            if self._repack is not None:
                self._repack.discard()
            self._release()

    def _release(self) -> None:
        with self._syncing, self._state:
            for fd in (*self._unsynced, self._fd, self._lock_fd):
                if fd >= 0:
                    os.close(fd)
            self._unsynced, self._fd, self._lock_fd = [], -1, -1
