"""The store as of a segment's beginning, written into its head, so that a lost store can be rebuilt.

A checkpoint is a zstd frame (RFC 8878) of a msgpack map. Its ``cursor`` is *settled*: every alert that was made before
it had its receipt when the checkpoint was written. Evaluating again from there makes every alert again that the lost
outbox may have held, under the same id, and so nothing is lost and the region drops what it has already. ``counters``
are as of the cursor. ``positions`` are those of tailed files as the log had them; those of later chunks are in their
frames. ``RestartPoint`` says, commit by commit, what the next segment notes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgpack
import zstandard

from vedette.model.counters import Counters
from vedette.model.event import Cursor, FilePosition

MAX_POSITIONS = 10_000
"""Positions that a checkpoint holds: those that are not of files, and of files those that came last."""
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
    """The bytes of ``checkpoint``, with the last MAX_POSITIONS positions, or as many as MAX_PLAIN bytes hold: those of
    files go first."""
    most, positions = MAX_POSITIONS, tuple(sorted(checkpoint.positions, key=lambda position: not position.of_file))
    while True:
        fields = checkpoint._replace(positions=positions[-most:] if most else ())._asdict()
        plain: bytes = msgpack.packb(fields, unicode_errors="surrogateescape")
        if len(plain) <= MAX_PLAIN or not most:
            return zstandard.ZstdCompressor(level=3).compress(plain)
        most //= 2


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


class RestartPoint:
    """From where a rebuilt store would go on. The place is *settled*: every alert made before it has its receipt, and
    every sink has it. So a commit becomes the place only when the first alert that is still wanted comes after it."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self.next_seq = 1
        """Of the next alert to be made."""
        self.positions: dict[tuple[str, int], FilePosition] = {}
        """Where every tailed file ends in the raw log, committed or not."""
        self._settled: Checkpoint | None = None
        """A commit: every alert before it has its receipt; None: nothing is known yet."""
        self.next_place = Checkpoint()
        """A later commit, some of whose alerts lack theirs."""

    def take_seq(self) -> int:
        seq, self.next_seq = self.next_seq, self.next_seq + 1
        return seq

    def begin(self, last: Checkpoint, settled: Checkpoint) -> None:
        """Go on after the commit ``last``, from ``settled`` if that is known to be earlier."""
        self.next_place, self._settled = last, settled

    def committed(self, place: Checkpoint, first_waiting: int | None) -> None:
        """After a commit; ``first_waiting``: the seq of the first alert without a receipt, None when none waits."""
        if first_waiting is None:
            self._settled = self.next_place = place
        elif first_waiting >= self.next_place.next_seq:
            self._settled, self.next_place = self.next_place, place

    def describe(self) -> bytes:
        """What a segment that begins now notes."""
        if self._settled is None:
            return b""
        positions, alerts_made = tuple(self.positions.values()), self._counters.totals["alerts_made"]
        return encode(self._settled._replace(positions=positions, next_seq=self.next_seq, made=alerts_made))
