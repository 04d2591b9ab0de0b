"""The raw log as the process of a strict rule set reads it, beside the agent that writes it.

It reads as far as the agent says that there is something (``advance``), so never a frame under way. Where frames begin
is remembered at some places, so that a burst is not looked for from the beginning of its segment.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

from vedette.model.counters import Counters
from vedette.rawlog import read
from vedette.rawlog.replay import Replay, Span
from vedette.rawlog.segment import Located, SegmentFile

MARK_BYTES = 1 << 20
"""Of the log between two places that are remembered."""
MARKS = 4096


class LogBeside(Replay):
    def __init__(self, folder: Path, log_id: str, counters: Counters) -> None:
        super().__init__(counters)
        self._folder, self.log_id = folder, log_id
        self.end = self._start = self._events = 0
        self._marks: list[read.Mark] = []

    def advance(self, start: int, end: int, events: int) -> None:
        """The log holds raw offsets ``start`` to ``end``; ``events``: the number of the one that is stored next."""
        self._start, self.end, self._events = start, end, events

    @property
    def start(self) -> int:
        return self._start

    @property
    def events(self) -> int:
        return self._events

    def _span(self, start: int) -> Span:
        at = bisect_right(self._marks, (start, 1 << 62, 0, 0)) - 1
        parts = read.of_log(self._folder, self.log_id)
        return Span(parts, (self.end, self._events), self._marks[at] if at >= 0 else None)

    def _entries(self, start: int, on_gap: read.OnGap, window: int | None) -> Iterator[tuple[SegmentFile, Located]]:
        for file, at in super()._entries(start, on_gap, window):
            head = at.unit.header
            if not self._marks or head.offset >= self._marks[-1][0] + MARK_BYTES:
                self._marks.append((head.offset, head.first_event, file.segment.base, at.unit.position))
                del self._marks[:-MARKS]
            yield file, at
