"""A payload that holds several events: NDJSON, a JSON array of objects, or an object that is but such an array's
container. Bytes in, bytes out: the one place in which payloads, bodies and lines of files become several events.

* **NDJSON**: each line that is not blank begins with ``{``, or is an array of objects. No JSON object is written so, as
  after its ``{`` comes a name or ``}``; so one object over several lines stays one event. A line need not be whole
  JSON: it is its own event all the same, and spoils no other.
* **Array**: of objects alone. With anything else in it (a reading of numbers, say) it is one event. An object need not
  be whole JSON here either, if its brackets and texts end: a number that is none spoils no other.
* **Container**: an object with an array as above and, but for it, only what ``CONTAINERS`` says: CloudTrail's
  ``{"Records": […]}``, Azure's ``{"records": […]}``, lists of Kubernetes' audit log (``EventList``) and of Google's and
  Microsoft's interfaces, CloudWatch's subscriptions. An event may have an array of that name, too: with anything else
  beside it, it is one event.

An event that carries another one as a text (``carried.py``) is that other one. A byte order mark is in none.

Each record is an event of its own, in the raw log and whatever follows from it; a redelivery is known by all of them.
An event's bytes are those of the payload, not serialized again; what lies between two events (newlines, commas, the
brackets, what a container has beside its array) is in none. What is not a batch is one event, and that is what
``split`` says of all it is not sure of.

A batch has few objects, however many its events: they are cut out piece by piece, and lie side by side (``Run``).
"""

from __future__ import annotations

import re
from array import array
from codecs import BOM_UTF8
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any, TypeVar

import orjson

from vedette.inputs import carried
from vedette.inputs.framing import Run, run_of
from vedette.inputs.push.base import Refused
from vedette.inputs.push.pieces import STRING, child, few, spans
from vedette.model.event import MAX_EVENT, Flag

_BETWEEN = re.compile(rb"\}[ \t\r\n]*,[ \t\r\n]*\{")
_BLANK = b" \t\r\n"
_PIECE = 16 << 10
"""Bytes of lines that are cut up at once."""
_STEP = 64
"""Events that carry others, taken apart at once."""
_SMALL = 1 << 10
"""Bytes of runs that are put together: many would be many objects for Python's garbage collection to look at."""
GROWTH = 16
"""Times the size of a container that what stands beside its events may take in all of them."""
MAX_CONTAINER = 8 << 20
"""Bytes of a line of a file that is a batch; what is longer is cut as any long line."""
CONTAINERS: Mapping[str, tuple[str, ...]] = {
    "Records": (),
    "records": (),
    "items": ("kind", "apiVersion", "metadata", "etag", "id", "selfLink", "nextPageToken"),
    "value": ("@odata.context", "@odata.count", "@odata.nextLink", "@odata.deltaLink"),
    "logEvents": ("messageType", "owner", "logGroup", "logStream", "subscriptionFilters", "policyLevel"),
}
"""By the name of the array that an object is there for: what may be beside it, of which the first must be."""
_GAP = rb"[ \t\r\n]*"
_ARRAY = rb'"(' + "|".join(CONTAINERS).encode() + rb')"' + _GAP + rb":" + _GAP
_BESIDE = (
    rb'"(' + "|".join(name for names in CONTAINERS.values() for name in names).encode() + rb')"' + _GAP + rb":" + _GAP
    + rb"(?:" + STRING + rb'|\{(?>(?:[^"{}\[\]]++|' + STRING + rb')*)\}|\[(?>(?:[^"{}\[\]]++|' + STRING + rb")*)\]"
    + rb"|[-+.\w]+)" + _GAP
)  # fmt: skip
_opens = re.compile(
    rb"(?:"
    + BOM_UTF8
    + rb")?"
    + _GAP
    + rb"(?:\[|\{(?>(?:"
    + _GAP
    + _BESIDE
    + rb",){0,9})"
    + _GAP
    + _ARRAY
    + rb"\[)"
    + _GAP
    + rb"\{",
    re.DOTALL,
).match
_pair = re.compile(rb"\[" + _GAP + rb"\{").search
_record = re.compile(rb"\{" + _GAP + rb"(?:\}|" + STRING + _GAP + rb":)", re.DOTALL).match
_member = re.compile(_GAP + rb"(?:" + _ARRAY + rb"(?=\[)|" + _BESIDE + rb")", re.DOTALL).match
_stop = re.compile(_GAP + rb"(?:,|(\}" + _GAP + rb"\Z))").match
_rest = re.compile(
    rb"(?>(?:" + _GAP + rb"," + _GAP + _BESIDE + rb"){0,9})" + _GAP + rb"\}" + _GAP + rb"\Z", re.DOTALL
).match


