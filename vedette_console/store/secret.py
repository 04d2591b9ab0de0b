"""Secrets that the console hands out: 256 random bits, of which only the SHA-256 is kept.

Such a secret cannot be guessed, so one round of a plain hash is enough; passwords are another thing
(``security.passwords``).
"""

from __future__ import annotations

import hashlib
import secrets


def new(prefix: str = "") -> str:
    return prefix + secrets.token_urlsafe(32)


def digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def name() -> str:
    """A random id that needs no secrecy: 16 hexadecimal digits."""
    return secrets.token_hex(8)
