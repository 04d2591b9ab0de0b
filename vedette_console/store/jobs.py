"""The console's own background work: backtests, hunts, evidence, reports. Its state survives a restart.

A job is ``waiting``, then ``running`` under a lease that its runner renews, then ``done``, ``failed`` or
``cancelled``. A runner that dies leaves its lease to run out; then ``claim`` gives the job to the next, which goes on
from ``progress``. Of several consoles over one database one has a job at a time. ``request``, ``progress`` and
``result`` are JSON objects.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vedette.system.wallclock import utc_now
from vedette_console.store import secret
from vedette_console.store.database import Database, Row

LEASE = 60_000_000
OVER = ("done", "failed", "cancelled")
MAX_BYTES = 4_000_000
"""Of a job's result as JSON: what is larger belongs into a file that the result names."""


@dataclass(frozen=True, slots=True)
class Job:
    """Times in UTC microseconds."""

    id: str
    kind: str
    owner: str
    state: str
    request: dict[str, Any]
    progress: dict[str, Any]
    result: dict[str, Any]
    error: str
    created: int
    updated: int

    @property
    def over(self) -> bool:
        return self.state in OVER


class Jobs:
    """``runner``: the name of this process, unlike any other's."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.runner = secret.name()

    def add(self, kind: str, owner: str, request: Mapping[str, Any], *, id: str = "") -> Job:
        """A new job, waiting."""
        now, id = utc_now(), id or secret.name()
        self._database.run(
            "INSERT INTO jobs (id, kind, owner, state, request, progress, result, error, runner, leased, created,"
            " updated) VALUES (?, ?, ?, 'waiting', ?, '{}', '{}', '', '', 0, ?, ?)",
            id, kind, owner, _json(request), now, now,
        )  # fmt: skip
        return self.get(id)

    def get(self, id: str) -> Job:
        """Raises KeyError when there is none."""
        row = self._database.one("SELECT * FROM jobs WHERE id = ?", id)
        if row is None:
            raise KeyError(id)
        return _job(row)

    def of(self, kind: str = "", owner: str = "", *, limit: int = 100) -> list[Job]:
        """Jobs, the newest first; of all kinds and owners where none is named."""
        return [
            _job(row)
            for row in self._database.rows(
                "SELECT * FROM jobs WHERE (? = '' OR kind = ?) AND (? = '' OR owner = ?)"
                " ORDER BY created DESC, id LIMIT ?",
                kind, kind, owner, owner, limit,
            )
        ]  # fmt: skip

    def claim(self, *kinds: str) -> Job | None:
        """The oldest job of these kinds that nobody has, now this process's and running; None when there is none."""
        now = utc_now()
        marks = ", ".join("?" for _ in kinds)
        with self._database.transaction("jobs"):
            row = self._database.one(
                f"SELECT id FROM jobs WHERE kind IN ({marks})"
                " AND (state = 'waiting' OR (state = 'running' AND leased < ?)) ORDER BY created, id LIMIT 1",
                *kinds, now,
            )  # fmt: skip
            if row is None:
                return None
            self._database.run(
                "UPDATE jobs SET state = 'running', runner = ?, leased = ?, updated = ? WHERE id = ?",
                self.runner, now + LEASE, now, row["id"],
            )  # fmt: skip
            return self.get(row["id"])

    def renew(self, id: str, progress: Mapping[str, Any] | None = None) -> bool:
        """Keep a claimed job for another ``LEASE``, with new ``progress``; False when it was cancelled or is another's
        by now, and its runner should stop."""
        now = utc_now()
        text = None if progress is None else _json(progress)
        return bool(
            self._database.run(
                "UPDATE jobs SET leased = ?, progress = coalesce(CAST(? AS TEXT), progress), updated = ?"
                " WHERE id = ? AND runner = ? AND state = 'running'",
                now + LEASE, text, now, id, self.runner,
            )
        )  # fmt: skip

    def release(self, id: str) -> None:
        """Give a claimed job back, as at the end of the console: the next claims it at once."""
        self._database.run(
            "UPDATE jobs SET state = 'waiting', runner = '', leased = 0"
            " WHERE id = ? AND runner = ? AND state = 'running'",
            id, self.runner,
        )  # fmt: skip

    def end(self, id: str, state: str, *, result: Mapping[str, Any] | None = None, error: str = "") -> bool:
        """The end of a job: ``done``, ``failed`` or ``cancelled``; False when it was over already."""
        assert state in OVER
        text = _json(result or {})
        if len(text) > MAX_BYTES:
            state, text, error = "failed", "{}", f"the result has {len(text):,} bytes, more than {MAX_BYTES:,}"
        return bool(
            self._database.run(
                "UPDATE jobs SET state = ?, result = ?, error = ?, leased = 0, updated = ?"
                " WHERE id = ? AND state IN ('waiting', 'running')",
                state, text, error, utc_now(), id,
            )
        )  # fmt: skip

    def forget(self, before: int) -> int:
        """Remove jobs that were over before a time; gives how many."""
        return self._database.run(
            "DELETE FROM jobs WHERE updated < ? AND state IN ('done', 'failed', 'cancelled')", before
        )


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _job(row: Row) -> Job:
    return Job(
        row["id"], row["kind"], row["owner"], row["state"], json.loads(row["request"]), json.loads(row["progress"]),
        json.loads(row["result"]), row["error"], row["created"], row["updated"],
    )  # fmt: skip
