"""Logging in and out, CSRF, sessions, limits, headers."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from argon2 import PasswordHasher

from tests.certificates import Authority
from tests.console.kit import Console, console
from vedette_console.security import passwords
from vedette_console.security.headers import CSP
from vedette_console.security.passwords import make
from vedette_console.security.principal import Grant, Role
from vedette_console.settings import Limits, Sessions

PASSWORD = "correct horse battery"


def with_ann(folder: Path) -> Iterator[Console]:
    with console(folder) as served:
        served.store.accounts.add("ann", [Grant(Role.ANALYST)], password=make(PASSWORD))
        yield served


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """Of tests that leave ann as she is, and few failed attempts."""
    yield from with_ann(tmp_path_factory.mktemp("console"))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Console]:
    yield from with_ann(tmp_path)


def login(client: httpx2.Client, name: str = "ann", password: str = PASSWORD) -> httpx2.Response:
    return client.post("/api/v1/login", json={"name": name, "password": password})


def test_by_password(shared: Console) -> None:
    """Sets a cookie that scripts of pages cannot read; the answer has the CSRF token of the session."""
    client = shared.client()
    done = login(client)
    assert done.json()["name"] == "ann"
    cookie = done.headers["set-cookie"]
    assert cookie.startswith("vedette=")
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert "Secure" not in cookie
    assert client.get("/api/v1/me").json()["csrf"] == done.json()["csrf"]
    row = shared.store.audit.read(limit=1)[0]
    assert (row.who, row.act, row.outcome, row.address) == ("ann", "login", "done", "127.0.0.1")


def test_what_is_wrong_is_not_said(shared: Console) -> None:
    """A wrong password, no such user and one without a password get the same answer; the audit log knows."""
    for name, password in (("ann", "wrong"), ("nobody", PASSWORD), ("root", PASSWORD), ("ann", " ")):
        refused = login(shared.client(), name, password)
        assert refused.status_code == 401, name
        assert refused.json()["error"] == "the name or the password is wrong", name
        assert "set-cookie" not in refused.headers, name
        row = shared.store.audit.read(limit=1)[0]
        assert (row.who, row.act, row.outcome) == (name, "login", "refused: the name or the password is wrong")


def test_a_disabled_user(served: Console) -> None:
    """Cannot log in, and is out at once."""
    client = served.client()
    login(client)
    served.store.accounts.disable("ann", True)
    assert client.get("/api/v1/me").status_code == 401
    assert login(served.client()).status_code == 401


def test_too_many_attempts(served: Console) -> None:
    """Wait, with the right password too; from this address only, and not in the audit log."""
    assert login(served.client(), password="wrong").status_code == 401
    for _ in range(11):
        served.app.state.attempts.failed("ann", "127.0.0.1", time.monotonic())
    rows = served.store.audit.read(limit=1)[0].seq
    waiting = login(served.client())
    assert waiting.status_code == 429
    assert 1 <= int(waiting.headers["retry-after"]) <= 256
    assert served.store.audit.read(limit=1)[0].seq == rows


def test_many_attempts_at_once_do_not_slip_through(
    served: Console, cheap_passwords: PasswordHasher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of twenty at the same time, while each is looked at for long, no more than the limit are looked at."""
    monkeypatch.setattr(passwords, "_hasher", cheap_passwords)
    seen: list[int] = []
    threads = [
        threading.Thread(target=lambda: seen.append(login(served.client(), password="wrong").status_code))
        for _ in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen.count(401) == 5
    assert seen.count(429) == 15


def test_a_login_replaces_the_session_of_the_browser(shared: Console) -> None:
    """A cookie that somebody planted before is of no use after."""
    client = shared.client()
    login(client)
    before = client.cookies["vedette"]
    login(client)
    assert client.cookies["vedette"] != before
    assert shared.client(cookies={"vedette": before}).get("/api/v1/me").status_code == 401


def test_the_first_admin(served: Console) -> None:
    """A first link makes an admin only while there is none."""
    token = served.store.sessions.offer("", first=True)
    assert served.client().post("/api/v1/login/once", json={"token": token}).status_code == 401
    for user in served.store.accounts.all():
        served.store.database.run("DELETE FROM users WHERE name = ?", user.name)
    client = served.client()
    token = served.store.sessions.offer("", first=True)
    assert client.post("/api/v1/login/once", json={"token": token}).json()["name"] == "admin"
    assert client.get("/api/v1/me").json()["role"] == "admin"


def test_logout(shared: Console) -> None:
    """Ends the session, not only the cookie."""
    ann = shared.session("ann")
    cookie = ann.cookies["vedette"]
    assert ann.post("/api/v1/logout").json() == {"done": True}
    assert shared.client(cookies={"vedette": cookie}).get("/api/v1/me").status_code == 401


def test_csrf(shared: Console) -> None:
    """A change by a cookie needs the token of that session; a read does not, nor does a script with its own token."""
    ann, bob = shared.session("ann"), shared.as_user("bob", "viewer")
    body = {"name": "x", "query": "y"}
    for token in ("", "0" * 64, bob.headers["x-csrf-token"], "ü"):
        refused = ann.post("/api/v1/searches", json=body, headers={"X-CSRF-Token": token.encode()})
        assert refused.status_code == 403
        assert refused.json()["where"] == "X-CSRF-Token"
    del ann.headers["x-csrf-token"]
    assert ann.post("/api/v1/searches", json=body).status_code == 403
    assert ann.get("/api/v1/searches").json()["items"] == []
    assert shared.token("ann").post("/api/v1/searches", json=body).status_code == 200
    assert shared.store.audit.read(limit=2)[1].outcome == "refused: the CSRF token is missing or not this session's"


def test_another_site(shared: Console) -> None:
    """Neither changes anything nor logs anybody in, whatever tokens it brings."""
    body = {"name": "ann", "password": PASSWORD}
    for headers in (
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://127.0.0.1:1"},
    ):
        assert shared.session("ann").post("/api/v1/logout", headers=headers).status_code == 403, headers
        assert shared.client().post("/api/v1/login", json=body, headers=headers).status_code == 403, headers
    assert shared.session("ann").post("/api/v1/logout", headers={"Origin": shared.url}).status_code == 200


def test_sessions_survive_a_restart(tmp_path: Path) -> None:
    """The cookie is good at the next start; the limits of time hold."""
    with console(tmp_path) as served:
        cookie = served.as_user("ann", "viewer").cookies["vedette"]
    with console(tmp_path) as again:
        client = again.client(cookies={"vedette": cookie})
        assert client.get("/api/v1/me").json()["name"] == "ann"
        again.store.database.run("UPDATE sessions SET seen = seen - 43201000000")
        assert client.get("/api/v1/me").status_code == 401


def test_absolute_end(tmp_path: Path) -> None:
    """Also who asks all the time is logged out in the end."""
    with console(tmp_path, sessions=Sessions(idle=100, absolute=200)) as served:
        ann = served.as_user("ann", "viewer")
        served.store.database.run("UPDATE sessions SET created = created - 201000000")
        assert ann.get("/api/v1/me").status_code == 401


def test_own_sessions(served: Console) -> None:
    """One sees where one is logged in, and ends it elsewhere."""
    here, there = served.session("ann"), served.session("ann")
    rows = here.get("/api/v1/me/sessions").json()["items"]
    assert sorted(row["here"] for row in rows) == [False, True]
    other = next(row["id"] for row in rows if not row["here"])
    assert served.as_user("bob", "viewer").delete(f"/api/v1/me/sessions/{other}").status_code == 404
    assert here.delete(f"/api/v1/me/sessions/{other}").status_code == 200
    assert there.get("/api/v1/me").status_code == 401


def test_own_password(served: Console) -> None:
    """Needs the old one; ends all other sessions; is no business of tokens."""
    here, there = served.session("ann"), served.session("ann")
    new = {"old": PASSWORD, "new": "another horse battery"}
    assert here.post("/api/v1/me/password", json={**new, "old": "wrong"}).status_code == 403
    assert here.post("/api/v1/me/password", json={**new, "new": "short"}).json()["where"] == "password"
    assert served.token("ann").post("/api/v1/me/password", json=new).status_code == 403
    assert here.post("/api/v1/me/password", json=new).status_code == 200
    assert here.get("/api/v1/me").status_code == 200
    assert there.get("/api/v1/me").status_code == 401
    assert login(served.client(), password="another horse battery").status_code == 200


def test_a_bad_token_is_nobody(shared: Console) -> None:
    """Also with a good cookie beside it."""
    ann = shared.session("ann")
    for header in ("Bearer vedette_x", "Bearer", "Basic YTpi", "Bearer " + "x" * 5_000):
        assert ann.get("/api/v1/me", headers={"Authorization": header}).status_code == 401


def test_headers(shared: Console) -> None:
    """On every answer: pages, errors, the API, static files."""
    for path in ("/api/v1/me", "/api/v1/login/ways", "/nothing", "/static/nothing", "/api/v1/openapi.json"):
        headers = shared.client().get(path).headers
        assert headers["content-security-policy"] == CSP
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert "server" not in headers
    assert "unsafe" not in CSP
    assert shared.client().get("/api/v1/me").headers["cache-control"] == "no-store"


def test_large_bodies(tmp_path: Path) -> None:
    """Are refused by their length, and while they come without one."""
    with console(tmp_path, limits=Limits(body_bytes=1_000)) as served:
        ann = served.as_user("ann", "viewer")
        body = {"name": "x", "query": "y" * 1_000}
        assert ann.post("/api/v1/searches", json=body).status_code == 413

        def pieces() -> Iterator[bytes]:
            for _ in range(20):
                yield b" " * 100

        assert ann.post("/api/v1/searches", content=pieces()).status_code == 413
        assert ann.post("/api/v1/searches", json={"name": "x", "query": "y"}).status_code == 200


def test_over_tls(tmp_path: Path) -> None:
    """The cookie is for HTTPS and this host only."""
    authority = Authority(tmp_path / "ca")
    cert, key = authority.issue("console")
    with console(tmp_path, cert_file=cert, key_file=key) as served:
        served.store.accounts.add("ann", [Grant(Role.VIEWER)], password=make(PASSWORD))
        with httpx2.Client(
            base_url=served.url,
            verify=ssl.create_default_context(cafile=str(authority.ca)),
            trust_env=False,
            timeout=60,
        ) as client:
            done = login(client)
            assert done.headers["set-cookie"].startswith("__Host-vedette=")
            assert "Secure" in done.headers["set-cookie"]
            assert "max-age" in done.headers["strict-transport-security"]
            assert client.get("/api/v1/me").json()["name"] == "ann"
