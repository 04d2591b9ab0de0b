"""Segments as files: which there are, and reading one while a writer may be appending to it.

A segment is read only as far as its file reached when it was opened. Linux makes bytes visible before it moves a
file's end over them, so within that length only the last frame can be unfinished; it is reported like damage that
nothing follows. Anything else that is no frame is damage: ``units`` says where it begins and looks for the next frame
of the same log (magic, CRC seeded by the log_id, offset not below the expected one). Nothing here writes.

``units`` reads headers and checksums alone, which is what recovery needs, at some 3 µs a frame; ``walk`` reads the
metadata, too, and expands compacted frames.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol, Self

from vedette.model.event import Chunk
from vedette.rawlog import format
from vedette.system.descriptors import SPARE

WINDOW = 4 << 10
"""Bytes read at a time while walking headers: one frame's header and metadata, as a rule."""
_SCAN = 1 << 20
_MAGIC = re.compile(b"|".join(map(re.escape, (format.FRAME_MAGIC, format.COMPACTED_MAGIC))))
TEMPORARY = ".seg.pack"
"""Suffix of a segment that is being compacted (``compaction.py``)."""


class Unreachable(OSError):
    """A segment is in the archive, and cannot be had from there."""


class Archived(Protocol):
    """A segment's copy in an archive (``vedette.archive``)."""

    def open(self) -> int:
        """A descriptor of its bytes. Raises Unreachable; FileNotFoundError when it is not archived."""

    def span(self) -> Known | None:
        """What is known of it without its bytes; None when it is not archived."""


class Known(NamedTuple):
    """Of an archived segment: raw offset behind its last frame, its events, when it was begun, and the first and the
    last ``received_at`` of its frames (0, 0: none was readable)."""

    end: int
    events: int
    created_at: int
    received_from: int
    received_to: int


class Segment(NamedTuple):
    """A segment as its file name tells it. Tuples sort by age."""

    generation: int
    base: int
    log_id: str
    path: Path
    archived: Archived | None = None
    """Where to look for it when its file is gone."""


class Tiers(Protocol):
    """A raw log's folder, and an archive of it."""

    def segments(self) -> list[Segment]:
        """All of them, oldest first. Raises OSError."""


class Unit(NamedTuple):
    """A frame or a compacted one in its segment, its checksums right but for the body's; ``position`` is that of its
    header."""

    header: format.FrameHeader
    position: int

    @property
    def after(self) -> int:
        return self.position + self.header.size


class Located(NamedTuple):
    """A frame in its segment: ``unit``, or a part of it at ``start`` of the events of a compacted frame."""

    header: format.FrameHeader
    meta: format.Meta
    unit: Unit
    start: int = 0


class Damage(NamedTuple):
    """Where in a segment something begins that is no frame of its log."""

    path: Path
    position: int
    reason: str


def segments(folder: Path | Tiers) -> list[Segment]:
    """All segments in ``folder``, oldest first. Raises OSError."""
    if not isinstance(folder, Path):
        return folder.segments()
    listed = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if name := format.parse_segment_name(entry.name):
                listed.append(Segment(*name, Path(entry.path)))
    listed.sort()
    return listed


