"""What tests of the console begin with: a database of each kind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from argon2 import PasswordHasher

from tests.broker import own_port
from tests.waits import DEADLINE, pauses
from vedette_console.security import passwords
from vedette_console.store.database import PostgreSQL, open_database
from vedette_console.store.store import migrate


@pytest.fixture(scope="session", autouse=True)
def cheap_passwords() -> Iterator[PasswordHasher]:
    """Hash passwords at the least cost in this process; the hasher of the product, whose cost one test checks."""
    with pytest.MonkeyPatch.context() as patch:
        ordinary = passwords._hasher
        patch.setattr(passwords, "_hasher", PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
        yield ordinary


def _program(name: str) -> str | None:
    """Debian keeps the server's programs out of the path."""
    paths = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(paths[-1]) if paths else shutil.which(name)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """The address of a PostgreSQL server on loopback, started for the tests; skipped where there is none."""
    initdb, postgres = _program("initdb"), _program("postgres")
    if initdb is None or postgres is None:
        pytest.skip("no PostgreSQL server: apt-get install postgresql")
    port = own_port()
    folder = Path(tempfile.mkdtemp(prefix="vedette-postgresql-", dir="/tmp"))
    as_user: list[str] = []
    if os.geteuid() == 0:  # it refuses to run as root
        shutil.chown(folder, "postgres")
        as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    data = str(folder / "data")
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
    try:
        command = [*as_user, initdb, "-D", data, "-A", "trust", "-U", "vedette", "-E", "UTF8", "--no-sync"]
        subprocess.run(command, check=True, capture_output=True, env=environment, cwd="/")
        options = ["-p", str(port), "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-k", str(folder)]
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen(
                [*as_user, postgres, "-D", data, *options], stdout=log, stderr=log, env=environment, cwd="/"
            )
        try:
            url = f"postgresql://vedette@127.0.0.1:{port}/postgres"
            _until_it_answers(url, server)
            yield url
        finally:
            server.send_signal(signal.SIGINT)  # it waits for no client
            server.wait(DEADLINE)
    finally:
        shutil.rmtree(folder)


def _until_it_answers(url: str, server: subprocess.Popen[bytes]) -> None:
    for pause in pauses():
        assert server.poll() is None, "PostgreSQL ended"
        try:
            PostgreSQL(url).close()
        except OSError:
            time.sleep(pause)
        else:
            return
    raise AssertionError("PostgreSQL does not answer")


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
