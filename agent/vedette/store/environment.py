"""LMDB as this project uses it: checksummed values in named tables, one writer. The only lmdb import.

Each value is 4 bytes of CRC-32 (big-endian, over key and content) and the content: LMDB itself does not notice a
flipped bit. One that does not fit raises ``Damaged``, and so does what LMDB finds wrong by itself; a file ``damaged``
is then left in the folder, because the check at the next start (``store/check.py``) may not come by the place again.
Other errors of LMDB become OSErrors that say where and what to do.

``write`` is one transaction, on disk when the ``with`` ends and undone when it raises. Where LMDB could not write its
first page it gives nothing more, and what it has in memory may not be what is on disk: whoever reads or writes next
opens the environment again. One process writes (``store.own``), in one thread; any may read with ``readonly``.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any
from zlib import crc32

import lmdb

DAMAGED = "damaged"
"""A file in the store's folder: why the store must not be used any more."""
REHEARSED_BYTES = 8 << 20
"""Of each table, written again by ``rehearse``: less than what makes LMDB write to the file before a commit."""
LEAST_ROOM = 64 << 10
"""Bytes free on the disk, below which a failed write is for want of space."""
OUTSIDE = (errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.ENOLCK)
"""What the system lacks or forbids: of the store's content such an error says nothing."""
CHECKSUM = 4
"""Bytes before each value's content."""

_DAMAGE = (
    lmdb.InvalidError, lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.VersionMismatchError, lmdb.IncompatibleError,
    lmdb.CursorFullError, lmdb.BadTxnError, lmdb.BadValsizeError,
)  # fmt: skip


class Damaged(ValueError):
    """What is read from the store is not what was written to it."""


