"""The store as of a segment's beginning, written into its head, so that a lost store can be rebuilt.

A checkpoint is a zstd frame (RFC 8878) of a msgpack map. Its ``cursor`` is *settled*: every alert that was made before
it had its receipt when the checkpoint was written. Evaluating again from there makes every alert again that the lost
outbox may have held, under the same id, and so nothing is lost and the region drops what it has already. ``counters``
are as of the cursor. ``positions`` are those of tailed files as the log had them; those of later chunks are in their
frames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgpack
import zstandard

from vedette.model.event import Cursor, FilePosition

MAX_POSITIONS = 10_000
"""Files whose position a checkpoint holds: those that were read last."""
MAX_PLAIN = 8 << 20
"""Bytes of a checkpoint before compression."""


class Checkpoint(NamedTuple):
    """See the module's text. ``next_seq``: above every seq given to an alert when the checkpoint was written."""

    cursor: Cursor | None = None
    counters: Mapping[str, Any] | None = None
    positions: tuple[FilePosition, ...] = ()
    next_seq: int = 1
    made: int = 0
    """Alerts made when the checkpoint was written."""
    receipted: int | None = None
    """Of those made before the cursor, all but those that an earlier rebuild lost; None: all."""


def encode(checkpoint: Checkpoint) -> bytes:
    """The bytes of ``checkpoint``, with the last MAX_POSITIONS positions, or as many as MAX_PLAIN bytes hold."""
    kept = MAX_POSITIONS
    while True:
        fields = checkpoint._replace(positions=checkpoint.positions[-kept:] if kept else ())._asdict()
        plain: bytes = msgpack.packb(fields, unicode_errors="surrogateescape")
        if len(plain) <= MAX_PLAIN or not kept:
            return zstandard.ZstdCompressor(level=3).compress(plain)
        kept //= 2


def decode(data: bytes) -> Checkpoint:
    """The checkpoint in ``data``; empty data is an empty checkpoint. Raises ValueError."""
    if not data:
        return Checkpoint()
    try:
        if not 0 < zstandard.frame_content_size(data) <= MAX_PLAIN:
            raise ValueError("a segment's checkpoint states a size out of bounds")
        plain = zstandard.ZstdDecompressor().decompress(data, max_output_size=MAX_PLAIN)
        fields = msgpack.unpackb(plain, unicode_errors="surrogateescape")
        cursor, positions = fields["cursor"], fields["positions"]
        return Checkpoint(
            Cursor(*cursor) if cursor is not None else None,
            fields["counters"],
            tuple(FilePosition(*position) for position in positions),
            int(fields["next_seq"]),
            int(fields.get("made", 0)),
            fields.get("receipted"),
        )
    except (KeyError, TypeError, msgpack.UnpackException, zstandard.ZstdError) as error:
        raise ValueError(f"a segment's checkpoint cannot be read: {error!r}") from error
