"""What the controller says at the broker beside the metadata, signed with its own key (role ``rollout``). Pure.

    {"sealed": DOCUMENT, "signature": HEX}      as canonical JSON; Ed25519 over DOMAIN, a purpose, and the document

So nobody who may write at the broker can pretend that a change has come far, or that another controller is at work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from vedette.fleet.documents import canonical
from vedette.system import foreign

DOMAIN = b"vedette controller 1\n"
MAX_BYTES = 4 << 20


def seal(purpose: str, document: Mapping[str, Any], key: Ed25519PrivateKey) -> bytes:
    signature = key.sign(DOMAIN + purpose.encode() + b"\n" + canonical(document))
    return canonical({"sealed": document, "signature": signature.hex()})


def opened(purpose: str, data: bytes, keys: Iterable[Ed25519PublicKey]) -> dict[str, Any] | None:
    """The document; None when it is none, or signed by none of ``keys``."""
    try:
        row = foreign.read(data) if len(data) <= MAX_BYTES else None
        document, signature = row["sealed"], bytes.fromhex(row["signature"])  # type: ignore[index]  # TypeError below
        signed = DOMAIN + purpose.encode() + b"\n" + canonical(document)
    except (ValueError, TypeError, KeyError):
        return None
    for key in keys:
        try:
            key.verify(signature, signed)
        except InvalidSignature:
            continue
        return document if isinstance(document, dict) else None
    return None
