"""The writer's own reading of its log: what is to be evaluated, again or for the first time, and what was lost.

Reading goes to the log's end as it was at the call, beside a writer that goes on. Damaged frames are passed over with a
log line, and what they held is counted as lost once, however often their place is read: offsets only rise, so one
number (``_lost_to``) is how far they are counted. The first DAMAGED places are kept for the writer to copy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from vedette.model.counters import Counters, Lost
from vedette.model.event import FilePosition, Flag, Frame
from vedette.rawlog import read
from vedette.rawlog.segment import Located, Segment, SegmentFile

DAMAGED = 100
"""Places kept at a time."""


class Span(NamedTuple):
    """What there is to read: the log's segments, its end (raw offset, number of the next event), where to begin."""

    parts: list[Segment]
    end: tuple[int, int]
    mark: read.Mark | None


class Header(NamedTuple):
    """A frame, or what of it lies behind the offset asked for, without its events; ``cut``: those cut to MAX_EVENT."""

    offset: int
    end: int
    events: int
    input: str
    cut: int = 0
    received_at: int = 0
    file: FilePosition | None = None


class Replay(ABC):
    """The reading half of ``RawLog``. Methods may be called from any thread."""

    log_id: str
    end: int
    """Raw offset of the next byte to be written."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._lost_to = 0  # damage below this offset is counted
        self.damaged: list[read.Gap] = []
        """Counted, and not yet copied."""

    @property
    @abstractmethod
    def start(self) -> int:
        """Raw offset of the oldest byte kept."""

    @property
    @abstractmethod
    def events(self) -> int:
        """How many events the log has ever held."""

    @abstractmethod
    def _span(self, start: int) -> Span:
        """What there is from raw offset ``start`` on."""

    def frames(self, start: int, *, count_lost: bool = True) -> Iterator[Frame]:
        """Frames from the one that holds raw offset ``start`` to the log's end as it is now.

        Damaged ones are passed over with a log line; with ``count_lost`` their events are counted as lost, once.
        Raises OSError.
        """
        on_gap = self._on_gap(count_lost)
        for file, at in self._entries(start, on_gap, read.BODY_WINDOW):
            if (chunk := read.chunk(file, at, on_gap)) is not None:
                yield Frame(at.header.offset, chunk)

    def headers(self, start: int) -> Iterator[Header]:
        """What lies from raw offset ``start``, where an event begins, to the log's end: a frame each, in order.

        Frames that damage hides are one of input UNKNOWN: they count as lost when ``frames`` comes to them, not before,
        so that losses and the cursor always agree. Reads no body but that of a frame in whose middle ``start`` lies.
        Raises OSError.
        """
        gaps: list[read.Gap] = []
        for file, at in self._entries(start, gaps.append, None):
            yield from map(_hidden, gaps)
            gaps.clear()
            yield _header(file, at, start)
        yield from map(_hidden, gaps)

    def backlog(self, start: int) -> dict[str, int]:
        counts = Counter[str]()
        for header in self.headers(start):
            counts[header.input] += header.events
        return counts

    def _entries(self, start: int, on_gap: read.OnGap, window: int | None) -> Iterator[tuple[SegmentFile, Located]]:
        parts, end, mark = self._span(start)
        if start >= end[0]:
            return iter(())
        return read.entries(parts, start, on_gap=on_gap, end=end, mark=mark, window=window)

    def _on_gap(self, count_lost: bool) -> read.OnGap:
        def on_gap(gap: read.Gap) -> None:
            if count_lost and gap.offset >= self._lost_to:
                self._lost_to = gap.end
                self._counters.lost[gap.input, Lost.DAMAGED] += gap.events
                if len(self.damaged) < DAMAGED:
                    self.damaged.append(gap)
                read.report(gap)
            elif not count_lost:
                read.report(gap)

        return on_gap


def _hidden(gap: read.Gap) -> Header:
    return Header(gap.offset, gap.end, gap.events, gap.input)


def _header(file: SegmentFile, at: Located, start: int) -> Header:
    """When the body that must be read is damaged, all events of the frame lie behind: as many as are then lost."""
    header, meta = at.header, at.meta
    passed, before = max(0, start - header.offset), 0
    if passed:
        with suppress(ValueError):
            before = file.chunk(at).index(passed)
    cut = sum(1 for position, bits in meta.marks if position >= passed and bits & Flag.CUT)
    place = header.offset + passed, header.end, header.events - before
    return Header(*place, meta.input, cut, header.received_at, meta.file)
