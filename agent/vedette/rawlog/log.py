"""The raw log's one writer: append, sync, rotate, retain. Bytes: ``format.py``; after a crash: ``recover.py``.

* ``append`` hands a whole frame to the kernel before it returns: it survives the death of the process. What ``sync``
  has covered (``durable``) survives the death of the host.
* Offsets only rise, and (log_id, offset) never names two events. Every frame takes at least one byte of them.
* A segment is sealed when it reaches ``segment_bytes`` (at most a quarter of ``max_bytes``) or has been written for a
  quarter of ``max_age``; ``retain`` deletes sealed segments only, oldest first, and only what is judged.
* A write that fails is taken back, so that the log stays whole, and raises: the caller may try again. When that is
  not possible, or a sync fails (the kernel may then have forgotten what it could not write), the log takes no more:
  every later ``append`` and ``sync`` raises OSError.
* The folder is locked (``lock``) against a second writer. Readers need no lock.

``append`` belongs to one thread (the event loop), ``sync`` and ``retain`` to one (the writer), which may be another.
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
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from vedette.config import RawLogSettings
from vedette.event import Chunk, Cursor, Frame
from vedette.rawlog import format, read
from vedette.rawlog.recover import MARK_BYTES, QUARANTINE_BYTES, Ending, Recovery, recover, sync_path
from vedette.rawlog.segment import Located, Segment, SegmentFile, segments
from vedette.report import Counters, Log, Lost

log = structlog.get_logger()

SHARE = 4
"""A segment takes at most this part of the budget in bytes, and of the age."""


def _now() -> int:
    return time.time_ns() // 1000


@dataclass(slots=True)
class _Kept:
    """A segment that exists; ``sealed_at``: no frame in it was received after this (0: still written)."""

    segment: Segment
    size: int
    sealed_at: int = 0


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
        clock: Callable[[], int] = _now,
    ) -> RawLog:
        """The log in ``folder``, recovered, or a new one; see ``recover.py``. ``recovery`` tells what was done.

        ``committed`` is the highest cursor ever committed. Raises OSError, also when another process has the log open.
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
            self._open(committed)
        except BaseException:
            self._release()
            raise
        return self

    def _open(self, committed: Cursor | None) -> None:
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
        new = not ending.parts or ending.end < known
        reason = ending.reason
        if new:
            if ending.parts:
                reason = reason or "frames at its end are missing"
                reason += f"; it ends at {ending.end}, below the committed offset {known}, so a new log begins"
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
            self._opened_at = self._created_at(ending.parts[-1])
            self._kept[-1].sealed_at = 0
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

    def _created_at(self, segment: Segment) -> int:
        try:
            with SegmentFile(segment) as file:
                return file.header().created_at
        except ValueError:
            return int(segment.path.stat().st_mtime * 1e6)

    def _measure(self, every: list[Segment]) -> list[_Kept]:
        """Sizes, and as the time a segment was sealed the one its successor was created."""
        kept = [_Kept(segment, segment.path.stat().st_size) for segment in every]
        for earlier, later in zip(kept, every[1:], strict=False):
            earlier.sealed_at = self._created_at(later)
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
            active = self._kept[-1]
            if offset > active.segment.base and (
                active.size >= self._segment_bytes or self._clock() - self._opened_at > self._max_age // SHARE
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
            active.size += size
            self._bytes += size
            self._events += events
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
            except OSError as second:
                self._refused = f"a failed write could not be taken back: {second}"
            raise OSError(
                error.errno, f"the raw log cannot be written: {error.strerror}", str(active.segment.path)
            ) from error
        return size

    def _check(self) -> None:
        if self._refused:
            raise OSError(errno.EIO, f"the raw log takes no more: {self._refused}", str(self._folder))

    def _begin(self, generation: int) -> None:
        """Makes the segment that starts at ``end`` the active one."""
        path = self._folder / format.segment_name(generation, self.end, self.log_id)
        # What decides about age never goes back, nor below a received_at: see SegmentHeader.
        created_at = self._newest = max(self._newest, self._clock())
        header = format.SegmentHeader(self.log_id, generation, self.end, self._events, created_at, self.durable)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o640)
        try:
            data = format.encode_segment(header)
            if os.write(fd, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            os.close(fd)
            with suppress(OSError):
                path.unlink()
            raise OSError(error.errno, f"a raw log segment cannot be begun: {error.strerror}", str(path)) from error
        if self._kept:
            self._kept[-1].sealed_at = created_at
        self._kept.append(_Kept(Segment(generation, self.end, self.log_id, path), len(data)))
        self._bytes += len(data)
        self._fd, self._opened_at, self._folder_synced = fd, self._clock(), False

    def _rotate(self) -> None:
        sealed = self._fd
        self._begin(self._kept[-1].segment.generation)
        self._unsynced.append(sealed)

    def sync(self) -> int:
        """fsync of what has been appended; returns ``durable``. For the writer thread. Raises OSError."""
        with self._syncing:
            with self._state:
                self._check()
                end, sealed, folder = self.end, list(self._unsynced), not self._folder_synced
                self._folder_synced = True
                if end == self.durable and not sealed and not folder:
                    return end
                files = [*sealed, self._fd]
            try:
                for fd in files:
                    os.fsync(fd)
                if folder:
                    sync_path(self._folder)
            except OSError as error:
                self._refused = f"it could not be synced: {error.strerror}"
                raise OSError(
                    error.errno, f"the raw log cannot be synced: {error.strerror}", str(self._folder)
                ) from error
            with self._state:
                del self._unsynced[: len(sealed)]
                self.durable = end
            for fd in sealed:
                os.close(fd)
            return end

    def retain(self, judged: int, now: int) -> int:
        """Deletes sealed segments, oldest first, that end at or before raw offset ``judged``: those over ``max_age`` at
        ``now``, and others until one more segment fits into ``max_bytes``. Returns the bytes deleted. Raises OSError.
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
                if unjudged or not (aged or over):
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
                reason="over max_age" if aged else "over max_bytes",
            )

    @property
    def newest(self) -> int:
        """No frame was received after this; 0 for a log that is new."""
        return self._newest if self.end else 0

    def size(self) -> int:
        """Bytes of all segments on disk; what ``quarantine/`` holds is not among them."""
        return self._bytes

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
            self._release()

    def _release(self) -> None:
        with self._syncing, self._state:
            for fd in (*self._unsynced, self._fd, self._lock_fd):
                if fd >= 0:
                    os.close(fd)
            self._unsynced, self._fd, self._lock_fd = [], -1, -1
