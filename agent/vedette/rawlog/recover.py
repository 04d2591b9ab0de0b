"""Where a raw log ends after a crash, and making it end there.

What was known to be on disk is known for certain: every frame states how far its log was ``durable`` when it was
written, and nothing is committed past that. So from the newest segments:

1. The **safe** offset is the highest of the committed one and every ``durable`` found.
2. From the segment that holds it the frames are checked, bodies included. A hole or a bad frame *below* it is damage:
   it stays where it is, and reading passes over it. The first one *at or above* it is a write that never finished:
   the log is **cut** there, with all that follows, because an input that got no acknowledgement sends it again.
3. What is cut is kept in ``damaged/`` (the oldest there gives way), then the file is truncated; the segments
   looked at and the folder are synced, so that all that remains is durable.

When the committed offset is not ``certain`` (the store was rebuilt), anything may have been committed and acknowledged:
every frame that can be read stays, what cannot is damage, and only what follows the last frame is cut.

Offsets that may have been used must never name other events. So where the log ends below the committed offset it goes
on there, and when that is not certain APART further on: ``first_event`` goes on without a gap, so readers see that
nothing is missing in between. A new log, with a new log_id, begins only when nothing of the old one can be read.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from vedette.rawlog.read import Mark
from vedette.rawlog.segment import Damage, Segment, SegmentFile, Unit
from vedette.system.durable import sync_path

DAMAGED = "damaged"
"""Folder beside the segments, for copies of what was cut or is damaged."""
DAMAGED_BYTES = 64 << 20
"""What damaged/ holds at most; also at most an eighth of the log's own budget."""
MARK_BYTES = 1 << 20
"""Of a segment, between two marks."""
APART = 1 << 40
"""Raw offsets left out after a log of which it is not known how far it was used."""
_ANY = 1 << 63
"""Above every offset."""


class Recovery(NamedTuple):
    """What opening a log did to it: ``cut_bytes`` of segment files from raw offset ``cut_at`` on, and why.

    ``resumed_at``: the offset further on at which it continues; 0: it continues where it ended."""

    cut_bytes: int = 0
    cut_at: int = 0
    new_log: bool = False
    reason: str = ""
    resumed_at: int = 0


@dataclass(slots=True)
class Ending:
    """How a log ends. Without ``parts`` nothing of it can be read."""

    parts: list[Segment]
    safe: int = 0
    """Raw offset below which all was on disk."""
    end: int = 0
    """Raw offset."""
    events: int = 0
    """Number of the next event."""
    newest: int = 0
    """Time of the newest frame."""
    frames: int = 0
    """In the last segment."""
    marks: list[Mark] = field(default_factory=list)
    """Places to begin reading at."""
    cut_bytes: int = 0
    reason: str = ""

    def take(self, segment: Segment, follower: Segment | None) -> tuple[int, str] | None:
        """Walk one segment forward. None when it is good to its end, else the position to cut it at, and why.

        What lies in it from the ``follower``'s base on was written again there, after a sync that failed.
        """
        marked, damage = -MARK_BYTES, None
        limit = None if follower is None else follower.base
        self.end = max(self.end, segment.base)
        with SegmentFile(segment, 256 << 10) as file:
            good = file.begin()
            try:
                header = file.header()
                self.newest = max(self.newest, header.created_at)
                if self.end == segment.base:
                    self.events = header.first_event
            except ValueError:
                self.newest = max(self.newest, int(segment.path.stat().st_mtime * 1e6))
            for item in file.units(good, self.end):
                if isinstance(item, Damage):
                    damage = item
                    continue
                frame = item.header
                if limit is not None and frame.offset >= limit:
                    break
                if frame.offset > self.end >= self.safe:
                    return good, damage.reason if damage else "frames are missing"
                try:
                    file.verify(item)
                except ValueError as error:
                    if frame.offset >= self.safe:
                        return good, str(error)
                if item.position - marked >= MARK_BYTES:
                    self.marks.append((frame.offset, frame.first_event, segment.base, item.position))
                    marked = item.position
                self.end, self.events = frame.end, frame.first_event + frame.events
                self.frames = self.frames + 1 if follower is None else 0
                self.newest = max(self.newest, frame.received_at)
                good, damage = item.after, None
        if damage is None or self.end == limit:  # a write that was taken up again in the next segment misses nothing
            return None
        return good, damage.reason


