"""Users: their name, password, grants and preferences. A name is never given to another person: removal is final for
the audit log, where it goes on standing for whom it stood.

A user without a password logs in by a one-time link or by the OpenID provider, whose users never have one. These have
the role that the provider gives, everywhere, until an admin grants them something else; that stays as it is, holds up
to the provider's role, and gives way to it when an admin says so. The last admin cannot be removed, disabled or
lowered.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from vedette.model.times import lasts
from vedette.system.wallclock import utc_now
from vedette_console.security.principal import Grant, Role, limited
from vedette_console.store.database import Conflict, Database, Row

NAME = r"[A-Za-z0-9_](?:[A-Za-z0-9_.@-]{0,62}[A-Za-z0-9_])?"
PLACE = r"\*|[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,62}[A-Za-z0-9_])?"
"""Names of users; of fleets and sites in grants."""
MAX_GRANTS = 100


@dataclass(frozen=True, slots=True)
class User:
    """``password``: its hash, "" for none; ``subject``: issuer and subject at the OpenID provider, None for a local
    user; ``created``, ``confirmed`` (the last login by the provider): UTC microseconds; ``granted``: the grants as they
    were given, ``follows``: by the provider, not an admin; ``provided``: its role, None: it gives none."""

    name: str
    password: str
    subject: str | None
    disabled: bool
    created: int
    granted: tuple[Grant, ...]
    preferences: dict[str, Any]
    confirmed: int = 0
    follows: bool = False
    provided: Role | None = None

    @property
    def grants(self) -> tuple[Grant, ...]:
        """What they may: what was granted, up to the provider's role."""
        return limited(self.granted, [Grant(self.provided)]) if self.provided is not None else self.granted

    def confirmed_within(self, within: float, now: int) -> bool:
        """Whether the provider has let them in within so many seconds; of a local user always."""
        return self.subject is None or lasts(self.confirmed, round(within * 1e6), now)


class LastAdmin(ValueError):
    """Nobody could administer the console any more."""


