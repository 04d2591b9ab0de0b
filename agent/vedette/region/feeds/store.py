"""What was read of each feed, in an SQLite file: one transaction a feed, so that a reading that fails changes nothing.

Of entries with one id the later version stays, of an entry's links the first MAX_LINKS. ``part`` is the event of a MISP
feed folder that an entry came with, with which it goes; else empty. The file is a cache: without it every feed is read
again.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from vedette.region.feeds.entry import MAX_TEXT, Entry, Found, Indicates
from vedette.system.folders import locked

VERSION = 1
_SCHEMA = """
CREATE TABLE feed (name TEXT PRIMARY KEY, source TEXT, cursor TEXT, etag TEXT, changed TEXT, read INTEGER);
CREATE TABLE part (feed TEXT, part TEXT, changed INTEGER, PRIMARY KEY (feed, part)) WITHOUT ROWID;
CREATE TABLE entry (
  feed TEXT, id TEXT, part TEXT, modified INTEGER, since INTEGER, until INTEGER, confidence INTEGER,
  threat TEXT, labels TEXT, reference TEXT, PRIMARY KEY (feed, id)) WITHOUT ROWID;
CREATE INDEX of_part ON entry (feed, part);
CREATE TABLE value (feed TEXT, id TEXT, kind TEXT, value TEXT, PRIMARY KEY (feed, id, kind, value)) WITHOUT ROWID;
CREATE INDEX of_kind ON value (kind, value);
CREATE TABLE link (
  feed TEXT, id TEXT, modified INTEGER, revoked INTEGER, name TEXT, source TEXT, target TEXT, PRIMARY KEY (feed, id)
) WITHOUT ROWID;
CREATE INDEX of_source ON link (feed, source);
CREATE TABLE built (lookup TEXT PRIMARY KEY, digest TEXT, version TEXT);
"""
MAX_LINKS = 100
"""Threats that an entry is linked to: so many are stored, and named."""
_ROWS = """
SELECT v.value, e.feed, e.modified, e.since, e.until, e.confidence, e.threat, e.labels, e.reference, e.id
FROM value v JOIN entry e ON e.feed = v.feed AND e.id = v.id
WHERE v.kind = ? ORDER BY v.value, e.modified DESC, e.feed, e.id
"""
_THREAT = f"""
SELECT substr(group_concat(name, ', '), 1, {MAX_TEXT}) FROM (SELECT DISTINCT t.name
  FROM (SELECT target FROM link INDEXED BY of_source WHERE feed = ?1 AND source = ?2 AND NOT revoked
    ORDER BY id LIMIT {MAX_LINKS}) l
  CROSS JOIN link t ON t.feed = ?1 AND t.id = l.target WHERE NOT t.revoked AND t.name <> '' ORDER BY t.name)
