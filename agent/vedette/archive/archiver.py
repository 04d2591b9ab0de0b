"""One segment after the other to the store, so that a kill at any point loses nothing and makes nothing twice.

    sealed ──▶ uploading: the object's digest is in the index (``index.py``), synced
           ──▶ the object is put, unless the store has it with that digest already
           ──▶ verified: size and ETag or, where the ETag is no digest of the bytes, all of the object read back
           ──▶ its row is put beside it (``KEY.json``), then is in the index; only then the local copy may leave

Keys: ``AGENT_ID/SEGMENT`` or, encrypted, ``AGENT_ID/SEGMENT.age``; a segment's name has the log's random id, so one key
is one segment of one log for ever. Killed between two steps, the next life does the same step again with the same
bytes: what is encrypted lies beside the index until it is verified, since a second encryption would be other bytes.
An object whose digest is not that of the index is one that was cut or is of an index that was lost: it is replaced.

An index that is lost is made of the rows in the store. They are believed for what has left this host alone: a segment
that is here is digested (and encrypted) again, and its object compared with that. Not for use by two threads at once.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import structlog
from msgspec.structs import replace

from vedette.archive import age, index
from vedette.archive.index import STORED, UPLOADING, VERIFIED, Index, Row
from vedette.archive.stores import PIECE_BYTES, Digests, Stat, Store, digest, holds
from vedette.model.counters import Log
from vedette.rawlog.segment import Damage, Segment, SegmentFile
from vedette.system.durable import sync_path
from vedette.system.within import is_name

log = structlog.get_logger()

REST_SECONDS = 0.002
"""After each piece that is digested, and each ``REST_FRAMES`` that are walked: the agent's own work goes first."""
REST_FRAMES = 200
MAX_ROW = 64 << 10


class NoRow(OSError):
    """An object that stands where a row does, and is none."""


class Stopped(Exception):
    """The agent ends."""


class Pace:
    """A token bucket of bytes; ``rate`` a second, 0: no bound. One second's worth may go at once."""

    def __init__(self, rate: int, wait: Callable[[float], bool], clock: Callable[[], float] = time.monotonic) -> None:
        """``wait``: for so many seconds; true when the agent ends."""
        self._rate, self._wait, self._clock = rate, wait, clock
        self._owed, self._at = 0.0, clock()

    def take(self, size: int) -> None:
        """Wait until ``size`` bytes may go. Raises Stopped."""
        if self._wait(0):
            raise Stopped
        if not self._rate:
            return
        now = self._clock()
        self._owed = max(0.0, self._owed - (now - self._at) * self._rate) + size
        self._at = now
        if self._owed > self._rate and self._wait(self._owed / self._rate - 1):
            raise Stopped


