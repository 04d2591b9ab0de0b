"""The limit on logins keeps out who guesses, not who may come in."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.console.kit import console
from vedette_console.security import passwords
from vedette_console.security.limits import LARGEST, Attempts
from vedette_console.security.passwords import Busy, Passwords
from vedette_console.security.principal import Grant, Role


def test_good_logins_count_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many of an office, behind one address."""
    monkeypatch.setattr(passwords, "check", lambda hashed, password: password == "right")
    with console(tmp_path) as served:
        for number in range(60):
            name = f"user{number % 30}"
            served.user(name, Grant(Role.VIEWER))
            answer = served.client().post("/api/v1/login", json={"name": name, "password": "right"})
            assert answer.status_code == 200, number


def test_a_console_that_is_busy_counts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def busy(self: Passwords, hashed: str, password: str) -> bool:
        raise Busy("too many logins at once")

    with console(tmp_path) as served:
        with monkeypatch.context() as patched:
            patched.setattr(Passwords, "check", busy)
            for _ in range(10):
                answer = served.client().post("/api/v1/login", json={"name": "root", "password": "x"})
                assert answer.status_code == 503
        assert served.client().post("/api/v1/login", json={"name": "root", "password": "x"}).status_code == 401


def test_strangers_do_not_shut_out_who_is_known_at_an_address() -> None:
    """Neither from everywhere by the name, nor from the same address by other names; elsewhere the name waits."""
    attempts = Attempts(5, 900)
    attempts.failed("ann", "1", 0)
    attempts.succeeded("ann", "1")
    for number in range(200):
        attempts.failed("ann", f"other {number}", 1)
        attempts.failed(f"user{number}", "1", 1)
    assert attempts.wait("ann", "1", 1) == attempts.wait("ANN", "1", 1) == 0
    assert attempts.wait("ann", "2", 1) > 0
    assert attempts.wait("bob", "1", 1) > 0
    for _ in range(5):
        attempts.failed("ann", "1", 2)
    assert attempts.wait("ann", "1", 2) > 0, "who is known may not guess for ever"


def test_a_success_takes_back_no_failure_of_others() -> None:
    """Who has one good password does not go on guessing others by it."""
    attempts = Attempts(5, 900)
    for number in range(19):
        attempts.failed(f"user{number}", "1", 0)
        attempts.failed("mallory", "1", 0)
        attempts.succeeded("mallory", "1")
    attempts.failed("user19", "1", 0)
    assert attempts.wait("user20", "1", 0) > 0


def test_an_ipv6_network_is_one_address() -> None:
    """Who has one address of it has all; what is no address is taken as it is."""
    attempts = Attempts(5, 900)
    for number in range(20):
        attempts.failed(f"user{number}", f"2001:db8::{number:x}", 0)
        attempts.failed(f"user{number}", "unknown:1", 0)
    assert attempts.wait("another", "2001:db8::ffff", 0) > 0
    assert attempts.wait("another", "2001:db8:0:1::1", 0) == 0
    assert attempts.wait("another", "unknown:1", 0) > 0


def test_who_is_known_is_bounded() -> None:
    attempts = Attempts(5, 900)
    for number in range(LARGEST + 5):
        attempts.succeeded(f"user{number}", "1")
    assert len(vars(attempts)["_at_home"]) == LARGEST
