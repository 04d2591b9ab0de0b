"""Events that alerts are about: one with its place, its time and its entities; also read back from the raw log."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterator
from itertools import chain

import structlog

from vedette.decode.codecs import CODECS, Codecs
from vedette.decode.decoder import Record, record
from vedette.decode.entities import entities
from vedette.engine.join import gather
from vedette.engine.match import Context, Engine, Match
from vedette.model.counters import Log
from vedette.model.event import Chunk, Entity, Flag, Frame
from vedette.model.times import clamp, time_of
from vedette.runtime.context import EvaluationContext
from vedette.stream.reader import Event as Row

logger = structlog.get_logger()

_NO_CONTEXT = Context()
KEPT_BYTES = 16 << 20
"""Of frames and events that a ``Reread`` keeps."""
EVENT_BYTES = 2048
"""What an event, decoded, is counted as, about; and a frame beside its data."""


class Event:
    """An event with its place and its time, for all alerts about it; ``source``: its lane (``state/clock.py``)."""

    __slots__ = ("_entities", "end", "flags", "frame", "host", "offset", "record", "source", "start", "time")

    def __init__(
        self, frame: Frame, start: int, end: int, record: Record, host: str | None, time: int, flags: Flag
    ) -> None:
        self.frame, self.start, self.end, self.record = frame, start, end, record
        self.host, self.time, self.flags, self.source = host, time, flags, 0
        self.offset = frame.offset + start
        self._entities: tuple[Entity, ...] | None = None

    def entities(self) -> tuple[Entity, ...]:
        """Raises what a decoder raises."""
        found = self._entities
        if found is None:
            found = self._entities = entities(self.record.fields(), self.host)
        return found

    def bare(self) -> Event:
        """The event as text, without what depends on its fields."""
        text = record(self.frame.chunk.data[self.start : self.end], "text")
        event = Event(self.frame, self.start, self.end, text, self.host, self.time, self.flags)
        event._entities = ()
        return event


class Read(Row):
    """The event of a match for statements: what the native kernel knows of it as it says, all else by ``event``."""

    __slots__ = ("_chunk", "_context", "_event")

    def __init__(
        self, engine: Engine, frame: Frame, match: Match, context: Context, event: Callable[[], Event]
    ) -> None:
        chunk = self._chunk = frame.chunk
        self.record, self.offset, self.known = match.record, frame.offset + match.start, {}
        self._context, self._event, self.input = context, event, chunk.input
        self.values = values = engine.columns(match, chunk, context)
        if values is not None:
            self.places = engine.places

    def host(self) -> str | None:
        values = self.values
        if values is None or values[1] is ...:
            return self._event().host
        return values[1] or self.record.peer or self._context.host

    def time(self) -> int | None:
        values, time = self.values, None
        if values is None or values[0] is ...:
            return self._event().time
        if values[0] is not None and (time := time_of(values[0], self._context.zone)) is None:
            return self._event().time  # another field may say it
        return clamp(time, self._chunk.received_at)[0]


class Events:
    """Events of frames, and of the raw log."""

    def __init__(self, context: EvaluationContext) -> None:
        self._contexts, self._log = context.input_contexts, context.raw_log
        self.codecs = Codecs(CODECS)
        """How events of the log are read: those of the plan in force."""

    def of(self, frame: Frame, start: int, end: int, event: Record) -> Event:
        """The ``event`` at ``start`` of ``frame``."""
        chunk = frame.chunk
        flags = chunk.flags(start)
        time, clamped = clamp(event.event_time, chunk.received_at)
        if clamped:
            flags |= Flag.CLAMPED_TIME
        context = self._contexts.get(chunk.input, _NO_CONTEXT)
        return Event(frame, start, end, event, event.host or context.host, time, flags)

    def _read(self, offset: int, length: int, near: Frame | None) -> Event | None:
        """An event of the log; None when the log does not hold it any more. A ``length`` of 0: it is not one of
        several records. ``near``: the frame that holds it, where that has been read already."""
        frame = near or next(self._log.frames(offset, count_lost=False), None)
        if frame is None:
            return None
        start = offset - frame.offset
        if start < 0 or start >= len(frame.chunk.data):
            return None
        chunk, context = frame.chunk, self._contexts.get(frame.chunk.input, _NO_CONTEXT)
        length = length or chunk.bounds(start)[1] - start
        data = record(
            gather(chain((frame,), self._after(frame)), offset) or chunk.data[start : start + length],
            self.codecs[chunk.codec],
            origin=chunk.origin(start),
            received_at=chunk.received_at,
            zone=context.zone,
            logsource=context.logsource,
        )
        return self.of(frame, start, start + length, data)

    def _after(self, frame: Frame) -> Iterator[Frame]:
        """Read when the first is asked for."""
        yield from self._log.frames(frame.offset + len(frame.chunk.data), count_lost=False)

    def logged(self, offset: int, length: int, time: int, near: Frame | None = None) -> Event:
        """An event of an earlier frame. ``length``: 0 where it is not known. ``time``: what to take for its time when
        the log does not hold it any more. ``near``: the frame that holds it, where that has been read already."""
        try:
            return self._read(offset, length, near) or gone(offset, length, time)
        except OSError as error:  # the alert is still built, and says where the event is
            action = "the alert is sent without its event's text"
            logger.warning(Log.RAW_LOG_UNREADABLE, reason=str(error), action=action)
            return gone(offset, length, time)


class Reread:
    """Events of earlier frames for alerts that are made together: an event is read and decoded once for all of them,
    as long as ``KEPT_BYTES`` hold it. A window of many statements ends with many alerts about few events."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._found: dict[int, Event | None] = {}
        """By offset; None: the log does not hold it any more."""
        self._frames: dict[int, Frame] = {}
        self._starts: list[int] = []
        self._bytes = 0

    def logged(self, offset: int, time: int) -> Event:
        """``Events.logged`` of an event whose length is not known."""
        if offset not in self._found:
            self._add(offset, time)
        return self._found[offset] or gone(offset, 0, time)

    def _add(self, offset: int, time: int) -> None:
        if self._bytes > KEPT_BYTES:
            self._found, self._frames, self._starts, self._bytes = {}, {}, [], 0
        at = bisect_right(self._starts, offset) - 1
        near = self._frames[self._starts[at]] if at >= 0 else None
        if near is not None and offset >= near.offset + len(near.chunk.data):
            near = None
        event = self._events.logged(offset, 0, time, near)
        frame = event.frame
        self._bytes += EVENT_BYTES
        self._found[offset] = event if frame.chunk.data else None
        if near is None and frame.chunk.data:
            self._bytes += EVENT_BYTES + len(frame.chunk.data)
            self._frames[frame.offset] = frame
            insort(self._starts, frame.offset)


def gone(offset: int, length: int, time: int) -> Event:
    """In place of an event that the log does not hold any more."""
    frame = Frame(offset, Chunk("", "text", time, b""))
    return Event(frame, 0, length, record(b"", "text"), None, time, Flag(0))
