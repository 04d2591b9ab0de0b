"""Lines of a host's raw log for an operator: those around an event, or those of a time and a pattern.

    {"ref": {"log_id", "offset", "length"}, "around": n}     n events of the same input before it, and n after it
    {"since", "until": UTC microseconds, "pattern": regular expression, "input": name, "limit": n}

Records, oldest first: ``{"log_id", "offset", "length", "input", "received_at", "raw" | "raw_base64", "redacted": n}``,
with ``"alert": true`` for the event that was asked for and ``"cut": true`` where a line is longer than MAX_LINE;
``{"note": text}`` says what lacks: damage, or that the log begins there. What the owner redacts (``[[redact]]``)
is taken out before anything leaves. The log is read as ``vedette logs`` reads it, with its archive, in a
thread beside the agent's work.
"""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, Struct

from vedette.archive.reach import whole
from vedette.config.redact import redaction as redacting
from vedette.decode.bounded import compiled
from vedette.decode.codecs import CODECS, plugged
from vedette.decode.decoder import record
from vedette.decode.redact import Redaction
from vedette.fleet.job import Job
from vedette.model.event import Chunk, RawRef
from vedette.rawlog.read import Gap, chunk, entries, event_at, of_log, search
from vedette.rawlog.segment import Located, Tiers, segments
from vedette.system import documents
from vedette.system.documents import Hex32

MAX_AROUND = 10_000
MAX_EVENTS = 100_000
"""Events of one request."""
MAX_LINE = 32 << 10
"""Bytes of an event that leave."""
PATTERN_SECONDS = 0.1
"""For the operator's pattern on one event; longer is no match, and a note says so."""
REDACT_SECONDS = 0.25
"""For one of the owner's patterns on one event; longer, and the event is left out."""
_Place = Annotated[int, Meta(ge=0, le=2**63 - 1, description="a whole number from 0")]
_Time = Annotated[int, Meta(ge=0, le=2**63 - 1, description="UTC microseconds")]
_Text = Annotated[str, Meta(max_length=1000, description="a text of at most 1000 characters")]


class _Ref(Struct, frozen=True):
    """Where an event lies, as an alert's raw_ref says it."""

    log_id: Hex32
    offset: _Place
    length: Annotated[int, Meta(ge=0, lt=2**31, description="a whole number from 0")]


class _Around(Struct, frozen=True, forbid_unknown_fields=True):
    ref: _Ref
    around: Annotated[int, Meta(ge=0, le=MAX_AROUND, description=f"0 to {MAX_AROUND}")]


class _Range(Struct, frozen=True, forbid_unknown_fields=True):
    since: _Time
    until: _Time
    pattern: _Text = ""
    input: _Text = ""
    limit: Annotated[int, Meta(gt=0, le=MAX_EVENTS, description=f"1 to {MAX_EVENTS}")] = 1

    def __post_init__(self) -> None:
        if self.since >= self.until:
            raise documents.Misfit("since", "expects a time before until")
        try:
            compiled(self.pattern.encode())
        except ValueError as error:
            raise documents.Misfit("pattern", str(error)) from error


class Line(NamedTuple):
    log_id: str
    offset: int
    input: str
    received_at: int
    raw: bytes
    codec: str


def validate(body: Mapping[str, Any]) -> None:
    """Raises ValueError."""
    documents.read(_Around if "ref" in body else _Range, body)


def _ref(ref: object) -> RawRef:
    place = documents.read(_Ref, ref, "ref")
    return RawRef(place.log_id, place.offset, place.length)


async def run(job: Job) -> None:
    config = job.services.config()
    redaction, _ = redacting(config, seconds=REDACT_SECONDS, window=2 * MAX_LINE)
    body = job.request.body
    read = _around if "ref" in body else _range

    def answer() -> None:
        raw = whole(config.agent, config.archive)
        _write(job, redaction, raw, read(raw, body, job.pace))

    await job.aside(answer)


def _write(job: Job, redaction: Redaction, raw: Path | Tiers, lines: Iterator[Line | str]) -> None:
    """A record for each line or note. After a restart those up to the cursor (notes, log and offset of the last line)
    are passed over."""
    target = _ref(job.request.body["ref"]) if "ref" in job.request.body else None
    noted, log_id, offset = job.cursor or (0, "", -1)
    logs = dict.fromkeys(segment.log_id for segment in segments(raw))
    order = {name: i for i, name in enumerate(logs)}
    notes = 0
    for line in lines:
        if isinstance(line, str):
            notes += 1
            if notes > noted:
                job.emit({"note": line})
                job.checkpoint((notes, log_id, offset))
            continue
        if log_id in order and (order.get(line.log_id, len(order)), line.offset) <= (order[log_id], offset):
            continue
        job.pace()
        job.emit(_record(line, redaction, target))
        log_id, offset = line.log_id, line.offset
        job.checkpoint((max(notes, noted), log_id, offset))


