"""Keys and signatures of bundles: Ed25519 (RFC 8032); a private key is a PKCS #8 PEM file that only its owner reads."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from vedette.bundle.manifest import MANIFEST, SIGNATURE
from vedette.bundle.trust import inspect, key_id, key_text
from vedette.region.build import archive


def keygen(path: Path) -> str:
    """Write a new private key to ``path`` (mode 0600) and return its public key, ``ed25519:BASE64``.

    Raises FileExistsError rather than replace a key, and OSError.
    """
    key = Ed25519PrivateKey.generate()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        file.flush()
        os.fsync(file.fileno())
    return public_text(key)


def load_key(path: Path) -> Ed25519PrivateKey:
    """The private key in ``path``.

    Raises PermissionError when others than the owner may read or write it, ValueError when it is not an unencrypted
    Ed25519 key, OSError when it cannot be read.
    """
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_mode & 0o077:
            raise PermissionError(f"{path}: a signing key must be for its owner only: chmod 600 {path}")
        data = file.read(64 << 10)
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


def sign(data: bytes, key: Ed25519PrivateKey) -> bytes:
    """The bundle ``data`` with a signature by ``key``; one that it has is replaced. Raises BundleRefused."""
    bundle = inspect(data)
    signature = {
        "key_id": key_id(public_text(key)),
        "signature": base64.b64encode(key.sign(bundle.manifest_bytes)).decode(),
    }
    return archive(
        {
            MANIFEST: bundle.manifest_bytes,
            SIGNATURE: json.dumps(signature, indent=1).encode() + b"\n",
            **bundle.parts,
        }
    )
