"""One way to SQLite and to PostgreSQL: the same statements mean the same, and what is committed stays."""

from __future__ import annotations

import hashlib
import os
import stat
import threading
from pathlib import Path

import pytest

from vedette_console.store.accounts import Accounts
from vedette_console.store.database import Conflict, Database, Unavailable, open_database
from vedette_console.store.store import STEPS, migrate


def test_rows_and_writes(database: Database) -> None:
    """A parameter is a value, whatever it holds; a second key is a conflict; writes say how many rows they changed."""
    hostile = "'; DROP TABLE settings; -- %s ? ü 💥"
    assert database.run("INSERT INTO settings (key, value) VALUES (?, ?)", hostile, "1") == 1
    assert database.rows("SELECT * FROM settings WHERE key = ?", hostile) == [{"key": hostile, "value": "1"}]
    assert database.first("SELECT value FROM settings WHERE key = ?", "another") is None
    with pytest.raises(Conflict):
        database.run("INSERT INTO settings (key, value) VALUES (?, ?)", hostile, "2")
    assert database.run("UPDATE settings SET value = '3' WHERE key LIKE '%DROP%'") == 1
    assert database.rows("DELETE FROM settings RETURNING value") == [{"value": "3"}]


def test_a_transaction_is_whole(database: Database) -> None:
    """What fails leaves nothing; one within another belongs to it."""
    with pytest.raises(RuntimeError), database.transaction("settings"):  # noqa: PT012
        database.run("INSERT INTO settings (key, value) VALUES ('a', '1')")
        with database.transaction("settings"):
            database.run("INSERT INTO settings (key, value) VALUES ('b', '1')")
        raise RuntimeError
    assert database.rows("SELECT * FROM settings") == []
    with database.transaction():
        database.run("INSERT INTO settings (key, value) VALUES ('a', '1')")
    with pytest.raises(Conflict), database.transaction("settings"):  # noqa: PT012
        database.run("INSERT INTO settings (key, value) VALUES ('b', '1')")
        database.run("INSERT INTO settings (key, value) VALUES ('a', '1')")
    assert [row["key"] for row in database.rows("SELECT key FROM settings")] == ["a"]


def test_one_writes_at_a_time(url: str) -> None:
    """Processes that hold a table within a transaction go one after the other: no increment is lost."""
    first, second = open_database(url), open_database(url)
    migrate(first)
    first.run("INSERT INTO settings (key, value) VALUES ('n', '0')")

    def count(database: Database) -> None:
        for _ in range(50):
            with database.transaction("settings"):
                row = database.first("SELECT value FROM settings WHERE key = 'n'")
                assert row is not None
                database.run("UPDATE settings SET value = ? WHERE key = 'n'", str(int(row["value"]) + 1))

    threads = [threading.Thread(target=count, args=(opened,)) for opened in (first, second, first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert first.first("SELECT value FROM settings WHERE key = 'n'") == {"value": "200"}
    first.close()
    second.close()


def test_migrations_are_applied_once(url: str) -> None:
    """Opened again, nothing changes; a database of a later release is refused."""
    database = open_database(url)
    migrate(database)
    database.run("INSERT INTO settings (key, value) VALUES ('kept', '1')")
    migrate(database)
    assert database.rows("SELECT value FROM settings") == [{"value": "1"}]
    database.run("INSERT INTO migrations (step) VALUES (?)", len(STEPS) + 1)
    with pytest.raises(ValueError, match="later release"):
        migrate(database)
    database.close()


def test_a_step_is_never_changed() -> None:
    """A database that has it does not get it again: what is new is a step of its own, with a row here."""
    assert [hashlib.sha256("\n".join(step).encode()).hexdigest()[:16] for step in STEPS] == [
        "cc4931395f8868d4",
        "94c9faaf29ac6633",
        "1bacb17f392850dc",
    ]


@pytest.mark.parametrize("done", [1, 2])
def test_users_of_the_provider_of_before_follow_it(url: str, done: int) -> None:
    """Those with one role everywhere, which the provider's was, in a database of any step; what an admin placed, who
    has logged in since, and local users, stay."""
    database = open_database(url)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vedette_console.store.store.STEPS", STEPS[:done])
        migrate(database)
    grants = {
        "ann": ["viewer */*"],
        "bob": ["viewer */*", "analyst */vienna"],
        "vic": ["viewer */vienna"],
        "local": ["viewer */*"],
        "since": ["viewer */*"],
    }
    for name, rows in grants.items():
        database.run(
            "INSERT INTO users (name, password, subject, disabled, created, preferences) VALUES (?, '', ?, 0, 1, '{}')",
            name, None if name == "local" else f"provider {name}",
        )  # fmt: skip
        for role, place in map(str.split, rows):
            database.run("INSERT INTO grants VALUES (?, ?, ?, ?)", name, role, *place.split("/"))
    if done == 2:
        database.run("UPDATE users SET provided = 'admin' WHERE name = 'since'")
    migrate(database)
    users = Accounts(database).all()
    follow = {"ann": True, "bob": False, "local": False, "since": done == 1, "vic": False}
    assert {user.name: user.follows for user in users} == follow
    database.close()


def test_a_lost_connection(postgresql: str) -> None:
    """The next statement opens it again; one that writes says that nobody knows."""
    database, other = open_database(postgresql), open_database(postgresql)
    kill = "SELECT pg_terminate_backend(?)"
    pid = database.first("SELECT pg_backend_pid() AS pid")
    assert pid is not None
    other.rows(kill, pid["pid"])
    assert database.first("SELECT 1 AS one") == {"one": 1}
    pid = database.first("SELECT pg_backend_pid() AS pid")
    assert pid is not None
    other.rows(kill, pid["pid"])
    with pytest.raises(Unavailable):
        database.run("CREATE TEMP TABLE x (a TEXT)")
    assert database.first("SELECT 1 AS one") == {"one": 1}
    database.close()
    other.close()


def test_the_file_is_its_owners(tmp_path: Path) -> None:
    """Nobody else reads hashes of passwords, whatever the umask."""
    before = os.umask(0)
    try:
        open_database(f"sqlite:{tmp_path / 'a' / 'console.db'}").close()
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a" / "console.db").stat().st_mode) == 0o600


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    """It names the file or the server; another kind of address is refused."""
    (tmp_path / "garbage.db").write_bytes(b"no database" * 100)
    with pytest.raises(Unavailable, match="garbage"):
        open_database(f"sqlite:{tmp_path / 'garbage.db'}")
    with pytest.raises(Unavailable, match="PostgreSQL"):
        open_database("postgresql://x@127.0.0.1:1/x")
    with pytest.raises(ValueError, match="expects sqlite"):
        open_database("mysql://x")
