"""One small way to SQLite and to PostgreSQL: rows in, rows out, transactions.

Statements are written once, in what both understand: ``?`` for a parameter (none stands in a text), TEXT and BIGINT
columns, ``ON CONFLICT``, ``RETURNING``. Times are UTC microseconds, truth is 0 or 1, lists and objects are JSON. One
connection, used by one thread at a time: a statement takes a tenth of a millisecond. What is committed survives a
crash of the host.

Raises ``Conflict`` for a key that is there already, ``Unavailable`` for everything that the database itself reports.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

Row = dict[str, Any]


class Conflict(ValueError):
    """There is one with this key already."""


class Unavailable(OSError):
    """The database cannot be opened, read or written."""


class Database(ABC):
    """A database; any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._depth = 0

    def rows(self, sql: str, *values: object) -> list[Row]:
        """The rows of a statement: [] for one that only writes."""
        with self._lock:
            return self._execute(sql, values)[0]

    def first(self, sql: str, *values: object) -> Row | None:
        """The first row, None without any."""
        rows = self.rows(sql, *values)
        return rows[0] if rows else None

    def run(self, sql: str, *values: object) -> int:
        """Write; gives the number of rows that were changed."""
        with self._lock:
            return self._execute(sql, values)[1]

    @contextmanager
    def transaction(self, table: str = "") -> Iterator[None]:
        """All or nothing; nested ones belong to the outermost. With ``table`` no one else writes it meanwhile, in other
        processes neither."""
        with self._lock:
            if self._depth:
                yield
                return
            self._begin(table)
            self._depth += 1
            try:
                yield
            except BaseException:
                with suppress(Unavailable):
                    self._end("ROLLBACK")
                raise
            else:
                self._end("COMMIT")
            finally:
                self._depth -= 1

    def _end(self, word: str) -> None:
        self._execute(word, ())

    @abstractmethod
    def _begin(self, table: str) -> None: ...

    @abstractmethod
    def _execute(self, sql: str, values: tuple[object, ...]) -> tuple[list[Row], int]: ...

    @abstractmethod
    def close(self) -> None: ...


class SQLite(Database):
    """A file, readable by its owner only, with a write-ahead log that is synced at each commit."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            self._connection = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
            for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
                self._connection.execute(f"PRAGMA {pragma}")
        except (OSError, sqlite3.Error) as error:
            raise Unavailable(f"{path}: {error}") from error

    def _begin(self, table: str) -> None:
        self._execute("BEGIN IMMEDIATE", ())

    def _execute(self, sql: str, values: tuple[object, ...]) -> tuple[list[Row], int]:
        try:
            cursor = self._connection.execute(sql, values)
            rows = cursor.fetchall()
        except sqlite3.IntegrityError as error:
            raise Conflict(str(error)) from error
        except sqlite3.Error as error:
            raise Unavailable(f"the console's database: {error}") from error
        names = [column[0] for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in rows], max(cursor.rowcount, 0)

    def close(self) -> None:
        with self._lock:
            self._connection.close()


class PostgreSQL(Database):
    """A server that several consoles share. A lost connection is opened again by the next statement; one that only
    reads is then repeated, one that writes fails, as nobody knows whether it was done."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self._connection: Any = None
        self._open()

    def _open(self) -> Any:
        import psycopg
        from psycopg.rows import dict_row

        if self._connection is None or self._connection.closed:
            try:
                self._connection = psycopg.connect(
                    self._url,
                    autocommit=True,
                    row_factory=dict_row,
                    connect_timeout=10,
                    application_name="vedette console",
                )
            except psycopg.Error as error:
                raise Unavailable(f"PostgreSQL: {error}") from error
        return self._connection

    def _begin(self, table: str) -> None:
        self._execute("BEGIN", ())
        if table:
            try:
                self._execute(f"LOCK TABLE {table} IN EXCLUSIVE MODE", ())
            except BaseException:
                with suppress(Unavailable):
                    self._execute("ROLLBACK", ())
                raise

    def _execute(self, sql: str, values: tuple[object, ...]) -> tuple[list[Row], int]:
        import psycopg

        again = self._depth == 0 and sql.lstrip().upper().startswith(("SELECT", "BEGIN"))
        while True:
            if self._depth and self._connection.closed:
                raise Unavailable("PostgreSQL: the connection was lost within a transaction")
            connection = self._open()
            try:
                cursor = connection.execute(sql.replace("%", "%%").replace("?", "%s"), values)
                return (cursor.fetchall() if cursor.description else []), max(cursor.rowcount, 0)
            except psycopg.errors.IntegrityError as error:
                raise Conflict(str(error).splitlines()[0]) from error
            except psycopg.Error as error:
                if again and connection.closed:
                    again = False
                    continue
                raise Unavailable(f"PostgreSQL: {error}") from error

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()


def open_database(url: str) -> Database:
    """``sqlite:PATH`` or ``postgresql://…``. Raises Unavailable, and ValueError for another."""
    if url.startswith("sqlite:"):
        return SQLite(Path(url.removeprefix("sqlite:")))
    if url.startswith(("postgresql://", "postgres://")):
        return PostgreSQL(url)
    raise ValueError(f"expects sqlite:PATH or postgresql://…, not {url!r}")