T = TypeVar("T")
Steps = Generator[Any, None, T]
"""What it yields are turns of the event loop."""


def opens(head: bytes) -> bool:
    """Whether what begins so may be an array or a container of records; cheap where it is not."""
    return _opens(head) is not None


def stands(line: bytes) -> bool:
    """Whether a line may be by itself among lines of JSON: an object, or an array of objects."""
    return line[:1] == b"{" or (line[:1] == b"[" and opens(line) and line.rstrip(_BLANK)[-1:] == b"]")


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
        elif member[2] or array or (end := _end(payload, at)) <= at:
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


def _end(payload: bytes, at: int) -> int:
    """Behind the array that begins at ``at``: before it ends lies no bracket with nothing but members of the container
    behind it."""
    end = last = payload.rfind(b"]", at) + 1
    for _ in range(2):  # one array beside it, at most
        if (end := payload.rfind(b"]", at, max(at, end - 1)) + 1) and _rest(payload, end):
            last = end
    return last


def at_once(steps: Generator[Any, None, T]) -> T:
    """The result of steps that keep nobody waiting."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result


def splitting(payload: bytes, texts: bool = True) -> Steps[Run | None]:
    """The events of a batch, at least one and none empty, those above MAX_EVENT cut and flagged; None when the payload
    is one event. ``texts``: of what carries a text it may be a line."""
    payload = payload.removeprefix(BOM_UTF8)
    array = array_of(payload)
    run = (yield from records(array, texts, payload)) if array else None
    if run is not None or payload[:1] not in (b"{", b"["):
        return run
    if b"\n" in payload and (run := (yield from _lines(payload, texts))) is not None:
        return run
    event = carried.apart(payload, texts)
    return None if event is payload else run_of([event])


def split(payload: bytes, texts: bool = True) -> Run | None:
    """``splitting`` at once."""
    return at_once(splitting(payload, texts))


def records(array: bytes, texts: bool = True, within: bytes = b"") -> Steps[Run | None]:
    """The objects of an array as events; None where it is none of objects alone."""
    runs = yield from record_runs(array, texts, within)
    return (yield from _joining(run_of([*events_of(run)]) if len(run.data) > MAX_EVENT else run for run in runs))


def record_runs(array: bytes, texts: bool, within: bytes) -> Steps[Sequence[Run]]:
    """``elements``, of which what is carried is taken out; ``within``: what contains the array."""
    about = None
    if within[:1] == b"{" and b'"logEvents"' in within[: -len(array)] + within[-_SMALL:]:
        try:
            at = within.index(array[:_SMALL])
            about = carried.members(b"%b[]%b" % (within[:at], within[at + len(array) :]))
            del about["logEvents"]
        except (ValueError, KeyError):
            return []
    inner = yield from elements(array)
    if about and (len(within) - len(array)) * sum(len(run.ends or ()) for run in inner) > GROWTH * len(within):
        return []
    runs: list[Run] = []
    for run in inner:
        runs.append((yield from apart(run, texts, about)))
        yield []
    return runs


def apart(run: Run, texts: bool, about: Mapping[str, Any] | None = None) -> Steps[Run]:
    """``run`` with what is carried in place of what carries it."""
    if len(run.data) > MAX_EVENT or (about is None and not carried.may(run.data)):  # one event is not read so long
        return run
    runs: list[Run] = []
    events: list[bytes] = []
    size = 0
    for event in events_of(run):
        events.append(carried.apart(event, texts, about))
        size += len(event)
        if len(events) == _STEP or size > _PIECE:
            runs.append(run_of(events))
            events = []
            size = 0
            yield []
    if events:
        runs.append(run_of(events))
    return (yield from _joining(runs)) or run


def spread(run: Run, texts: bool = True, counts: list[int] | None = None) -> Steps[Run]:
    """``run`` with records in place of what contains them, and what is carried in place of what carries it; every event
    has MAX_EVENT at most. ``counts`` gets how many each has become."""
    if not may(run):
        return run
    cut = dict(run.marks)
    runs: list[Run] = []
    at = 0
    for event in _each(run):
        bits = cut.get(at, 0)
        inner = ((yield from splitting(event, texts)) if not bits & Flag.CUT else None) or run_of([event or b"\n"])
        if bits:
            marks = {0: 0} | dict(inner.marks)
            marks[0] |= bits
            inner = inner._replace(marks=tuple(marks.items()))
        runs.append(inner)
        if counts is not None:
            counts.append(len(inner.ends or ()))
        at += len(event) + (run.ends is None)
        yield []
    return (yield from _joining(runs)) or run


def _each(run: Run) -> Iterable[bytes]:
    return run.data[:-1].split(b"\n") if run.ends is None else events_of(run)


def may(run: Run) -> bool:
    """Whether any event may be others, or is too long; cheap."""
    data = run.data
    if len(data) > MAX_EVENT:
        return True
    return b"{" in data and (carried.may(data) or (_pair(data) is not None and any(map(_opens, _each(run)))))


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


def _lines(payload: bytes, texts: bool) -> Steps[Run | None]:
    payload = payload.rstrip(_BLANK)
    runs: list[Run] = []
    at = count = 0
    while at < len(payload):
        end = payload.rfind(b"\n", at, at + _PIECE)
        if end < 0 and (end := payload.find(b"\n", at)) < 0:
            end = len(payload)
        piece = payload[at:end]
        lines = piece.split(b"\n")
        if piece.count(b"\n{") + piece.startswith(b"{") != len(lines):
            lines = [line for line in lines if line and not line.isspace()]
            if not all(map(stands, lines)):
                return None
        if lines:
            runs.append((yield from spread(packed(lines), texts)))
            count += len(lines)
        at = end + 1
        yield []
    return (yield from _joining(runs)) if count > 1 else None


def elements(body: bytes) -> Steps[Sequence[Run]]:
    """The events of an array of objects in few runs, one above MAX_EVENT in one of its own; none for another body."""
    runs: list[Run] = []
    try:
        if few(body) and (run := _array(body)) is not None:
            return [run] if run.data else []
        for span in spans(body):
            yield []
            if span is None:
                continue
            start, end, large = span
            text = body[start:end]
            run = packed([_object(text)]) if large else _array(b"[%b]" % text) or _walked(text)
            if run is None or not run.data:
                return []
            if runs and len(runs[-1].data) + len(run.data) <= _SMALL:
                run = joined((runs.pop(), run)) or run
            runs.append(run)
    except Refused:
        return []
    return runs


def _array(payload: bytes) -> Run | None:
    """Between two objects of the array lies what ``_BETWEEN`` finds; found as often as that, it is nowhere else. Empty
    where it is none of objects alone, None where it is no JSON, or ``_BETWEEN`` does not tell."""
    try:
        values = orjson.loads(payload)
    except ValueError:
        return None
    if not values or not all(isinstance(value, dict) for value in values):
        return packed(())
    places = list(_BETWEEN.finditer(payload))
    if len(places) != len(values) - 1:
        return None
    starts = [payload.index(b"{"), *(place.end() - 1 for place in places)]
    stops = [*(place.start() + 1 for place in places), payload.rindex(b"}") + 1]
    return packed([payload[start:stop] for start, stop in zip(starts, stops, strict=True)])


def _object(text: bytes) -> bytes:
    """An element without blanks; empty for what is no object by its ends."""
    text = text.strip(_BLANK)
    return text if text[-1:] == b"}" and _record(text) else b""


def _walked(text: bytes) -> Run | None:
    """The elements by their brackets and the commas between them; None where one is no object."""
    events: list[bytes] = []
    at = 0
    while at <= len(text):
        match = child(text, at)
        end = match.end() if match else at
        event = _object(text[at:end])
        if not event or text[end : end + 1] not in (b",", b""):
            return None
        events.append(event)
        at = end + 1
    return packed(events)
