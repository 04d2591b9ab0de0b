"""The audit log: who did what, when, from where, and how it ended; each row holds the hash of the one before.

A row's ``hash`` is the SHA-256 of its ``previous`` and of its other values, as canonical JSON (keys sorted, no blanks,
UTF-8); the first row's ``previous`` is 64 zeros, ``seq`` counts from 1 without a gap. Who changes, removes or inserts
a row breaks the chain from there; who cuts its end or writes all of it anew is found out by a hash that was noted
elsewhere: ``verify`` takes one, and the last line of an export has one. Rows are only ever added.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from vedette.system.wallclock import utc_now
from vedette_console.store.database import Database, Row

START = "0" * 64
BATCH = 1_000
MAX_WHAT = 8_000
"""Characters of a row's details as JSON."""


@dataclass(frozen=True, slots=True)
class Entry:
    """``at``: UTC microseconds; ``what``: details; ``outcome``: "done", "refused: …" or "failed: …"."""

    seq: int
    at: int
    who: str
    act: str
    what: dict[str, Any]
    outcome: str
    address: str
    previous: str
    hash: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """A result: all ``rows`` rows are as they were written, or those before ``broken``, a row's ``seq``; ``head``: the
    last row's hash."""

    rows: int
    head: str
    broken: int | None = None
    reason: str = ""


def digest(entry: Entry) -> str:
    """The hash that ``entry`` must have."""
    values = {key: value for key, value in asdict(entry).items() if key != "hash"}
    return hashlib.sha256(
        json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    ).hexdigest()


def verify(entries: Iterable[Entry], *, noted: Mapping[int, str] | None = None) -> Verdict:
    """Whether a whole log, in order, is as it was written. ``noted``: hashes by ``seq`` that were noted elsewhere."""
    head, rows, noted = START, 0, noted or {}
    for entry in entries:
        reason = ""
        if entry.seq != rows + 1:
            reason = f"row {rows + 1} is missing"
        elif entry.previous != head:
            reason = "it does not follow the row before"
        elif entry.hash != digest(entry):
            reason = "it was changed"
        elif noted.get(entry.seq, entry.hash) != entry.hash:
            reason = "its hash is not the one that was noted"
        if reason:
            return Verdict(rows, head, entry.seq, reason)
        head, rows = entry.hash, rows + 1
    if missing := [seq for seq in noted if seq > rows]:
        return Verdict(rows, head, rows + 1, f"the log ends before row {min(missing)}, which was noted")
    return Verdict(rows, head)


def as_json(entry: Entry) -> str:
    """A line of an export."""
    return json.dumps(asdict(entry), ensure_ascii=False, separators=(",", ":"))


def from_json(line: str) -> Entry:
    """Raises ValueError for what is no line of an export."""
    try:
        entry = Entry(**json.loads(line))
    except TypeError as error:
        raise ValueError(f"not a line of an audit log: {error}") from error
    return entry


class Audit:
    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, who: str, act: str, what: Mapping[str, Any] | None = None, *, outcome: str = "done",
            address: str = "") -> Entry:  # fmt: skip
        """Write a row; when this returns it is on disk."""
        details = {str(key): value for key, value in (what or {}).items()}
        if len(text := _json(details)) > MAX_WHAT:
            details = {"cut": text[:MAX_WHAT]}
        with self._database.transaction("audit"):
            last = self._database.first("SELECT seq, hash FROM audit ORDER BY seq DESC LIMIT 1")
            seq, previous = (1, START) if last is None else (int(last["seq"]) + 1, str(last["hash"]))
            bare = Entry(
                seq, utc_now(), _plain(who), act, json.loads(_json(details)), _plain(outcome), address, previous, ""
            )
            entry = replace(bare, hash=digest(bare))
            values = {**asdict(entry), "what": _json(entry.what)}
            marks = ", ".join("?" for _ in values)
            self._database.run(f"INSERT INTO audit ({', '.join(values)}) VALUES ({marks})", *values.values())
        return entry

    def read(self, *, who: str = "", act: str = "", since: int = 0, until: int = 2**62, before: int = 2**62,
             limit: int = 100) -> list[Entry]:  # fmt: skip
        """Rows, the newest first. ``since``, ``until``: UTC microseconds; ``before``: only rows of a lower ``seq``;
        ``who``: a user, also by their tokens."""
        rows = self._database.rows(
            "SELECT * FROM audit WHERE seq < ? AND at >= ? AND at < ? AND (? = '' OR act = ?)"
            " AND (? = '' OR who = ? OR substr(who, 1, length(?)) = ?) ORDER BY seq DESC LIMIT ?",
            before, since, until, act, act, who, who, f"{who} (token ", f"{who} (token ", limit,
        )  # fmt: skip
        return [_entry(row) for row in rows]

    def all(self) -> Iterator[Entry]:
        """Every row, in order, read in batches."""
        seq = 0
        while rows := self._database.rows("SELECT * FROM audit WHERE seq > ? ORDER BY seq LIMIT ?", seq, BATCH):
            yield from map(_entry, rows)
            seq = rows[-1]["seq"]

    def verify(self, noted: Mapping[int, str] | None = None) -> Verdict:
        return verify(self.all(), noted=noted)


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str).encode("utf-8", "replace").decode()


def _plain(text: str) -> str:
    """The text as every database takes it: without lone surrogates and NUL."""
    return text.encode("utf-8", "replace").decode().replace("\0", "�")


def _entry(row: Row) -> Entry:
    return Entry(**{**row, "what": json.loads(row["what"])})
