"""The raw log given to its owner: ``vedette logs export``, to a stream, or to a folder or an object store
(``archive.stores``) as parts with a manifest.

Promise: every stored event of the time asked for that passes the filters is in the export once, in the order of the
log; every part is named in the manifest with the place of its first and last event and its SHA-256. An
export that was killed and is started again with the same request goes on behind its last whole part and ends with the
same events. What is damaged, or deleted before it could be read, is counted.

    FOLDER/part-000001.jsonl.zst    zstd (RFC 8878), but for Parquet, whose pages are compressed
    FOLDER/manifest.json            after each part; "complete" is true when there are no further ones

A part ends with a frame of the log, when it holds ``PART_BYTES`` of events. The agent may be running.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import zstandard

from vedette.archive.stores import PIECE_BYTES, Store, digest, holds
from vedette.decode.codecs import Codecs
from vedette.decode.decoder import Record, record
from vedette.delivery.columns import BINARY, INT32, INT64, STRING, TIMESTAMP, Column
from vedette.delivery.parquet import write as parquet
from vedette.engine.match import Context
from vedette.model.event import Chunk
from vedette.plan.ir import as_shown
from vedette.rawlog import read
from vedette.rawlog.read import Gap, Place
from vedette.rawlog.segment import Tiers
from vedette.version import __version__

PART_BYTES = 32 << 20
MANIFEST = "manifest.json"
OCSF = "1.3.0"
"""The Open Cybersecurity Schema Framework's version (schema.ocsf.io)."""


class Event(NamedTuple):
    """A stored event, and where it lies."""

    log_id: str
    offset: int
    length: int
    input: str
    received_at: int
    raw: bytes
    decoded: Record
    host: str | None

    @property
    def place(self) -> str:
        """As ``vedette logs show`` takes it."""
        return f"{self.log_id}:{self.offset}+{self.length}"


@dataclass(frozen=True)
class Wanted:
    """What to export. Times are UTC microseconds of receipt, ``until`` exclusive; ``pattern``: a regular expression;
    ``inputs``: only of these, empty: of all."""

    format: str
    since: int | None
    until: int
    inputs: tuple[str, ...] = ()
    pattern: str = ""

    def __post_init__(self) -> None:
        """Raises ValueError for a pattern that is none."""
        try:
            re.compile(self.pattern.encode())
        except re.error as error:
            raise ValueError(f"{self.pattern!r} is not a regular expression: {error}") from None


# --- formats


def as_raw(event: Event) -> bytes:
    """The event's bytes and a newline. Of an event that holds newlines itself the end does not show."""
    return event.raw + b"\n"


def as_jsonl(event: Event) -> bytes:
    """What is known of the event. ``raw`` is text; where the bytes are not UTF-8, ``raw_base64`` has them, too."""
    row = {
        "log_id": event.log_id, "offset": event.offset, "length": event.length, "input": event.input,
        "received_at": event.received_at, "event_time": event.decoded.event_time, "host": event.host,
        "fields": fields(event.decoded), "raw": event.raw.decode("utf-8", "replace"),
    }  # fmt: skip
    if not _is_text(event.raw):
        row["raw_base64"] = base64.b64encode(event.raw).decode()
    return orjson.dumps(row) + b"\n"


def as_ocsf(event: Event) -> bytes:
    """A Base Event (class 0): what Vedette knows of any event; decoded fields are in ``unmapped``. Times are
    milliseconds."""
    when = event.decoded.event_time
    row: dict[str, Any] = {
        "class_uid": 0, "category_uid": 0, "activity_id": 0, "type_uid": 0, "severity_id": 0,
        "time": (event.received_at if when is None else when) // 1000,
        "metadata": {
            "version": OCSF, "uid": event.place, "log_name": event.input, "logged_time": event.received_at // 1000,
            "product": {"name": "Vedette", "vendor_name": "Vedette", "version": __version__},
        },
        "raw_data": event.raw.decode("utf-8", "replace"),
        "unmapped": fields(event.decoded),
    }  # fmt: skip
    if event.host:
        row["metadata"]["profiles"] = ["host"]
        row["device"] = {"hostname": event.host, "type_id": 0}
    return orjson.dumps(row) + b"\n"


