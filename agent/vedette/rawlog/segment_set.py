"""Which segments a raw log's folder holds, oldest first: what retention deletes of them, and what is compacted.

* Segments of earlier logs come first; those of the log being written follow, and its active one is the last.
* Deleted are sealed segments only, oldest first, and of the log being written only what is evaluated. Where there is a
  ``Keeper``, nothing goes that it does not let go, and what it has claimed is not compacted.
* Compacted (``compaction.py``, imported with the first) are sealed segments that are on disk, each at most once: in
  steps, and a step that fails leaves the segment as it is until the next start.
* The age of a segment that was sealed while the clock was ahead begins when that is seen. How much of it has passed is
  noted in its file's modification time, which then lies so long after its sealing: a restart goes on from there.
* ``marks`` point into segments that are there, not compacted: a segment that goes or is compacted takes its marks
  along.

The writer adds to ``entries``, ``marks`` and ``bytes`` and reads them with the lock held. Only the writer thread takes
anything away (``retain``, ``compact``, ``replace``).
"""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_right
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Protocol

import structlog

from vedette.model.counters import Log
from vedette.rawlog import format
from vedette.rawlog.read import Mark
from vedette.rawlog.segment import Segment, SegmentFile
from vedette.system.descriptors import SPENT
from vedette.system.durable import sync_path

log = structlog.get_logger()

WORTH = 3.0
"""Raw bytes for each byte of a segment, from which on compaction would gain little."""
NOTE_SECONDS = 60.0
"""Between two notes of an age."""
LEAST = 16 << 10
"""Bytes of a segment below which nothing is gained by it."""


class Keeper(Protocol):
    """Who has copies of sealed segments (``vedette.archive``); asked from the writer's threads, by file name."""

    def lets_go(self, segment: str) -> bool:
        """Whether it may be deleted here."""

    def claims(self, segment: str) -> bool:
        """Whether its bytes must stay as they are."""


@dataclass(slots=True)
class Kept:
    """A segment that exists; ``sealed_at``: no frame in it was received after this (0: still written)."""

    segment: Segment
    size: int
    created_at: int
    sealed_at: int = 0
    ahead_since: float = 0.0
    """Since when (monotonic seconds) it is known that the clock was ahead when it was sealed, in earlier lives too."""
    noted_at: float = 0.0
    """When (monotonic seconds) that was noted last."""
    compacted: bool = False
    """Compacted, or not worth it."""

    def older(self, now: int, age: int) -> bool:
        """Whether it was sealed more than ``age`` microseconds before ``now``. Of what the clock says was sealed after
        ``now`` nobody knows when that was: its age begins when it is noted first."""
        if self.sealed_at <= now:
            return now - self.sealed_at > age
        return self.ahead_since != 0 and (time.monotonic() - self.ahead_since) * 1e6 > age

    def note(self) -> None:
        """Of one that was sealed while the clock was ahead: take up what an earlier life has noted, or note what has
        passed. Not with the log's lock held, as it may wait for the disk."""
        at = time.monotonic()
        if self.ahead_since and at - self.noted_at < NOTE_SECONDS:
            return
        self.noted_at = at
        path, sealed = self.segment.path, self.sealed_at * 1000
        with suppress(OSError):  # what is not noted is waited for again after a restart
            if not self.ahead_since:
                self.ahead_since = at - max(0, path.stat().st_mtime_ns - sealed) / 1e9
            else:
                passed = sealed + round((at - self.ahead_since) * 1e9)
                os.utime(path, ns=(passed, passed))
        self.ahead_since = self.ahead_since or at


def measure(every: list[Segment]) -> list[Kept]:
    """Sizes, and as the time a segment was sealed the one its successor was created. Raises OSError."""
    entries = []
    for segment in every:
        size, created_at, compacted = segment.path.stat().st_size, int(segment.path.stat().st_mtime * 1e6), False
        with suppress(ValueError), SegmentFile(segment, format.SEGMENT_HEADER) as file:
            created_at, compacted = file.header().created_at, bool(file.header().compacted)
        entries.append(Kept(segment, size, created_at, compacted=compacted))
    for earlier, later in pairwise(entries):
        earlier.sealed_at = later.created_at
    if entries:
        entries[-1].sealed_at = int(entries[-1].segment.path.stat().st_mtime * 1e6)
    return entries


