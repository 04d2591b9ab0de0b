"""A payload that holds several events: NDJSON, or a JSON array of objects. Bytes in, bytes out.

* **NDJSON**: each line that is not blank begins with ``{``. No JSON object is written so, as after its ``{`` comes a
  name or ``}``; so one object over several lines stays one event. A line need not be whole JSON: it is its own event
  all the same, and spoils no other.
* **Array**: valid JSON of objects alone. An array with anything else in it (a reading of numbers, say) is one event.

An event's bytes are those of the payload, not serialized again; what lies between two events (newlines, commas, the
brackets) is in none. What is not a batch is one event, and that is what ``split`` says of all it is not sure of.

A batch has few objects, however many its events: they are cut out piece by piece, and lie side by side (``Run``).
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any

import orjson

from vedette.inputs.framing import Run, run_of
from vedette.inputs.push.base import Refused
from vedette.inputs.push.pieces import few, spans
from vedette.model.event import MAX_EVENT

_BETWEEN = re.compile(rb"\}[ \t\r\n]*,[ \t\r\n]*\{")
_BLANK = b" \t\r\n"
_PIECE = 16 << 10
"""Bytes of lines that are cut up at once."""
_decode = json.JSONDecoder().raw_decode


def split(payload: bytes) -> Run | None:
    """The events of a batch, at least one and none empty, those above MAX_EVENT cut and flagged; None when the payload
    is one event."""
    first = payload[:1]
    if first == b"{":
        return _lines(payload) if b"\n" in payload else None
    if first == b"[":
        steps = elements(payload, orjson.loads)
        while True:
            try:
                next(steps)
            except StopIteration as done:
                return joined(run_of([run.data]) if len(run.data) > MAX_EVENT else run for run in done.value or ())
    return None


def joined(runs: Iterable[Run]) -> Run | None:
    """Runs with ends as one; None for none."""
    runs = list(runs)
    if len(runs) < 2:
        return runs[0] if runs else None
    data: list[bytes] = []
    ends = array("I")
    marks: list[tuple[int, int]] = []
    for run in runs:
        size = ends[-1] if ends else 0
        data.append(run.data)
        ends.extend(map(size.__add__, run.ends or ()))
        marks += [(size + at, bits) for at, bits in run.marks]
    return Run(b"".join(data), ends, tuple(marks))


def packed(events: Sequence[bytes]) -> Run:
    """Events side by side, as they are."""
    return Run(b"".join(events), array("I", accumulate(map(len, events))), ())


def events_of(run: Run) -> Iterator[bytes]:
    return (run.data[start:end] for start, end in pairwise(chain((0,), run.ends or ())))


def _lines(payload: bytes) -> Run | None:
    payload = payload.rstrip(_BLANK)
    runs: list[Run] = []
    at = 0
    while at < len(payload):
        end = payload.rfind(b"\n", at, at + _PIECE)
        if end < 0 and (end := payload.find(b"\n", at)) < 0:
            end = len(payload)
        piece = payload[at:end]
        lines = piece.split(b"\n")
        if piece.count(b"\n{") + piece.startswith(b"{") != len(lines):
            lines = [line for line in lines if line and not line.isspace()]
            if not all(line.startswith(b"{") for line in lines):
                return None
        if lines:
            runs.append(run_of(lines))
        at = end + 1
    run = joined(runs)
    return run if run is not None and len(run.ends or ()) > 1 else None


def elements(body: bytes, read: Callable[[bytes], Any]) -> Generator[list[bytes], None, Sequence[Run]]:
    """The events of an array of objects in few runs, one above MAX_EVENT in one of its own; none for another body.
    What it yields are turns of the event loop.

    ``read`` raises ValueError for a large element that is no JSON, and Refused as ``elements`` does.
    """
    runs: list[Run] = []
    try:
        if few(body):
            return [run] if (run := _array(body)) else []
        for span in spans(body):
            yield []
            if span is None:
                continue
            start, end, large = span
            text = body[start:end]
            run = None
            if not large:
                run = _array(b"[%b]" % text)
            elif (text := text.strip())[:1] == b"{":
                if len(text) <= MAX_EVENT:
                    read(text)
                run = packed([text])
            if run is None:
                return []
            runs.append(run)
    except ValueError:
        return []
    except Refused as refused:
        if refused.status != 400:
            raise
        return []
    return runs


def _array(payload: bytes) -> Run | None:
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
    return packed([payload[start:stop] for start, stop in zip(starts, stops, strict=True)])


def _walked(payload: bytes, count: int) -> Run | None:
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
    return packed(elements)
