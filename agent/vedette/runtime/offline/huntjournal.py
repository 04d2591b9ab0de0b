"""The matches that a retro-hunt keeps for its end, when correlations and statements are evaluated.

Bytes: blocks of a length (4, big-endian) and zlib (RFC 1950) of a msgpack list of rows ``[rule, offset, input, codec,
received_at, origin, raw]``. A row has what the event is decoded from again, so that whatever a correlation asks of it
is there. A block is whole once the checkpoint names the length up to its end.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgpack

from vedette.decode.codecs import Codecs
from vedette.decode.decoder import Record
from vedette.engine.match import Context
from vedette.runtime.offline.evaluation import Found

JOURNAL_BYTES, JOURNAL_MATCHES = 64 << 20, 200_000
"""Kept at most; what comes further is counted."""


class Journal:
    """Matches on disk, in the order in which they were found."""

    def __init__(self, folder: Path, length: int, matches: int, dropped: int) -> None:
        """As the checkpoint has them. Raises OSError."""
        self._path, self._length, self._matches, self._dropped = folder / "journal", length, matches, dropped
        self._file = open(self._path, "ab")  # noqa: SIM115 - until the process ends
        self._file.truncate(length)
        self._rows: list[tuple[Any, ...]] = []
        self._bytes = 0

    @property
    def state(self) -> tuple[int, int, int]:
        """For the checkpoint."""
        return self._length, self._matches, self._dropped

    def add(self, hit: Found) -> None:
        chunk, match = hit.chunk, hit.match
        self._bytes += len(match.record.raw)
        if self._matches >= JOURNAL_MATCHES or self._length + self._bytes > JOURNAL_BYTES:
            self._dropped += 1
            return
        self._matches += 1
        place = chunk.input, chunk.codec, chunk.received_at, chunk.origin(match.start)
        self._rows.append((match.rule, hit.offset, *place, match.record.raw))

    def sync(self) -> None:
        """Raises OSError."""
        if self._rows:
            data = zlib.compress(msgpack.packb(self._rows), 1)
            self._file.write(len(data).to_bytes(4, "big") + data)
            self._file.flush()
            os.fsync(self._file.fileno())
            self._length += 4 + len(data)
        self._rows, self._bytes = [], 0

    def matches(self, contexts: Mapping[str, Context], codecs: Codecs) -> Iterator[tuple[int, int, str, Record]]:
        """Of what is synced: the rule's number, the offset, the input and the event of each match."""
        with open(self._path, "rb") as file:
            while file.tell() < self._length:
                block = file.read(int.from_bytes(file.read(4), "big"))
                rows: Iterable[Any] = msgpack.unpackb(zlib.decompress(block))
                for rule, offset, input, codec, received_at, origin, raw in rows:
                    context = contexts.get(input, Context())
                    event = Record(raw, codecs[codec], origin, received_at, context.zone, context.logsource, None)
                    yield rule, offset, input, event