class SegmentFile:
    """A segment opened for reading, as long as it was then; a context manager. Raises OSError; Unreachable where only
    an archive has it."""

    def __init__(self, segment: Segment, window: int = WINDOW) -> None:
        self.segment = segment
        self._coder = format.Coder(segment.log_id)
        try:
            self._fd = SPARE.open(segment.path)
        except FileNotFoundError:
            if segment.archived is None:
                raise
            self._fd = segment.archived.open()
        self.size = os.fstat(self._fd).st_size
        self._window = window
        self._buffer, self._start = b"", 0
        self._events: tuple[int, bytes] = -1, b""  # of the compacted frame read last, by its position

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        if self._fd >= 0:
            SPARE.close(self._fd)
            self._fd = -1

    def read(self, position: int, size: int) -> bytes:
        """``size`` bytes from ``position``; fewer where the segment ends."""
        size = max(0, min(size, self.size - position))
        start = position - self._start
        if start < 0 or start + size > len(self._buffer):
            self._buffer = os.pread(self._fd, max(size, min(self._window, self.size - position)), position)
            self._start, start = position, 0
        return self._buffer[start : start + size]

    def header(self) -> format.SegmentHeader:
        """The segment's header; raises ValueError when it is damaged or another segment's."""
        header = format.decode_segment(self.read(0, format.SEGMENT_HEADER))
        if header[:3] != (self.segment.log_id, self.segment.generation, self.segment.base):
            raise ValueError("segment header and file name disagree")
        return header

    def checkpoint(self) -> bytes:
        """The segment's checkpoint; raises ValueError when it or the header is damaged."""
        header = self.header()
        checkpoint = self.read(format.SEGMENT_HEADER, header.checkpoint_size)
        format.verify_checkpoint(header, checkpoint)
        return checkpoint

    def begin(self) -> int:
        """Position of the first frame, or where to look for it when the header is damaged."""
        try:
            return self.header().size
        except ValueError:
            return format.SEGMENT_HEADER

    def unit(self, position: int) -> Unit:
        """The frame whose header is at ``position``; raises ValueError with the reason. Its body is not
        checked."""
        header = self._coder.header(self.read(position, format.FRAME_HEADER))
        if position + header.size > self.size:
            raise ValueError("frame is cut short")
        self._coder.verify_meta(header, self.read(position + format.FRAME_HEADER, header.meta_size))
        return Unit(header, position)

    def frames(self, unit: Unit) -> list[Located]:
        """The frames of a unit; raises ValueError when its metadata cannot be read."""
        data = self.meta(unit)
        if not unit.header.compacted:
            return [Located(unit.header, self._coder.meta(unit.header, data), unit)]
        first = unit.header.offset
        return [
            Located(header, meta, unit, header.offset - first) for header, meta in self._coder.unpack(unit.header, data)
        ]

    def meta(self, unit: Unit) -> bytes:
        return self.read(unit.position + format.FRAME_HEADER, unit.header.meta_size)

    def body(self, unit: Unit) -> bytes:
        return self.read(unit.position + format.FRAME_HEADER + unit.header.meta_size, unit.header.body_size)

    def verify(self, unit: Unit) -> None:
        """Raises ValueError when the body of the unit is damaged; decompresses nothing."""
        self._coder.verify(unit.header, self.body(unit))

    def chunk(self, at: Located) -> Chunk:
        """The frame's chunk; raises ValueError when its body is damaged."""
        unit = at.unit
        if not unit.header.compacted:
            return self._coder.chunk(at.header, at.meta, self.body(unit))
        if self._events[0] != unit.position:
            self._events = unit.position, self._coder.events(unit.header, self.body(unit))
        return self._coder.chunk_of(at.header, at.meta, self._events[1][at.start : at.start + at.header.raw_size])

    def find(self, position: int, offset: int) -> Unit | None:
        """The first frame of this log at or after ``position`` whose raw offset is ``offset`` or more."""
        while position < self.size:
            block = os.pread(self._fd, min(_SCAN, self.size - position), position)
            for match in _MAGIC.finditer(block):
                try:
                    at = self.unit(position + match.start())
                except ValueError:
                    continue
                if at.header.offset >= offset:
                    return at
            position += max(1, len(block) - len(format.FRAME_MAGIC) + 1)
        return None

    def units(self, position: int, offset: int) -> Iterator[Unit | Damage]:
        """Frames from the one at ``position`` on, whose raw offset should be ``offset``.

        A Damage tells where bytes were skipped; nothing after it: no frame follows in this segment.
        """
        while position < self.size:
            try:
                at = self.unit(position)
                if at.header.offset < offset:
                    raise ValueError("frame does not follow the one before it")
            except ValueError as error:
                yield Damage(self.segment.path, position, str(error))
                resumed = self.find(position + 1, offset)
                if resumed is None:
                    return
                at = resumed
            yield at
            position, offset = at.after, at.header.end

    def walk(self, position: int, offset: int) -> Iterator[Located | Damage]:
        """The single frames of ``units``, with their metadata."""
        for unit in self.units(position, offset):
            if isinstance(unit, Damage):
                yield unit
                continue
            try:
                frames = self.frames(unit)
            except ValueError as error:
                yield Damage(self.segment.path, unit.position, str(error))
            else:
                yield from frames
