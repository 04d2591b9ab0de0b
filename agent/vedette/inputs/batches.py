"""A payload that holds several events: NDJSON, or a JSON array of objects. Bytes in, bytes out.

* **NDJSON**: each line that is not blank begins with ``{``. No JSON object is written so, as after its ``{`` comes a
  name or ``}``; so one object over several lines stays one event. A line need not be whole JSON: it is its own event
  all the same, and spoils no other.
* **Array**: valid JSON of objects alone. An array with anything else in it (a reading of numbers, say) is one event.

An event's bytes are those of the payload, not serialized again; what lies between two events (newlines, commas, the
brackets) is in none. What is not a batch is one event, and that is what ``split`` says of all it is not sure of.
"""

from __future__ import annotations

import json
import re

import orjson

_BETWEEN = re.compile(rb"\}[ \t\r\n]*,[ \t\r\n]*\{")
_BLANK = b" \t\r\n"
_decode = json.JSONDecoder().raw_decode


def split(payload: bytes) -> list[bytes] | None:
    """The events of a batch, at least one and none empty; None when the payload is one event."""
    first = payload[:1]
    if first == b"{":
        return _lines(payload) if b"\n" in payload else None
    if first == b"[":
        return _elements(payload)
    return None


def _lines(payload: bytes) -> list[bytes] | None:
    payload = payload.rstrip(_BLANK)
    lines = payload.split(b"\n")
    if payload.count(b"\n{") + 1 != len(lines):
        lines = [line for line in lines if line and not line.isspace()]
        if not all(line.startswith(b"{") for line in lines):
            return None
    return lines if len(lines) > 1 else None


def _elements(payload: bytes) -> list[bytes] | None:
    """Between two objects of the array lies what ``_BETWEEN`` finds; found as often as that, it is nowhere else."""
    try:
        values = orjson.loads(payload)
    except ValueError:
        return None
    if not values or not all(isinstance(value, dict) for value in values):
        return None
    places = list(_BETWEEN.finditer(payload))
    if len(places) != len(values) - 1:
        return _walked(payload, len(values))
    starts = [payload.index(b"{"), *(place.end() - 1 for place in places)]
    stops = [*(place.start() + 1 for place in places), payload.rindex(b"}") + 1]
    return [payload[start:stop] for start, stop in zip(starts, stops, strict=True)]


def _walked(payload: bytes, count: int) -> list[bytes] | None:
    """The same by reading each object; as Latin-1 a byte is a character, and JSON's own characters are themselves."""
    text = payload.decode("latin-1")
    elements = []
    at = 0
    try:
        for _ in range(count):
            start = text.index("{", at)
            _, at = _decode(text, start)
            elements.append(payload[start:at])
    except (ValueError, RecursionError):
        return None
    return elements
