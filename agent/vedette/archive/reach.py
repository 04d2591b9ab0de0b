"""A raw log with its archive, for readers: ``Reach`` in the place of the folder (``rawlog.read``, ``segment.Tiers``).

A segment whose file has left is fetched whole when a reader comes to it: it walks all headers of a segment, which in
ranges would be thousands of requests. It goes to a file without a name in the archive's folder, which is
gone with the process; at most ``HELD`` are kept. Segments outside of the time asked for are known by the index and not
fetched. What a store gives is believed when its digest is that of the index.

Bounded: a fetch takes ``FETCH_SECONDS`` at most and tries each piece ``TRIES`` times. What cannot be had raises
Unreachable, which says why; reading goes on behind it.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import IO

from vedette.archive.age import decrypt
from vedette.archive.index import STORED, UPLOADING, Index, Row
from vedette.archive.stores import READ_BYTES, Store, open_store
from vedette.config.settings import AgentSettings, ArchiveSettings
from vedette.rawlog import format
from vedette.rawlog.segment import Known, Segment, Unreachable, segments

HELD = 2
"""Segments that were fetched and are kept for the next reader of them."""
FETCH_SECONDS = 300.0
TRIES, PAUSE_SECONDS = 3, 1.0


class Reach:
    """Not for use by two threads at once."""

    def __init__(self, raw: Path, index: Index, store: Callable[[], Store], agent: str, identity: Path | None) -> None:
        """``store`` opens it, when it is first needed; ``identity``: the owner's file of keys (age)."""
        self._raw, self._index, self._open, self._agent, self._identity = raw, index, store, agent, identity
        self._store: Store | None = None
        self._held: OrderedDict[str, int] = OrderedDict()  # descriptors
        self.fetched = 0
        """Segments."""

    def __str__(self) -> str:
        return f"{self._raw} and its archive"

    def segments(self) -> list[Segment]:
        """See ``rawlog.segment.Tiers``."""
        self._index.again()  # before the folder: what leaves meanwhile is found by one of the two
        by_name = {segment.path.name: segment for segment in segments(self._raw)} if self._raw.is_dir() else {}
        for row in self._index:
            if (name := format.parse_segment_name(row.segment)) is not None:
                by_name.setdefault(row.segment, Segment(*name, self._raw / row.segment))
        return [segment._replace(archived=_Copy(self, segment.path.name)) for _, segment in sorted(by_name.items())]

    def row(self, segment: str) -> Row | None:
        return self._index.get(segment)

    def has(self, segment: str) -> bool:
        """Whether it is on this host, too."""
        return (self._raw / segment).exists()

    def open(self, segment: str) -> int:
        """See ``rawlog.segment.Archived``."""
        row = self._index.get(segment)
        if row is None:
            self._index.again()
            row = self._index.get(segment)
        if row is None:
            raise FileNotFoundError(2, "neither on this host nor in its archive", segment)
        if segment not in self._held:
            try:
                with self.fetch(row) as file:
                    self._held[segment] = os.dup(file.fileno())
            except OSError as error:
                raise Unreachable(f"{row.name} in the archive: {error}") from error
            while len(self._held) > HELD:
                os.close(self._held.popitem(last=False)[1])
        self._held.move_to_end(segment)
        return os.dup(self._held[segment])

    def fetch(self, row: Row) -> IO[bytes]:
        """A file of the segment's bytes, without a name. Raises OSError."""
        if row.recipient and self._identity is None:
            raise OSError(f"it is encrypted to its owner ({row.recipient[:12]}…): give the identity, --identity FILE")
        if self._store is None:
            self._store = self._open()
        folder = self._index.folder
        file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  # it is kept
        try:
            self._take(self._store, row, file)
            if row.recipient:
                assert self._identity is not None
                with file as sealed:
                    sealed.seek(0)
                    file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  # it is kept
                    decrypt(sealed, file, self._identity)
                file.flush()
                file.seek(0)
                if hashlib.file_digest(file, "sha256").hexdigest() != row.sha256:
                    raise OSError("its digest is not the one that was archived")
        except BaseException:
            file.close()
            raise
        self.fetched += 1
        return file

    def _take(self, store: Store, row: Row, file: IO[bytes]) -> None:
        deadline, digest, key = time.monotonic() + FETCH_SECONDS, hashlib.sha256(), f"{self._agent}/{row.name}"
        for start in range(0, row.stored_size, READ_BYTES):
            piece = self._piece(store, key, start, min(READ_BYTES, row.stored_size - start), deadline)
            digest.update(piece)
            file.write(piece)
        file.flush()
        if digest.hexdigest() != row.stored_sha256:
            raise OSError("its digest is not the one that was archived")

    def _piece(self, store: Store, key: str, start: int, size: int, deadline: float) -> bytes:
        for tried in range(1, TRIES + 1):
            if time.monotonic() > deadline:
                raise OSError(f"not fetched within {FETCH_SECONDS:g} s")
            try:
                piece = store.read(key, start, size)
                if len(piece) != size:
                    raise OSError(f"only {len(piece)} of {size} bytes came")
                return piece
            except FileNotFoundError:
                raise
            except OSError:
                if tried == TRIES:
                    raise
                time.sleep(PAUSE_SECONDS)
        raise AssertionError("unreachable")

    def __del__(self) -> None:
        for descriptor in self._held.values():
            os.close(descriptor)


class _Copy:
    """See ``rawlog.segment.Archived``."""

    __slots__ = ("_name", "_reach")

    def __init__(self, reach: Reach, name: str) -> None:
        self._reach, self._name = reach, name

    def open(self) -> int:
        return self._reach.open(self._name)

    def span(self) -> Known | None:
        row = self._reach.row(self._name)
        if row is None or row.state == UPLOADING or (row.state == STORED and self._reach.has(self._name)):
            return None
        return Known(row.end, row.events, row.created_at, row.received_from, row.received_to)


def whole(agent: AgentSettings, settings: ArchiveSettings, identity: Path | None = None) -> Path | Reach:
    """The raw log of an agent as its readers want it: the folder, with its archive where there is one. Raises
    OSError."""
    if not settings.url:
        return agent.raw_dir
    index = Index(agent.archive_dir, settings, agent.id)
    return Reach(agent.raw_dir, index, lambda: open_store(settings), agent.id, identity)