COLUMNS = (
    Column("log_id", STRING, required=True),
    Column("offset", INT64, required=True),
    Column("length", INT32, required=True),
    Column("input", STRING, required=True),
    Column("received_at", TIMESTAMP, required=True),
    Column("event_time", TIMESTAMP),
    Column("host", STRING),
    Column("fields", STRING, required=True, limit=1 << 30),
    Column("raw", BINARY, required=True),
)


def as_parquet(events: Iterable[Event]) -> bytes:
    """One file with ``COLUMNS``; ``fields`` is a JSON object."""
    return parquet(COLUMNS, [
        {
            "log_id": event.log_id, "offset": event.offset, "length": event.length, "input": event.input,
            "received_at": event.received_at, "event_time": event.decoded.event_time, "host": event.host,
            "fields": orjson.dumps(fields(event.decoded)).decode(), "raw": event.raw,
        }
        for event in events
    ])  # fmt: skip


LINES: Mapping[str, Callable[[Event], bytes]] = {"raw": as_raw, "jsonl": as_jsonl, "ocsf": as_ocsf}
"""Formats of one event after the other."""
FORMATS = (*LINES, "parquet")


def fields(event: Record) -> dict[str, str]:
    """All decoded fields as texts; of objects what people are shown. Empty when a decoder raises."""
    try:
        named = event.fields()
    except Exception:  # whatever an event does to a decoder, its bytes are exported
        return {}
    return {name: shown for name, value in named.items() if (shown := as_shown(value)) is not None}


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


# --- reading


class Reader:
    """The events of a folder of raw logs that are wanted, frame by frame."""

    def __init__(
        self, folder: Path | Tiers, wanted: Wanted, contexts: Mapping[str, Context], codecs: Codecs,
        after: Place | None = None, next_event: int = -1,
    ) -> None:  # fmt: skip
        """``contexts``: by input its time zone and host; ``codecs``: all that events may be read by.
        ``after``: where an export of before has come to, and the number of the event there."""
        self._folder, self._wanted, self._contexts, self._codecs = folder, wanted, contexts, codecs
        self.place, self.next_event = after, next_event
        """Behind the last frame that was given."""
        self.damaged = self.gone = 0
        """Events that cannot be read; that were deleted before they were."""

    def frames(self) -> Iterator[list[Event]]:
        """The wanted events of each frame. Raises OSError."""
        wanted, pattern = self._wanted, re.compile(self._wanted.pattern.encode(), re.IGNORECASE)
        for file, at in read.between(self._folder, wanted.since, wanted.until, self.place, on_gap=self._hole):
            segment, header = file.segment, at.header
            if self.place is not None and self.place.log_id != segment.log_id:
                self.next_event = -1
            if 0 <= self.next_event < header.first_event:
                self.gone += header.first_event - self.next_event
            self.next_event = header.first_event + header.events
            self.place = Place(segment.generation, segment.log_id, header.end)
            if wanted.inputs and at.meta.input not in wanted.inputs:
                continue
            if (chunk := read.chunk(file, at, self._damaged)) is not None:
                yield [
                    self._event(segment.log_id, header.offset, chunk, begin, end)
                    for begin, end in chunk.spans()
                    if not wanted.pattern or pattern.search(chunk.data, begin, end)
                ]

    def _event(self, log_id: str, offset: int, chunk: Chunk, begin: int, end: int) -> Event:
        context, raw = self._contexts.get(chunk.input, Context()), chunk.data[begin:end]
        codec, origin = self._codecs[chunk.codec], chunk.origin(begin)
        decoded = record(raw, codec, origin=origin, received_at=chunk.received_at, zone=context.zone)
        host = decoded.host or context.host
        return Event(log_id, offset + begin, end - begin, chunk.input, chunk.received_at, raw, decoded, host)

    def _hole(self, gap: Gap) -> None:
        """Between two frames: the next one's number is known."""
        self._damaged(gap)
        if self.next_event >= 0:
            self.next_event += gap.events

    def _damaged(self, gap: Gap) -> None:
        """Raises OSError for what may be had later."""
        if gap.unreachable:
            raise OSError(f"{gap.reason}; {gap.events} events at offset {gap.offset}: export again, it goes on there")
        read.report(gap)
        self.damaged += gap.events


