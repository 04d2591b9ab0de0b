"""What a raw log segment says of the store as of its beginning, so that a lost store can be made again.

A note is a zstd frame (RFC 8878) of a msgpack map. Its ``cursor`` is *settled*: every alert that was made before it
had its receipt when the note was written. Judging again from there makes every alert anew that the lost outbox may
have held, under the same id, and so nothing is lost and the region drops what it has already. ``counters`` are as of
the cursor. ``positions`` are those of tailed files as the log had them; those of later chunks are in their frames.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgpack
import zstandard

from vedette.model.event import Cursor, FilePosition

MAX_POSITIONS = 10_000
"""Files whose position a note holds: those that were read last."""
MAX_PLAIN = 8 << 20
"""Bytes of a note before compression."""


class Note(NamedTuple):
    """See the module's text. ``next_seq``: above every seq given to an alert when the note was written."""

    cursor: Cursor | None = None
    counters: Mapping[str, Any] | None = None
    positions: tuple[FilePosition, ...] = ()
    next_seq: int = 1
    made: int = 0
    """Alerts made when the note was written."""
    receipted: int | None = None
    """Of those made before the cursor, all but those that an earlier rebuild lost; None: all."""


def encode(note: Note) -> bytes:
    """The bytes of ``note``, with the last MAX_POSITIONS positions, or as many as MAX_PLAIN bytes hold."""
    kept = MAX_POSITIONS
    while True:
        fields = note._replace(positions=note.positions[-kept:] if kept else ())._asdict()
        plain: bytes = msgpack.packb(fields, unicode_errors="surrogateescape")
        if len(plain) <= MAX_PLAIN or not kept:
            return zstandard.ZstdCompressor(level=3).compress(plain)
        kept //= 2


def decode(data: bytes) -> Note:
    """The note in ``data``; empty data is an empty note. Raises ValueError."""
    if not data:
        return Note()
    try:
        if not 0 < zstandard.frame_content_size(data) <= MAX_PLAIN:
            raise ValueError("a segment's note states a size out of bounds")
        plain = zstandard.ZstdDecompressor().decompress(data, max_output_size=MAX_PLAIN)
        fields = msgpack.unpackb(plain, unicode_errors="surrogateescape")
        cursor, positions = fields["cursor"], fields["positions"]
        return Note(
            Cursor(*cursor) if cursor is not None else None,
            fields["counters"],
            tuple(FilePosition(*position) for position in positions),
            int(fields["next_seq"]),
            int(fields.get("made", 0)),
            fields.get("receipted"),
        )
    except (KeyError, TypeError, msgpack.UnpackException, zstandard.ZstdError) as error:
        raise ValueError(f"a segment's note cannot be read: {error!r}") from error
