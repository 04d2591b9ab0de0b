"""What tests of the console begin with: a database of each kind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from argon2 import PasswordHasher

from tests import databases
from vedette_console.security import passwords
from vedette_console.store.database import open_database
from vedette_console.store.store import migrate


@pytest.fixture(scope="session", autouse=True)
def cheap_passwords() -> Iterator[PasswordHasher]:
    """Hash passwords at the least cost in this process; the hasher of the product, whose cost one test checks."""
    with pytest.MonkeyPatch.context() as patch:
        ordinary = passwords._hasher
        patch.setattr(passwords, "_hasher", PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
        yield ordinary


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """The address of a PostgreSQL server on loopback, started for the tests; skipped where there is none."""
    with databases.postgresql() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'console.db'}"
    address: str = request.getfixturevalue("postgresql")
    name = f"test_{os.urandom(6).hex()}"
    server = open_database(address)
    server.run(f"CREATE DATABASE {name}")
    server.close()
    return address.rpartition("/")[0] + f"/{name}"


@pytest.fixture
def database(url: str) -> Iterator[object]:
    """It, with the console's tables."""
    database = open_database(url)
    migrate(database)
    yield database
    database.close()