def _record(line: Line, redaction: Redaction, target: RawRef | None) -> dict[str, Any]:
    raw, redacted = _redacted(line, redaction)
    record: dict[str, Any] = {
        "log_id": line.log_id, "offset": line.offset, "length": len(line.raw), "input": line.input,
        "received_at": line.received_at, "redacted": redacted,
    }  # fmt: skip
    if len(raw) > MAX_LINE:
        raw, record["cut"] = raw[:MAX_LINE], True
    try:
        record["raw"] = raw.decode()
    except UnicodeDecodeError:
        record["raw_base64"] = base64.b64encode(raw).decode()
    if target is not None and (line.log_id, line.offset) == (target.log_id, target.offset):
        record["alert"] = True
    return record


def _redacted(line: Line, redaction: Redaction) -> tuple[bytes, int]:
    """The line without what must not leave, and in how many places something was taken out."""
    if not redaction:
        return line.raw, 0
    text = line.raw.decode("utf-8", "surrogateescape")
    codec = plugged.get(line.codec) or CODECS.get(line.codec)
    try:
        if codec is None:  # of rules, or of a plugin that is gone: what its fields are called is not known here
            raise LookupError(line.codec)
        event = record(line.raw, codec)
        fields, host = event.fields(), event.host
    except Exception:  # a decoder failed: nothing is known of its fields
        fields, host = None, None
    left, count = redaction.case(text, fields, host=host).raw()
    return left.encode("utf-8", "surrogateescape"), count


def _around(folder: Path | Tiers, body: Mapping[str, Any], pace: Callable[[], None]) -> Iterator[Line | str]:
    """Raises LookupError when the raw log does not hold the event."""
    ref, around = _ref(body["ref"]), body["around"]
    event_at(folder, ref)
    gaps: list[Gap] = []
    parts = of_log(folder, ref.log_id)
    holds = max(0, sum(segment.base <= ref.offset for segment in parts) - 1)
    name, first, before = "", ref.offset, 0
    for number in range(holds, -1, -1):  # back a segment at a time, by frames' headers alone
        spans: deque[tuple[int, int, str]] = deque()
        for _, at in entries(parts[number : number + 1], parts[number].base, on_gap=gaps.append):
            pace()
            if at.header.offset > ref.offset:
                break
            spans.append((at.header.offset, at.header.events, at.meta.input))
        if number == holds:
            name = spans[-1][2] if spans else ""
            before -= spans[-1][1] if spans else 0  # of the event's own frame it is not known how many lie before
        for offset, events, input in reversed(spans):
            if before >= around:
                break
            if input == name:
                first, before = offset, before + events
        if before >= around:
            break
    behind: deque[int] = deque(maxlen=around)  # where they begin: a line may be a MiB, and is read again
    for at, part in _frames(folder, ref.log_id, first, name, gaps, pace):
        places = [at.header.offset + begin for begin, _ in part.spans()]
        behind.extend(place for place in places if place < ref.offset)
        if places and places[-1] >= ref.offset:
            break
    if len(behind) < around:
        yield f"the log begins here: {len(behind)} of {around} events before it are left"
    start = behind[0] if behind else ref.offset
    lines = _lines(folder, ref.log_id, first, name, gaps, pace)
    yield from islice((line for line in lines if line.offset >= start), len(behind) + 1 + around)
    for gap in dict.fromkeys(gaps):
        yield f"{gap.events} events at offset {gap.offset} cannot be read: {gap.reason}"


def _frames(
    folder: Path | Tiers, log_id: str, start: int, input: str, gaps: list[Gap], pace: Callable[[], None]
) -> Iterator[tuple[Located, Chunk]]:
    """Frames of an input in one log with what they hold, from the one at ``start`` on."""
    for file, at in entries(of_log(folder, log_id), start, on_gap=gaps.append):
        pace()
        if at.meta.input == input and (part := chunk(file, at, gaps.append)) is not None:
            yield at, part


def _lines(
    folder: Path | Tiers, log_id: str, start: int, input: str, gaps: list[Gap], pace: Callable[[], None]
) -> Iterator[Line]:
    """Events of an input in one log, from the frame at ``start`` on."""
    for at, part in _frames(folder, log_id, start, input, gaps, pace):
        for begin, end in part.spans():
            yield Line(log_id, at.header.offset + begin, input, at.header.received_at, part.data[begin:end], part.codec)


def _range(folder: Path | Tiers, body: Mapping[str, Any], pace: Callable[[], None]) -> Iterator[Line | str]:
    pattern = compiled(body["pattern"].encode()) if body.get("pattern") else None
    left, slow = body.get("limit", MAX_EVENTS), 0
    gaps: list[Gap] = []
    wanted: dict[str, Any] = {"since": body["since"], "until": body["until"], "input": body.get("input") or None}
    for hit in search(folder, on_gap=gaps.append, **wanted):
        pace()
        if pattern is not None:
            try:
                if not pattern.search(hit.raw, timeout=PATTERN_SECONDS):
                    continue
            except TimeoutError:
                slow += 1
                continue
        yield Line(hit.log_id, hit.offset, hit.input, hit.received_at, hit.raw, hit.codec)
        left -= 1
        if not left:
            yield f"the limit of {body.get('limit', MAX_EVENTS)} events is reached"
            break
    if slow:
        yield f"on {slow} events the pattern took too long; they are left out"
    for gap in gaps:
        yield f"{gap.events} events at offset {gap.offset} cannot be read: {gap.reason}"