class Accounts:
    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, name: str, grants: Iterable[Grant], *, password: str = "", subject: str | None = None) -> User:
        """A new user; ``password``: a hash. Raises ValueError for a bad name, Conflict for one in use, or once used."""
        if not re.fullmatch(NAME, name):
            raise ValueError(f"a user's name has 1 to 64 letters, digits and .@_- within, not {name[:80]!r}")
        with self._database.transaction("users"):
            if self._database.first("SELECT name FROM gone WHERE name = ?", name) is not None:
                raise Conflict(f"{name} was the name of a user who was removed")
            self._database.run(
                "INSERT INTO users (name, password, subject, disabled, created, preferences, follows)"
                " VALUES (?, ?, ?, 0, ?, '{}', ?)",
                name, password, subject, utc_now(), int(subject is not None),
            )  # fmt: skip
            self._grant(name, grants)
            return self.get(name)

    def get(self, name: str) -> User:
        """Raises KeyError when there is none."""
        row = self._database.first("SELECT * FROM users WHERE name = ?", name)
        if row is None:
            raise KeyError(name)
        return self._user(row)

    def find(self, subject: str) -> User | None:
        """The user of an OpenID subject."""
        row = self._database.first("SELECT * FROM users WHERE subject = ?", subject)
        return None if row is None else self._user(row)

    def all(self) -> list[User]:
        return [self._user(row) for row in self._database.rows("SELECT * FROM users ORDER BY name")]

    def administered(self) -> bool:
        """Whether anybody may administer the console."""
        return (
            self._database.first(
                "SELECT users.name FROM users JOIN grants ON grants.name = users.name"
                " WHERE role = 'admin' AND fleet = '*' AND site = '*' AND disabled = 0"
                " AND (provided IS NULL OR provided = 'admin') LIMIT 1"
            )
            is not None
        )

    def first(self) -> User | None:
        """A first admin, named ``admin`` or, when that is in use, after it; None when there is one already."""
        with self._database.transaction("users"):
            if self.administered():
                return None
            gone = self._database.rows("SELECT name FROM gone")
            names = {user.name for user in self.all()} | {row["name"] for row in gone}
            name = next(name for name in ("admin", *(f"admin-{i}" for i in range(2, 1_000))) if name not in names)
            return self.add(name, [Grant(Role.ADMIN)])

    def grant(self, name: str, grants: Iterable[Grant]) -> User:
        """Replace the grants of a user; the same ones leave the provider's the provider's. Raises KeyError, ValueError
        and LastAdmin."""
        wanted = tuple(grants)
        with self._database.transaction("users"):
            user = self.get(name)
            if user.follows and {*wanted} == {*user.granted}:
                return user
            self._database.run("UPDATE users SET follows = 0 WHERE name = ?", name)
            return self._replace(name, wanted)

    def follow(self, name: str, follows: bool) -> User:
        """Whether the provider's role is this user's, from now on; without one it comes with the next login. Raises
        KeyError, LastAdmin, and ValueError for a local user."""
        with self._database.transaction("users"):
            user = self.get(name)
            if user.subject is None:
                raise ValueError(f"{name} is no user of the OpenID provider")
            self._database.run("UPDATE users SET follows = ? WHERE name = ?", int(follows), name)
            return self._replace(name, [Grant(user.provided)] if follows and user.provided else user.granted)

    def set_role(self, name: str, role: Role | None) -> User:
        """The provider gives this user ``role`` now; None: it gives no roles. Raises KeyError and LastAdmin."""
        with self._database.transaction("users"):
            user = self.get(name)
            self._database.run("UPDATE users SET provided = ? WHERE name = ?", role and str(role), name)
            if user.follows and role is not None:
                return self._replace(name, [Grant(role)])
            self._still_administered()
            return self.get(name)

    def disable(self, name: str, disabled: bool) -> User:
        """Raises KeyError and LastAdmin. A disabled user's sessions and tokens are refused from now on."""
        with self._database.transaction("users"):
            self.get(name)
            self._database.run("UPDATE users SET disabled = ? WHERE name = ?", int(disabled), name)
            self._still_administered()
            return self.get(name)

    def remove(self, name: str) -> None:
        """Remove a user with all sessions and tokens. Raises KeyError and LastAdmin."""
        with self._database.transaction("users"):
            self.get(name)
            self._database.run("DELETE FROM users WHERE name = ?", name)
            self._database.run("INSERT INTO gone (name) VALUES (?)", name)
            self._still_administered()

    def set_password(self, name: str, password: str) -> None:
        """``password``: its hash, "" for none. Raises KeyError, and ValueError for a user of the OpenID provider."""
        with self._database.transaction("users"):
            if self.get(name).subject is not None and password:
                raise ValueError(f"{name} logs in by the OpenID provider, and has no password here")
            self._database.run("UPDATE users SET password = ? WHERE name = ?", password, name)

    def confirm(self, name: str) -> None:
        """The provider has let this user in, now."""
        self._database.run("UPDATE users SET confirmed = ? WHERE name = ?", utc_now(), name)

    def prefer(self, name: str, preferences: Mapping[str, Any]) -> None:
        """Replace the preferences of a user. Raises KeyError."""
        text = json.dumps(preferences, ensure_ascii=False)
        if not self._database.run("UPDATE users SET preferences = ? WHERE name = ?", text, name):
            raise KeyError(name)

    def _replace(self, name: str, grants: Iterable[Grant]) -> User:
        self._database.run("DELETE FROM grants WHERE name = ?", name)
        self._grant(name, grants)
        self._still_administered()
        return self.get(name)

    def _grant(self, name: str, grants: Iterable[Grant]) -> None:
        highest: dict[tuple[str, str], Role] = {}
        for grant in grants:
            place = grant.fleet, grant.site
            if not all(re.fullmatch(PLACE, part) for part in place):
                raise ValueError(
                    f"a grant is for a fleet and a site by name, or *, not {place[0][:80]!r}, {place[1][:80]!r}"
                )
            other = highest.get(place, grant.role)
            highest[place] = grant.role if grant.role.covers(other) else other
        if len(highest) > MAX_GRANTS:
            raise ValueError(f"a user has at most {MAX_GRANTS} grants")
        for (fleet, site), role in highest.items():
            self._database.run(
                "INSERT INTO grants (name, role, fleet, site) VALUES (?, ?, ?, ?)", name, str(role), fleet, site
            )

    def _still_administered(self) -> None:
        if not self.administered():
            raise LastAdmin("this is the last admin of the console: make another one first")

    def _user(self, row: Row) -> User:
        rows = self._database.rows(
            "SELECT role, fleet, site FROM grants WHERE name = ? ORDER BY fleet, site", row["name"]
        )
        grants = tuple(Grant(Role(grant["role"]), grant["fleet"], grant["site"]) for grant in rows)
        return User(
            row["name"], row["password"], row["subject"], bool(row["disabled"]), row["created"], grants,
            json.loads(row["preferences"]), row["confirmed"], bool(row["follows"]),
            Role(row["provided"]) if row["provided"] else None,
        )  # fmt: skip
