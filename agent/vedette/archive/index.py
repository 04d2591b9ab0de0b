"""What is archived, as the host knows it: one file, a JSON line for each change of a segment's state.

    FOLDER/index     {"format": 1, "url", "agent"}                  what it is the index of, and of no other
                     {"segment", "state": "uploading", …}           its object is about to be put, with this digest
                     {"segment", "state": "verified", …}            the store's copy is verified, the local one may go

The last line of a segment counts. Lines are synced before anything is done that relies on them; a line that a crash
has cut is passed over and overwritten. A segment goes sealed → uploading → verified and never back, but for a new
digest while uploading. The row of a verified segment lies in the store, too, as ``KEY.json``, from which a lost index
is made again (``archiver.py``).

One process writes it, the agent's; others read it, also at the same time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import orjson

from vedette.config.settings import ArchiveSettings
from vedette.system.durable import make_folders, write_whole

UPLOADING, VERIFIED = "uploading", "verified"


@dataclass(frozen=True, slots=True)
class Row:
    """A segment and its object. Sizes in bytes, times UTC microseconds, digests hexadecimal SHA-256.

    ``end``: raw offset behind its last frame; ``received_from``, ``received_to``: of its frames, both inclusive (0, 0
    when none is readable); ``stored_*``: of the object, which is the segment itself or its encryption to ``recipient``;
    ``tags``: ETags by which a store may tell that it has just these bytes.
    """

    segment: str
    state: str
    size: int
    sha256: str
    first_event: int
    events: int
    end: int
    created_at: int
    received_from: int
    received_to: int
    stored_size: int
    stored_sha256: str
    tags: tuple[str, ...] = ()
    recipient: str = ""

    @property
    def name(self) -> str:
        """Of the object, without the agent's folder."""
        return self.segment + (".age" if self.recipient else "")

    def encode(self) -> bytes:
        return orjson.dumps(asdict(self)) + b"\n"


_KEYS = {one.name for one in fields(Row)}


def decode(data: bytes) -> Row:
    """Raises ValueError."""
    found: Any = orjson.loads(data)
    if not isinstance(found, dict) or found.keys() != _KEYS:
        raise ValueError("not a row of an archive")
    return Row(**{**found, "tags": tuple(found["tags"])})


class Index:
    """The rows of a folder's index. ``has``, ``claims`` and ``rows`` may be called from any thread."""

    def __init__(self, folder: Path, settings: ArchiveSettings, agent: str) -> None:
        """Reads it; raises OSError. ``complete`` is False when there is none of this store yet."""
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
        for line in whole[len(self._header) :].splitlines():
            row = decode(line)
            self._rows[row.segment] = row
        self._size = len(whole)
        return True

    def again(self) -> None:
        """Read what the agent has added since. For who does not write. Raises OSError."""
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
        self.put(replace(row, state=VERIFIED))

    def get(self, segment: str) -> Row | None:
        with self._lock:
            return self._rows.get(segment)

    def rows(self) -> list[Row]:
        """The verified ones, oldest first."""
        with self._lock:
            return sorted((row for row in self._rows.values() if row.state == VERIFIED), key=lambda row: row.segment)

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
