"""The first step of a backtest: a segment's frames, evaluated chunk by chunk, as the agent and ``vedette scan`` do it.

Audit records that belong together may lie in two segments: so a segment's neighbours are looked at for ``AROUND`` bytes
on either side, and only events that begin in the segment itself are given.

A file that cannot be opened, is no segment, ends in the middle of a frame, or holds events in a format that the rules
do not know, is a row of the kind ``gap`` with its reason; all else goes on.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Container, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_jobs.backtest.rows import Rules, opened

if TYPE_CHECKING:
    from vedette.engine.match import Engine
    from vedette.model.event import Frame
    from vedette.rawlog.read import Gap
    from vedette.rawlog.segment import Segment
    from vedette.runtime.offline.evaluation import Detection

AROUND = 1 << 20
"""Bytes of the log on either side of a segment in which records of its events may lie, as the engine looks for them."""

REMEMBERED = 4 << 20
"""Bytes of frames that are kept to name the place of an event in them: more than an event can be long."""

MAX_RAW = 2048
"""Bytes of an event that a row shows; as in an alert."""

OF_LOG = 48
"""Bits of an event's place that are its offset; those above are its log's number in the folder."""


def segment_rows(path: Path, root: Path, rules: Rules) -> Iterator[dict[str, Any]]:
    """Rows of ``WORK`` of one segment."""
    from vedette.rawlog.segment import segments

    about = {"agent": str(path.parent.relative_to(root)), "log_id": ""}
    try:
        every = segments(path.parent)
        place = next((number for number, segment in enumerate(every) if segment.path.name == path.name), None)
        if place is None:
            yield gap(about, None, f"{path.name}: is no segment of a raw log")
            return
        about["log_id"] = every[place].log_id
        yield from evaluated(every, place, about, rules)
    except OSError as error:  # the other segments go on
        yield gap(about, None, f"{path.name}: {error.strerror or error}")


def gap(about: dict[str, str], offset: int | None, reason: str, events: int = 0) -> dict[str, Any]:
    """A row: what cannot be read."""
    return {**about, "kind": "gap", "offset": offset, "events": events, "reason": reason}


def evaluated(
    every: list[Segment], place: int, about: dict[str, str], rules: Rules, of_agent: Sequence[str] = ()
) -> Iterator[dict[str, Any]]:
    """Rows of the segment at ``place`` of all in its folder; ``of_agent``: the ids of its agent's logs, where ``every``
    has not all of them. Raises OSError."""
    from vedette.model.event import LogSource
    from vedette.runtime.offline.evaluation import evaluate
    from vedette.runtime.offline.timeline import Timeline

    began = time.process_time()
    segment = every[place]
    artifact, lookups = opened(rules.artifact)
    engine: Engine = artifact.engine(lookups, route=rules.route)
    timeline = Timeline(engine.plan, received=True) if rules.over_time else None
    logs = list(of_agent or dict.fromkeys(segment.log_id for segment in every))
    log = logs.index(segment.log_id) << OF_LOG
    line = _Line(every, place, engine.plan.codecs)
    detections = evaluate(
        engine, line.chunks(), logsource=LogSource(product=rules.product), silent=timeline is not None
    )
    for _, of_event in groupby(detections, attrgetter("line")):
        for detection in of_event:
            if (at := line.place(detection)) is None:
                continue
            if detection.rule.id not in engine.plan.silent:
                yield {**about, **_match(detection, *at)}
            if timeline is not None:
                timeline.put(detection, log | at[0].offset + at[1], at[0].chunk.input)
        for moment in timeline.take() if timeline is not None else ():
            step, when, where = moment.order
            data = moment.to_bytes()
            yield {"agent": about["agent"], "step": int(step), "time": when, "place": where, "moment": data}
    for lost in line.gaps:
        if line.own(lost.offset):
            yield gap(about, lost.offset, lost.reason, lost.events)
    for codec, (offset, events) in line.unknown.items():
        yield gap(about, offset, f"the rules do not know the format {codec!r}", events)
    if line.rest and all(lost.offset != line.end for lost in line.gaps):
        reason = f"{segment.path.name}: its last {line.rest} bytes are no whole frame"
        yield gap(about, line.end, reason)
    for number, count in engine.tally.undecided.items():
        rule, reason = engine.plan.rules[number], engine.tally.reasons[number]
        count += engine.tally.skipped.get(number, 0)
        yield {**about, "kind": "undecided", "rule_id": rule.id, "rule_title": rule.title, "events": count,
               "offset": segment.base, "reason": reason}  # fmt: skip
    for reason in timeline.unused() if timeline is not None else ():
        yield {**about, "kind": "not_correlated", "offset": segment.base, "reason": reason}
    yield {**about, "kind": "read", "offset": segment.base, "events": line.events, "bytes": line.bytes,
           "seconds": time.process_time() - began}  # fmt: skip


class _Line:
    """A segment's frames in their order, with those around them, and where in the raw log the events lie that
    ``evaluate`` numbers."""

    def __init__(self, every: list[Segment], place: int, codecs: Container[str]) -> None:
        """``codecs``: formats that the rules know."""
        self._segment, self._codecs = every[place], codecs
        self._parts = parts = [segment for segment in every if segment.log_id == self._segment.log_id]
        here = parts.index(self._segment)
        self._behind = parts[here + 1].base if here + 1 < len(parts) else None
        self._held: deque[tuple[int, Frame]] = deque()
        self._size = 0
        self._spans: tuple[int, list[tuple[int, int]]] = -1, []
        self.gaps: list[Gap] = []
        self.unknown: dict[str, tuple[int, int]] = {}
        """By format that the rules do not know: where it begins, and how many events have it."""
        self.events = self.bytes = self.rest = 0
        """Of the segment itself; ``rest``: bytes behind its last frame."""
        self.end = self._segment.base

    def chunks(self) -> Iterator[Any]:
        """Their chunks; each frame is remembered with the number, from 1, of its first event. Raises OSError."""
        from vedette.model.event import Frame
        from vedette.rawlog import read
        from vedette.rawlog.segment import SegmentFile

        with SegmentFile(self._segment) as file:
            size, read_to = file.size, min(file.begin(), file.size)
        end = None if self._behind is None else (self._behind + AROUND, None)
        start, first = max(0, self._segment.base - AROUND), 1
        for file, at in read.entries(self._parts, start, on_gap=self.gaps.append, end=end, window=read.BODY_WINDOW):
            if own := self.own(at.header.offset):
                read_to, self.end = at.unit.after, at.header.end
            if (chunk := read.chunk(file, at, self.gaps.append)) is None:
                continue
            if chunk.codec not in self._codecs:
                if own:
                    offset, events = self.unknown.get(chunk.codec, (at.header.offset, 0))
                    self.unknown[chunk.codec] = offset, events + len(chunk)
                continue
            self._hold(first, Frame(at.header.offset, chunk))
            if own:
                self.events += len(chunk)
                self.bytes += len(chunk.data)
            yield chunk
            first += len(chunk)
        self.rest = size - read_to

    def _hold(self, first: int, frame: Frame) -> None:
        self._held.append((first, frame))
        self._size += len(frame.chunk.data)
        while self._size - len(self._held[0][1].chunk.data) > REMEMBERED:
            self._size -= len(self._held.popleft()[1].chunk.data)

    def place(self, detection: Detection) -> tuple[Frame, int, int] | None:
        """Frame, start and end in it of the event that matched; None when it begins in another segment."""
        first, frame = next((number, frame) for number, frame in reversed(self._held) if number <= detection.line)
        if self._spans[0] != frame.offset:
            self._spans = frame.offset, list(frame.chunk.spans())
        start, end = self._spans[1][detection.line - first]
        return (frame, start, end) if self.own(frame.offset) else None

    def own(self, offset: int) -> bool:
        """Whether an offset of the log lies in the segment itself."""
        return offset >= self._segment.base and (self._behind is None or offset < self._behind)


def _match(detection: Detection, frame: Frame, start: int, end: int) -> dict[str, Any]:
    return {
        "kind": "match",
        "offset": frame.offset + start,
        "length": end - start,
        "input": frame.chunk.input,
        "host": detection.record.host,
        "received_at": frame.chunk.received_at,
        "event_time": detection.record.event_time,
        "rule_id": detection.rule.id,
        "rule_title": detection.rule.title,
        "level": detection.rule.level,
        "fields": detection.fields,
        "raw": frame.chunk.data[start : min(end, start + MAX_RAW)].decode(errors="replace"),
    }


def logs_of(folder: Path) -> list[str]:
    """The logs of a folder, as the numbers above ``OF_LOG`` count them. Raises OSError."""
    from vedette.rawlog.segment import segments

    return list(dict.fromkeys(segment.log_id for segment in segments(folder)))
