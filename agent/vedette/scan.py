"""Offline judging: the engine of the live path over files, and over what Python hands it.

Log sources are ignored unless the engine routes; there is no raw log, no outbox and no clock. Lines are read in
chunks of ``CHUNK_BYTES``; a line longer than ``MAX_EVENT`` is cut there, as an input would cut it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from datetime import tzinfo
from typing import Any, BinaryIO, NamedTuple

import orjson

from vedette.compiler.ir import Rule
from vedette.engine.match import Context, Engine
from vedette.event import CHUNK_BYTES, MAX_EVENT, Chunk, LogSource
from vedette.inputs.decode import Record


class Detection(NamedTuple):
    """A rule that matched an event; ``line`` counts from 1 (in a JSON array: the index from 0)."""

    rule: Rule
    line: int
    record: Record
    fields: dict[str, str]
    """The fields that the rule tests or wants shown, as texts."""

    def to_row(self, file: str) -> dict[str, Any]:
        """What ``vedette scan`` prints."""
        return {
            "rule_id": self.rule.id,
            "rule_title": self.rule.title,
            "level": self.rule.level,
            "kind": "detection",
            "file": file,
            "line": self.line,
            "fields": self.fields,
        }


def lines(file: BinaryIO, codec: str = "auto", name: str = "scan") -> Iterator[Chunk]:
    """The lines of ``file`` as chunks; a last line without its newline is one too."""
    rest = b""
    skipping = False
    while data := file.read(CHUNK_BYTES):
        if skipping:  # the rest of a line that was cut
            end = data.find(b"\n") + 1
            if not end:
                continue
            data, skipping = data[end:], False
        data = rest + data
        end = data.rfind(b"\n") + 1
        rest = data[end:]
        if end:
            yield Chunk(name, codec, 0, _cut(data[:end]))
        if len(rest) > MAX_EVENT:
            yield Chunk(name, codec, 0, rest[:MAX_EVENT] + b"\n")
            rest, skipping = b"", True
    if rest:
        yield Chunk(name, codec, 0, rest + b"\n")


def _cut(data: bytes) -> bytes:
    """``data`` with every line at most ``MAX_EVENT`` long."""
    if len(data) <= MAX_EVENT:
        return data
    return b"".join(line[:MAX_EVENT] + b"\n" for line in data[:-1].split(b"\n"))


def elements(file: BinaryIO, name: str = "scan") -> Iterator[Chunk]:
    """The elements of one JSON array as one chunk each; raises ValueError when ``file`` holds no JSON array."""
    try:
        items = orjson.loads(file.read())
    except ValueError as error:
        raise ValueError(f"not a JSON array: {error}") from error
    if not isinstance(items, list):
        raise ValueError("not a JSON array")
    for item in items:
        data = orjson.dumps(item)[:MAX_EVENT]
        yield Chunk(name, "json", 0, data, array("I", [len(data)]))


def chunk_of(events: Iterable[bytes | str | Mapping[str, Any]], codec: str = "auto") -> Iterator[Chunk]:
    """Events from Python as chunks: bytes and texts as they are, mappings as JSON."""
    ends, parts, size = array("I"), [], 0
    for event in events:
        match event:
            case bytes():
                data = event
            case str():
                data = event.encode()
            case _:
                data = orjson.dumps(dict(event), default=str)
        parts.append(data[:MAX_EVENT] or b"\n")
        size += len(parts[-1])
        ends.append(size)
        if size >= CHUNK_BYTES:
            yield Chunk("scan", codec, 0, b"".join(parts), ends)
            ends, parts, size = array("I"), [], 0
    if parts:
        yield Chunk("scan", codec, 0, b"".join(parts), ends)


def judge(
    engine: Engine,
    chunks: Iterable[Chunk],
    *,
    first: int = 1,
    logsource: LogSource = LogSource(),
    zone: tzinfo | None = None,
) -> Iterator[Detection]:
    """The detections in ``chunks``, in order; the first event has number ``first``."""
    context = Context(zone, logsource)
    for chunk in chunks:
        seen, number = 0, first
        for match in engine.judge(chunk, context):
            if chunk.ends is None:  # count on from the last match, not from the chunk's start
                number, seen = number + chunk.data.count(b"\n", seen, match.start), match.start
            else:
                number = first + chunk.index(match.start)
            fields = engine.shown(match.rule, match.record)
            yield Detection(engine.plan.rules[match.rule], number, match.record, fields)
        first += len(chunk)
