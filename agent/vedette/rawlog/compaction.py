"""Sealed segments of small frames, written again with many frames in one: a compacted frame (``format.py``).

A frame of one event takes more bytes than the event; compacted, the same events take a fifth. Offsets, times, inputs
and all else that a frame tells stay what they were, so references into the log go on to be good. A segment is compacted
in steps, in the writer thread: each makes one compacted frame or copies STEP_BYTES of frames that are large anyway. The
new file is written under another name (``.seg.pack``), synced and renamed over the old one: whenever the agent is
killed, one of the two is there, whole. A reader that has the old file open reads it to its end.

A segment with damage is left as it is.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import suppress

from vedette.rawlog import format
from vedette.rawlog.segment import TEMPORARY, Damage, Segment, SegmentFile, Unit

FRAME_BYTES = 128 << 10
"""Of events in one compacted frame; a frame of half as many is copied as it is."""
FRAMES = 4096
STEP_BYTES = 1 << 20


def compact(segment: Segment) -> Generator[None, None, int]:
    """Puts a compacted file in the segment's place, in steps; returns its size, 0 when the segment stays as it was.

    Raises OSError. Then, and when it is closed before its end, nothing is left behind. The folder is not synced yet.
    """
    temporary = segment.path.with_suffix(TEMPORARY)
    try:
        with SegmentFile(segment, 256 << 10) as file, temporary.open("wb") as sink:
            os.fchmod(sink.fileno(), 0o640)
            sink.write(format.encode_segment(file.header()._replace(compacted=1), file.checkpoint()))
            copied, written, gathered = 0, 0, _Gathered(segment.log_id)
            for unit in file.units(file.begin(), segment.base):
                if isinstance(unit, Damage):
                    raise ValueError(unit.reason)
                small = not unit.header.compacted and unit.header.raw_size < FRAME_BYTES // 2
                if gathered.parts and not (small and gathered.takes(unit)):
                    sink.write(gathered.bytes())
                    written += 1
                    yield
                if small:
                    gathered.add(file, unit)
                    continue
                file.verify(unit)
                sink.write(file.read(unit.position, unit.header.size))
                copied += unit.header.size
                if copied >= STEP_BYTES:
                    if not written:
                        raise ValueError("its frames are large")
                    copied = 0
                    yield
            if gathered.parts:
                sink.write(gathered.bytes())
            sink.flush()
            os.fsync(sink.fileno())
            size, before = sink.tell(), file.size
        if size < before:
            temporary.rename(segment.path)
            return size
    except (ValueError, FileNotFoundError):  # damaged, not worth it, or deleted by retention
        pass
    finally:
        with suppress(OSError):
            temporary.unlink()
    return 0


class _Gathered:
    def __init__(self, log_id: str) -> None:
        self._coder = format.Coder(log_id)
        self.parts: list[format.Part] = []
        self._data: list[bytes] = []
        self._first: format.FrameHeader
        self._size = self._end = self._event = 0

    def takes(self, unit: Unit) -> bool:
        """Whether a frame fits, and follows."""
        header = unit.header
        return (
            self._size + header.raw_size <= FRAME_BYTES
            and len(self.parts) < FRAMES
            and (header.offset, header.first_event) == (self._end, self._event)
        )

    def add(self, file: SegmentFile, unit: Unit) -> None:
        """Takes a frame; raises ValueError when it is damaged."""
        header = unit.header
        if not self.parts:
            self._first, self._size = header, 0
        meta = self._coder.plain_meta(header, file.meta(unit))
        self.parts.append(format.Part(header.raw_size, header.events, header.received_at, header.durable, meta))
        self._data.append(self._coder.events(header, file.body(unit)))
        self._size += header.raw_size
        self._end, self._event = header.end, header.first_event + header.events

    def bytes(self) -> bytes:
        """The compacted frame of what was gathered, which then is empty again."""
        parts, data = self.parts, b"".join(self._data)
        self.parts, self._data = [], []
        return b"".join(self._coder.encode_compacted(parts, data, self._first.offset, self._first.first_event))
