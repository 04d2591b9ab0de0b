"""Passwords by argon2id: slow and large on purpose (64 MB, a quarter of a second), so two at once at most.

They are hashed in two threads of their own. A few may wait for these; who comes then is refused at once, so that a
flood of logins takes neither all memory nor the threads that everything else runs in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

AT_ONCE = 2
WAITING = 20
SHORTEST, LONGEST = 12, 1_024
"""Characters of a password."""
COMMON = (
    "password", "passwort", "passw", "pass", "kennwort", "admin", "administrator", "root", "user", "login", "welcome",
    "willkommen", "letmein", "changeme", "secret", "geheim", "default", "test", "iloveyou", "sunshine", "princess",
    "dragon", "monkey", "football", "baseball", "master", "superman", "batman", "trustno", "access", "abc", "qwerty",
    "qwertz", "azerty", "asdf", "zxcv", "yxcv", "summer", "winter", "spring", "autumn", "sommer", "monday", "vedette",
    "correcthorsebatterystaple",
)  # fmt: skip
"""Of which those that others guess first are put together, with digits and signs for letters and between them."""
ROWS = ("01234567890", "abcdefghijklmnopqrstuvwxyz", "qwertyuiop", "qwertzuiop", "asdfghjkl", "zxcvbnm", "yxcvbnm")
OTHERS = 8
_AS_LETTERS = str.maketrans("013457@$", "oleastas")

_hasher = PasswordHasher(time_cost=3, memory_cost=65_536, parallelism=1)


class Busy(Exception):
    """Too many passwords are being checked."""


def mistake(password: str, name: str = "") -> str:
    """Why a password is not taken, "" when it is."""
    if len(password) < SHORTEST:
        return f"a password has at least {SHORTEST} characters"
    if len(password) > LONGEST:
        return f"a password has at most {LONGEST:,} characters"
    if len(set(password)) < 4:
        return "a password has at least four different characters"
    if _guessed(password, (*COMMON, name)):
        return "this password is the user's name, or one of those that are guessed first"
    return ""


def _guessed(password: str, words: Iterable[str]) -> bool:
    """Whether it is made of these words, rows of keys, and fewer than ``OTHERS`` digits and signs."""
    text, parts = password.lower(), [part for word in words if (part := _letters(word.lower()))]
    for keys in _neighbours():
        text = text.replace(keys, "")
    return any(
        len(form) - len(_letters(form)) < OTHERS and _made_of(_letters(form), parts)
        for form in (text, text.translate(_AS_LETTERS))
    )


@cache
def _neighbours() -> tuple[str, ...]:
    """Four and more keys of a row, either way, the most first."""
    parts = {
        keys[start:end] for row in ROWS for keys in (row, row[::-1])
        for start in range(len(keys)) for end in range(start + 4, len(keys) + 1)
    }  # fmt: skip
    return tuple(sorted(parts, key=lambda keys: (-len(keys), keys)))


def _made_of(text: str, parts: Iterable[str]) -> bool:
    ends = {0}
    for at in range(len(text)):
        if at in ends:
            ends |= {at + len(part) for part in parts if text.startswith(part, at)}
    return len(text) in ends


def _letters(text: str) -> str:
    return "".join(filter(str.isalpha, text))


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
