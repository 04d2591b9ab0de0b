"""Reading a raw log, also from another process while the agent appends to it. Nothing here writes or locks.

A reader sees a log as it was when each of its segments was opened: an unfinished last frame is not there yet, a
segment that retention deletes in the meantime is passed over. Damage is passed over as well, but never silently: each
hole is handed to ``on_gap``, which unless given writes a log line. Every function raises OSError when the folder or a
segment cannot be read; FileNotFoundError when there is no log.

Offsets may go on further on than they ended (``recover.py``); where the numbers of the events follow each other nothing
is missing there. A folder may hold several logs, one after the other (see ``log.py``). Where no ``log_id`` is given,
offsets are those of the newest.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from hashlib import md5
from itertools import groupby, repeat
from pathlib import Path
from typing import NamedTuple

import structlog

from vedette.model.counters import UNKNOWN, Log
from vedette.model.event import Chunk, Frame, RawRef
from vedette.rawlog.checkpoint import Checkpoint, decode
from vedette.rawlog.segment import Damage, Known, Located, Segment, SegmentFile, Tiers, Unreachable, segments

log = structlog.get_logger()

BODY_WINDOW = 256 << 10
"""Bytes read at a time where bodies are wanted."""
RECENT_MESSAGES = 65_535
RECENT_BYTES = 256 << 20
"""Bytes of segments, from the newest back, in which ``recent_messages`` looks."""


class Gap(NamedTuple):
    """Frames that were stored and cannot be read: raw offsets ``offset`` to ``end``, ``events`` of them.

    ``input`` is UNKNOWN when the damage took that too. ``position`` in ``path`` is where it begins.
    ``unreachable``: they are in an archive that did not give them.
    """

    log_id: str
    offset: int
    end: int
    events: int
    input: str
    path: Path
    position: int
    reason: str
    unreachable: bool = False


class Hit(NamedTuple):
    log_id: str
    offset: int
    length: int
    input: str
    received_at: int
    raw: bytes
    codec: str


OnGap = Callable[[Gap], None]


class Place(NamedTuple):
    """Where reading of a folder has come to: all before ``offset`` of a log, and all older logs."""

    generation: int
    log_id: str
    offset: int


LOST = "the events in this range are lost, reading continues after it"
UNREACHABLE = "the events in this range are in the archive: read them again when it can be reached"

Mark = tuple[int, int, int, int]
"""A frame to begin at: its raw offset, its first event's number, its segment's base and its position there."""


def report(gap: Gap) -> None:
    log.warning(
        Log.RAW_LOG_DAMAGED,
        segment=str(gap.path),
        position=gap.position,
        offset=gap.offset,
        end=gap.end,
        events=gap.events,
        input=gap.input,
        reason=gap.reason,
        action=UNREACHABLE if gap.unreachable else LOST,
    )


def of_log(folder: Path | Tiers, log_id: str | None = None) -> list[Segment]:
    """The segments of one log, oldest first; of the newest log when ``log_id`` is None. Empty when it has none."""
    every = segments(folder)
    wanted = log_id or (every[-1].log_id if every else "")
    return [segment for segment in every if segment.log_id == wanted]


def newest_checkpoint(raw: Path) -> Checkpoint:
    """The newest checkpoint in the newest log of ``raw`` that says how far it was evaluated; an empty one when none
    does.

    File positions are those of the newest checkpoint that has any. Raises OSError.
    """
    if not raw.is_dir():
        return Checkpoint()
    newest = Checkpoint()
    for segment in reversed(of_log(raw)):
        try:
            with SegmentFile(segment) as file:
                checkpoint = decode(file.checkpoint())
        except (FileNotFoundError, ValueError):
            continue
        newest = newest._replace(made=max(newest.made, checkpoint.made))
        if not newest.positions:
            newest = newest._replace(positions=checkpoint.positions, next_seq=max(newest.next_seq, checkpoint.next_seq))
        if checkpoint.cursor is not None and checkpoint.cursor.log_id == segment.log_id:
            next_seq = max(newest.next_seq, checkpoint.next_seq)
            return checkpoint._replace(positions=newest.positions, next_seq=next_seq, made=newest.made)
    return newest


def entries(
    parts: list[Segment],
    start: int = 0,
    *,
    on_gap: OnGap = report,
    end: tuple[int, int | None] | None = None,
    mark: Mark | None = None,
    window: int | None = None,
) -> Iterator[tuple[SegmentFile, Located]]:
    """The frames of one log's segments from the one that holds raw offset ``start``, each with its open segment.

    ``end``: the offset to stop at, and the number of the event there (None: not known, then a hole at the very end is
    not reported). ``mark``: where to begin walking, at or before ``start``. Bodies are not checked here.
    """
    first = max(0, bisect_right([segment.base for segment in parts], start) - 1)
    offset, event, damage = -1, None, None  # what the next frame should have; -1: whatever comes
    for number, segment in enumerate(parts[first:], first + 1):
        if end is not None and segment.base >= end[0]:
            break
        over = parts[number].base if number < len(parts) else None  # from there on the next segment counts
        try:
            file = SegmentFile(segment) if window is None else SegmentFile(segment, window)
        except FileNotFoundError:
            offset = -1  # retention was here
            continue
        except Unreachable as error:
            on_gap(_unreachable(segment, str(error)))
            offset = -1
            continue
        with file:
            position = file.begin()
            if mark is not None and mark[2] == segment.base and _stands(file, mark):
                offset, event, _, position = mark
            elif offset < 0:
                offset, event = segment.base, None
                try:
                    event = file.header().first_event
                except ValueError as error:
                    damage = Damage(segment.path, 0, str(error))
            for item in file.walk(position, offset):
                if isinstance(item, Damage):
                    damage = damage or item
                    continue
                header = item.header
                if (end is not None and header.offset >= end[0]) or (over is not None and header.offset >= over):
                    break
                if header.offset > offset and header.offset > start and (damage or header.first_event != event):
                    lost = 0 if event is None else max(0, header.first_event - event)
                    on_gap(_gap(segment, offset, header.offset, lost, damage))
                offset, event, damage = header.end, header.first_event + header.events, None
                if offset > start:
                    yield file, item
    if end is not None and end[1] is not None and event is not None and offset < end[0] and (damage or end[1] != event):
        on_gap(_gap(parts[-1], offset, end[0], end[1] - event, damage))


def _stands(file: SegmentFile, mark: Mark) -> bool:
    """Whether ``mark`` is of the file as it is: compaction may have put another in its place."""
    try:
        return file.unit(mark[3]).header.offset == mark[0]
    except ValueError:
        return False


def _gap(segment: Segment, offset: int, end: int, events: int, damage: Damage | None) -> Gap:
    damage = damage or Damage(segment.path, 0, "frames before it are missing")
    return Gap(segment.log_id, offset, end, events, UNKNOWN, *damage)


def _unreachable(segment: Segment, reason: str) -> Gap:
    span = segment.archived.span() if segment.archived is not None else None
    end, events = (span.end, span.events) if span is not None else (segment.base, 0)
    return Gap(segment.log_id, segment.base, end, events, UNKNOWN, segment.path, 0, reason, unreachable=True)


def chunk(file: SegmentFile, at: Located, on_gap: OnGap) -> Chunk | None:
    """The chunk of a frame that ``entries`` gave; None, after ``on_gap``, when its body is damaged."""
    try:
        return file.chunk(at)
    except ValueError as error:
        log_id, path, header = file.segment.log_id, file.segment.path, at.header
        span = header.offset, header.end, header.events
        on_gap(Gap(log_id, *span, at.meta.input, path, at.unit.position, str(error)))
        return None


def frames(
    folder: Path | Tiers, start: int = 0, stop: int | None = None, *, log_id: str | None = None, on_gap: OnGap = report
) -> Iterator[Frame]:
    """Frames of one log, from the one that holds raw offset ``start`` to the one that ends at ``stop`` or after it."""
    end = None if stop is None else (stop, None)
    for file, at in entries(of_log(folder, log_id), start, on_gap=on_gap, end=end, window=BODY_WINDOW):
        if (decoded := chunk(file, at, on_gap)) is not None:
            yield Frame(at.header.offset, decoded)


def recent_messages(
    folder: Path, input: str, limit: int = RECENT_MESSAGES, *, on_gap: OnGap = report
) -> list[tuple[int, str, bytes]]:
    """Packet identifier, topic and MD5 digest (of its events) of the last ``limit`` messages of an input, oldest first.

    Events side by side with one identifier (other than 0, which QoS 0 has) and topic are of one message. Looks through
    all logs of the folder, but no further back than RECENT_BYTES of segments.
    """
    newest: deque[tuple[int, str, bytes]] = deque()
    seen = 0
    for segment in reversed(segments(folder)):
        of_segment: deque[tuple[int, str, bytes]] = deque(maxlen=limit)
        for file, at in entries([segment], segment.base, on_gap=on_gap):
            if at.meta.input != input or at.meta.message_ids is None:
                continue
            if (decoded := chunk(file, at, on_gap)) is not None and decoded.message_ids is not None:
                numbers = decoded.origin_of or repeat(0)
                rows = zip(decoded.message_ids, numbers, decoded.spans(), strict=False)
                for (message_id, number, _), events in groupby(rows, lambda row: (*row[:2], row[0] or row[2])):
                    spans = (span for *_, span in events)
                    begin, end = next(spans)
                    end = max((end for _, end in spans), default=end)
                    digest = md5(decoded.data[begin:end], usedforsecurity=False).digest()
                    of_segment.append((message_id, decoded.origins[number], digest))
        newest.extendleft(reversed(of_segment))
        seen += segment.path.stat().st_size if segment.path.exists() else 0
        if len(newest) >= limit or seen >= RECENT_BYTES:
            break
    return list(newest)[-limit:]


def _from(parts: list[Segment], since: int | None) -> list[Segment]:
    """``parts`` without those whose frames were all received before ``since``."""
    if since is not None:
        for i in range(len(parts) - 1, 0, -1):
            try:
                if (span := _known(parts[i])) is not None:
                    created_at = span.created_at
                else:
                    with SegmentFile(parts[i]) as file:
                        created_at = file.header().created_at
            except (FileNotFoundError, ValueError):
                continue
            if 0 < created_at < since:
                return parts[i:]
    return parts


def between(
    folder: Path | Tiers, since: int | None, until: int | None, after: Place | None = None, *, on_gap: OnGap = report
) -> Iterator[tuple[SegmentFile, Located]]:
    """The frames in all logs of the folder that were received from ``since`` on and before ``until``, oldest first;
    of these what lies behind ``after``. Bodies are not checked here."""
    for _, group in groupby(_from(segments(folder), since), key=lambda segment: segment.log_id):
        parts = list(group)
        start = parts[0].base
        if after is not None and parts[0].generation <= after.generation:
            if parts[0].log_id != after.log_id:
                continue
            start = after.offset
        for run, end in _runs(parts, since, until):
            if end is not None and end <= start:
                continue
            stop = None if end is None else (end, None)
            for file, at in entries(run, start, on_gap=on_gap, end=stop, window=BODY_WINDOW):
                received_at = at.header.received_at
                if (since is None or received_at >= since) and (until is None or received_at < until):
                    yield file, at


def _known(segment: Segment) -> Known | None:
    return None if segment.archived is None else segment.archived.span()


def _runs(parts: list[Segment], since: int | None, until: int | None) -> Iterator[tuple[list[Segment], int | None]]:
    """``parts`` without the archived ones that have nothing of that time: what is left side by side, and the base of
    the segment left out behind it."""
    run: list[Segment] = []
    for segment in parts:
        span = _known(segment)
        if span is None or not span.received_to or not (
            (until is not None and span.received_from >= until) or (since is not None and span.received_to < since)
        ):  # fmt: skip
            run.append(segment)
            continue
        if run:
            yield run, segment.base
        run = []
    if run:
        yield run, None


def search(
    folder: Path | Tiers,
    *,
    pattern: re.Pattern[bytes] | None = None,
    since: int | None = None,
    until: int | None = None,
    input: str | None = None,
    limit: int | None = None,
    on_gap: OnGap = report,
) -> Iterator[Hit]:
    """Events in all logs of the folder, oldest first, at most ``limit``.

    ``pattern`` is searched in each event by itself; ``since`` and ``until`` (exclusive) bound ``received_at``.
    """
    if limit is not None and limit <= 0:
        return
    hits = 0
    for file, at in between(folder, since, until, on_gap=on_gap):
        if input is not None and at.meta.input != input:
            continue
        if (held := chunk(file, at, on_gap)) is None:
            continue
        log_id, offset, received_at = file.segment.log_id, at.header.offset, at.header.received_at
        for begin, end in held.spans():
            raw = held.data[begin:end]
            if pattern is None or pattern.search(raw):
                yield Hit(log_id, offset + begin, end - begin, at.meta.input, received_at, raw, held.codec)
                hits += 1
                if hits == limit:
                    return


def event_at(folder: Path | Tiers, ref: RawRef) -> bytes:
    """The bytes that ``ref`` names. Raises LookupError, which says why, when the folder does not hold them."""
    gaps: list[Gap] = []
    for file, at in entries(of_log(folder, ref.log_id), ref.offset, on_gap=gaps.append, window=BODY_WINDOW):
        if at.header.offset > ref.offset:
            break
        held = chunk(file, at, gaps.append)
        begin = ref.offset - at.header.offset
        if held is None:
            break
        if begin + ref.length > len(held.data):
            raise LookupError(f"{_name(ref)}: the frame there has only {len(held.data) - begin} bytes from it on")
        return held.data[begin : begin + ref.length]
    if gaps and gaps[0].unreachable:
        raise LookupError(f"{_name(ref)}: {gaps[0].reason}")
    if gaps:
        raise LookupError(f"{_name(ref)}: lies in a damaged part of {gaps[0].path}: {gaps[0].reason}")
    raise LookupError(f"{_name(ref)}: not in {folder}; retention may have deleted it")


def _name(ref: RawRef) -> str:
    return f"raw event {ref.log_id}:{ref.offset}+{ref.length}"
