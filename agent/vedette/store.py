"""The agent's one LMDB environment: what must change together changes in one transaction. The only lmdb import.

Five tables; each value is 4 bytes of CRC-32 (big-endian, over key and content) and the content:

=========  ============================  ==================================================================
table      key                           content
=========  ============================  ==================================================================
``meta``   name                          msgpack: ``cursor``, ``counters``, ``outbox`` (its account), and
                                         ``value:NAME`` for what ``put`` keeps
``files``  BLAKE2b-128 of path and inode msgpack: [path bytes, inode, fingerprint, position, commit number]
``outbox`` seq, 8 bytes big-endian       an alert, encoded by ``outbox.envelope``
``ring``   seq, 8 bytes big-endian       an alert that the region has receipted
``state``  number, 8 bytes big-endian    what judging remembers, in the order to be read (``state/memory.py``)
=========  ============================  ==================================================================

* ``commit`` and ``receipt`` are one write transaction each, on disk when they return; a process killed at any moment
  leaves the store as after the last transaction that ended. There is nothing to recover.
* ``seq`` rises over the store's whole life, also when the raw log gets a new ``log_id``. ``Account.log_id`` names this
  numbering: random, made with the store; a receipt for the numbering of a deleted store is thus told apart.
* ``made`` and ``receipted`` are counted in the transaction that changes the outbox, so ``made = receipted + entries``
  holds in each; ``account.py`` sees to it.
* Bounds: the ring keeps ``RING_ALERTS`` and ``RING_BYTES`` (the newest), ``files`` the ``MAX_FILES`` positions that
  changed last, the environment ``map_bytes``: beyond that a commit raises OSError and changes nothing.

One process writes (``flock`` on the file ``owner``), in one thread; any may read with ``readonly=True``.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self
from zlib import crc32

import lmdb
import msgpack

from vedette.event import Cursor, FilePosition

RING_ALERTS = 10_000
RING_BYTES = 64 << 20
MAX_FILES = 100_000
STATE_BYTES = 64 << 20
"""Of deltas of the state, from which on they are merged."""
DAMAGED = "damaged"
"""A file in the store's folder: why the store must not be used any more."""
REHEARSED_BYTES = 8 << 20
"""Of each table, written again by ``rehearse``: less than what makes LMDB write to the file before a commit."""
LEAST_ROOM = 64 << 10
"""Bytes free on the disk, below which a failed write is for want of space."""
CHECKSUM = 4
"""Bytes before each value's content."""

_DAMAGE = (
    lmdb.InvalidError, lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.VersionMismatchError, lmdb.IncompatibleError,
    lmdb.CursorFullError, lmdb.BadTxnError, lmdb.BadValsizeError,
)  # fmt: skip
_META, _FILES, _OUTBOX, _RING, _STATE = b"meta", b"files", b"outbox", b"ring", b"state"
_TABLES = (_META, _FILES, _OUTBOX, _RING, _STATE)


@dataclass(frozen=True, slots=True)
class Account:
    """The outbox in figures. ``made`` counts alerts ever committed; sizes are bytes of encoded alerts."""

    log_id: str
    next_seq: int = 1
    made: int = 0
    receipted: int = 0
    bytes: int = 0
    ring_bytes: int = 0
    commits: int = 0
    entries: int = 0
    """Alerts that the outbox's table holds: counted when the account is asked for, and not kept with it."""

    @property
    def depth(self) -> int:
        """Alerts without a receipt, by the counts: as many as ``entries``, or the account is broken."""
        return self.made - self.receipted


class Saved(NamedTuple):
    """What a starting agent goes on from."""

    cursor: Cursor | None
    counters: dict[str, Any] | None
    positions: list[FilePosition]
    next_seq: int
    bundle_version: int
    log_id: str


class StoredAlert(NamedTuple):
    """An encoded alert and whether the region has receipted it."""

    seq: int
    data: bytes
    receipted: bool


class Damaged(ValueError):
    """What is read from the store is not what was written to it."""


