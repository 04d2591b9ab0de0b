"""A payload that holds several events: NDJSON, a JSON array of objects, or an object that is but such an array's
container. Bytes in, bytes out: the one place in which payloads, bodies and lines of files become several events.

* **NDJSON**: each line that is not blank begins with ``{``. No JSON object is written so, as after its ``{`` comes a
  name or ``}``; so one object over several lines stays one event. A line need not be whole JSON: it is its own event
  all the same, and spoils no other.
* **Array**: valid JSON of objects alone. An array with anything else in it (a reading of numbers, say) is one event.
* **Container**: an object with an array as above and, but for it, only what ``CONTAINERS`` says: CloudTrail's
  ``{"Records": […]}``, Azure's ``{"records": […]}``, lists of Kubernetes' audit log (``EventList``) and of Google's and
  Microsoft's interfaces. An event may have an array of that name, too: with anything else beside it, it is one event.

Each record is an event of its own, in the raw log and whatever follows from it; a redelivery is known by all of them.
An event's bytes are those of the payload, not serialized again; what lies between two events (newlines, commas, the
brackets, what a container has beside its array) is in none. What is not a batch is one event, and that is what
``split`` says of all it is not sure of.

A batch has few objects, however many its events: they are cut out piece by piece, and lie side by side (``Run``).
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any, TypeVar

import orjson

from vedette.decode.values import decoder
from vedette.inputs.framing import Run, run_of
from vedette.inputs.push.base import Refused
from vedette.inputs.push.pieces import STRING, check, few, spans
from vedette.model.event import MAX_EVENT

_BETWEEN = re.compile(rb"\}[ \t\r\n]*,[ \t\r\n]*\{")
_BLANK = b" \t\r\n"
_PIECE = 16 << 10
"""Bytes of lines that are cut up at once."""
_SMALL = 1 << 10
"""Bytes of runs that are put together: many would be many objects for Python's garbage collection to look at."""
MAX_CONTAINER = 8 << 20
"""Bytes of a line of a file that is a batch; what is longer is cut as any long line."""
CONTAINERS: Mapping[str, tuple[str, ...]] = {
    "Records": (),
    "records": (),
    "items": ("kind", "apiVersion", "metadata", "etag", "id", "selfLink", "nextPageToken"),
    "value": ("@odata.context", "@odata.count", "@odata.nextLink", "@odata.deltaLink"),
}
"""By the name of the array that an object is there for: what may be beside it, of which the first must be."""
_decode = decoder().raw_decode
_GAP = rb"[ \t\r\n]*"
_ARRAY = rb'"(' + "|".join(CONTAINERS).encode() + rb')"' + _GAP + rb":" + _GAP
_BESIDE = (
    rb'"(' + "|".join(name for names in CONTAINERS.values() for name in names).encode() + rb')"' + _GAP + rb":" + _GAP
    + rb"(?:" + STRING + rb'|\{(?>(?:[^"{}\[\]]++|' + STRING + rb")*)\}|[-+.\w]+)" + _GAP
)  # fmt: skip
_opens = re.compile(
    _GAP + rb"(?:\[|\{(?>(?:" + _GAP + _BESIDE + rb",){0,9})" + _GAP + _ARRAY + rb"\[)" + _GAP + rb"\{", re.DOTALL
).match
_member = re.compile(_GAP + rb"(?:" + _ARRAY + rb"(?=\[)|" + _BESIDE + rb")", re.DOTALL).match
_stop = re.compile(_GAP + rb"(?:,|(\}" + _GAP + rb"\Z))").match


T = TypeVar("T")
Steps = Generator[Any, None, T]
"""What it yields are turns of the event loop."""


def opens(head: bytes) -> bool:
    """Whether what begins so may be an array or a container of records; cheap where it is not."""
    return _opens(head) is not None


def array_of(payload: bytes) -> bytes:
    """The array that a payload is or contains; empty for none."""
    if not opens(payload) or payload.lstrip(_BLANK)[:1] == b"[":
        return payload if payload[:1] == b"[" else b""
    name = array = b""
    beside: set[str] = set()
    at = payload.index(b"{") + 1
    while (member := _member(payload, at)) is not None:
        at = member.end()
        if member[2] and (key := member[2].decode()) not in beside:
            beside.add(key)
        elif member[2] or array or (end := payload.rfind(b"]") + 1) <= at:
            break
        else:
            name, array, at = member[1], payload[at:end], end
        if (stop := _stop(payload, at)) is None:
            break
        if stop[1]:
            may = CONTAINERS.get(name.decode(), ("",))
            return array if beside.issubset(may) and beside.issuperset(may[:1]) else b""
        at = stop.end()
    return b""


def at_once(steps: Generator[Any, None, T]) -> T:
    """The result of steps that keep nobody waiting."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result


def splitting(payload: bytes) -> Steps[Run | None]:
    """The events of a batch, at least one and none empty, those above MAX_EVENT cut and flagged; None when the payload
    is one event."""
    array = array_of(payload)
    run = (yield from records(array)) if array else None
    if run is None and payload[:1] == b"{" and b"\n" in payload:
        run = yield from _lines(payload)
        return (yield from spread(run)) if run is not None and opens(payload) else run
    return run


def split(payload: bytes) -> Run | None:
    """``splitting`` at once."""
    return at_once(splitting(payload))


def records(array: bytes) -> Steps[Run | None]:
    """The objects of an array as events; None where it is none of objects alone."""
    runs = yield from elements(array)
    return (yield from _joining(run_of([run.data]) if len(run.data) > MAX_EVENT else run for run in runs))


def spread(run: Run) -> Steps[Run]:
    """``run`` with records in place of what contains them; every event has MAX_EVENT at most."""
    cut = dict(run.marks)
    runs: list[Run] = []
    at = 0
    for event in run.data[:-1].split(b"\n") if run.ends is None else events_of(run):
        inner = ((yield from splitting(event)) if at not in cut else None) or run_of([event or b"\n"])
        runs.append(inner._replace(marks=((0, cut[at]),)) if at in cut else inner)
        at += len(event) + (run.ends is None)
        yield []
    return (yield from _joining(runs)) or run


def joined(runs: Iterable[Run]) -> Run | None:
    """Runs with ends as one; None for none."""
    return at_once(_joining(runs))


def _joining(runs: Iterable[Run]) -> Steps[Run | None]:
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
        yield []
    return Run(b"".join(data), ends, tuple(marks))


def packed(events: Sequence[bytes]) -> Run:
    """Events side by side, as they are."""
    return Run(b"".join(events), array("I", accumulate(map(len, events))), ())


def events_of(run: Run) -> Iterator[bytes]:
    return (run.data[start:end] for start, end in pairwise(chain((0,), run.ends or ())))


def _lines(payload: bytes) -> Steps[Run | None]:
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
        yield []
    run = yield from _joining(runs)
    return run if run is not None and len(run.ends or ()) > 1 else None


def elements(body: bytes) -> Steps[Sequence[Run]]:
    """The events of an array of objects in few runs, one above MAX_EVENT in one of its own; none for another body."""
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
                for _ in check(text):
                    yield []
                run = packed([text])
            if run is None:
                return []
            if runs and len(runs[-1].data) + len(run.data) <= _SMALL:
                run = joined((runs.pop(), run)) or run
            runs.append(run)
    except Refused:
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
