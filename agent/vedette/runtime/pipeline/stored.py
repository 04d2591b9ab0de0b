"""What is stored, frame by frame in the log's order, from where evaluation is.

From memory while it is little (``RECENT_BYTES``), else from the log: a burst is stored at once and evaluated when there
is time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator

from vedette.model.event import Frame
from vedette.runtime.pipeline.context import EvaluationContext
from vedette.system.diskhealth import REPLAY

RECENT_BYTES = 8 << 20
"""Of stored frames kept in memory for the evaluator; what is beyond is read back from the log."""


class Stored:
    """See the module's text. Belongs to the event loop."""

    def __init__(self, context: EvaluationContext) -> None:
        self._replay, self._progress, self._health = context.raw_log, context.progress, context.health
        self.recent_bytes = RECENT_BYTES
        """Bound of the frames kept for the evaluator."""
        self.arrived = asyncio.Event()
        """Set when something is stored."""
        self.unreadable = False
        self._recent: deque[Frame] = deque()
        self._recent_bytes = 0

    def keep(self, frame: Frame) -> None:
        """``frame`` was stored: in memory, if it follows what is kept there and there is room."""
        if self._recent_bytes < self.recent_bytes and (not self._recent or self._recent[-1].end == frame.offset):
            self._recent.append(frame)
            self._recent_bytes += len(frame.chunk.data)

    def frames(self) -> Iterator[Frame]:
        """The frames from where evaluation is to the log's end now; damaged stretches are passed over. Ends before,
        with ``unreadable`` set, when the log cannot be read just now."""
        try:
            yield from self._frames()
            self.unreadable = False
            self._health.recovered(REPLAY)
        except OSError as error:
            self.unreadable = True
            self._health.failed(REPLAY, error)

    def _frames(self) -> Iterator[Frame]:
        progress = self._progress
        while progress.evaluated < self._replay.end:
            while self._recent and self._recent[0].offset < progress.evaluated:
                self._recent_bytes -= len(self._recent.popleft().chunk.data)
            if self._recent and self._recent[0].offset == progress.evaluated:
                frame = self._recent.popleft()
                self._recent_bytes -= len(frame.chunk.data)
                yield frame
            else:
                before = progress.evaluated
                for frame in self._replay.frames(progress.evaluated):
                    if self._recent and self._recent[0].offset <= frame.offset:
                        break
                    progress.skip(frame.offset)
                    yield frame
                if progress.evaluated == before:
                    progress.skip(self._recent[0].offset if self._recent else self._replay.end)