class Store:
    """See the module's text. Methods raise OSError when the disk or the map is full or cannot be read, and
    ValueError, naming table and key, when a value fails its checksum."""

    def __init__(
        self, env: lmdb.Environment, folder: Path, tables: dict[bytes, Any], owner: int | None, map_bytes: int
    ) -> None:
        self._env, self._folder, self._tables, self._owner = env, folder, tables, owner
        self._map_bytes = map_bytes
        self._gate = threading.Lock()
        """Held while reading, and while the environment is opened again."""
        self._unusable = False
        """LMDB could not write its first page, and takes no more until it is opened again."""
        self._state_bytes = 0
        """Of deltas since the state was last merged, or since the store was opened."""

    @classmethod
    def open(cls, folder: Path, *, readonly: bool = False, map_bytes: int = 1 << 30, owner: int | None = None) -> Store:
        """The store in ``folder``, made when it is not there. ``owner``: what ``own`` gave; the store's from here on.

        Raises FileNotFoundError for a readonly store that is not there, BlockingIOError when another agent has it
        open, OSError or ValueError when it cannot be used.
        """
        if readonly and not (folder / "data.mdb").exists():
            raise FileNotFoundError(errno.ENOENT, "no store here: has the agent run with this data_dir?", str(folder))
        with ExitStack() as undo, _translated(folder):
            if not readonly:
                owner = own(folder) if owner is None else owner
                undo.callback(os.close, owner)
            env, tables = _environment(folder, map_bytes, readonly)
            undo.callback(env.close)
            store = cls(env, folder, tables, owner, map_bytes)
            if not readonly:
                store._found()
            undo.pop_all()
        return store

    def _found(self) -> None:
        with self._write() as txn:
            if self._get(txn, _META, b"outbox") is None:
                self._put_account(txn, Account(secrets.token_hex(16)))
        descriptor = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def next_seq(self) -> int:
        """The lowest seq that no alert has."""
        with self._read() as txn:
            return self._account(txn).next_seq

    def verify(self) -> None:
        """Looks at every value, and at every page by a copy into nothing. Raises ValueError, or what LMDB raises; a
        damaged store may as well kill the process, or keep it for ever."""
        with self._read() as txn:
            for name, table in self._tables.items():
                entries, found = txn.stat(table)["entries"], 0
                for key, value in _entries(txn.cursor(table).iternext()):
                    self._content(name, key, value)
                    found += 1
                if found != entries:
                    raise ValueError(f"{self._folder}: {name.decode()} has {found} entries, not {entries}")
        self.account()
        nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        try:
            with _translated(self._folder):
                self._env.copyfd(nowhere, compact=True)
        finally:
            os.close(nowhere)

    def restart(
        self,
        cursor: Cursor | None,
        counters: Mapping[str, Any] | None,
        positions: Iterable[FilePosition],
        next_seq: int,
    ) -> None:
        """Make a new store go on where a lost one is known to have been, all its alerts receipted."""
        made = int((counters or {}).get("totals", {}).get("alerts_made", 0))
        with self._write() as txn:
            if cursor is not None:
                self._put(txn, _META, b"cursor", msgpack.packb(tuple(cursor)))
                self._put(txn, _META, b"counters", msgpack.packb(counters))
            for position in positions:
                self._put_position(txn, position, 0)
            self._put_account(txn, replace(self._account(txn), next_seq=next_seq, made=made, receipted=made))

    def load(self) -> Saved:
        """What the last commit left."""
        with self._read() as txn:
            cursor = self._get(txn, _META, b"cursor")
            counters = self._get(txn, _META, b"counters")
            account = self._account(txn)
            positions = [position for _, _, position in sorted(self._positions(txn))]
            version = self._get(txn, _META, b"value:bundle_version")
        return Saved(
            Cursor(*msgpack.unpackb(cursor)) if cursor is not None else None,
            msgpack.unpackb(counters) if counters is not None else None,
            positions,
            account.next_seq,
            int(msgpack.unpackb(version)) if version is not None else 0,
            account.log_id,
        )

    def commit(
        self,
        cursor: Cursor,
        counters: Mapping[str, Any],
        positions: Iterable[FilePosition],
        alerts: Sequence[tuple[int, bytes]],
        state: bytes = b"",
    ) -> None:
        """One batch: judged up to ``cursor``, with the ``positions`` that changed and the ``(seq, alert)`` it made;
        ``state``: what changed in what judging remembers.

        All of it is on disk when this returns, and none of it when it raises. Seqs must ascend from ``next_seq`` on
        (ValueError).
        """
        with self._write() as txn:
            account = self._account(txn)
            next_seq, size = account.next_seq, 0
            for seq, data in alerts:
                if seq < next_seq:
                    raise ValueError(f"{self._folder}: alert seq {seq} is below {next_seq}, the next free one")
                self._put(txn, _OUTBOX, _seq_key(seq), data)
                next_seq, size = seq + 1, size + len(data)
            self._put(txn, _META, b"cursor", msgpack.packb(tuple(cursor)))
            self._put(txn, _META, b"counters", msgpack.packb(dict(counters)))
            for position in positions:
                self._put_position(txn, position, account.commits)
            self._trim_files(txn)
            if state:
                self._append_state(txn, state)
            self._put_account(
                txn,
                replace(
                    account,
                    next_seq=next_seq,
                    made=account.made + len(alerts),
                    bytes=account.bytes + size,
                    commits=account.commits + 1,
                ),
            )

    def state(self) -> list[bytes]:
        """What judging remembered at the last commit: parts, in their order."""
        with self._read() as txn:
            entries = _entries(txn.cursor(self._tables[_STATE]).iternext())
            parts = [self._content(_STATE, key, value) for key, value in entries]
        self._state_bytes = sum(map(len, parts))
        return parts

    def merge_state(self, merged: Callable[[Sequence[bytes]], list[bytes]], above: int = STATE_BYTES) -> bool:
        """Put fewer parts in place of many when the deltas have come to more than ``above`` bytes; True when done.

        A write transaction of its own: what it leaves means the same.
        """
        if self._state_bytes <= above:
            return False
        parts = merged(self.state())
        with self._write() as txn:
            txn.drop(self._tables[_STATE], delete=False)
            for part in parts:
                self._append_state(txn, part)
        self._state_bytes = 0
        return True

    def _append_state(self, txn: lmdb.Transaction, part: bytes) -> None:
        cursor = txn.cursor(self._tables[_STATE])
        number = _seq(bytes(cursor.key())) + 1 if cursor.last() else 1
        self._put(txn, _STATE, _seq_key(number), part)
        self._state_bytes += len(part)

    def pending(self, after_seq: int = 0, limit: int = 1000) -> tuple[list[tuple[int, bytes]], list[int]]:
        """The first ``limit`` alerts above ``after_seq`` without a receipt; then the seqs of damaged ones there."""
        whole: list[tuple[int, bytes]] = []
        damaged: list[int] = []
        with self._read() as txn:
            cursor = txn.cursor(self._tables[_OUTBOX])
            if cursor.set_range(_seq_key(after_seq + 1)):
                for key, value in islice(_entries(cursor.iternext()), limit):
                    try:
                        whole.append((_seq(key), self._content(_OUTBOX, key, value)))
                    except ValueError:
                        damaged.append(_seq(key))
        return whole, damaged

    def receipt(self, ranges: Sequence[tuple[int, int]]) -> int:
        """Moves the alerts of ``ranges`` (first and last seq) from the outbox to the ring; returns how many."""
        with self._write() as txn:
            account = self._account(txn)
            moved, size = 0, 0
            cursor = txn.cursor(self._tables[_OUTBOX])
            for first, last in ranges:
                found = cursor.set_range(_seq_key(max(first, 0)))
                while found and _seq(bytes(cursor.key())) <= last:
                    value = cursor.value()
                    txn.put(cursor.key(), value, db=self._tables[_RING])
                    moved, size = moved + 1, size + len(value) - CHECKSUM
                    found = cursor.delete() and cursor.key() != b""
            if moved:
                account = replace(
                    account,
                    receipted=account.receipted + moved,
                    bytes=account.bytes - size,
                    ring_bytes=account.ring_bytes + size,
                )
                self._put_account(txn, self._trim_ring(txn, account))
        return moved

    def account(self) -> Account:
        """The outbox in figures, all of one moment."""
        with self._read() as txn:
            return replace(self._account(txn), entries=txn.stat(self._tables[_OUTBOX])["entries"])

    def tail(self, n: int) -> list[StoredAlert]:
        """The newest ``n`` alerts of outbox and ring, ascending by seq; damaged ones are left out."""
        with self._read() as txn:
            found = [
                alert
                for table in (_OUTBOX, _RING)
                for alert in self._stored(table, islice(_entries(txn.cursor(self._tables[table]).iterprev()), n))
            ]
        return sorted(found)[-n:] if n else []

    def since(self, after_seq: int, limit: int = 1000) -> list[StoredAlert]:
        """The first ``limit`` alerts of outbox and ring above ``after_seq``, ascending; damaged ones are left out."""
        found: list[StoredAlert] = []
        with self._read() as txn:
            for table in (_OUTBOX, _RING):
                cursor = txn.cursor(self._tables[table])
                if cursor.set_range(_seq_key(after_seq + 1)):
                    found += self._stored(table, islice(_entries(cursor.iternext()), limit))
        return sorted(found)[:limit]

    def get(self, name: str) -> Any:
        """The value ``put`` under ``name``, or None."""
        with self._read() as txn:
            data = self._get(txn, _META, b"value:" + name.encode())
        return None if data is None else msgpack.unpackb(data)

    def put(self, name: str, value: Any) -> None:
        """Keeps a small value that msgpack can carry; None forgets it. A write transaction of its own."""
        key = b"value:" + name.encode()
        with self._write() as txn:
            if value is None:
                txn.delete(key, db=self._tables[_META])
            else:
                self._put(txn, _META, key, msgpack.packb(value))

    def close(self) -> None:
        self._env.close()
        if self._owner is not None:
            os.close(self._owner)
            self._owner = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _read(self) -> Iterator[lmdb.Transaction]:
        with self._noticed(), _translated(self._folder), self._gate, self._env.begin() as txn:
            yield txn

    @contextmanager
    def _write(self) -> Iterator[lmdb.Transaction]:
        if self._unusable:
            self._open_again()
        try:
            with self._noticed(), _translated(self._folder), self._env.begin(write=True) as txn:
                yield txn
        except OSError as error:
            self._unusable = isinstance(error.__cause__, lmdb.PanicError)
            raise

    @contextmanager
    def _noticed(self) -> Iterator[None]:
        """Leave word of damage that is found at work: the check at the next start may not see it."""
        try:
            yield
        except Damaged as error:
            if self._owner is not None:
                with suppress(OSError):
                    (self._folder / DAMAGED).write_text(str(error), "utf-8")
            raise

    def _open_again(self) -> None:
        """After a write of LMDB's own that failed: what it has in memory may not be what is on disk."""
        with _translated(self._folder), self._gate:
            self._env.close()
            self._env, self._tables = _environment(self._folder, self._map_bytes, False)
        self._unusable = False

    def _get(self, txn: lmdb.Transaction, table: bytes, key: bytes) -> bytes | None:
        value = txn.get(key, db=self._tables[table])
        return None if value is None else self._content(table, key, bytes(value))

    def _content(self, table: bytes, key: bytes, value: bytes) -> bytes:
        if int.from_bytes(value[:CHECKSUM], "big") != crc32(value[CHECKSUM:], crc32(key)):
            raise Damaged(f"{self._folder}: {table.decode()} {key!r} fails its checksum: the store is damaged")
        return value[CHECKSUM:]

    def _put(self, txn: lmdb.Transaction, table: bytes, key: bytes, content: bytes) -> None:
        txn.put(key, crc32(content, crc32(key)).to_bytes(CHECKSUM, "big") + content, db=self._tables[table])

    def _account(self, txn: lmdb.Transaction) -> Account:
        data = self._get(txn, _META, b"outbox")
        if data is None:
            raise ValueError(f"{self._folder}: meta b'outbox' is missing: this is not an agent's store")
        return Account(**msgpack.unpackb(data))

    def _put_account(self, txn: lmdb.Transaction, account: Account) -> None:
        figures = {name: getattr(account, name) for name in Account.__slots__ if name != "entries"}
        self._put(txn, _META, b"outbox", msgpack.packb(figures))

    def _stored(self, table: bytes, entries: Iterator[tuple[bytes, bytes]]) -> Iterator[StoredAlert]:
        for key, value in entries:
            with suppress(ValueError):
                yield StoredAlert(_seq(key), self._content(table, key, value), table == _RING)

    def _positions(self, txn: lmdb.Transaction) -> Iterator[tuple[int, bytes, FilePosition]]:
        """Commit number, key and position of every file."""
        for key, value in _entries(txn.cursor(self._tables[_FILES]).iternext()):
            path, inode, fingerprint, position, commit = msgpack.unpackb(self._content(_FILES, key, value))
            yield commit, key, FilePosition(os.fsdecode(path), inode, fingerprint, position)

    def _put_position(self, txn: lmdb.Transaction, position: FilePosition, commit: int) -> None:
        path = os.fsencode(position.path)
        record = (path, position.inode, position.fingerprint, position.position, commit)
        self._put(txn, _FILES, _file_key(path, position.inode), msgpack.packb(record))

    def _trim_files(self, txn: lmdb.Transaction) -> None:
        excess = txn.stat(self._tables[_FILES])["entries"] - MAX_FILES
        if excess > 0:
            for _, key, _ in sorted(self._positions(txn))[: excess + MAX_FILES // 10]:
                txn.delete(key, db=self._tables[_FILES])

    def _trim_ring(self, txn: lmdb.Transaction, account: Account) -> Account:
        cursor = txn.cursor(self._tables[_RING])
        entries, size = txn.stat(self._tables[_RING])["entries"], account.ring_bytes
        found = cursor.first()
        while found and (entries > RING_ALERTS or size > RING_BYTES):
            entries, size = entries - 1, size - len(cursor.value()) + CHECKSUM
            found = cursor.delete() and cursor.key() != b""
        return replace(account, ring_bytes=size)


def _entries(items: Iterator[Any]) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values as bytes: what a transaction without ``buffers`` yields."""
    return items


def _seq(key: bytes) -> int:
    return int.from_bytes(key, "big")


def _seq_key(seq: int) -> bytes:
    return seq.to_bytes(8, "big")


def _file_key(path: bytes, inode: int) -> bytes:
    return blake2b(path + b"\0%d" % inode, digest_size=16).digest()


def _environment(folder: Path, map_bytes: int, readonly: bool) -> tuple[lmdb.Environment, dict[bytes, Any]]:
    """LMDB's environment and its tables, made when they are not there."""
    env = lmdb.open(
        str(folder), map_size=map_bytes, max_dbs=len(_TABLES), readonly=readonly, create=not readonly,
        readahead=False, metasync=True, sync=True, mode=0o600,
    )  # fmt: skip
    try:
        env.reader_check()
        return env, {name: env.open_db(name, create=not readonly) for name in _TABLES}
    except BaseException:
        env.close()
        raise


def rehearse(folder: Path) -> None:
    """A write transaction that takes pages and is then given up, so that nothing of the store changes: whether the list
    of free pages can be used. Raises OSError or ValueError; a damaged store may as well kill the process."""
    size = (folder / "data.mdb").stat().st_size
    with _translated(folder):
        env = lmdb.open(str(folder), map_size=size + (64 << 20), max_dbs=len(_TABLES), create=False, mode=0o600)
        try:
            with env.begin(write=True) as txn:
                for name in _TABLES:
                    table, size = env.open_db(name, txn, create=False), 0
                    cursor = txn.cursor(table)
                    for step in (cursor.last, cursor.first):
                        found = step()
                        while found and size < REHEARSED_BYTES:
                            size += len(cursor.value())
                            txn.put(cursor.key(), cursor.value(), db=table)
                            found = cursor.next()
                    for number in range(64):
                        txn.put(b"\xffrehearsal%d" % number, bytes(8000), db=table)
                    if cursor.first():
                        cursor.delete()
                txn.abort()
        finally:
            env.close()


def own(folder: Path) -> int:
    """The descriptor that holds the lock of the one writer, whose the folder is; the kernel drops it with the process.

    Raises BlockingIOError when another process holds it."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(folder / "owner", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise type(error)(
            error.errno, "another agent runs with this data_dir: stop it, or give this one its own", str(folder)
        ) from error
    return descriptor


@contextmanager
def _translated(folder: Path) -> Iterator[None]:
    """LMDB's errors as builtin ones that say where and what to do."""
    try:
        yield
    except lmdb.MapFullError as error:
        raise OSError(
            errno.EDQUOT, "the store has reached its size limit: is the uplink receipting alerts?", str(folder)
        ) from error
    except _DAMAGE as error:
        raise Damaged(f"{folder}: the store is damaged or not one: {error}; move it away to start anew") from error
    except lmdb.Error as error:
        number = errno.EIO
        with suppress(OSError):
            room = os.statvfs(folder)
            if room.f_bavail * room.f_frsize < LEAST_ROOM:  # LMDB calls a full disk an input/output error
                number = errno.ENOSPC
            elif room.f_flag & os.ST_RDONLY:
                number = errno.EROFS
        raise OSError(number, f"the store cannot be used: {error}", str(folder)) from error
