"""The command: it serves, prints a first login, keeps users on the command line, and refuses what is unsafe."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx2
import pytest
from click.testing import CliRunner, Result

from tests.broker import own_port
from tests.console.kit import WAIT
from vedette.cli.main import main
from vedette_console.server import _bound


def vedette(folder: Path, *arguments: str, entered: str = "") -> Result:
    """``vedette region console`` over the database in a folder."""
    database = f"sqlite:{folder / 'console.db'}"
    return CliRunner().invoke(main, ["region", "console", "--database", database, *arguments], input=entered)


def started(folder: Path, *options: str) -> subprocess.Popen[str]:
    """A console that begins, in a process of its own."""
    command = [sys.executable, "-m", "vedette", "region", "console", "--database", f"sqlite:{folder / 'console.db'}"]
    return subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True, cwd=folder)


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[None]:
    """A console that has answered, and ends well when it is asked to."""
    running = started(folder, *options)
    assert running.stdout is not None
    try:
        line = running.stdout.readline()
        assert line.startswith("console"), line
        yield
    finally:
        running.send_signal(signal.SIGTERM)
        assert running.wait(WAIT) == 0
        running.stdout.close()


def test_the_first_login_and_a_kill(tmp_path: Path) -> None:
    """An empty console prints a link that makes the first admin, once; the command line makes others. After kill -9 the
    session goes on, everything that was answered is there, and the audit log is whole."""
    # Over 3 s: the command begins twice, in a process of its own.
    port = own_port()
    listen = ("--listen", f"127.0.0.1:{port}")
    running = started(tmp_path, *listen)
    assert running.stdout is not None
    assert running.stdout.readline().startswith("console")
    line = running.stdout.readline()
    match = re.search(r"(http://127.0.0.1:\d+)/login/once\?token=(\S+)", line)
    assert match is not None, line
    with httpx2.Client(base_url=match[1], trust_env=False, timeout=WAIT) as client:
        login = client.post("/api/v1/login/once", json={"token": match[2]}).json()
        assert login["name"] == "admin"
        for number in range(20):
            body = {"name": f"search {number}", "query": "x"}
            answer = client.post("/api/v1/searches", json=body, headers={"X-CSRF-Token": login["csrf"]})
            assert answer.status_code == 200
        running.kill()
        running.wait(WAIT)
        running.stdout.close()
        with serving(tmp_path, *listen):
            assert client.get("/api/v1/me").json()["role"] == "admin"
            assert client.get("/api/v1/searches").json()["total"] == 20
            assert client.post("/api/v1/login/once", json={"token": match[2]}).status_code == 401
            token = vedette(tmp_path, "user", "login", "admin").stdout.rpartition("token=")[2].strip()
            assert client.post("/api/v1/login/once", json={"token": token}).json()["name"] == "admin"
    assert "whole" in vedette(tmp_path, "audit", "verify").stdout


def test_users_on_the_command_line(tmp_path: Path) -> None:
    """Added, listed, granted, removed; each act stands in the audit log."""
    assert "login, once" in vedette(tmp_path, "user", "add", "root", "--role", "admin").stdout
    done = vedette(tmp_path, "user", "add", "ann", "--site", "vienna", "--password", entered="correct horse battery\n")
    assert (done.exit_code, done.stdout) == (0, "ann: viewer of fleet *, site vienna\n")
    assert "operator plants/*" in vedette(tmp_path, "user", "grant", "ann", "operator", "--fleet", "plants").stdout
    vedette(tmp_path, "user", "grant", "ann", "none", "--site", "vienna")
    listed = [json.loads(line) for line in vedette(tmp_path, "user", "list", "--json").stdout.splitlines()]
    assert listed[0] == {"name": "ann", "origin": "local", "disabled": False, "grants": ["operator plants/*"],
                         "password": True}  # fmt: skip
    assert vedette(tmp_path, "user", "password", "ann", entered="short\n").exit_code == 2
    assert vedette(tmp_path, "user", "password", "ann", entered="another horse battery\n").exit_code == 0
    assert "last admin" in vedette(tmp_path, "user", "remove", "root").stderr
    assert vedette(tmp_path, "user", "remove", "ann").exit_code == 0
    missing = vedette(tmp_path, "user", "login", "ann")
    assert (missing.exit_code, "no user 'ann'" in missing.stderr) == (2, True)
    rows = [json.loads(line) for line in vedette(tmp_path, "audit", "export").stdout.splitlines()]
    assert [row["what"]["request"] for row in rows] == [
        "user add", "user add", "user grant", "user grant", "user password", "user remove",
    ]  # fmt: skip
    assert "horse" not in repr(rows)


def test_an_export_is_verified(tmp_path: Path) -> None:
    """Also elsewhere, and against a hash that was noted."""
    for name in ("root", "ann"):
        vedette(tmp_path, "user", "add", name, "--role", "admin")
    export = tmp_path / "audit.ndjson"
    export.write_text(vedette(tmp_path, "audit", "export").stdout)
    noted = vedette(tmp_path, "audit", "verify", str(export)).stdout.rpartition("noted: ")[2].strip()
    assert vedette(tmp_path, "audit", "verify", "--noted", noted).exit_code == 0
    export.write_text(export.read_text().replace('"ann"', '"bob"'))
    broken = vedette(tmp_path, "audit", "verify", str(export))
    assert (broken.exit_code, broken.stdout) == (1, "row 2: it was changed; 1 rows before it are whole\n")
    export.write_text(export.read_text().splitlines(keepends=True)[0])
    cut = vedette(tmp_path, "audit", "verify", str(export), "--noted", noted)
    assert "the log ends before row 2" in cut.stdout
    assert vedette(tmp_path, "audit", "verify", "--noted", "x").exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--listen", "0.0.0.0:8470"], "plain text"),
        (["--listen", "8470"], "expects HOST:PORT"),
        (["--tls-cert", "x.pem"], "go together"),
        (["--oidc-issuer", "https://x", "--oidc-role", "x=king"], "expects VALUE=ROLE"),
        (["--config", "missing.toml"], "missing.toml"),
        (["--broker", "http://x"], "expects"),
    ],
)
def test_what_is_refused(tmp_path: Path, arguments: list[str], message: str) -> None:
    """With the option that it is about, before anything is opened."""
    done = vedette(tmp_path, *arguments)
    assert done.exit_code == 2
    assert message in done.stderr


def test_options_in_a_file(tmp_path: Path) -> None:
    """A file of options; the command line goes before it; a key that is none is named."""
    config = tmp_path / "console.toml"
    config.write_text('listen = "0.0.0.0:1"\noidc-role = ["a=viewer", "b=admin"]\ninsecure = false\n')
    assert "--listen 0.0.0.0:1" in vedette(tmp_path, "-c", str(config)).stderr
    assert "HOST:PORT" in vedette(tmp_path, "-c", str(config), "--listen", "x").stderr
    config.write_text("speed = 1\n")
    assert "no option 'speed'" in vedette(tmp_path, "-c", str(config)).stderr


@pytest.mark.long
def test_an_address_that_is_taken(tmp_path: Path) -> None:
    """Is named."""
    with serving(tmp_path, "--listen", f"127.0.0.1:{(port := own_port())}"):
        command = [sys.executable, "-m", "vedette", "region", "console", "--listen", f"127.0.0.1:{port}"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=WAIT, check=False)
        assert done.returncode == 2
        assert f"127.0.0.1:{port}: Address already in use" in done.stderr


async def test_answers_are_not_held_back() -> None:
    """What is sent in pieces goes out at once: with Nagle's delay each page of a kept connection took 40 ms more."""
    accepted: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.set_result(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    with closing(_bound("127.0.0.1", 0)) as listening:
        async with await asyncio.start_server(client, sock=listening):
            _, writer = await asyncio.open_connection(*listening.getsockname())
            assert await accepted == 1
            writer.close()
