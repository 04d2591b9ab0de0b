"""Segments as files: which there are, and reading one while a writer may be appending to it.

A segment is read only as far as its file reached when it was opened. Linux makes bytes visible before it moves a
file's end over them, so within that length only the last frame can be unfinished; it is reported like damage that
nothing follows. Anything else that is no frame is damage: ``walk`` says where it begins and looks for the next frame
of the same log (magic, CRC seeded by the log_id, offset not below the expected one). Nothing here writes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self

from vedette.event import Chunk
from vedette.rawlog import format

WINDOW = 4 << 10
"""Bytes read at a time while walking headers: one frame's header and metadata, as a rule."""
_SCAN = 1 << 20


class Segment(NamedTuple):
    """A segment as its file name tells it. Tuples sort by age."""

    generation: int
    base: int
    log_id: str
    path: Path


class Located(NamedTuple):
    """A frame in its segment; ``position`` is that of its header in the file."""

    header: format.FrameHeader
    meta: format.Meta
    position: int

    @property
    def after(self) -> int:
        """Position after the frame."""
        return self.position + self.header.size


class Damage(NamedTuple):
    """Where in a segment something begins that is no frame of its log."""

    path: Path
    position: int
    reason: str


def segments(folder: Path) -> list[Segment]:
    """All segments in ``folder``, oldest first. Raises OSError."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if name := format.parse_segment_name(entry.name):
                found.append(Segment(*name, Path(entry.path)))
    found.sort()
    return found


class SegmentFile:
    """A segment opened for reading, as long as it was then; a context manager. Raises OSError."""

    def __init__(self, segment: Segment, window: int = WINDOW) -> None:
        self.segment = segment
        self._coder = format.Coder(segment.log_id)
        self._fd = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
        self.size = os.fstat(self._fd).st_size
        self._window = window
        self._buffer, self._start = b"", 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
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

    def locate(self, position: int) -> Located:
        """The frame whose header is at ``position``; raises ValueError with the reason. Its body is not checked."""
        header = self._coder.header(self.read(position, format.FRAME_HEADER))
        if position + header.size > self.size:
            raise ValueError("frame is cut short")
        meta = self._coder.meta(header, self.read(position + format.FRAME_HEADER, header.meta_size))
        return Located(header, meta, position)

    def _body(self, at: Located) -> bytes:
        return self.read(at.position + format.FRAME_HEADER + at.header.meta_size, at.header.body_size)

    def verify(self, at: Located) -> None:
        """Raises ValueError when the body of the frame is damaged; decompresses nothing."""
        self._coder.verify(at.header, self._body(at))

    def chunk(self, at: Located) -> Chunk:
        """The frame's chunk; raises ValueError when its body is damaged."""
        return self._coder.chunk(at.header, at.meta, self._body(at))

    def find(self, position: int, offset: int) -> Located | None:
        """The first frame of this log at or after ``position`` whose raw offset is ``offset`` or more."""
        while position < self.size:
            block = os.pread(self._fd, min(_SCAN, self.size - position), position)
            for match in re.finditer(re.escape(format.FRAME_MAGIC), block):
                try:
                    at = self.locate(position + match.start())
                except ValueError:
                    continue
                if at.header.offset >= offset:
                    return at
            position += max(1, len(block) - len(format.FRAME_MAGIC) + 1)
        return None

    def walk(self, position: int, offset: int) -> Iterator[Located | Damage]:
        """Frames from the one at ``position`` on, whose raw offset should be ``offset``.

        A Damage tells where bytes were skipped; nothing after it: no frame follows in this segment.
        """
        while position < self.size:
            try:
                at = self.locate(position)
                if at.header.offset < offset:
                    raise ValueError("frame does not follow the one before it")
            except ValueError as error:
                yield Damage(self.segment.path, position, str(error))
                found = self.find(position + 1, offset)
                if found is None:
                    return
                at = found
            yield at
            position, offset = at.after, at.header.end
