"""All that the console keeps of its own, opened together, and its tables brought to this release's.

``STEPS`` are applied in order, each once and whole; a step that was released is never changed, a new one is added.
"""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import HTTPConnection

from vedette_console.settings import Settings
from vedette_console.store.accounts import Accounts
from vedette_console.store.audit import Audit
from vedette_console.store.database import Database, open_database
from vedette_console.store.saved import Choices, Searches
from vedette_console.store.sessions import Sessions, Tokens

STEPS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE users (name TEXT PRIMARY KEY, password TEXT NOT NULL, subject TEXT UNIQUE,"
        " disabled BIGINT NOT NULL, created BIGINT NOT NULL, preferences TEXT NOT NULL,"
        " confirmed BIGINT NOT NULL DEFAULT 0)",
        "CREATE TABLE gone (name TEXT PRIMARY KEY)",
        "CREATE TABLE grants (name TEXT NOT NULL REFERENCES users (name) ON DELETE CASCADE, role TEXT NOT NULL,"
        " fleet TEXT NOT NULL, site TEXT NOT NULL, PRIMARY KEY (name, fleet, site))",
        "CREATE TABLE sessions (hash TEXT PRIMARY KEY, name TEXT NOT NULL REFERENCES users (name) ON DELETE CASCADE,"
        " created BIGINT NOT NULL, seen BIGINT NOT NULL, address TEXT NOT NULL, browser TEXT NOT NULL)",
        "CREATE INDEX sessions_of ON sessions (name)",
        "CREATE TABLE once (hash TEXT PRIMARY KEY, name TEXT NOT NULL, first BIGINT NOT NULL, until BIGINT NOT NULL)",
        "CREATE TABLE tokens (id TEXT PRIMARY KEY, hash TEXT NOT NULL UNIQUE,"
        " name TEXT NOT NULL REFERENCES users (name) ON DELETE CASCADE, label TEXT NOT NULL, grants TEXT NOT NULL,"
        " acts TEXT NOT NULL, created BIGINT NOT NULL, expires BIGINT, used BIGINT)",
        "CREATE TABLE searches (id TEXT PRIMARY KEY, owner TEXT NOT NULL REFERENCES users (name) ON DELETE CASCADE,"
        " name TEXT NOT NULL, query TEXT NOT NULL, shared BIGINT NOT NULL, created BIGINT NOT NULL,"
        " UNIQUE (owner, name))",
        "CREATE TABLE settings (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
        "CREATE TABLE audit (seq BIGINT PRIMARY KEY, at BIGINT NOT NULL, who TEXT NOT NULL, act TEXT NOT NULL,"
        " what TEXT NOT NULL, outcome TEXT NOT NULL, address TEXT NOT NULL, previous TEXT NOT NULL,"
        " hash TEXT NOT NULL)",
        "CREATE INDEX audit_who ON audit (who, seq)",
        "CREATE INDEX audit_act ON audit (act, seq)",
    ),
    (
        "ALTER TABLE users ADD COLUMN provided TEXT",
        "ALTER TABLE users ADD COLUMN follows BIGINT NOT NULL DEFAULT 0",
    ),
    (
        # Until the columns before, each login set the provider's role: of who has not logged in since, what is one role
        # everywhere is the provider's.
        "UPDATE users SET follows = 1 WHERE subject IS NOT NULL AND provided IS NULL AND name IN (SELECT name"
        " FROM grants GROUP BY name HAVING count(*) = 1 AND max(fleet) = '*' AND max(site) = '*')",
    ),
)


def migrate(database: Database) -> None:
    """Bring the tables to this release's. Raises ValueError for a database of a later one."""
    database.run("CREATE TABLE IF NOT EXISTS migrations (step BIGINT PRIMARY KEY)")
    with database.transaction("migrations"):
        row = database.first("SELECT max(step) AS step FROM migrations")
        done = 0 if row is None or row["step"] is None else int(row["step"])
        if done > len(STEPS):
            raise ValueError("the console's database was written by a later release: install that one")
        for number, step in enumerate(STEPS[done:], done + 1):
            for statement in step:
                database.run(statement)
            database.run("INSERT INTO migrations (step) VALUES (?)", number)


@dataclass(frozen=True, slots=True)
class Store:
    database: Database
    accounts: Accounts
    sessions: Sessions
    tokens: Tokens
    searches: Searches
    choices: Choices
    audit: Audit

    def close(self) -> None:
        self.database.close()


def store_of(request: HTTPConnection) -> Store:
    """The store of the application."""
    store: Store = request.app.state.store
    return store


def open_store(settings: Settings) -> Store:
    """The store of ``settings.database``, its tables brought to this release's. Raises Unavailable, and ValueError
    for a database of a later release."""
    database = open_database(settings.database)
    try:
        migrate(database)
    except BaseException:
        database.close()
        raise
    return Store(
        database, Accounts(database), Sessions(database, settings.sessions), Tokens(database), Searches(database),
        Choices(database), Audit(database),
    )  # fmt: skip
