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
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from vedette.archive.reach import whole
from vedette.config.redact import redaction as redacting
from vedette.decode.bounded import compiled
from vedette.decode.codecs import CODECS, plugged
from vedette.decode.decoder import record
from vedette.decode.redact import Redaction
from vedette.fleet.job import Job
from vedette.model.event import RawRef
from vedette.rawlog.read import Gap, chunk, entries, event_at, of_log, search
from vedette.rawlog.segment import Tiers, segments

MAX_AROUND = 10_000
MAX_EVENTS = 100_000
"""Events of one request."""
MAX_LINE = 32 << 10
"""Bytes of an event that leave."""
PATTERN_SECONDS = 0.1
"""For the operator's pattern on one event; longer is no match, and a note says so."""
REDACT_SECONDS = 0.25
"""For one of the owner's patterns on one event; longer, and the event is left out."""
_LOG_ID = re.compile(r"[0-9a-f]{32}")
_AROUND = {"ref", "around"}
_RANGE = {"since", "until", "pattern", "input", "limit"}


class Line(NamedTuple):
    log_id: str
    offset: int
    input: str
    received_at: int
    raw: bytes
    codec: str


def validate(body: Mapping[str, Any]) -> None:
    """Raises ValueError."""
    if "ref" in body:
        ref, around = body["ref"], body.get("around")
        if body.keys() != _AROUND or type(around) is not int or not 0 <= around <= MAX_AROUND:
            raise ValueError(f"expects ref and around, 0 to {MAX_AROUND}")
        _ref(ref)
        return
    if unknown := body.keys() - _RANGE:
        raise ValueError(f"{min(unknown)}: not known; known: ref, around, {', '.join(sorted(_RANGE))}")
    for key in ("since", "until"):
        if type(body.get(key)) is not int or not 0 <= body[key] < 2**63:
            raise ValueError(f"{key}: expects UTC microseconds")
    if body["since"] >= body["until"]:
        raise ValueError("since: expects a time before until")
    for key in ("pattern", "input"):
        if not isinstance(body.get(key, ""), str) or len(body.get(key, "")) > 1000:
            raise ValueError(f"{key}: expects a text of at most 1000 characters")
    if type(body.get("limit", 1)) is not int or not 0 < body.get("limit", 1) <= MAX_EVENTS:
        raise ValueError(f"limit: expects 1 to {MAX_EVENTS}")
    try:
        compiled(body.get("pattern", "").encode())
    except ValueError as error:
        raise ValueError(f"pattern: {error}") from error


def _ref(ref: object) -> RawRef:
    match ref:
        case {"log_id": str(log_id), "offset": int(offset), "length": int(length)} if _LOG_ID.fullmatch(log_id):
            if 0 <= offset < 2**63 and 0 <= length < 2**31:
                return RawRef(log_id, offset, length)
    raise ValueError("ref: expects log_id, offset and length, as an alert's raw_ref has them")


async def run(job: Job) -> None:
    config = job.services.config()
    redaction, _ = redacting(config, seconds=REDACT_SECONDS, window=2 * MAX_LINE)
    body = job.request.body
    read = _around if "ref" in body else _range

    def answer() -> None:
        raw = whole(config.agent, config.archive)
        _write(job, redaction, raw, read(raw, body, job.pace))

    await job.aside(answer)


def _write(job: Job, redaction: Redaction, raw: Path | Tiers, found: Iterator[Line | str]) -> None:
    """A record for each line or note. After a restart those up to the cursor (notes, log and offset of the last line)
    are passed over."""
    target = _ref(job.request.body["ref"]) if "ref" in job.request.body else None
    noted, log_id, offset = job.cursor or (0, "", -1)
    logs = dict.fromkeys(segment.log_id for segment in segments(raw))
    order = {name: i for i, name in enumerate(logs)}
    notes = 0
    for line in found:
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
    behind: deque[Line] = deque(maxlen=around)
    lines = _lines(folder, ref.log_id, first, name, gaps, pace)
    for line in lines:
        if line.offset >= ref.offset:
            if len(behind) < around:
                yield f"the log begins here: {len(behind)} of {around} events before it are left"
            yield from behind
            yield line
            break
        behind.append(line)
    yield from islice(lines, around)
    for gap in gaps:
        yield f"{gap.events} events at offset {gap.offset} cannot be read: {gap.reason}"


def _lines(
    folder: Path | Tiers, log_id: str, start: int, input: str, gaps: list[Gap], pace: Callable[[], None]
) -> Iterator[Line]:
    """Events of an input in one log, from the frame at ``start`` on."""
    for file, at in entries(of_log(folder, log_id), start, on_gap=gaps.append):
        pace()
        if at.meta.input != input or (held := chunk(file, at, gaps.append)) is None:
            continue
        for begin, end in held.spans():
            yield Line(log_id, at.header.offset + begin, input, at.header.received_at, held.data[begin:end], held.codec)


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