"""
REMEMBERED = 4096
"""Entries whose threat is at hand for their other values."""


class State(NamedTuple):
    """Of a feed: where TAXII goes on, by what a server knows that nothing changed, when it was read (0: never)."""

    cursor: str = ""
    etag: str = ""
    changed: str = ""
    read: int = 0


class Row(NamedTuple):
    value: str
    feed: str
    modified: int
    since: int | None
    until: int | None
    confidence: int | None
    threat: str
    labels: str
    reference: str


class Store:
    """One process at a time. Raises OSError; ``sqlite3.Error`` outside of a transaction."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = locked(folder, "another fetch is at work")
        try:
            self._db = self._opened(folder / "feeds.sqlite3")
        except sqlite3.Error as error:
            os.close(self._lock)
            raise OSError(f"{folder / 'feeds.sqlite3'}: {error}: remove it, and all feeds are read again") from None

    @staticmethod
    def _opened(path: Path) -> sqlite3.Connection:
        db = sqlite3.connect(path, isolation_level=None)
        db.execute("PRAGMA journal_mode = WAL")
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if version == 0:
            db.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;")
        elif version != VERSION:
            db.close()
            raise sqlite3.DatabaseError(f"of another version ({version})")
        return db

    def close(self) -> None:
        self._db.close()
        os.close(self._lock)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # a full disk has ended it
                    self._db.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            of_host = isinstance(error, sqlite3.OperationalError)  # a full disk, say
            remedy = "" if of_host else ": remove it, and all feeds are read again"
            raise OSError(f"the feeds' store: {error}{remedy}") from None

    def state(self, feed: str, source: str) -> State:
        """Nothing is known of a feed that has another source now."""
        row = self._db.execute(
            "SELECT cursor, etag, changed, read FROM feed WHERE name = ? AND source = ?", (feed, source)
        ).fetchone()
        return State(*row) if row else State()

    def read_at(self, feed: str) -> int:
        """When what is kept was read, of whatever source; 0: never."""
        row = self._db.execute("SELECT read FROM feed WHERE name = ?", (feed,)).fetchone()
        return int(row[0]) if row else 0

    def note(self, feed: str, source: str, state: State) -> None:
        self._db.execute("INSERT OR REPLACE INTO feed VALUES (?, ?, ?, ?, ?, ?)", (feed, source, *state))

    def forget(self, feed: str) -> None:
        for table in ("part", "entry", "value", "link"):
            self._db.execute(f"DELETE FROM {table} WHERE feed = ?", (feed,))
        self._db.execute("DELETE FROM feed WHERE name = ?", (feed,))

    def keep_only(self, feeds: Iterable[str]) -> None:
        wanted = set(feeds)
        for (name,) in self._db.execute("SELECT name FROM feed").fetchall():
            if name not in wanted:
                self.forget(name)

    def parts(self, feed: str) -> Mapping[str, int]:
        return dict(self._db.execute("SELECT part, changed FROM part WHERE feed = ?", (feed,)).fetchall())

    def drop_part(self, feed: str, part: str) -> None:
        self._db.execute(
            "DELETE FROM value WHERE feed = ?1 AND id IN (SELECT id FROM entry WHERE feed = ?1 AND part = ?2)",
            (feed, part),
        )
        self._db.execute("DELETE FROM entry WHERE feed = ? AND part = ?", (feed, part))
        self._db.execute("DELETE FROM part WHERE feed = ? AND part = ?", (feed, part))

    def add_part(self, feed: str, part: str, changed: int) -> None:
        self._db.execute("INSERT OR REPLACE INTO part VALUES (?, ?, ?)", (feed, part, changed))

    def put(self, feed: str, entry: Found, part: str = "") -> None:
        table = "entry" if isinstance(entry, Entry) else "link"
        query = f"SELECT modified FROM {table} WHERE feed = ? AND id = ?"
        before = self._db.execute(query, (feed, entry.id)).fetchone()
        if before is not None and before[0] > entry.modified:
            return
        if not isinstance(entry, Entry):
            if before is None and isinstance(entry, Indicates) and self._links(feed, entry.source) >= MAX_LINKS:
                revoked = "SELECT id FROM link WHERE feed = ?1 AND source = ?2 AND revoked LIMIT 1"
                delete = f"DELETE FROM link WHERE feed = ?1 AND id = ({revoked})"
                if not self._db.execute(delete, (feed, entry.source)).rowcount:
                    return
            ends = ("", entry.source, entry.target) if isinstance(entry, Indicates) else (entry.name, "", "")
            self._db.execute(
                "INSERT OR REPLACE INTO link VALUES (?, ?, ?, ?, ?, ?, ?)",
                (feed, entry.id, entry.modified, entry.revoked, *ends),
            )
            return
        if before is not None:
            self._db.execute("DELETE FROM value WHERE feed = ? AND id = ?", (feed, entry.id))
        self._db.execute(
            "INSERT OR REPLACE INTO entry VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (feed, entry.id, part, entry.modified, entry.since, entry.until, entry.confidence,
             entry.threat, entry.labels, entry.reference),
        )  # fmt: skip
        self._db.executemany(
            "INSERT INTO value VALUES (?, ?, ?, ?)", [(feed, entry.id, kind, value) for kind, value in entry.values]
        )

    def _links(self, feed: str, source: str) -> int:
        query = "SELECT count(*) FROM (SELECT 1 FROM link WHERE feed = ? AND source = ? LIMIT ?)"
        return int(self._db.execute(query, (feed, source, MAX_LINKS)).fetchone()[0])

    def count(self, feed: str) -> int:
        (count,) = self._db.execute("SELECT count(*) FROM value WHERE feed = ?", (feed,)).fetchone()
        return int(count)

    def rows(self, kind: str) -> Iterator[Row]:
        """All that is kept of a kind, by value, of each the newest first."""

        @lru_cache(REMEMBERED)
        def threat(feed: str, id: str) -> str | None:
            (names,) = self._db.execute(_THREAT, (feed, id)).fetchone()
            return None if names is None else str(names)

        for *fields, id in self._db.execute(_ROWS, (kind,)):
            row = Row._make(fields)
            names = threat(row.feed, id)
            yield row if names is None else row._replace(threat=names)

    def built(self, lookup: str) -> str:
        """The digest of the rows that ``lookup`` was built of."""
        row = self._db.execute("SELECT digest FROM built WHERE lookup = ?", (lookup,)).fetchone()
        return str(row[0]) if row else ""

    def note_built(self, lookup: str, digest: str, version: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO built VALUES (?, ?, ?)", (lookup, digest, version))
