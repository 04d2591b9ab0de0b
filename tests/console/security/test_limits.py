"""Limits on logins, and what makes a password."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from argon2 import PasswordHasher

from vedette_console.security import passwords
from vedette_console.security.limits import LARGEST, Attempts
from vedette_console.security.oidc import local
from vedette_console.security.passwords import AT_ONCE, WAITING, Busy, Passwords


def test_a_name_at_an_address() -> None:
    """After the limit each attempt waits twice as long; a success forgets; the window forgets."""
    attempts = Attempts(5, 900)
    for _ in range(4):
        attempts.failed("ann", "1", 0)
    assert attempts.wait("ann", "1", 0) == 0
    attempts.failed("ann", "1", 0)
    assert attempts.wait("ann", "1", 0) == 2
    attempts.failed("ANN", "1", 3)
    assert attempts.wait("ann", "1", 3) == 4
    assert attempts.wait("ann", "1", 7) == 0
    assert attempts.wait("ann", "2", 3) == 0, "elsewhere the name is free"
    assert attempts.wait("bob", "1", 3) == 0
    attempts.succeeded("ann", "1")
    assert attempts.wait("ann", "1", 3) == 0
    for _ in range(40):
        attempts.failed("ann", "1", 10)
    assert attempts.wait("ann", "1", 10) == 900
    assert attempts.wait("ann", "1", 911) == 0


def test_an_address_that_tries_many_names() -> None:
    attempts = Attempts(5, 900)
    for number in range(20):
        attempts.failed(f"user{number}", "1", 0)
    assert attempts.wait("another", "1", 0) > 0
    assert attempts.wait("another", "2", 0) == 0


def test_a_name_from_many_addresses() -> None:
    attempts = Attempts(5, 900)
    for number in range(50):
        attempts.failed("ann", str(number), 0)
    assert attempts.wait("ann", "another", 0) > 0


def test_what_is_remembered_is_bounded() -> None:
    attempts = Attempts(5, 900)
    for number in range(LARGEST):
        attempts.failed(f"user{number}", f"address{number}", 0)
    assert len(vars(attempts)["_failed"]) == LARGEST


def test_passwords(cheap_passwords: PasswordHasher, monkeypatch: pytest.MonkeyPatch) -> None:
    """The right one is taken, a wrong one and that of nobody are not; the hash is argon2id's, salted, and dear."""
    monkeypatch.setattr(passwords, "_hasher", cheap_passwords)
    hashed = passwords.make("correct horse battery")
    assert hashed.startswith("$argon2id$v=19$m=65536,t=3,p=1$")
    assert hashed != passwords.make("correct horse battery")
    assert passwords.check(hashed, "correct horse battery")
    assert not passwords.check(hashed, "correct horse batterz")
    assert not passwords.check("", "no one has this password")
    assert not passwords.check("nonsense", "x")


async def test_two_hashes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Further ones wait for a thread, and more than that are refused at once."""
    running, most, lock = 0, 0, threading.Lock()

    def slow(hashed: str, password: str) -> bool:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.02)
        with lock:
            running -= 1
        return True

    monkeypatch.setattr(passwords, "check", slow)
    pool = Passwords()
    asked = [pool.check("", "x") for _ in range(AT_ONCE + WAITING + 5)]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert most == AT_ONCE
    assert sum(isinstance(answer, Busy) for answer in answers) == 5
    assert await pool.check("", "x")
    pool.close()


@pytest.mark.parametrize(
    ("path", "safe"),
    [
        ("/alerts?q=level:high", "/alerts?q=level:high"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("https://evil.example", "/"),
        ("javascript:alert(1)", "/"),
        ("/a\nSet-Cookie: x", "/"),
        ("/\t/evil.example", "/"),
        ("", "/"),
    ],
)
def test_where_one_goes_after_a_login(path: str, safe: str) -> None:
    """Only to a path of the console."""
    assert local(path) == safe
