"""Plain lines: NDJSON, an array of JSON objects, or text (syslog) a line an event, at ``/`` and ``/events``.

An event's bytes are those of the body (``batches.py``). A body of JSON in several lines stays one event.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Generator

from vedette.inputs.batches import array_of, elements, events_of, opens, packed, spread
from vedette.inputs.framing import Run
from vedette.inputs.push.base import Answer, Protocol, Reading, Refused, Request, answer
from vedette.model.event import MAX_EVENT

_STEP = 8 << 10
"""Bytes that are cut up at once, at most 4096 events."""


def cut_up(body: bytes) -> Generator[list[bytes], None, None]:
    """The lines of a body that are not blank, without their ends, some at a time."""
    at = 0
    size = len(body)
    while at < size:
        end = body.rfind(b"\n", at, at + _STEP) + 1 or body.find(b"\n", at) + 1 or size
        part = body[at : min(end, at + MAX_EVENT + 1)].replace(b"\r\n", b"\n")  # an event is cut at MAX_EVENT
        yield [line for line in part.split(b"\n") if line and not line.isspace()]
        at = end


def _split(body: bytes, whole: bool) -> Generator[list[bytes], None, None]:
    """``batches.split`` in steps; ``whole``: JSON that is no batch is one event."""
    runs = deque[Run]()
    """Of a body of which it is not yet known what it is: Python's garbage collection looks at each object."""
    single = False
    inner = opens(body)
    if array := array_of(body):
        runs.extend((yield from elements(array)))
        single = whole and not runs and body[:1] == b"["
    if body[:1] == b"{" and whole and not runs:
        for lines in cut_up(body):
            runs.append((yield from spread(packed(lines))) if inner and lines else packed(lines))
            single = single or not all(line.startswith(b"{") for line in lines)
            yield []
    if single:
        yield [body]
    elif not runs:
        for lines in cut_up(body):
            yield list(events_of((yield from spread(packed(lines))))) if inner and lines else lines
    while runs:  # also where they are not wanted: to free all at once takes long
        lines = list(events_of(runs.popleft()))
        yield [] if single else lines


def _read(request: Request) -> Reading:
    if request.method == "GET":
        return answer(200, {"status": "ok"})
    body = request.body.strip(b" \t\r\n\0")
    if not body:
        return answer(200, {"events": 0})
    count = 0
    for events in _split(body, request.content_type == "application/json"):
        count += len(events)
        yield events
    return answer(200, {"events": count})


def _refuse(refused: Refused, request: Request) -> Answer:
    return answer(refused.status, {"error": refused.reason})


LINES = Protocol(
    "lines", re.compile(r"(?:POST|PUT) /(?:events)?|GET /health"), _read, _refuse, public=re.compile(r"GET .*")
)
