"""Passwords by argon2id: slow and large on purpose (64 MB, a quarter of a second), so two at once at most.

They are hashed in two threads of their own. A few may wait for these; who comes then is refused at once, so that a
flood of logins takes neither all memory nor the threads that everything else runs in.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import cache

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

AT_ONCE = 2
WAITING = 20
SHORTEST, LONGEST = 10, 1_024
"""Characters of a password."""

_hasher = PasswordHasher(time_cost=3, memory_cost=65_536, parallelism=1)


class Busy(Exception):
    """Too many passwords are being checked."""


def mistake(password: str, name: str = "") -> str:
    """Why a password is not taken, "" when it is."""
    if len(password) < SHORTEST:
        return f"a password has at least {SHORTEST} characters"
    if len(password) > LONGEST:
        return f"a password has at most {LONGEST:,} characters"
    if name and password.lower() == name.lower():
        return "a password is not the user's name"
    if len(set(password)) < 4:
        return "a password has at least four different characters"
    return ""


def make(password: str) -> str:
    """Its hash. Blocking; for the command line, which makes one at a time."""
    return _hasher.hash(password)


def check(hashed: str, password: str) -> bool:
    """Whether it is the password of the hash; with "", for a user without one or who is unknown, no, and it takes as
    long. Blocking."""
    try:
        return _hasher.verify(hashed or _nobody(), password) and bool(hashed)
    except (VerificationError, InvalidHashError):
        return False


@cache
def _nobody() -> str:
    return _hasher.hash("no one has this password")


class Passwords:
    """``make`` and ``check`` for a server, within the bounds."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(AT_ONCE, "password")
        self._asked = 0

    async def make(self, password: str) -> str:
        """Raises Busy."""
        with self:
            return await asyncio.get_running_loop().run_in_executor(self._threads, make, password)

    async def check(self, hashed: str, password: str) -> bool:
        """Raises Busy."""
        with self:
            return await asyncio.get_running_loop().run_in_executor(self._threads, check, hashed, password)

    def __enter__(self) -> None:
        if self._asked >= AT_ONCE + WAITING:
            raise Busy("too many logins at once")
        self._asked += 1

    def __exit__(self, *_: object) -> None:
        self._asked -= 1

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)
