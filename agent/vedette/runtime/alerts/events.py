"""Events that alerts are about: one with its place, its time and its entities; also read back from the raw log."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import structlog

from vedette.decode.codecs import Codecs
from vedette.decode.decoder import Record, record
from vedette.decode.entities import entities
from vedette.engine.join import gather
from vedette.engine.match import Context
from vedette.model.counters import Log
from vedette.model.event import Chunk, Entity, Flag, Frame
from vedette.model.times import clamp
from vedette.runtime.pipeline.context import EvaluationContext

logger = structlog.get_logger()

_NO_CONTEXT = Context()


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
        listed = self._entities
        if listed is None:
            listed = self._entities = entities(self.record.fields(), self.host)
        return listed

    def bare(self) -> Event:
        """The event as text, without what depends on its fields."""
        text = record(self.frame.chunk.data[self.start : self.end], "text")
        event = Event(self.frame, self.start, self.end, text, self.host, self.time, self.flags)
        event._entities = ()
        return event


class Events:
    """Events of frames, and of the raw log."""

    def __init__(self, context: EvaluationContext, codecs: Codecs) -> None:
        """``codecs``: how events of the log are read, those of the plan in force."""
        self._contexts, self._log, self._codecs = context.input_contexts, context.raw_log, codecs

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
            self._codecs[chunk.codec],
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


def gone(offset: int, length: int, time: int) -> Event:
    """In place of an event that the log does not hold any more."""
    frame = Frame(offset, Chunk("", "text", time, b""))
    return Event(frame, 0, length, record(b"", "text"), None, time, Flag(0))
