"""What is archived, as the host knows it: one file, a JSON line for each change of a segment's state.

    FOLDER/index     {"format": 1, "url", "agent"}                  what it is the index of, and of no other
                     {"segment", "state": "uploading", …}           its object is about to be put, with this digest
                     {"segment", "state": "verified", …}            the store's copy is verified, the local one may go
                     {"segment", "state": "stored", …}              the store has this row; this host verified nothing

The last line of a segment counts. Lines are synced before anything is done that relies on them; a line that a crash
has cut is passed over and overwritten. A segment goes sealed → uploading → verified and never back, but for a new
digest while uploading. The row of a verified segment lies in the store, too, as ``KEY.json``, from which a lost index
is made again (``archiver.py``): as stored, which is enough to read what has left the host, and lets nothing leave. An
index that is damaged lies as ``index.damaged`` beside the new one.

One process writes it, the agent's; others read it, also at the same time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, Literal

import orjson
import structlog
from msgspec import Meta, Struct, structs

from vedette.config.settings import RECIPIENT, ArchiveSettings
from vedette.model.counters import Log
from vedette.system import documents, foreign
from vedette.system.documents import Count, Misfit, Sha256
from vedette.system.durable import make_folders, write_whole

log = structlog.get_logger()

UPLOADING: Final = "uploading"
VERIFIED: Final = "verified"
STORED: Final = "stored"
_Segment = Annotated[
    str, Meta(pattern=r"\A[0-9]{8}-[0-9]{20}-[0-9a-f]{32}\.seg\Z", description="the name of a segment's file")
]
_Tag = Annotated[str, Meta(pattern=r"\A[0-9a-f]{32}(-[0-9]{1,5})?\Z", description="an ETag of S3")]
_Tags = Annotated[tuple[_Tag, ...], Meta(max_length=2, description="two ETags at most")]
_Recipient = Annotated[str, Meta(pattern=rf"\A({RECIPIENT.pattern})?\Z", description="a public key of age, or nothing")]


class Damaged(OSError):
    """An index with a line that is none."""


class Row(Struct, frozen=True, forbid_unknown_fields=True):
    """A segment and its object. Sizes in bytes, times UTC microseconds, digests hexadecimal SHA-256.

    ``end``: raw offset behind its last frame; ``received_from``, ``received_to``: of its frames, both inclusive (0, 0
    when none is readable); ``stored_*``: of the object, which is the segment itself or its encryption to ``recipient``;
    ``tags``: ETags by which a store may tell that it has just these bytes.
    """

    segment: _Segment
    state: Literal["uploading", "verified", "stored"]
    size: Count
    sha256: Sha256
    first_event: Count
    events: Count
    end: Count
    created_at: Count
    received_from: Count
    received_to: Count
    stored_size: Count
    stored_sha256: Sha256
    tags: _Tags
    recipient: _Recipient

    def __post_init__(self) -> None:
        if self.end < int(self.segment[9:29]):
            raise Misfit("end", "lies before the segment's begin")

    @property
    def name(self) -> str:
        """Of the object, without the agent's folder."""
        return self.segment + (".age" if self.recipient else "")

    def encode(self) -> bytes:
        return orjson.dumps(structs.asdict(self)) + b"\n"


def decode(data: bytes) -> Row:
    """Raises ValueError."""
    return documents.read(Row, foreign.read(data))


class Index:
    """The rows of a folder's index. ``has``, ``claims`` and ``rows`` may be called from any thread."""

    def __init__(self, folder: Path, settings: ArchiveSettings, agent: str) -> None:
        """Reads it; raises OSError, Damaged. ``complete`` is False when there is none of this store yet."""
        self.folder, self._path = folder, folder / "index"
        self._required = settings.required
        self._header = orjson.dumps({"format": 1, "url": settings.url, "agent": agent}) + b"\n"
        self._lock = threading.Lock()
        self._rows: dict[str, Row] = {}
        self._size = 0
        self.complete = self._read()

    def _read(self) -> bool:
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return False
        whole = data[: data.rfind(b"\n") + 1]
        if not whole.startswith(self._header):
            return False
        for number, line in enumerate(whole[len(self._header) :].splitlines(), 2):
            try:
                row = decode(line)
            except ValueError as error:
                raise Damaged(
                    f"{self._path}: line {number} is damaged: {error}; the agent makes it again from the store when it"
                    " is started"
                ) from error
            self._rows[row.segment] = row
        self._size = len(whole)
        return True

    def again(self) -> None:
        """Read what the agent has added since. For who does not write. Raises OSError, Damaged."""
        with self._lock:
            self._rows = {}
            self.complete = self._read()

    def start(self, rows: list[Row]) -> None:
        """A new index of ``rows``; that of another store is kept beside it. Raises OSError."""
        make_folders(self.folder, 0o750)
        if self._path.exists():
            self._path.rename(self._path.with_name("index.before"))
        data = b"".join([self._header, *(row.encode() for row in rows)])
        write_whole(self._path, data, 0o640)
        with self._lock:
            self._rows, self._size, self.complete = {row.segment: row for row in rows}, len(data), True

    def put(self, row: Row) -> None:
        """Adds a line, durable on return. Raises OSError."""
        line = row.encode()
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.ftruncate(descriptor, self._size)  # what a crash or a full disk has left of a line
            if os.pwrite(descriptor, line, self._size) < len(line):
                raise OSError(28, os.strerror(28), str(self._path))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        with self._lock:
            self._rows[row.segment] = row
            self._size += len(line)

    def verified(self, row: Row) -> None:
        """As ``put``."""
        self.put(structs.replace(row, state=VERIFIED))

    def get(self, segment: str) -> Row | None:
        with self._lock:
            return self._rows.get(segment)

    def rows(self) -> list[Row]:
        """Of what the store has, oldest first."""
        with self._lock:
            return sorted((row for row in self._rows.values() if row.state != UPLOADING), key=lambda row: row.segment)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows())

    # --- what the raw log asks: see ``rawlog.segment_set.Keeper``

    def lets_go(self, segment: str) -> bool:
        """Whether its local copy may be deleted."""
        row = self.get(segment)
        return not self._required or (row is not None and row.state == VERIFIED)

    def claims(self, segment: str) -> bool:
        """Whether its bytes must stay as they are."""
        return self.get(segment) is not None


def own(folder: Path, settings: ArchiveSettings, agent: str) -> Index:
    """Open the index to write it; set it aside first when it is damaged. Raises OSError."""
    try:
        return Index(folder, settings, agent)
    except Damaged as error:
        aside = folder / "index.damaged"
        (folder / "index").rename(aside)
        action = f"it lies as {aside}; the index is made again from the store"
        log.error(Log.ARCHIVE_INDEX_DAMAGED, reason=str(error), action=action)
        return Index(folder, settings, agent)
