"""Who is logged in, over restarts: a random cookie, of which only the hash is stored, and one-time links.

A session ends after ``idle`` seconds without a request and ``absolute`` seconds after the login, whichever is first,
and at once when its user logs out, is removed or disabled, or gets another password. A one-time link is good once, for
``once`` seconds; it ends with all sessions of its user.
"""

from __future__ import annotations

from dataclasses import dataclass

from vedette.system.wallclock import utc_now
from vedette_console.settings import Sessions as Times
from vedette_console.store import secret
from vedette_console.store.database import Database

TOUCH = 60_000_000
"""Microseconds after which a further request is noted as the last: not each request writes."""


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
        cookie, now = secret.new(), utc_now()
        self._database.run("DELETE FROM sessions WHERE seen < ? OR created < ?", now - self._idle, now - self._absolute)
        self._database.run(
            "INSERT INTO sessions (hash, name, created, seen, address, browser) VALUES (?, ?, ?, ?, ?, ?)",
            secret.digest(cookie), name, now, now, address, browser[:200],
        )  # fmt: skip
        return cookie

    def check(self, cookie: str, now: int | None = None) -> str | None:
        """The name of the user whose session it is, None when it is over or there is none."""
        now = utc_now() if now is None else now
        key = secret.digest(cookie)
        row = self._database.one("SELECT name, created, seen FROM sessions WHERE hash = ?", key)
        if row is None or row["seen"] + self._idle < now or row["created"] + self._absolute < now:
            return None
        if row["seen"] + min(TOUCH, self._idle // 2) < now:
            self._database.run("UPDATE sessions SET seen = ? WHERE hash = ?", now, key)
        return str(row["name"])

    def end(self, cookie: str) -> None:
        self._database.run("DELETE FROM sessions WHERE hash = ?", secret.digest(cookie))

    def end_all(self, name: str, *, but: str = "") -> int:
        """End all sessions of a user, except that of the cookie ``but``, and one-time links; gives how many
        sessions."""
        self._database.run("DELETE FROM once WHERE name = ?", name)
        return self._database.run("DELETE FROM sessions WHERE name = ? AND hash != ?", name, secret.digest(but))

    def end_one(self, name: str, id: str) -> bool:
        """End a session of a user by its ``id``."""
        return bool(self._database.run("DELETE FROM sessions WHERE name = ? AND substr(hash, 1, 16) = ?", name, id))

    def of(self, name: str) -> list[Session]:
        """The sessions of a user, the last used first."""
        rows = self._database.rows("SELECT * FROM sessions WHERE name = ? ORDER BY seen DESC", name)
        return [
            Session(row["hash"][:16], row["name"], row["created"], row["seen"], row["address"], row["browser"])
            for row in rows
        ]

    def offer(self, name: str, *, first: bool = False) -> str:
        """A one-time link's secret. ``first``: it is for the first admin, who is made when it is used."""
        token, now = secret.new(), utc_now()
        self._database.run("DELETE FROM once WHERE until < ?", now)
        self._database.run(
            "INSERT INTO once (hash, name, first, until) VALUES (?, ?, ?, ?)",
            secret.digest(token), name, int(first), now + self._once,
        )  # fmt: skip
        return token

    def redeem(self, token: str, now: int | None = None) -> tuple[str, bool] | None:
        """The name for which a one-time secret was made, and whether it is for the first admin; None when it was used,
        is too old or none. It is used up."""
        now = utc_now() if now is None else now
        rows = self._database.rows("DELETE FROM once WHERE hash = ? RETURNING name, first, until", secret.digest(token))
        return None if not rows or rows[0]["until"] < now else (rows[0]["name"], bool(rows[0]["first"]))
