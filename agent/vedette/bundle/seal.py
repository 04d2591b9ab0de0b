"""The signature of a bundle: a record of fixed size at the head of the file, over a digest of all that follows it.

    bytes    field
    0-15     b"vedette-bundle-2"
    16-23    size of the body, little-endian
    24-55    SHA-256 of the body
    56-183   fleet that it is for, ASCII, filled up with NUL; empty: for no fleet, see below
    184-311  channel of that fleet, in the same way
    312-319  the signer's key, the first 8 bytes of the SHA-256 of its 32 bytes
    320-383  Ed25519 signature of bytes 0-319
    384-     the body: a zip archive (``manifest.py``)

So a reader takes 384 bytes, one signature and one digest before it parses anything that somebody else wrote, and what
it parses then is what the signer wrote. A bundle for a fleet is not taken by an agent of another fleet or channel: a
broker, or who has its rights, cannot pass it on. One for no fleet is taken only as a file that somebody with access to
the host has put there, never from a broker: so releases carry their starter rules.

One build can be signed for several fleets: the digest that identifies a rule set is of its manifest, in the body.
"""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Iterable
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from vedette.system.within import is_name

MAGIC = b"vedette-bundle-2"
_STATEMENT = struct.Struct("<16sQ32s128s128s8s")
SIZE = _STATEMENT.size + 64
"""Bytes of the record."""
MAX_BODY = 64 << 20
"""Bytes of the archive."""
MAX_BUNDLE = SIZE + MAX_BODY
"""Bytes of the file."""
_KEY_PREFIX = "ed25519:"


class BundleRefused(ValueError):
    """The bundle may not be used; the text says why."""


class Sealed(NamedTuple):
    """A record: whose signature it is, for whom, and what was signed."""

    key: str
    """The trusted key, ``ed25519:BASE64``; empty when read without trust, or unsigned."""
    fleet: str
    channel: str
    body: memoryview


def seal(body: bytes | memoryview, key: Ed25519PrivateKey, fleet: str = "", channel: str = "") -> bytes:
    """The bundle of ``body`` signed for ``fleet`` and ``channel``. Raises ValueError for names that are none."""
    return b"".join((record(len(body), hashlib.sha256(body).digest(), key, fleet, channel), body))


def record(size: int, sha256: bytes, key: Ed25519PrivateKey, fleet: str = "", channel: str = "") -> bytes:
    """The ``SIZE`` bytes before a body of that size and digest. Raises ValueError for names that are none."""
    if bool(fleet) != bool(channel):
        raise ValueError("fleet and channel go together")
    for what, name in (("fleet", fleet), ("channel", channel)):
        if name and not is_name(name):
            raise ValueError(
                f"{what}: expects letters, digits, '_', '-' or '.' (at most 128, no '.' first), not {name!r}"
            )
    statement = _STATEMENT.pack(MAGIC, size, sha256, fleet.encode(), channel.encode(), _key_id(key.public_key()))
    return statement + key.sign(statement)


def unseal(data: bytes, trusted: Iterable[str]) -> Sealed:
    """The body of ``data``, once a key of ``trusted`` is known to have signed it. Raises BundleRefused."""
    if data[: len(MAGIC)] != MAGIC:
        raise BundleRefused("it is not signed, or by an earlier release: sign it with `vedette bundle sign`")
    _whole(data)
    body = memoryview(data)[SIZE:]
    return verified(data[:SIZE], len(body), hashlib.sha256(body).digest(), trusted)._replace(body=body)


def verified(head: bytes, size: int, sha256: bytes, trusted: Iterable[str]) -> Sealed:
    """What the record ``head`` states, without a body, once a key of ``trusted`` is known to have signed it for a body
    of that size and digest. Raises BundleRefused."""
    if len(head) < SIZE:
        raise BundleRefused("it is cut off within its signature: fetch it again")
    _, signed_size, signed_sha256, _, _, wanted = _STATEMENT.unpack_from(head)
    if signed_size != size:
        raise BundleRefused(f"it has {size} bytes and not the {signed_size} that were signed: fetch it again")
    key = next((key for key in trusted if _key_id(public_key(key)) == wanted), None)
    if key is None:
        raise BundleRefused(f"signed by key {wanted.hex()}, which is not among bundles.trusted_keys")
    changed = f"the signature by key {wanted.hex()} does not fit: it was damaged or changed after signing"
    try:
        public_key(key).verify(head[_STATEMENT.size : SIZE], head[: _STATEMENT.size])
    except InvalidSignature:
        raise BundleRefused(changed) from None
    if signed_sha256 != sha256:
        raise BundleRefused(changed)
    return Sealed(key, *names(head), memoryview(b""))


def body_size(head: bytes) -> int:
    """Bytes that a record states for what follows it, believed from nobody; 0 when it is cut off."""
    return int(_STATEMENT.unpack_from(head)[1]) if len(head) >= SIZE else 0


def names(head: bytes) -> tuple[str, str]:
    """Fleet and channel that a record states, believed from nobody. Raises BundleRefused."""
    _, _, _, fleet, channel, _ = _STATEMENT.unpack_from(head)
    return _name(fleet), _name(channel)


def read(data: bytes) -> Sealed:
    """What ``data`` states, believed from nobody; a bundle without a record is one for no fleet. Raises BundleRefused
    for what is too large, or of another size than stated."""
    if data[: len(MAGIC)] != MAGIC:
        if len(data) > MAX_BODY:
            raise BundleRefused(f"{len(data)} bytes are more than the {MAX_BODY} a bundle may have")
        return Sealed("", "", "", memoryview(data))
    _whole(data)
    return Sealed("", *names(data), memoryview(data)[SIZE:])


def _whole(data: bytes) -> None:
    """Raises BundleRefused unless the size is the true one."""
    if len(data) > MAX_BUNDLE:
        raise BundleRefused(f"{len(data)} bytes are more than the {MAX_BUNDLE} a bundle may have")
    if len(data) < SIZE:
        raise BundleRefused("it is cut off within its signature: fetch it again")
    _, size, *_ = _STATEMENT.unpack_from(data)
    if size != len(data) - SIZE:
        raise BundleRefused(f"it has {len(data) - SIZE} bytes and not the {size} that were signed: fetch it again")


def _name(field: bytes) -> str:
    text = field.rstrip(b"\0").decode("ascii", "replace")
    if text and not is_name(text):
        raise BundleRefused(f"it is signed for {text!r}, which is no name of a fleet or a channel")
    return text


def public_key(text: str) -> Ed25519PublicKey:
    """The key in ``ed25519:BASE64``; raises ValueError."""
    try:
        raw = base64.b64decode(text.removeprefix(_KEY_PREFIX), validate=True)
        if text.startswith(_KEY_PREFIX) and len(raw) == 32:
            return Ed25519PublicKey.from_public_bytes(raw)
    except ValueError:
        pass
    raise ValueError(f'not a public key: {text[:80]!r}; expects "ed25519:" and 44 characters of base64')


def key_text(key: Ed25519PublicKey) -> str:
    """``ed25519:BASE64`` of a public key."""
    return _KEY_PREFIX + base64.b64encode(key.public_bytes_raw()).decode()


def _key_id(key: Ed25519PublicKey) -> bytes:
    return hashlib.sha256(key.public_bytes_raw()).digest()[:8]
