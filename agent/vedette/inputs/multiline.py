"""Lines of a file into events of several lines. No file and no clock: time is an argument.

Promise: the events do not depend on how the file was read into pieces, each line belongs to exactly one, and
``consumed`` is a place in the file before which every event was given: whoever begins again there gets the rest.

Two things make events of lines, one or both: a **wrapper**, which says of each line which stream it is of and whether
it is only a part of what a program wrote at once, and a **start**, which says whether an event begins with a line.
A line that begins none belongs to the event before it of the same stream; newlines stay between lines, parts are joined
without. The last event waits for the next one's start, for ``timeout`` seconds after its last line, or for ``end``.

Events are given in the order in which they begin. Where streams are interleaved, none is given while one that began
before its end is open: the place would be within that one. Memory is bounded: of an event its first MAX_EVENT bytes are
kept, flagged CUT; beyond HELD_BYTES, and for an event that waits longer than WAIT_SECONDS, all that are open end.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from vedette.inputs.framing import Run
from vedette.model.event import MAX_EVENT, Flag

HELD_BYTES = 4 << 20
WAIT_SECONDS = 30.0


class Line(NamedTuple):
    """A line as a wrapper reads it."""

    stream: bytes
    text: bytes
    part: bool
    """More of the same text follows."""
    head: bytes
    """The beginning of the event, before its text."""


@dataclass(slots=True)
class _Event:
    start: int
    """Where in the file."""
    end: int
    pieces: list[bytes]
    size: int
    since: float
    latest: float
    cut: bool = False
    part: bool = False
    closed: bool = False


@dataclass(slots=True)
class Events:
    """``feed`` whole lines, ``take`` whole events, ``end`` when nothing more comes.

    ``begins``: whether an event begins with a line; None: with every line. ``unwrap``: None: lines are as they stand.
    """

    begins: Callable[[bytes], object] | None
    unwrap: Callable[[bytes], Line] | None
    timeout: float
    consumed: int = 0
    """Bytes of the file up to the first event that was not given."""
    _events: deque[_Event] = field(default_factory=deque)
    _open: dict[bytes, _Event] = field(default_factory=dict)
    _read: int = 0
    """Bytes of the file up to the end of the last line."""
    held: int = 0
    """Bytes that are kept."""

    def feed(self, run: Run, read: int, now: float) -> None:
        """Take in the lines of ``run``, which end at ``read`` in the file."""
        at = self._read
        first = read - at - len(run.data)  # of a line that was cut more was read than is here; it is the first one
        begins = self.begins
        unwrap = self.unwrap
        streams = self._open
        events = self._events
        cuts = {start for start, _ in run.marks}
        place = 0
        stream = b""
        part = False
        head = b""
        for text in run.data[:-1].split(b"\n"):
            begin = at
            cut = place in cuts
            at += len(text) + 1 + first
            place += len(text) + 1
            first = 0
            if unwrap is not None:
                stream, text, part, head = unwrap(text)
            event = streams.get(stream)
            if event is not None and event.part:
                self._add(event, text, cut)
            elif event is not None and begins is not None and not begins(text):
                self._add(event, b"\n" + text, cut)
            else:
                if event is not None:
                    event.closed = True
                event = _Event(begin, at, [head + text], len(head) + len(text), now, now, cut)
                streams[stream] = event
                events.append(event)
                self.held += event.size
            event.end = at
            event.part = part
            event.latest = now
            if begins is None and not part:
                event.closed = True
                del streams[stream]
            if self.held > HELD_BYTES:
                self._close()
        self._read = read

    def _add(self, event: _Event, text: bytes, cut: bool) -> None:
        text = text[: max(0, MAX_EVENT - event.size)] if (long := event.size + len(text) > MAX_EVENT) else text
        event.pieces.append(text)
        event.size += len(text)
        event.cut |= cut or long
        self.held += len(text)

    def expire(self, now: float) -> None:
        """Events that have waited long enough are whole."""
        if self._events and now - self._events[0].since >= WAIT_SECONDS and now - self._events[0].since > self.timeout:
            self._close()
        for stream, event in list(self._open.items()):
            if now - event.latest >= self.timeout:
                event.closed = True
                del self._open[stream]

    def end(self) -> None:
        """The file ends: what is open is whole."""
        self._close()

    def _close(self) -> None:
        for event in self._open.values():
            event.closed = True
        self._open.clear()

    def take(self) -> Run | None:
        """The whole events so far, or None."""
        events = self._events
        count = 0
        end = 0
        for i, event in enumerate(events):
            if not event.closed:
                break
            end = max(end, event.end)
            if i + 1 == len(events) or events[i + 1].start >= end:
                count = i + 1
        if not count:
            return None
        texts = []
        ends = array("I")
        marks = []
        size = 0
        for _ in range(count):
            event = events.popleft()
            text = b"".join(event.pieces) if len(event.pieces) > 1 else event.pieces[0]
            self.held -= event.size
            if event.cut or len(text) > MAX_EVENT:
                marks.append((size, int(Flag.CUT)))
                text = text[:MAX_EVENT]
            texts.append(text or b"\n")
            size += len(texts[-1])
            ends.append(size)
        self.consumed = events[0].start if events else self._read
        return Run(b"".join(texts), ends, tuple(marks))