def keep_copy(folder: Path, path: Path, position: int, budget: int, now: int, size: int = 1 << 62) -> str:
    """Keep ``size`` bytes of ``path`` from ``position`` on, at most ``budget``; returns the reason when that fails."""
    kept_in = folder / DAMAGED
    target = kept_in / f"{path.name}.{position}.{now}.cut"
    temporary = target.with_suffix(".tmp")
    try:
        kept_in.mkdir(mode=0o750, exist_ok=True)
        left = min(path.stat().st_size - position, budget, size)
        files = sorted((f for f in kept_in.iterdir() if f.is_file()), key=lambda f: f.stat().st_mtime_ns)
        while files and sum(f.stat().st_size for f in files) + left > budget:
            files.pop(0).unlink()
        with path.open("rb") as source, temporary.open("wb") as sink:
            source.seek(position)
            while left > 0 and (block := source.read(min(left, 1 << 20))):
                sink.write(block)
                left -= len(block)
            sink.flush()
            os.fsync(sink.fileno())
        temporary.rename(target)
        sync_path(kept_in)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        return f"; the cut bytes could not be kept: {error}"
    return ""


def _bare(segment: Segment) -> bool:
    """Whether nothing can be learnt from the file: its header is unreadable and it holds no frame."""
    with SegmentFile(segment) as file:
        try:
            file.header()
        except ValueError:
            return file.find(0, segment.base) is None
    return False


def _safe(parts: list[Segment], committed: int) -> tuple[int, int]:
    """The offset below which all was on disk, and the index of the segment that holds it."""
    safe = committed
    for i in range(len(parts) - 1, -1, -1):
        with SegmentFile(parts[i]) as file:
            with suppress(ValueError):  # each frame has it as well
                safe = max(safe, file.header().durable)
            for item in file.units(file.begin(), parts[i].base):
                if isinstance(item, Unit):
                    safe = max(safe, item.header.durable)
        if parts[i].base <= safe:
            return safe, i
    return safe, 0


def recover(
    folder: Path, parts: list[Segment], committed: int, budget: int, now: int, *, certain: bool = True
) -> Ending:
    """Makes the log of ``parts`` (its segments, oldest first) end at its last good frame.

    ``committed``: the highest raw offset ever committed of this log, if that is ``certain``. ``budget``: bytes to keep
    of what is cut. Raises OSError.
    """
    ending = Ending(list(parts))
    parts = ending.parts

    def drop(segment: Segment, position: int) -> None:
        size = segment.path.stat().st_size
        if size > position:
            ending.reason += keep_copy(folder, segment.path, position, budget, now)
            ending.cut_bytes += size - position
        if position:
            os.truncate(segment.path, position)
        else:
            segment.path.unlink()

    while parts and _bare(parts[-1]):
        ending.reason = ending.reason or "the newest segment was never finished"
        drop(parts.pop(), 0)
    if not parts:
        sync_path(folder)
        return ending
    safe, first = _safe(parts, committed)
    ending.safe, ending.end = safe if certain else _ANY, parts[first].base
    for i in range(first, len(parts)):
        last = i + 1 == len(parts)
        cut: tuple[int, str] | None
        if parts[i].base > ending.end >= ending.safe:
            cut = 0, "frames before this segment are missing"
        else:
            cut = ending.take(parts[i], None if last else parts[i + 1])
            # What is no frame at the end of an earlier segment is damage when it was safe, like any hole.
            if cut is None or (not last and ending.end < ending.safe):
                continue
        position, reason = cut
        ending.reason = reason + ending.reason
        for segment in reversed(parts[i + 1 :]):
            drop(segment, 0)
        drop(parts[i], position)
        del parts[i + 1 if position else i :]
        break
    for segment in parts[first:]:
        sync_path(segment.path)
    sync_path(folder)
    return ending
