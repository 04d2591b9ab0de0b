"""Which segments a raw log's folder holds, oldest first: what retention deletes of them, and what is compacted.

* Segments of earlier logs come first; those of the log being written follow, and its active one is the last.
* Deleted are sealed segments only, oldest first, and of the log being written only what is evaluated. Where there is a
  ``Keeper``, nothing goes that it does not let go, and what it has claimed is not compacted.
* Compacted (``compaction.py``) are sealed segments that are on disk, each at most once: in steps, and a step that fails
  leaves the segment as it is until the next start.
* ``marks`` point into segments that are there, not compacted: a segment that goes or is compacted takes its marks
  along.

The writer adds to ``kept``, ``marks`` and ``bytes`` and reads them with the lock held. Only the writer thread takes
anything away (``retain``, ``compact``, ``replace``).
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import structlog

from vedette.model.counters import Log
from vedette.rawlog import format
from vedette.rawlog.compaction import compact, is_small
from vedette.rawlog.read import Mark
from vedette.rawlog.segment import Segment, SegmentFile
from vedette.system.descriptors import SPENT
from vedette.system.durable import sync_path

log = structlog.get_logger()


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
    compacted: bool = False
    """Compacted, or not worth it."""


def measure(every: list[Segment]) -> list[Kept]:
    """Sizes, and as the time a segment was sealed the one its successor was created. Raises OSError."""
    kept = []
    for segment in every:
        size, created_at, compacted = segment.path.stat().st_size, int(segment.path.stat().st_mtime * 1e6), False
        with suppress(ValueError), SegmentFile(segment, format.SEGMENT_HEADER) as file:
            created_at, compacted = file.header().created_at, bool(file.header().compacted)
        kept.append(Kept(segment, size, created_at, compacted=compacted))
    for earlier, later in pairwise(kept):
        earlier.sealed_at = later.created_at
    if kept:
        kept[-1].sealed_at = int(kept[-1].segment.path.stat().st_mtime * 1e6)
    return kept


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
        self.kept: list[Kept] = []
        self.bytes = 0
        """Of all segments on disk."""
        self.marks: list[Mark] = []
        """Of the log being written, ascending."""
        self.compaction: tuple[Kept, Generator[None, None, int]] | None = None
        """What is being compacted, and its steps."""

    def fill(self, every: list[Segment]) -> None:
        """What is there at the start. Raises OSError."""
        self.kept = measure(every)
        self.bytes = sum(one.size for one in self.kept)

    def of_log(self, log_id: str, start: int, marks: list[Mark]) -> None:
        """Which log is written from now on."""
        self.log_id, self.start, self.marks = log_id, start, marks

    def add(self, one: Kept) -> None:
        """A segment that follows all others, which are then sealed. With the lock held, or before it is needed."""
        if self.kept:
            self.kept[-1].sealed_at = one.created_at
        self.kept.append(one)
        self.bytes += one.size

    def replace(self, gone: list[Kept], made: Kept, marks: list[Mark]) -> None:
        """``made`` in the place of ``gone``, which were the last. With the lock held."""
        self.kept = [*(one for one in self.kept if one not in gone), made]
        self.bytes = sum(one.size for one in self.kept)
        self.marks = [mark for mark in self.marks if mark[0] < made.segment.base] + marks

    def since(self, base: int) -> list[Kept]:
        """Those of the log being written that begin at raw offset ``base`` or later. With the lock held."""
        return [one for one in self.kept if one.segment.log_id == self.log_id and one.segment.base >= base]

    def parts(self) -> list[Segment]:
        """The segments of the log being written. With the lock held."""
        return [one.segment for one in self.kept if one.segment.log_id == self.log_id]

    def mark(self, offset: int, event: int) -> Mark | None:
        """The last one at or before raw ``offset``; ``event``: the number of the log's next. With the lock held."""
        i = bisect_right(self.marks, (offset, event + 1)) - 1
        return self.marks[i] if i >= 0 else None

    def wanted(self, now: int, *, make_room: bool = False) -> int | None:
        """Up to which raw offset of the log ``retain`` would delete next, if that were evaluated; None: nothing."""
        with self._lock:
            if len(self.kept) < 2 or self.kept[0].segment.log_id != self.log_id or not self._free(self.kept[0]):
                return None
            return self.kept[1].segment.base if make_room or self._aged(now) or self._over() else None

    def _free(self, one: Kept) -> bool:
        return self._keeper is None or self._keeper.lets_go(one.segment.path.name)

    def _aged(self, now: int) -> bool:
        return now - self.kept[0].sealed_at > self._max_age

    def _over(self) -> bool:
        return self.bytes > self._max_bytes - self._segment_bytes

    def retain(self, evaluated: int, now: int, *, make_room: bool = False) -> int:
        """Deletes sealed segments, oldest first, that end at or before raw offset ``evaluated``: those over ``max_age``
        at ``now``, and others until one more segment fits into ``max_bytes``; with ``make_room`` one more. Returns the
        bytes deleted. Raises OSError."""
        deleted = 0
        while True:
            with self._lock:
                if len(self.kept) < 2:
                    return deleted
                oldest, follower = self.kept[0], self.kept[1].segment
                aged, over = self._aged(now), self._over()
                unevaluated = oldest.segment.log_id == self.log_id and follower.base > evaluated
                if unevaluated or not (aged or over or (make_room and not deleted)):
                    return deleted
                if not self._free(oldest):
                    return deleted
            with suppress(FileNotFoundError):
                oldest.segment.path.unlink()
            with self._lock:
                del self.kept[0]
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
                one
                for one, follower in pairwise(self.kept)
                if (one.segment.log_id != self.log_id or follower.segment.base <= durable)
                and not self._compactable(one, follower, durable)
                and (self.compaction is None or self.compaction[0] is not one)
            ]

    def compact(self, durable: int) -> int:
        """A step of compacting what lies before raw offset ``durable``; returns the bytes freed. Raises OSError."""
        if self.compaction is None:
            with self._lock:
                chosen = next((a for a, after in pairwise(self.kept) if self._compactable(a, after, durable)), None)
            if chosen is None:
                return 0
            self.compaction = chosen, compact(chosen.segment)
        one, steps = self.compaction
        size, again = 0, False
        try:
            if one in self.kept:  # retention may have taken it
                next(steps)
                return 0
        except StopIteration as ended:
            size = ended.value
        except OSError as error:
            again = error.errno in SPENT
        self.stop_compaction()
        with self._lock:
            one.compacted = not again
            if not size:
                return 0
            freed, one.size = one.size - size, size
            self.bytes -= freed
            self.marks = [mark for mark in self.marks if mark[2] != one.segment.base]
        sync_path(self._folder)
        log.info(Log.SEGMENT_COMPACTED, segment=str(one.segment.path), bytes=size, freed=freed)
        return freed

    def _compactable(self, one: Kept, follower: Kept, durable: int) -> bool:
        """Whether it is sealed, on disk, and worth it."""
        if one.compacted or one.segment.log_id != self.log_id or follower.segment.base > durable:
            return False
        if self._keeper is not None and self._keeper.claims(one.segment.path.name):
            return False
        return is_small(follower.segment.base - one.segment.base, one.size)

    def stop_compaction(self) -> None:
        if self.compaction is not None:
            self.compaction[1].close()
            self.compaction = None