# --- writing


class Parts:
    """An export to a folder or store; see the module's text."""

    def __init__(self, store: Store, name: str, wanted: Wanted, agent: str) -> None:
        """Goes on with the export in the store, which messages call ``name``, up to the ``until`` that it began with.
        Raises ValueError when that is another one, or there is something else; OSError."""
        self._store, self._name = store, name
        self.state: dict[str, Any] = {
            "request": {"agent_id": agent, **asdict(wanted), "inputs": list(wanted.inputs)},
            "complete": False, "events": 0, "damaged": 0, "gone": 0, "after": None, "parts": [],
        }  # fmt: skip
        if (manifest := store.stat(MANIFEST)) is not None:
            former = self._known(manifest.size)
            if {**former["request"], "until": 0} != {**self.state["request"], "until": 0}:
                raise ValueError(f"{name}: holds the export of {former['request']}: choose an empty folder")
            self.state = former
        elif any(key not in (MANIFEST, f"part-000001.{_ending(wanted)}") for key in store.keys("")):
            raise ValueError(f"{name}: is not empty and holds no export: choose an empty folder")
        self.wanted = replace(wanted, until=self.state["request"]["until"])

    def _known(self, size: int) -> dict[str, Any]:
        try:
            former: dict[str, Any] = orjson.loads(self._store.read(MANIFEST, 0, size))
            if former.keys() != self.state.keys() or former["request"].keys() != self.state["request"].keys():
                raise ValueError("it has other keys")
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"{self._name}/{MANIFEST}: not the manifest of an export: {error}") from error
        return former

    def take(self, raw: Path | Tiers, contexts: Mapping[str, Context], codecs: Codecs) -> None:
        """Write what is left of the logs in ``raw``, part by part. Raises OSError."""
        if self.state["complete"]:
            return
        place, next_event = self.state["after"] or (None, -1)
        reader = Reader(raw, self.wanted, contexts, codecs, place and Place(*place), next_event)
        before, events, size = self.state, list[Event](), 0
        for of_frame in reader.frames():
            events += of_frame
            size += sum(event.length for event in of_frame)
            if size >= PART_BYTES:
                self._save(reader, before, events)
                events, size = [], 0
        self._save(reader, before, events, complete=True)

    def _save(self, reader: Reader, before: Mapping[str, Any], events: list[Event], *, complete: bool = False) -> None:
        state = self.state
        self.state = {
            **state,
            "complete": complete,
            "events": state["events"] + len(events),
            "damaged": before["damaged"] + reader.damaged,
            "gone": before["gone"] + reader.gone,
            "after": reader.place and [[*reader.place], reader.next_event],
            "parts": [*state["parts"], self._part(len(state["parts"]) + 1, events)] if events else state["parts"],
        }
        self._put(MANIFEST, orjson.dumps(self.state, option=orjson.OPT_INDENT_2))

    def _part(self, number: int, events: list[Event]) -> dict[str, Any]:
        form, name = self.wanted.format, f"part-{number:06}.{_ending(self.wanted)}"
        data = as_parquet(events) if form == "parquet" else zstandard.compress(b"".join(map(LINES[form], events)), 6)
        self._put(name, data)
        return {
            "file": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), "events": len(events),
            "first": events[0].place, "last": events[-1].place,
            "received_from": events[0].received_at, "received_to": events[-1].received_at,
        }  # fmt: skip

    def _put(self, name: str, data: bytes) -> None:
        """Raises OSError, also when the store then has something else."""
        self._store.put(name, (data[start : start + PIECE_BYTES] for start in range(0, len(data), PIECE_BYTES)))
        digests = digest(data[start : start + PIECE_BYTES] for start in range(0, len(data), PIECE_BYTES))
        stored = self._store.stat(name)
        if stored is None or not holds(self._store, name, digests, stored):
            raise OSError(f"{self._name}/{name}: what is there is not what was sent; start the export again")


def _ending(wanted: Wanted) -> str:
    return wanted.format + ("" if wanted.format == "parquet" else ".zst")
