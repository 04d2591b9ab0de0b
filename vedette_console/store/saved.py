"""Saved searches, each of its owner; a shared one is seen by all. And what admins set for the console as a whole."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from vedette.system.wallclock import utc_now
from vedette_console.store.database import Database, Row
from vedette_console.store.sessions import new_id

MAX_SEARCHES = 200
"""Of one owner."""


@dataclass(frozen=True, slots=True)
class Search:
    """``query``: in the language of ``data.query``; ``created``: UTC microseconds."""

    id: str
    owner: str
    name: str
    query: str
    shared: bool
    created: int


class Searches:
    def __init__(self, database: Database) -> None:
        self._database = database

    def save(self, owner: str, name: str, query: str, *, shared: bool = False) -> Search:
        """A new search, or another query for the owner's one of that name. Raises ValueError for too many."""
        with self._database.transaction("searches"):
            row = self._database.first("SELECT id FROM searches WHERE owner = ? AND name = ?", owner, name)
            if row is not None:
                self._database.run(
                    "UPDATE searches SET query = ?, shared = ? WHERE id = ?", query, int(shared), row["id"]
                )
                return self.get(row["id"])
            count = self._database.first("SELECT count(*) AS count FROM searches WHERE owner = ?", owner)
            if count is not None and count["count"] >= MAX_SEARCHES:
                raise ValueError(f"{owner} has {MAX_SEARCHES} saved searches: remove one first")
            id = new_id()
            self._database.run(
                "INSERT INTO searches (id, owner, name, query, shared, created) VALUES (?, ?, ?, ?, ?, ?)",
                id, owner, name, query, int(shared), utc_now(),
            )  # fmt: skip
            return self.get(id)

    def get(self, id: str) -> Search:
        """Raises KeyError when there is none."""
        row = self._database.first("SELECT * FROM searches WHERE id = ?", id)
        if row is None:
            raise KeyError(id)
        return _search(row)

    def of(self, owner: str) -> list[Search]:
        """Those of an owner and the shared ones of others, by name."""
        rows = self._database.rows("SELECT * FROM searches WHERE owner = ? OR shared = 1 ORDER BY name, id", owner)
        return [_search(row) for row in rows]

    def remove(self, id: str) -> None:
        """Raises KeyError when there is none."""
        if not self._database.run("DELETE FROM searches WHERE id = ?", id):
            raise KeyError(id)


class Choices:
    """Choices of admins for all: JSON values by key."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self) -> dict[str, Any]:
        return {row["key"]: json.loads(row["value"]) for row in self._database.rows("SELECT key, value FROM settings")}

    def set(self, key: str, value: Any) -> None:
        self._database.run(
            "INSERT INTO settings (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            key, json.dumps(value, ensure_ascii=False),
        )  # fmt: skip


def _search(row: Row) -> Search:
    return Search(**{**row, "shared": bool(row["shared"])})
