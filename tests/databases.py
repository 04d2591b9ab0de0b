"""Database servers for tests: a real PostgreSQL and a real MariaDB, each on a loopback port of its own, with data that
no one keeps. ``tls``: certificate and key, without which it speaks in the clear; ``password``: of the user ``vedette``,
without which anybody is let in."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.broker import own_port
from tests.waits import DEADLINE, pauses

Tls = tuple[Path, Path]


def _program(name: str) -> str | None:
    """Debian keeps the servers' programs out of the path."""
    paths = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(paths[-1]) if paths else shutil.which(name) or shutil.which(name, path="/usr/sbin")


@contextmanager
def _folder(user: str, tls: Tls | None) -> Iterator[tuple[Path, list[str]]]:
    """A folder of the server's, with its certificate and key, and what runs a command as its user: neither of the two
    runs as root."""
    folder, as_user = Path(tempfile.mkdtemp(prefix=f"vedette-{user}-", dir="/tmp")), list[str]()
    try:
        for name, path in zip(("cert.pem", "key.pem"), tls or (), strict=False):
            (folder / name).write_bytes(path.read_bytes())
            (folder / name).chmod(0o600)
        if os.geteuid() == 0:
            for path in (folder, *folder.iterdir()):
                shutil.chown(path, user)
            as_user = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        yield folder, as_user
    finally:
        shutil.rmtree(folder)


@contextmanager
def _serving(command: Sequence[str], folder: Path, port: int, stop: int) -> Iterator[None]:
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd="/")
    try:
        for pause in pauses():
            assert server.poll() is None, (folder / "log").read_text(errors="replace")[-2000:]
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(pause)
        yield
    finally:
        server.send_signal(stop)
        server.wait(DEADLINE)


@contextmanager
def postgresql(tls: Tls | None = None, password: str = "") -> Iterator[str]:
    """Its address, as libpq takes it; the test is skipped where there is no server."""
    initdb, postgres = _program("initdb"), _program("postgres")
    if initdb is None or postgres is None:
        pytest.skip("no PostgreSQL server: apt-get install postgresql")
    port = own_port()
    with _folder("postgres", tls) as (folder, as_user):
        (folder / "password").write_text(f"{password or 'none'}\n")
        (folder / "password").chmod(0o644)
        data, way = str(folder / "data"), "scram-sha-256" if password else "trust"
        command = [*as_user, initdb, "-D", data, "-A", way, "-U", "vedette", "-E", "UTF8", "--no-sync",
                   f"--pwfile={folder / 'password'}"]  # fmt: skip
        environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
        subprocess.run(command, check=True, capture_output=True, env=environment, cwd="/")
        options = ["-p", str(port), "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-k", str(folder)]
        if tls is not None:
            files = {"ssl": "on", "ssl_cert_file": folder / "cert.pem", "ssl_key_file": folder / "key.pem"}
            options += [word for name, value in files.items() for word in ("-c", f"{name}={value}")]
        with _serving([*as_user, postgres, "-D", data, *options], folder, port, signal.SIGINT):  # it waits for none
            url = f"postgresql://vedette{f':{password}' if password else ''}@127.0.0.1:{port}/postgres"
            _until_it_answers(url)
            yield url


def _until_it_answers(url: str) -> None:
    import psycopg

    for pause in pauses():
        with suppress(psycopg.OperationalError):
            psycopg.connect(url).close()
            return
        time.sleep(pause)
    raise AssertionError("PostgreSQL does not answer")


@contextmanager
def mariadb(tls: Tls | None = None, password: str = "") -> Iterator[int]:
    """Its port; there are the user ``vedette``, with all rights, and the database ``test``. The test is skipped where
    there is no server."""
    server = _program("mariadbd")
    if server is None:
        pytest.skip("no MariaDB server: apt-get install mariadb-server")
    port = own_port()
    with _folder("mysql", tls) as (folder, as_user):
        (folder / "start.sql").write_text(
            "CREATE DATABASE IF NOT EXISTS test;\n"
            f"CREATE USER vedette@'127.0.0.1' IDENTIFIED BY '{password}';\n"
            "GRANT ALL ON *.* TO vedette@'127.0.0.1';\n"
        )
        (folder / "start.sql").chmod(0o644)
        data = f"--datadir={folder / 'data'}"
        command = ["mariadb-install-db", "--no-defaults", data, "--auth-root-authentication-method=normal",
                   "--skip-test-db", f"--tmpdir={folder}"]  # fmt: skip
        subprocess.run([*as_user, *command], check=True, capture_output=True, cwd="/")
        options = ["--no-defaults", data, f"--port={port}", "--bind-address=127.0.0.1", f"--socket={folder}/socket",
                   f"--init-file={folder / 'start.sql'}", f"--pid-file={folder}/pid", f"--tmpdir={folder}",
                   "--skip-name-resolve", "--innodb-flush-log-at-trx-commit=0"]  # fmt: skip
        if tls is not None:
            options += [f"--ssl-cert={folder / 'cert.pem'}", f"--ssl-key={folder / 'key.pem'}"]
        with _serving([*as_user, server, *options], folder, port, signal.SIGTERM):
            yield port
