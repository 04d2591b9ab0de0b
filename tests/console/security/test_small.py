"""Small ways in: cells of a spreadsheet, passwords, names of users who are gone, names of the console."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.console.kit import WAIT, Console, console
from vedette.fleet.operators import Operator, Operators, read_operators
from vedette_console.data.export import _cell
from vedette_console.middleware import host_of
from vedette_console.security.passwords import mistake
from vedette_console.security.principal import Grant, Role
from vedette_console.store.accounts import Accounts
from vedette_console.store.database import Conflict, Database


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "＝", "＋", "－", "＠", "\t", "\r", "\n"])
def test_no_cell_is_a_formula(begin: str) -> None:
    """Whatever an attacker wrote is a text in a spreadsheet; numbers stay numbers."""
    assert _cell(f"{begin}1+1") == f"'{begin}1+1"
    assert _cell(f"1{begin}") == f"1{begin}"
    assert _cell(-1) == "-1"


@pytest.mark.parametrize(
    "bad",
    [
        "elevenchars", "password1234", "P@ssw0rd!P@ssw0rd", "123456789012", "qwertyuiop12", "Qwertz-Asdf-1",
        "administrator", "LetMeIn!2024", "ann_ann_ann_1", "Ann!Password1", "abcdefghijkl", "210987654321",
        "Correct horse battery staple", "welcome-ann-7", "aaaaaaaaaaaa", "x" * 1_025,
    ],
)  # fmt: skip
def test_passwords_that_are_guessed_first(bad: str) -> None:
    """Short ones, common ones, rows of keys, and the user's name with a little around it."""
    assert mistake(bad, "ann")


@pytest.mark.parametrize(
    "good",
    [
        "several words are good",
        "correct horse battery",
        "tr0ub4dor&3x9",
        "839527164402",
        "пароль из слов",
        "pass" * 256,
    ],
)
def test_passwords_that_are_not(good: str) -> None:
    """The last one is made of a common word, and is told from others at once, however long it is."""
    assert bool(mistake(good, "passpass")) == good.startswith("pass")


def test_a_name_is_given_once(database: Database) -> None:
    """The audit log goes on to say who it was; also the first admin's, and a provider's user gets another."""
    accounts = Accounts(database)
    accounts.add("root", [Grant(Role.ADMIN)])
    accounts.add("admin", [Grant(Role.VIEWER)])
    accounts.remove("admin")
    with pytest.raises(Conflict):
        accounts.add("admin", [Grant(Role.VIEWER)])
    database.run("DELETE FROM grants")
    first = accounts.first()
    assert first is not None
    assert first.name == "admin-2"


def test_a_removed_name_by_the_api(tmp_path: Path) -> None:
    with console(tmp_path) as served:
        root = served.session("root")
        new = {"name": "ann", "grants": [{"role": "viewer"}]}
        assert root.post("/api/v1/users", json=new).status_code == 200
        assert root.delete("/api/v1/users/ann").status_code == 200
        again = root.post("/api/v1/users", json=new)
        assert (again.status_code, again.json()["where"]) == (409, "name")


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("console.example", "console.example"), ("Console.Example.:443", "console.example"), ("[::1]:8470", "::1"),
        ("a@console.example", "console.example"), ("[", ""), ("", ""),
    ],
)  # fmt: skip
def test_the_name_in_a_header(header: str, name: str) -> None:
    assert host_of(header) == name


def asked(served: Console, method: str, path: str, body: Any = None, **headers: str) -> httpx2.Response:
    """The answer to one who comes by another name than the console's own."""
    url = f"http://127.0.0.1:{served.settings.port}"
    with httpx2.Client(base_url=url, headers=headers, trust_env=False, timeout=WAIT) as client:
        return client.request(method, path, json=body)


def test_names_of_the_console(tmp_path: Path) -> None:
    """Where it has a public one it answers to that and to loopback; without one to any. A page of another name, which
    was made to point here, gets nothing, and nothing of it is done."""
    with console(tmp_path, public_url="https://console.example") as served:
        for host, status in (
            ("console.example", 200), ("CONSOLE.example:443", 200), ("127.0.0.1:1", 200), ("localhost", 200),
            ("evil.example", 421), ("console.example.evil.example", 421), ("", 421),
        ):  # fmt: skip
            assert asked(served, "GET", "/login", Host=host).status_code == status, host
        answer = asked(served, "POST", "/api/v1/login", {"name": "root", "password": "x"}, Host="evil.example")
        assert (answer.status_code, answer.json()["where"]) == (421, "Host")
        assert not served.store.audit.read(limit=1)
    with console(tmp_path) as served:
        assert asked(served, "GET", "/login", Host="any.example").status_code == 200


def test_one_host(tmp_path: Path) -> None:
    """A request of HTTP/1.1 has one Host, of HTTP/1.0 one at most."""
    with console(tmp_path) as served:
        for version, hosts, status in (
            ("1.1", "Host: a\r\n", 200), ("1.0", "", 200), ("1.1", "", 400), ("1.1", "Host: a\r\nHost: a\r\n", 400),
            ("1.0", "Host: a\r\nhost: b\r\n", 400),
        ):  # fmt: skip
            with (
                socket.create_connection(("127.0.0.1", served.settings.port), WAIT) as raw,
                raw.makefile("rb") as answer,
            ):
                raw.sendall(f"GET /login HTTP/{version}\r\n{hosts}Connection: close\r\n\r\n".encode())
                assert int(answer.readline().split()[1]) == status, (version, hosts)


def test_behind_a_proxy(tmp_path: Path) -> None:
    """Cookies are for HTTPS only, and so is the console from then on, though the proxy speaks plain HTTP to it."""
    proxied = {"public_url": "https://console.example", "trusted_proxies": ("127.0.0.1",)}
    with console(tmp_path, **proxied) as served:
        forwarded = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "192.0.2.7", "Host": "console.example"}
        token = served.store.sessions.offer("root")
        answer = asked(served, "POST", "/api/v1/login/once", {"token": token}, **forwarded)
        assert answer.status_code == 200
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith("__Host-vedette=")
        assert "secure" in cookie.lower()
        assert answer.headers["strict-transport-security"]
        assert served.store.audit.read(limit=1)[0].address == "192.0.2.7"


def test_one_key_one_operator() -> None:
    """A list in which two names have one key is none: nobody could say who has signed."""
    key = Ed25519PrivateKey.generate().public_key()
    ann, bob = (Operator(name, key, frozenset({"viewer"}), 1_000_000) for name in ("ann", "bob"))
    with pytest.raises(ValueError, match="ann and bob have the same key"):
        Operators("plants", 1, {"ann": ann, "bob": bob})
    good = Operators("plants", 1, {"ann": ann}).to_bytes()
    row = good.decode()
    begin, end = row.index("{", row.index("[")), row.rindex("]")
    twice = f"{row[:end]}, {row[begin:end].replace('ann', 'bob')}{row[end:]}"
    assert read_operators(good, "plants").by_name
    with pytest.raises(ValueError, match="same key"):
        read_operators(twice.encode(), "plants")
