"""What ``vedette scan`` reads: files, and what Python hands over, as chunks.

Lines are read in chunks of ``CHUNK_BYTES``; a line longer than ``MAX_EVENT`` is cut there, as an input would cut it.
What is evaluated of them: ``evaluation.py``.
"""

from __future__ import annotations

import codecs
import io
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO, cast

from vedette.decode.codecs import Kind, builtin
from vedette.decode.values import from_json, to_json
from vedette.inputs.batches import MAX_CONTAINER, array_of, at_once, events_of, opens, records, spread
from vedette.inputs.framing import Run
from vedette.inputs.wide import wide
from vedette.model.event import CHUNK_BYTES, MAX_EVENT, Chunk
from vedette.system.compressed import Ahead, Readable

HEAD_BYTES = 4096
"""Of a file, looked at to tell what it holds."""
MAX_WHOLE = 512 << 20
"""Bytes of JSON over several lines, which is held in memory."""


def lines(
    file: Readable, codec: str = "auto", seen_at: int = 0, name: str = "scan", *, contain: bool = False
) -> Iterator[Chunk]:
    """The lines of ``file`` as chunks; a last line without its newline is one too. ``contain``: each may be several
    records, as ``inputs/batches.py`` has them.

    ``seen_at`` (UTC microseconds, 0: unknown) tells the year of times that have none.
    """
    most = MAX_CONTAINER if contain else MAX_EVENT
    texts = Kind.SYSLOG in builtin(codec).kinds

    def chunk(data: bytes) -> Chunk:
        run = at_once(spread(Run(data, None, ()), texts)) if contain else Run(_cut(data), None, ())
        return Chunk(name, codec, seen_at, run.data, run.ends)

    rest = b""
    skipping = False
    while data := file.read(CHUNK_BYTES):
        if skipping:  # the rest of a line that was cut
            end = data.find(b"\n") + 1
            if not end:
                continue
            data, skipping = data[end:], False
        data = rest + (data if rest else data.lstrip(b"\0"))
        end = data.rfind(b"\n") + 1
        rest = data[end:]
        if end:
            yield chunk(data[:end])
        if len(rest) > most:
            yield Chunk(name, codec, seen_at, rest[:MAX_EVENT] + b"\n")
            rest, skipping = b"", True
    if rest:
        yield chunk(rest + b"\n")


def _cut(data: bytes) -> bytes:
    """``data`` with every line at most ``MAX_EVENT`` long."""
    if len(data) <= MAX_EVENT:
        return data
    return b"".join(line[:MAX_EVENT] + b"\n" for line in data[:-1].split(b"\n"))


_ARRAY = re.compile(rb"\s*\[\s*[{\]]")
_OBJECT = re.compile(rb"\s*\{[ \t\r]*\n")


def as_utf8(file: Readable) -> Readable:
    """``file`` behind its byte order mark; one in UTF-16 is read as UTF-8."""
    ahead = Ahead(file, 64)
    if encoding := wide(ahead.head):
        ahead.head = ahead.head.removeprefix(codecs.BOM_UTF16_LE).removeprefix(codecs.BOM_UTF16_BE)
        return cast(Readable, codecs.EncodedFile(cast(BinaryIO, ahead), "utf-8", encoding, "replace"))
    ahead.head = ahead.head.removeprefix(codecs.BOM_UTF8)
    return ahead


def events(
    file: Readable, codec: str = "auto", seen_at: int = 0, *, is_json: bool = False
) -> tuple[int, Iterator[Chunk]]:
    """What ``file`` holds, and the number of the first event: lines from 1, or the elements of one JSON array, also of
    one that an object contains, from 0.

    JSON over several lines is recognized by its beginning, wherever lines could be JSON; what turns out to be none is
    lines.
    With ``is_json``, or when ``codec`` is ``json``, an array that begins and is none raises ValueError, and so does any
    JSON over several lines of more than ``MAX_WHOLE`` bytes.
    """
    ahead, is_json = Ahead(file, HEAD_BYTES), is_json or codec == "json"
    array = _ARRAY.match(ahead.head) or (is_json and ahead.head.lstrip()[:1] == b"[")
    first, _, further = ahead.head.partition(b"\n")
    kinds = builtin(codec).kinds
    contain = Kind.JSON in kinds
    single = contain and opens(first) and not further.strip()
    texts = Kind.SYSLOG in kinds
    if codec not in ("auto", "json") or not (array or single or _OBJECT.match(ahead.head)):
        return 1, lines(ahead, codec, seen_at, contain=contain)
    whole_file = _Whole(ahead)
    data = whole_file.data
    if whole_file.more:
        if _is_json(data.lstrip().partition(b"\n")[0]):
            return 1, lines(whole_file, codec, seen_at, contain=contain)
        raise ValueError(f"JSON of more than {MAX_WHOLE >> 20} MiB in one piece: write one event a line")
    whole = data.strip()
    if (within := array_of(whole)) and (run := at_once(records(within, texts, whole))) is not None:
        return 0, chunk_of(events_of(run), codec, seen_at)
    if single and not array:
        return 1, lines(io.BytesIO(data), codec, seen_at, contain=contain)
    try:
        value = from_json(data)
    except ValueError as error:
        if is_json and array and not _is_json(data.lstrip().partition(b"\n")[0]):
            raise ValueError(f"not a JSON array: {error}") from error
        return 1, lines(io.BytesIO(data), codec, seen_at, contain=contain)
    return (0, elements(value, seen_at)) if isinstance(value, list) else (1, elements([value], seen_at))


class _Whole:
    """The first ``MAX_WHOLE`` bytes of a file, and whether there are ``more``; as a file, all of it."""

    def __init__(self, file: Readable) -> None:
        parts, size = list[bytes](), 0
        while size <= MAX_WHOLE and (part := file.read(CHUNK_BYTES)):
            parts.append(part)
            size += len(part)
        self.data, self.more = b"".join(parts), size > MAX_WHOLE
        self._file, self._head = file, io.BytesIO(self.data)

    def read(self, size: int = -1) -> bytes:
        return self._head.read(size) or self._file.read(size)


def _is_json(data: bytes) -> bool:
    try:
        from_json(data)
    except ValueError:
        return False
    return True


def elements(items: Iterable[Any], seen_at: int = 0, name: str = "scan") -> Iterator[Chunk]:
    """JSON values as one chunk each."""
    for item in items:
        data = to_json(item)[:MAX_EVENT]
        yield Chunk(name, "json", seen_at, data, array("I", [len(data)]))


def chunk_of(
    events: Iterable[bytes | str | Mapping[str, Any]], codec: str = "auto", seen_at: int = 0
) -> Iterator[Chunk]:
    """Events from Python as chunks: bytes and texts as they are, mappings as JSON. ``seen_at``: as for ``lines``."""
    ends, parts, size = array("I"), [], 0
    for event in events:
        match event:
            case bytes():
                data = event
            case str():
                data = event.encode()
            case _:
                data = to_json(dict(event))
        parts.append(data[:MAX_EVENT] or b"\n")
        size += len(parts[-1])
        ends.append(size)
        if size >= CHUNK_BYTES:
            yield Chunk("scan", codec, seen_at, b"".join(parts), ends)
            ends, parts, size = array("I"), [], 0
    if parts:
        yield Chunk("scan", codec, seen_at, b"".join(parts), ends)
