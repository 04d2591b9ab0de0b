"""Whether what lies in the raw log can still be read: sealed segments, slowly.

What is evaluated is not read again until somebody asks for it, and a disk that decays says nothing by itself. So once
in ROUND_SECONDS every frame of every sealed segment is read and checked against its checksums, at BYTES_PER_SECOND on
average; while the agent is busy, however long, only as fast as a round within BUSY_ROUND_SECONDS needs. What is found
is logged once and counted as long as its segment is kept; nothing is repaired, nothing counts as lost: what is not
evaluated is counted when evaluation reaches it.

Belongs to the writer thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import structlog

from vedette.model.counters import Log
from vedette.rawlog.segment import Damage, Segment, SegmentFile

log = structlog.get_logger()

BYTES_PER_SECOND = 256 << 10
ROUND_SECONDS = 86_400.0
BUSY_ROUND_SECONDS = 3 * 86_400.0
"""Longest round of a busy agent: 40 KB/s for a raw log of 10 GiB, and never more than that."""
STEP_BYTES = 64 << 10
"""Read at a time; a frame or a compacted one is read whole."""
PLACES = 100
"""Counted in one segment."""


class Verifier:
    """See the module's text. ``clock``: monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._damage: dict[Path, dict[int, str]] = {}
        """By segment: positions of what cannot be read, and why."""
        self._steps: Iterator[int] | None = None
        self._began = self._stepped = clock() - ROUND_SECONDS
        self._read = self._size = 0
        """Bytes read in the last step; of all segments in this round."""
        self.rounds = 0
        """Since the start."""

    def damaged(self) -> int:
        """Places in the segments that are kept, as far as they were looked at."""
        return sum(map(len, list(self._damage.values())))

    def step(self, segments: Sequence[Segment], busy: bool = False) -> None:
        """Go on, if it is time. ``segments``: all, oldest first; the last is being written."""
        now = self._clock()
        if self._steps is None:
            if now < self._began + ROUND_SECONDS:
                return
            for path in self._damage.keys() - {segment.path for segment in segments}:
                del self._damage[path]
            self._steps, self._began, self._read = self._round(list(segments)), now, 0
            self._size = sum(map(_size, segments))
        rate = self._size / BUSY_ROUND_SECONDS
        if now < self._stepped + self._read / (rate if busy else max(rate, BYTES_PER_SECOND)):
            return
        self._read, self._stepped = 0, now
        for size in self._steps:
            self._read += size
            if self._read >= STEP_BYTES:
                return
        self._steps = None
        self.rounds += 1

    def _round(self, segments: list[Segment]) -> Iterator[int]:
        """Bytes read, unit by unit."""
        for segment, follower in pairwise(segments):
            damage: dict[int, str] = {}
            try:
                yield from self._segment(segment, follower if follower.log_id == segment.log_id else None, damage)
            except FileNotFoundError:  # retention was here
                continue
            except OSError as error:
                damage[-1] = str(error)
            for position in sorted(damage.keys() - self._damage.get(segment.path, {}).keys())[:PLACES]:
                log.warning(
                    Log.RAW_LOG_DAMAGED,
                    segment=str(segment.path),
                    position=position,
                    reason=damage[position],
                    action="what lies there cannot be shown any more; look at the disk, and keep what you need of it",
                )
            self._damage[segment.path] = dict(sorted(damage.items())[:PLACES])

    def _segment(self, segment: Segment, follower: Segment | None, damage: dict[int, str]) -> Iterator[int]:
        event, reached = -1, segment.base
        with SegmentFile(segment, STEP_BYTES) as file:
            try:
                event = file.header().first_event
                file.checkpoint()
            except ValueError as error:
                damage[0] = str(error)
            yield file.begin()
            for item in file.units(file.begin(), segment.base):
                if isinstance(item, Damage):
                    damage[item.position] = item.reason
                    event = -1  # what it hid is counted
                    continue
                if follower is not None and item.header.offset >= follower.base:
                    break  # written again there
                if event not in (-1, item.header.first_event):
                    damage[item.position] = "frames before it are missing"
                event, reached = item.header.first_event + item.header.events, item.header.end
                try:
                    file.verify(item)
                except ValueError as error:
                    damage[item.position] = str(error)
                yield item.header.size
            size = file.size
        if follower is not None and event >= 0 and reached != follower.base:
            with suppress(ValueError, FileNotFoundError), SegmentFile(follower) as next_file:
                if next_file.header().first_event != event:
                    damage[size] = "frames at its end are missing"


def _size(segment: Segment) -> int:
    with suppress(OSError):
        return segment.path.stat().st_size
    return 0
