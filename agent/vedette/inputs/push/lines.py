"""Plain lines: NDJSON, an array of JSON objects, or text (syslog) a line an event, at ``/`` and ``/events``.

An event's bytes are those of the body (``batches.py``). A body of JSON in several lines stays one event.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect
from codecs import BOM_UTF8
from collections import deque
from collections.abc import Generator

from vedette.inputs import carried
from vedette.inputs.batches import array_of, events_of, packed, record_runs, spread, stands
from vedette.inputs.framing import Run, run_of
from vedette.inputs.push.base import Answer, Protocol, Reading, Refused, Request, answer
from vedette.model.event import CHUNK_BYTES, MAX_EVENT

_STEP = 8 << 10
"""Bytes that are cut up at once, at most 4096 events."""


def cut_up(body: bytes, most: int = MAX_EVENT) -> Generator[list[bytes], None, None]:
    """The lines of a body that are not blank, without their ends, some at a time; of a line ``most`` + 1 bytes."""
    at = 0
    size = len(body)
    while at < size:
        end = body.rfind(b"\n", at, at + _STEP) + 1 or body.find(b"\n", at) + 1 or size
        part = body[at : min(end, at + most + 1)].replace(b"\r\n", b"\n")
        yield [line for line in part.split(b"\n") if line and not line.isspace()]
        at = end


def parted(body: bytes, whole: bool, texts: bool) -> Generator[list[bytes] | Run, None, None]:
    """``batches.split`` in steps; ``whole``: JSON that is no batch is one event."""
    runs = deque[Run]()
    """Of a body of which it is not yet known what it is: Python's garbage collection looks at each object."""
    single = False
    body = body.removeprefix(BOM_UTF8)
    size = len(body)
    if inner := array_of(body):
        runs.extend((yield from record_runs(inner, texts, body)))
    if body[:1] in (b"{", b"[") and whole and not runs:
        for lines in cut_up(body, size):
            runs.append((yield from spread(packed(lines), texts)))
            single = single or not all(map(stands, lines))
            yield []
    if single:
        yield [carried.apart(body, texts)]
    elif not runs:
        for lines in cut_up(body, size):
            yield from _given((yield from spread(packed(lines), texts)))
            yield []
    while runs:  # also where they are not wanted: to free all at once takes long
        run = runs.popleft()
        yield from ([],) if single else _given(run)


def _given(run: Run) -> Generator[list[bytes] | Run, None, None]:
    """The events, of many some at a time, and with their marks."""
    ends = run.ends or array("I")
    first = start = 0
    while first < len(ends):
        last = max(first + 1, bisect(ends, start + CHUNK_BYTES, first))
        end = ends[last - 1]
        marks = tuple((at - start, bits) for at, bits in run.marks if start <= at < end)
        some = Run(run.data[start:end], array("I", [each - start for each in ends[first:last]]), marks)
        if len(some.data) > MAX_EVENT:  # it is one event
            some = run_of([some.data])
        yield some if some.marks or len(some.data) > _STEP else list(events_of(some))
        first = last
        start = end


def _read(request: Request) -> Reading:
    if request.method == "GET":
        return answer(200, {"status": "ok"})
    body = request.body.strip(b" \t\r\n\0")
    if not body:
        return answer(200, {"events": 0})
    count = 0
    for events in parted(body, request.content_type == "application/json", request.texts):
        count += len((events.ends or ()) if isinstance(events, Run) else events)
        yield events
    return answer(200, {"events": count})


def _refuse(refused: Refused, request: Request) -> Answer:
    return answer(refused.status, {"error": refused.reason})


LINES = Protocol(
    "lines", re.compile(r"(?:POST|PUT) /(?:events)?|GET /health"), _read, _refuse, public=re.compile(r"GET .*")
)