class Archiver:
    def __init__(self, rows: Index, agent: str, recipient: str, pace: Pace) -> None:
        self._index, self._agent, self._recipient, self._pace = rows, agent, recipient, pace
        self.uploaded = 0
        """Objects that were put."""
        self.refused = 0
        """Rows in the store that are none."""

    def key(self, row: Row) -> str:
        return f"{self._agent}/{row.name}"

    def find(self, store: Store) -> None:
        """Make the index again from the store's rows, where there is none. Raises OSError."""
        self.refused = 0
        if self._index.complete:
            return
        rows = stored_rows(store, self._agent, self._refuse)
        self._index.start([replace(row, state=STORED) for row in rows])

    def _refuse(self, error: NoRow) -> None:
        self.refused += 1
        log.error(Log.ARCHIVE_ROW_REFUSED, reason=str(error), action="it is passed over")

    def discard(self) -> None:
        """Remove encryptions that are not needed any more. Raises OSError."""
        for path in self._index.folder.glob("*.age"):
            row = self._index.get(path.stem)
            if row is None or row.state == VERIFIED:
                path.unlink()
        for path in self._index.folder.glob("*.tmp"):
            path.unlink()

    def archive(self, segment: Segment, store: Store) -> Row:
        """The segment in the store and verified. Raises OSError, Stopped; may be called again."""
        name = segment.path.name
        row = self._index.get(name)
        if row is not None and row.state == VERIFIED:
            return row
        if (
            row is None
            or row.state == STORED
            or row.recipient != self._recipient
            or not self._source(segment, row).exists()
        ):
            row = self._describe(segment)
            self._index.put(row)
        source, key = self._source(segment, row), self.key(row)
        if not self._verified(store, row):
            store.put(key, self._pieces(source, row))
            self.uploaded += 1
            if not self._verified(store, row):
                raise OSError(f"{key}: what the store has is not what was sent; the local copy stays")
        store.put(f"{key}.json", [_as_verified(row)])
        if _row(store, f"{key}.json").stored_sha256 != row.stored_sha256:
            raise OSError(f"{key}.json: what the store has is not what was sent; the local copy stays")
        self._index.verified(row)
        if row.recipient:
            source.unlink(missing_ok=True)
        return row

    def _source(self, segment: Segment, row: Row) -> Path:
        """The object's bytes."""
        return self._index.folder / row.name if row.recipient else segment.path

    def _describe(self, segment: Segment) -> Row:
        """What will be stored; encrypts it. Raises OSError."""
        row = self._span(segment, self._digests(segment.path))
        if not self._recipient:
            return row
        path = self._index.folder / row.name
        temporary = path.with_suffix(".tmp")
        with segment.path.open("rb") as source, temporary.open("wb") as sink:
            os.fchmod(sink.fileno(), 0o640)
            age.encrypt(source, sink, self._recipient)
            sink.flush()
            os.fsync(sink.fileno())
        temporary.rename(path)
        sync_path(path.parent)
        return _stored(row, self._digests(path))

    def _span(self, segment: Segment, of: Digests) -> Row:
        """The row of the segment as it is, with what its frames tell."""
        first, last, end, oldest, newest, created_at = -1, 0, segment.base, 0, 0, 0
        with SegmentFile(segment) as file:
            with suppress(ValueError):
                created_at = file.header().created_at
            for number, item in enumerate(file.walk(file.begin(), segment.base)):
                if number % REST_FRAMES == REST_FRAMES - 1:
                    time.sleep(REST_SECONDS)
                if isinstance(item, Damage):
                    continue
                header = item.header
                first = header.first_event if first < 0 else first
                last, end = header.first_event + header.events, header.end
                oldest = min(oldest or header.received_at, header.received_at)
                newest = max(newest, header.received_at)
        events = 0 if first < 0 else last - first
        return Row(
            segment.path.name, UPLOADING, of.size, of.sha256, max(first, 0), events, end, created_at, oldest, newest,
            of.size, of.sha256, of.tags, self._recipient,
        )  # fmt: skip

    def _digests(self, path: Path) -> Digests:
        def pieces() -> Iterator[bytes]:
            with path.open("rb") as file:
                while piece := file.read(PIECE_BYTES):
                    self._pace.take(0)
                    time.sleep(REST_SECONDS)
                    yield piece

        return digest(pieces())

    def _pieces(self, path: Path, row: Row) -> Iterator[bytes]:
        """The bytes that ``row`` describes, at the pace. Raises OSError when they are not."""
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while piece := file.read(PIECE_BYTES):
                digest.update(piece)
                self._pace.take(len(piece))
                yield piece
        if digest.hexdigest() != row.stored_sha256:
            raise OSError(f"{path}: its bytes have changed since they were digested: is its disk in order?")

    def _verified(self, store: Store, row: Row) -> bool:
        """Whether the store has the object of ``row``, and just its bytes."""
        key = self.key(row)
        stat = store.stat(key)
        return stat is not None and matches(store, key, row, stat, self._pace.take)


def matches(store: Store, key: str, row: Row, stat: Stat, take: Callable[[int], None]) -> bool:
    """Whether an object has the bytes of ``row``. Raises OSError."""
    return holds(store, key, Digests(row.stored_size, row.stored_sha256, row.tags), stat, take)


def stored_rows(store: Store, agent: str, refuse: Callable[[NoRow], None]) -> list[Row]:
    """What an agent has archived, by the store; ``agent``: its id, behind folders of the store. ``refuse`` is called
    for each row that is none. Raises OSError; ValueError for what is no id."""
    if not all(map(is_name, agent.split("/"))):
        raise ValueError(f"{agent[:80]!r} is no agent's id")
    rows = []
    for key in store.keys(f"{agent}/"):
        if key.endswith(".json"):
            try:
                rows.append(_row(store, key))
            except NoRow as error:
                refuse(error)
    return rows


def _stored(row: Row, of: Digests) -> Row:
    return replace(row, stored_size=of.size, stored_sha256=of.sha256, tags=of.tags)


def _as_verified(row: Row) -> bytes:
    return replace(row, state=VERIFIED).encode()


def _row(store: Store, key: str) -> Row:
    """Raises OSError, NoRow."""
    try:
        row = index.decode(store.read(key, 0, MAX_ROW))
        if not key.endswith(f"/{row.name}.json"):
            raise ValueError("it is of another segment")
    except (ValueError, IsADirectoryError) as error:
        raise NoRow(f"{key}: not the row of an archived segment: {error}") from error
    return row