class Transaction:
    """Tables by name; keys and contents are bytes. Contents are checked when they are read."""

    __slots__ = ("_folder", "_tables", "_txn")

    def __init__(self, folder: Path, tables: dict[bytes, Any], txn: lmdb.Transaction) -> None:
        self._folder, self._tables, self._txn = folder, tables, txn

    def get(self, table: bytes, key: bytes) -> bytes | None:
        """Raises Damaged."""
        value = self._txn.get(key, db=self._tables[table])
        return None if value is None else self.content(table, key, bytes(value))

    def put(self, table: bytes, key: bytes, content: bytes) -> None:
        """In place of what is there."""
        self._txn.put(key, crc32(content, crc32(key)).to_bytes(CHECKSUM, "big") + content, db=self._tables[table])

    def delete(self, table: bytes, key: bytes) -> bool:
        return bool(self._txn.delete(key, db=self._tables[table]))

    def count(self, table: bytes) -> int:
        return int(self._txn.stat(self._tables[table])["entries"])

    def last(self, table: bytes, before: bytes = b"") -> bytes | None:
        """The greatest key; with ``before`` the greatest below that."""
        cursor = self._txn.cursor(self._tables[table])
        there = cursor.prev() if before and cursor.set_range(before) else cursor.last()
        return bytes(cursor.key()) if there else None

    def first(self, table: bytes) -> bytes | None:
        """The least key."""
        cursor = self._txn.cursor(self._tables[table])
        return bytes(cursor.key()) if cursor.first() else None

    def values(self, table: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Key and value (``content`` makes its content) from the key ``start`` on, ascending."""
        cursor = self._txn.cursor(self._tables[table])
        items: Iterator[Any] = cursor.iternext() if cursor.set_range(start) else iter(())
        return items  # without ``buffers`` they are bytes

    def newest(self, table: bytes, n: int) -> Iterator[tuple[bytes, bytes]]:
        """The ``n`` greatest keys with their values, descending."""
        items: Iterator[Any] = self._txn.cursor(self._tables[table]).iterprev()
        return islice(items, n)

    def content(self, table: bytes, key: bytes, value: bytes) -> bytes:
        """Raises Damaged when the checksum does not fit."""
        if int.from_bytes(value[:CHECKSUM], "big") != crc32(value[CHECKSUM:], crc32(key)):
            raise Damaged(f"{self._folder}: {table.decode()} {key!r} fails its checksum: the store is damaged")
        return value[CHECKSUM:]

    def take(self, table: bytes, first: bytes, last: bytes, into: bytes = b"") -> tuple[int, int]:
        """Remove the entries from key ``first`` to ``last``, or move them as they are to the table ``into``; how many,
        and the bytes of their contents."""
        taken, size, cursor = 0, 0, self._txn.cursor(self._tables[table])
        there = cursor.set_range(first)
        while there and bytes(cursor.key()) <= last:
            value = cursor.value()
            if into:
                self._txn.put(cursor.key(), value, db=self._tables[into])
            taken, size = taken + 1, size + len(value) - CHECKSUM
            there = cursor.delete() and cursor.key() != b""
        return taken, size

    def drop_first(self, table: bytes) -> int:
        """Remove the entry with the least key; the bytes of its content (0 also when there is none)."""
        cursor = self._txn.cursor(self._tables[table])
        if not cursor.first():
            return 0
        size = len(cursor.value()) - CHECKSUM
        cursor.delete()
        return size


class Environment:
    """See the module's text. Raises OSError when disk or map are full or cannot be read, and Damaged."""

    def __init__(self, folder: Path, tables: Sequence[bytes], map_bytes: int, *, readonly: bool = False) -> None:
        """Makes the tables when they are not there."""
        self._folder, self._names, self._map_bytes, self._readonly = folder, tuple(tables), map_bytes, readonly
        self._gate = threading.Lock()
        """Held while reading, and while the environment is opened again."""
        self._unusable = False
        """LMDB could not write its first page, and gives no transaction until it is opened again. The writer sets it
        when its own has ended, so that nobody closes the environment under it."""
        with _translated(folder):
            self._env, self._tables = _opened(folder, self._names, map_bytes, readonly)

    @contextmanager
    def read(self) -> Iterator[Transaction]:
        """All of one moment."""
        with self._noticed(), _translated(self._folder), self._gate:
            self._make_usable()
            with self._env.begin() as txn:
                yield Transaction(self._folder, self._tables, txn)

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """All or nothing."""
        try:
            with self._noticed(), _translated(self._folder):
                with self._gate:
                    self._make_usable()
                with self._env.begin(write=True) as txn:
                    yield Transaction(self._folder, self._tables, txn)
        except OSError:
            try:
                self._env.begin().abort()
            except lmdb.Error:
                self._unusable = True
            raise

    @contextmanager
    def _noticed(self) -> Iterator[None]:
        """Leave word of damage that is found at work."""
        try:
            yield
        except Damaged as error:
            if not self._readonly:
                with suppress(OSError):
                    (self._folder / DAMAGED).write_text(str(error), "utf-8")
            raise

    def _make_usable(self) -> None:
        """Open the environment again where that must be; the gate is held."""
        if self._unusable:
            self._env.close()
            self._env, self._tables = _opened(self._folder, self._names, self._map_bytes, False)
            self._unusable = False

    def copy_to_nowhere(self) -> None:
        """Looks at every page. A damaged environment may kill the process, or keep it for ever."""
        nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        try:
            with _translated(self._folder):
                self._env.copyfd(nowhere, compact=True)
        finally:
            os.close(nowhere)

    def close(self) -> None:
        self._env.close()


def rehearse(folder: Path, tables: Sequence[bytes]) -> None:
    """A write transaction that takes pages and is then given up, so that nothing of the store changes: whether the list
    of free pages can be used. Raises OSError or ValueError; a damaged store may as well kill the process."""
    size = (folder / "data.mdb").stat().st_size
    with _translated(folder):
        env = lmdb.open(str(folder), map_size=size + (64 << 20), max_dbs=len(tables), create=False, mode=0o600)
        try:
            with env.begin(write=True) as txn:
                for name in tables:
                    table, size = env.open_db(name, txn, create=False), 0
                    cursor = txn.cursor(table)
                    for step in (cursor.last, cursor.first):
                        there = step()
                        while there and size < REHEARSED_BYTES:
                            size += len(cursor.value())
                            txn.put(cursor.key(), cursor.value(), db=table)
                            there = cursor.next()
                    for number in range(64):
                        txn.put(b"\xffrehearsal%d" % number, bytes(8000), db=table)
                    if cursor.first():
                        cursor.delete()
                txn.abort()
        finally:
            env.close()


def _opened(
    folder: Path, names: Sequence[bytes], map_bytes: int, readonly: bool
) -> tuple[lmdb.Environment, dict[bytes, Any]]:
    """LMDB's environment and its tables, made when they are not there."""
    env = lmdb.open(
        str(folder), map_size=map_bytes, max_dbs=len(names), readonly=readonly, create=not readonly,
        readahead=False, metasync=True, sync=True, mode=0o600,
    )  # fmt: skip
    try:
        env.reader_check()
        return env, {name: env.open_db(name, create=not readonly) for name in names}
    except BaseException:
        env.close()
        raise


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
        raise Damaged(f"{folder}: the store is damaged or not one: {error}; move it away to start over") from error
    except lmdb.Error as error:
        number = next((code for code in OUTSIDE if str(error).endswith(os.strerror(code))), errno.EIO)
        with suppress(OSError):
            room = os.statvfs(folder)
            if number == errno.EIO and room.f_bavail * room.f_frsize < LEAST_ROOM:
                number = errno.ENOSPC  # LMDB calls a full disk an input/output error
            elif number == errno.EIO and room.f_flag & os.ST_RDONLY:
                number = errno.EROFS
        raise OSError(number, f"the store cannot be used: {error}", str(folder)) from error
