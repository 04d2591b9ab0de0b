"""After a sync that failed: what was not on disk is written again, to a segment of its own.

The kernel reports a failed write once, and may then forget the pages. So the file is not trusted any more: the frames
above ``durable`` come from memory, where the writer keeps the newest, and what is not there is read back from the old
segments as far as its checksums are right. The new file is written under another name (``.seg.new``), synced, and
renamed; then the later segments go and the earlier one is cut where the new one begins. Where it cannot be cut, readers
pass over the rest: a segment counts up to the base of the next. Frames are copied byte for byte, so offsets stay.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from vedette.rawlog import format
from vedette.rawlog.read import Mark
from vedette.rawlog.recover import MARK_BYTES
from vedette.rawlog.segment import Damage, Segment, SegmentFile

NEW = ".seg.new"


class Unsynced(NamedTuple):
    """A frame that was written and is not known to be on disk: raw offset, its first event's number, its bytes."""

    offset: int
    first_event: int
    parts: tuple[bytes, bytes, bytes]
    size: int


class Rewritten:
    """The segment being written. Raises OSError."""

    def __init__(self, folder: Path, header: format.SegmentHeader) -> None:
        path = folder / format.segment_name(header.generation, header.base, header.log_id)
        self.segment = Segment(header.generation, header.base, header.log_id, path)
        self.marks: list[Mark] = []
        self.frames = 0
        self.offset = header.base
        """Of the next frame to take."""
        self._event = header.first_event
        self._temporary = path.with_suffix(NEW)
        self._fd = os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o640)
        self.size = 0
        self._write(format.encode_segment(header))

    @property
    def place(self) -> tuple[int, int]:
        """Number of the event and position after what was written."""
        return self._event, self.size

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._fd, rest) :]
        self.size += len(data)

    def frame(self, header: format.FrameHeader, data: bytes) -> None:
        if not self.marks or self.size - self.marks[-1][3] >= MARK_BYTES:
            self.marks.append((header.offset, header.first_event, self.segment.base, self.size))
        self._write(data)
        self.frames += 1
        self.offset, self._event = header.end, header.first_event + header.events

    def sync(self) -> None:
        os.fsync(self._fd)

    def take_place(self, later: Iterable[Path], earlier: Path | None, position: int) -> int:
        """Puts the file in place of the ``later`` ones and cuts the ``earlier`` one at ``position``; returns the
        descriptor to go on writing with."""
        self._temporary.rename(self.segment.path)
        for path in later:
            if path != self.segment.path:
                with suppress(FileNotFoundError):
                    path.unlink()
        if earlier is not None:
            with suppress(OSError):
                os.truncate(earlier, position)
        fd, self._fd = self._fd, -1
        return fd

    def discard(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            with suppress(OSError):
                self._temporary.unlink()


def rewrite(target: Rewritten, old: Iterable[Segment], fresh: list[Unsynced], until: int) -> None:
    """The frames from ``target.offset`` to ``until`` into ``target``: those of ``fresh``, and before them those of the
    ``old`` segments. What can be read no more is left out: a hole, which reading counts."""
    coder = format.Coder(target.segment.log_id)
    fresh = [frame for frame in fresh if target.offset <= frame.offset < until]
    fresh_from = fresh[0].offset if fresh else until
    for segment in old if target.offset < fresh_from else ():
        with suppress(FileNotFoundError), SegmentFile(segment, 256 << 10) as file:
            for unit in file.units(file.begin(), segment.base):
                if isinstance(unit, Damage) or unit.header.offset < target.offset:
                    continue
                if unit.header.offset >= fresh_from:
                    break
                with suppress(ValueError):
                    file.verify(unit)
                    target.frame(unit.header, file.read(unit.position, unit.header.size))
    for frame in fresh:
        data = b"".join(frame.parts)
        target.frame(coder.header(data), data)
