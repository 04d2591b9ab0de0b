"""Keys and signatures of bundles: Ed25519 (RFC 8032); a private key is a PKCS #8 PEM file that only its owner reads."""

from __future__ import annotations

import os
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from vedette.bundle.seal import key_text, read, seal
from vedette.bundle.trust import inspect
from vedette.fleet.certificates import key_pem


def keygen(path: Path) -> str:
    """Write a new private key to ``path`` (mode 0600) and return its public key, ``ed25519:BASE64``.

    Raises FileExistsError rather than replace a key, and OSError.
    """
    key = Ed25519PrivateKey.generate()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(key_pem(key))
        file.flush()
        os.fsync(file.fileno())
    return public_text(key)


def read_private(path: Path) -> bytes:
    """The file of a private key. Raises PermissionError when others than the owner may read or write it, OSError."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_mode & 0o077:
            raise PermissionError(f"{path}: a private key must be for its owner only: chmod 600 {path}")
        return file.read(64 << 10)


def load_key(path: Path) -> Ed25519PrivateKey:
    """The private key in ``path``.

    Raises PermissionError when others than the owner may read or write it, ValueError when it is not an unencrypted
    Ed25519 key, OSError when it cannot be read.
    """
    data = read_private(path)
    try:
        key = load_pem_private_key(data, password=None)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: not an unencrypted private key in PEM form: {error}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError(f"{path}: not an Ed25519 key; make one with `vedette bundle keygen`")
    return key


def public_text(key: Ed25519PrivateKey) -> str:
    """The public key of ``key`` as an agent's ``bundles.trusted_keys`` takes it."""
    return key_text(key.public_key())


def sign(data: bytes, key: Ed25519PrivateKey, fleet: str = "", channel: str = "") -> bytes:
    """The bundle ``data`` signed by ``key`` for ``fleet`` and ``channel``, or for no fleet (``bundle/seal.py``); a
    signature that it has is replaced. Raises BundleRefused, and ValueError for names that are none."""
    inspect(data)
    return seal(read(data).body, key, fleet, channel)
