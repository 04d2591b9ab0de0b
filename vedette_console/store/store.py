"""All that the console keeps of its own, opened together."""

from __future__ import annotations

from dataclasses import dataclass

from vedette_console.settings import Settings
from vedette_console.store.accounts import Accounts
from vedette_console.store.audit import Audit
from vedette_console.store.database import Database, open_database
from vedette_console.store.saved import Choices, Searches
from vedette_console.store.schema import migrate
from vedette_console.store.sessions import Sessions
from vedette_console.store.tokens import Tokens


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
