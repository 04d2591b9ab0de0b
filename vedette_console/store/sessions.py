"""Who is logged in, over restarts, and who asks by a token. A secret has 256 random bits, of which only the SHA-256 is
kept: it cannot be guessed, so one round of a plain hash is enough; passwords are another
thing (``security.passwords``).

A session ends after ``idle`` seconds without a request and ``absolute`` seconds after the login, whichever is first,
and at once when its user logs out, is removed or disabled, or gets another password. A one-time link is good once, for
``once`` seconds; it ends with all sessions of its user. What began, or was used, under a clock that was ahead is over
when the clock is right again (``model.times.lasts``).

A token never gives more than its owner has at that moment; it may be limited to places, to a role and to some acts,
and may expire. Its text, ``vedette_…``, is shown once.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass

from vedette.model.times import lasts
from vedette.system.wallclock import utc_now
from vedette_console.security.principal import ACTS, Grant, Role
from vedette_console.settings import Sessions as Times
from vedette_console.store.database import Database, Row


def new_secret(prefix: str = "") -> str:
    return prefix + secrets.token_urlsafe(32)


def digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def new_id() -> str:
    """A random id that needs no secrecy: 16 hexadecimal digits."""
    return secrets.token_hex(8)


TOUCH = 60_000_000
"""Microseconds after which a further request by a session or a token is noted as the last: not each request writes."""


@dataclass(frozen=True, slots=True)
class Session:
    """``id``: the first 16 digits of the cookie's hash; times in UTC microseconds."""

    id: str
    name: str
    created: int
    seen: int
    address: str
    browser: str


class Sessions:
    def __init__(self, database: Database, times: Times) -> None:
        self._database = database
        self._idle, self._absolute, self._once = (round(x * 1e6) for x in (times.idle, times.absolute, times.once))

    def start(self, name: str, *, address: str = "", browser: str = "") -> str:
        """Log a user in; gives the cookie. Sessions that are over are removed."""
        cookie, now = new_secret(), utc_now()
        self._database.run(
            "DELETE FROM sessions WHERE seen < ? OR created < ?", now - self._idle, now - self._absolute
        )  # those of a clock that is ahead stay: it may be this one that is behind
        self._database.run(
            "INSERT INTO sessions (hash, name, created, seen, address, browser) VALUES (?, ?, ?, ?, ?, ?)",
            digest(cookie), name, now, now, address, browser[:200],
        )  # fmt: skip
        return cookie

    def check(self, cookie: str, now: int | None = None) -> str | None:
        """The name of the user whose session it is, None when it is over or there is none."""
        now = utc_now() if now is None else now
        key = digest(cookie)
        row = self._database.first("SELECT name, created, seen FROM sessions WHERE hash = ?", key)
        if row is None or not (lasts(row["seen"], self._idle, now) and lasts(row["created"], self._absolute, now)):
            return None
        if row["seen"] + min(TOUCH, self._idle // 2) < now:
            self._database.run("UPDATE sessions SET seen = ? WHERE hash = ?", now, key)
        return str(row["name"])

    def end(self, cookie: str) -> None:
        self._database.run("DELETE FROM sessions WHERE hash = ?", digest(cookie))

    def end_all(self, name: str, *, but: str = "") -> int:
        """End all sessions of a user, except that of the cookie ``but``, and one-time links; gives how many
        sessions."""
        self._database.run("DELETE FROM once WHERE name = ?", name)
        return self._database.run("DELETE FROM sessions WHERE name = ? AND hash != ?", name, digest(but))

    def end_one(self, name: str, id: str) -> bool:
        """End a session of a user by its ``id``."""
        return bool(self._database.run("DELETE FROM sessions WHERE name = ? AND substr(hash, 1, 16) = ?", name, id))

    def of(self, name: str) -> list[Session]:
        """The sessions of a user, the last used first."""
        columns = "substr(hash, 1, 16) AS id, name, created, seen, address, browser"
        rows = self._database.rows(f"SELECT {columns} FROM sessions WHERE name = ? ORDER BY seen DESC", name)
        return [Session(**row) for row in rows]

    def offer(self, name: str, *, first: bool = False) -> str:
        """A one-time link's secret. ``first``: it is for the first admin, who is made when it is used."""
        token, now = new_secret(), utc_now()
        self._database.run("DELETE FROM once WHERE until < ?", now)
        self._database.run(
            "INSERT INTO once (hash, name, first, until) VALUES (?, ?, ?, ?)",
            digest(token), name, int(first), now + self._once,
        )  # fmt: skip
        return token

    def redeem(self, token: str, now: int | None = None) -> tuple[str, bool] | None:
        """The name for which a one-time secret was made, and whether it is for the first admin; None when it was used,
        is too old or none. It is used up."""
        now = utc_now() if now is None else now
        rows = self._database.rows("DELETE FROM once WHERE hash = ? RETURNING name, first, until", digest(token))
        good = rows and lasts(rows[0]["until"] - self._once, self._once, now)
        return (rows[0]["name"], bool(rows[0]["first"])) if good else None


PREFIX = "vedette_"
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
        text, id = new_secret(PREFIX), new_id()
        places = [[str(grant.role), grant.fleet, grant.site] for grant in grants]
        with self._database.transaction("tokens"):
            if len(self.of(owner)) >= MAX_TOKENS:
                raise ValueError(f"{owner} has {MAX_TOKENS} tokens: revoke one first")
            self._database.run(
                "INSERT INTO tokens (id, hash, name, label, grants, acts, created, expires)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                id, digest(text), owner, label, json.dumps(places), json.dumps(chosen), utc_now(), expires,
            )  # fmt: skip
        return self.get(id), text

    def check(self, text: str, now: int | None = None) -> Token | None:
        """The token of this text; None when there is none or it has expired."""
        now = utc_now() if now is None else now
        row = self._database.first("SELECT * FROM tokens WHERE hash = ?", digest(text))
        if row is None:
            return None
        if row["expires"] is not None and not lasts(row["created"], row["expires"] - row["created"], now):
            return None
        if row["used"] is None or abs(now - row["used"]) > TOUCH:
            self._database.run("UPDATE tokens SET used = ? WHERE id = ?", now, row["id"])
        return _token(row)

    def get(self, id: str) -> Token:
        """Raises KeyError when there is none."""
        row = self._database.first("SELECT * FROM tokens WHERE id = ?", id)
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
