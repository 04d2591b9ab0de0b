"""Plain lines: NDJSON, an array of JSON objects, or text (syslog) a line an event, at ``/`` and ``/events``.

An event's bytes are those of the body (``batches.py``). A body of JSON in several lines stays one event.
"""

from __future__ import annotations

import re

from vedette.inputs.batches import split
from vedette.inputs.push.base import SLICE, Answer, Protocol, Reading, Refused, Request, answer


def cut_up(body: bytes) -> list[bytes]:
    """The lines of a body that are not blank, without their ends."""
    return [line for line in body.replace(b"\r\n", b"\n").split(b"\n") if line and not line.isspace()]


def _read(request: Request) -> Reading:
    if request.method == "GET":
        return answer(200, {"status": "ok"})
    body = request.body.strip(b" \t\r\n\0")
    if not body:
        return answer(200, {"events": 0})
    events = split(body)
    if events is None:
        events = [body] if body[:1] in b"{[" and request.content_type == "application/json" else cut_up(body)
    for i in range(0, len(events), SLICE):
        yield events[i : i + SLICE]
    return answer(200, {"events": len(events)})


def _refuse(refused: Refused, request: Request) -> Answer:
    return answer(refused.status, {"error": refused.reason})


LINES = Protocol(
    "lines", re.compile(r"(?:POST|PUT) /(?:events)?|GET /health"), _read, _refuse, public=re.compile(r"GET .*")
)
