"""Plain lines: NDJSON, an array of JSON objects, or text (syslog) a line an event, at ``/`` and ``/events``.

An event's bytes are those of the body (``batches.py``). A body of JSON in several lines stays one event.
"""

from __future__ import annotations

import re
from array import array
from collections import deque
from collections.abc import Generator, Iterator
from itertools import accumulate, chain, pairwise

from vedette.inputs.batches import split
from vedette.inputs.push.base import Answer, Protocol, Reading, Refused, Request, answer
from vedette.inputs.push.pieces import bounded, few, spans
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


class _Kept:
    """Events of a body of which it is not yet known what it is, as few objects as can be: Python's garbage collection
    looks at each."""

    def __init__(self) -> None:
        self._blocks: deque[tuple[bytes, array[int]]] = deque()

    def add(self, events: list[bytes]) -> None:
        self._blocks.append((b"".join(events), array("I", accumulate(map(len, events)))))

    def taken(self) -> Iterator[list[bytes]]:
        while self._blocks:
            data, ends = self._blocks.popleft()
            yield [data[start:end] for start, end in pairwise(chain((0,), ends))]


def _split(body: bytes, whole: bool) -> Generator[list[bytes], None, None]:
    """``batches.split`` in steps; ``whole``: JSON that is no batch is one event."""
    first = body[:1]
    packed = _Kept()
    single = False
    if first == b"[":
        if (yield from _elements(body, packed)):
            yield from packed.taken()
            return
        single = whole
    elif first == b"{" and whole:
        for lines in cut_up(body):
            packed.add(lines)
            single = single or not all(line.startswith(b"{") for line in lines)
            yield []
    if single:
        yield [body]
    for lines in packed.taken():  # also where they are not wanted: to free all at once takes long
        yield [] if single else lines
    if not single and not (first == b"{" and whole):
        yield from cut_up(body)


def _elements(body: bytes, packed: _Kept) -> Generator[list[bytes], None, bool]:
    """Whether it is an array of objects; then they are in ``packed``."""
    if few(body):
        events = split(body)
        packed.add(events or [])
        return events is not None
    try:
        for span in spans(body):
            yield []
            if span is None:
                continue
            start, end, large = span
            text = body[start:end]
            if large:
                if len(text) <= MAX_EVENT:
                    bounded(text, "an event")
                events = [text.strip()] if text.strip()[:1] == b"{" else None
            else:
                events = split(b"[%b]" % text)
            if events is None:
                return False
            packed.add(events)
    except Refused as refused:
        if refused.status != 400:
            raise
        return False
    return True


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
