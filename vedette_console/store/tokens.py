"""API tokens: a secret for scripts, with a part of what its owner may.

A token never gives more than its owner has at that moment; it may be limited to places, to a role and to some acts,
and may expire. Only its hash is kept; its text, ``vedette_…``, is shown once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from vedette.system.wallclock import utc_now
from vedette_console.security.principal import Grant
from vedette_console.security.roles import ACTS, Role
from vedette_console.store import secret
from vedette_console.store.database import Database, Row

PREFIX = "vedette_"
TOUCH = 60_000_000
MAX_TOKENS = 50
"""Of one owner."""


@dataclass(frozen=True, slots=True)
class Token:
    """``acts``: those it is limited to, None for all; ``expires``, ``used``: UTC microseconds, None for never."""

    id: str
    owner: str
    label: str
    grants: tuple[Grant, ...]
    acts: frozenset[str] | None
    created: int
    expires: int | None
    used: int | None


class Tokens:
    def __init__(self, database: Database) -> None:
        self._database = database

    def add(
        self, owner: str, label: str, grants: Iterable[Grant], *, acts: Iterable[str] | None = None,
        expires: int | None = None,
    ) -> tuple[Token, str]:  # fmt: skip
        """A new token and its text. Raises ValueError for an unknown act or too many tokens."""
        chosen = None if acts is None else sorted(acts)
        if unknown := [act for act in chosen or () if act not in ACTS]:
            raise ValueError(f"there is no act {unknown[0]!r}; there are: {', '.join(ACTS)}")
        text, id = secret.new(PREFIX), secret.name()
        places = [[str(grant.role), grant.fleet, grant.site] for grant in grants]
        with self._database.transaction("tokens"):
            if len(self.of(owner)) >= MAX_TOKENS:
                raise ValueError(f"{owner} has {MAX_TOKENS} tokens: revoke one first")
            self._database.run(
                "INSERT INTO tokens (id, hash, name, label, grants, acts, created, expires)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                id, secret.digest(text), owner, label, json.dumps(places), json.dumps(chosen), utc_now(), expires,
            )  # fmt: skip
        return self.get(id), text

    def check(self, text: str, now: int | None = None) -> Token | None:
        """The token of this text; None when there is none or it has expired."""
        now = utc_now() if now is None else now
        row = self._database.one("SELECT * FROM tokens WHERE hash = ?", secret.digest(text))
        if row is None or (row["expires"] is not None and row["expires"] < now):
            return None
        if row["used"] is None or row["used"] + TOUCH < now:
            self._database.run("UPDATE tokens SET used = ? WHERE id = ?", now, row["id"])
        return _token(row)

    def get(self, id: str) -> Token:
        """Raises KeyError when there is none."""
        row = self._database.one("SELECT * FROM tokens WHERE id = ?", id)
        if row is None:
            raise KeyError(id)
        return _token(row)

    def of(self, owner: str = "") -> list[Token]:
        """Those of one owner, of all with "", the newest first."""
        rows = self._database.rows(
            "SELECT * FROM tokens WHERE ? = '' OR name = ? ORDER BY created DESC, id", owner, owner
        )
        return [_token(row) for row in rows]

    def revoke_all(self, owner: str) -> int:
        """Those of one owner; gives how many."""
        return self._database.run("DELETE FROM tokens WHERE name = ?", owner)

    def revoke(self, id: str) -> None:
        """Raises KeyError when there is none."""
        if not self._database.run("DELETE FROM tokens WHERE id = ?", id):
            raise KeyError(id)


def _token(row: Row) -> Token:
    acts = json.loads(row["acts"])
    return Token(
        row["id"], row["name"], row["label"],
        tuple(Grant(Role(role), fleet, site) for role, fleet, site in json.loads(row["grants"])),
        None if acts is None else frozenset(acts), row["created"], row["expires"], row["used"],
    )  # fmt: skip