class SegmentSet:
    """See the module's text. ``max_age`` in microseconds; ``segment_bytes``: room that the next segment needs."""

    log_id: str
    """Of the log being written."""
    start: int
    """Raw offset of its oldest byte kept."""

    def __init__(
        self, folder: Path, lock: threading.Lock, max_bytes: int, max_age: int, segment_bytes: int,
        keeper: Keeper | None = None,
    ) -> None:  # fmt: skip
        self._folder, self._lock, self._keeper = folder, lock, keeper
        self._max_bytes, self._max_age, self._segment_bytes = max_bytes, max_age, segment_bytes
        self.entries: list[Kept] = []
        self.bytes = 0
        """Of all segments on disk."""
        self.marks: list[Mark] = []
        """Of the log being written, ascending."""
        self.compaction: tuple[Kept, Generator[None, None, int]] | None = None
        """What is being compacted, and its steps."""

    def fill(self, every: list[Segment]) -> None:
        """What is there at the start. Raises OSError."""
        self.entries = measure(every)
        self.bytes = sum(entry.size for entry in self.entries)

    def of_log(self, log_id: str, start: int, marks: list[Mark]) -> None:
        """Which log is written from now on."""
        self.log_id, self.start, self.marks = log_id, start, marks

    def add(self, entry: Kept) -> None:
        """A segment that follows all others, which are then sealed. With the lock held, or before it is needed."""
        if self.entries:
            self.entries[-1].sealed_at = entry.created_at
        self.entries.append(entry)
        self.bytes += entry.size

    def replace(self, gone: list[Kept], rewritten: Kept, marks: list[Mark]) -> None:
        """``rewritten`` in the place of ``gone``, which were the last. With the lock held."""
        self.entries = [*(entry for entry in self.entries if entry not in gone), rewritten]
        self.bytes = sum(entry.size for entry in self.entries)
        self.marks = [mark for mark in self.marks if mark[0] < rewritten.segment.base] + marks

    def since(self, base: int) -> list[Kept]:
        """Those of the log being written that begin at raw offset ``base`` or later. With the lock held."""
        return [entry for entry in self.entries if entry.segment.log_id == self.log_id and entry.segment.base >= base]

    def parts(self) -> list[Segment]:
        """The segments of the log being written. With the lock held."""
        return [entry.segment for entry in self.entries if entry.segment.log_id == self.log_id]

    def mark(self, offset: int, event: int) -> Mark | None:
        """The last one at or before raw ``offset``; ``event``: the number of the log's next. With the lock held."""
        i = bisect_right(self.marks, (offset, event + 1)) - 1
        return self.marks[i] if i >= 0 else None

    def wanted(self, now: int, *, make_room: bool = False) -> int | None:
        """Up to which raw offset of the log ``retain`` would delete next, if that were evaluated; None: nothing."""
        with self._lock:
            if (
                len(self.entries) < 2
                or self.entries[0].segment.log_id != self.log_id
                or not self._free(self.entries[0])
            ):
                return None
            aged = self.entries[0].older(now, self._max_age)
            return self.entries[1].segment.base if make_room or aged or self._over() else None

    def _free(self, entry: Kept) -> bool:
        return self._keeper is None or self._keeper.lets_go(entry.segment.path.name)

    def _over(self) -> bool:
        return self.bytes > self._max_bytes - self._segment_bytes

    def retain(self, evaluated: int, now: int, *, make_room: bool = False) -> int:
        """Deletes sealed segments, oldest first, that end at or before raw offset ``evaluated``: those over ``max_age``
        at ``now``, and others until one more segment fits into ``max_bytes``; with ``make_room`` one more. Returns the
        bytes deleted. Raises OSError."""
        deleted = 0
        with self._lock:  # the newest are the first whose time can lie ahead
            ahead = list(takewhile(lambda entry: entry.sealed_at > now, reversed(self.entries[:-1])))
        for entry in ahead:
            entry.note()
        while True:
            with self._lock:
                if len(self.entries) < 2:
                    return deleted
                oldest, follower = self.entries[0], self.entries[1].segment
                aged, over = oldest.older(now, self._max_age), self._over()
                unevaluated = oldest.segment.log_id == self.log_id and follower.base > evaluated
                if unevaluated or not (aged or over or (make_room and not deleted)):
                    return deleted
                if not self._free(oldest):
                    return deleted
            with suppress(FileNotFoundError):
                oldest.segment.path.unlink()
            with self._lock:
                del self.entries[0]
                self.bytes -= oldest.size
                if follower.log_id == self.log_id:
                    self.start = follower.base
                    del self.marks[: bisect_right(self.marks, (follower.base, -1))]
            deleted += oldest.size
            log.info(
                Log.SEGMENT_DELETED,
                segment=str(oldest.segment.path),
                bytes=oldest.size,
                reason="over max_age" if aged else "over max_bytes" if over else "the disk is full",
            )

    def final(self, durable: int) -> list[Kept]:
        """Sealed segments that are on disk and change no more, oldest first."""
        with self._lock:
            return [
                entry
                for entry, follower in pairwise(self.entries)
                if (entry.segment.log_id != self.log_id or follower.segment.base <= durable)
                and not self._compactable(entry, follower, durable)
                and (self.compaction is None or self.compaction[0] is not entry)
            ]

    def compact(self, durable: int) -> int:
        """A step of compacting what lies before raw offset ``durable``; returns the bytes freed. Raises OSError."""
        if self.compaction is None:
            with self._lock:
                chosen = next((a for a, after in pairwise(self.entries) if self._compactable(a, after, durable)), None)
            if chosen is None:
                return 0
            from vedette.rawlog.compaction import compact

            self.compaction = chosen, compact(chosen.segment)
        entry, steps = self.compaction
        size, again = 0, False
        try:
            if entry in self.entries:  # retention may have taken it
                next(steps)
                return 0
        except StopIteration as ended:
            size = ended.value
        except OSError as error:
            again = error.errno in SPENT
        self.stop_compaction()
        with self._lock:
            entry.compacted = not again
            if not size:
                return 0
            freed, entry.size = entry.size - size, size
            self.bytes -= freed
            self.marks = [mark for mark in self.marks if mark[2] != entry.segment.base]
        sync_path(self._folder)
        log.info(Log.SEGMENT_COMPACTED, segment=str(entry.segment.path), bytes=size, freed=freed)
        return freed

    def _compactable(self, entry: Kept, follower: Kept, durable: int) -> bool:
        """Whether it is sealed, on disk, and worth it."""
        if entry.compacted or entry.segment.log_id != self.log_id or follower.segment.base > durable:
            return False
        if self._keeper is not None and self._keeper.claims(entry.segment.path.name):
            return False
        return is_small(follower.segment.base - entry.segment.base, entry.size)

    def stop_compaction(self) -> None:
        if self.compaction is not None:
            self.compaction[1].close()
            self.compaction = None


def is_small(raw: int, size: int) -> bool:
    """Whether a segment of ``size`` bytes that holds ``raw`` bytes of events is worth compacting."""
    return size >= LEAST and raw < WORTH * size
