"""Signed lookups: the record of a bundle (``bundle/seal.py``) before the file, over a digest of all that follows.

The same keys sign both; what follows the record says which of the two it is. A lookup may be larger than memory, so the
file is read in pieces.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from vedette.bundle import seal
from vedette.bundle.seal import BundleRefused, Sealed
from vedette.lookup.layout import LookupRefused
from vedette.lookup.table import Lookup
from vedette.system.durable import sync_path

_PIECE = 1 << 20


def sign(path: Path, target: Path, key: Ed25519PrivateKey, fleet: str = "", channel: str = "") -> None:
    """Write the lookup in ``path`` to ``target`` with a record by ``key``, for ``fleet`` and ``channel`` or for none; a
    record that it has is replaced. Raises LookupRefused, ValueError for names that are none, OSError."""
    with Lookup.open(path, native=False) as found:
        if (part := found.damaged()) is not None:
            raise LookupRefused(f"its part {part} is damaged: build it again")
    temporary = target.with_name(f".{target.name}.tmp")
    with path.open("rb") as source:
        size, digest = _body(source)
        record = seal.record(size, digest, key, fleet, channel)
        source.seek(-size, os.SEEK_END)
        with temporary.open("wb") as file:
            file.write(record)
            while piece := source.read(_PIECE):
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
    temporary.rename(target)
    sync_path(target.parent)


def verify(path: Path, trusted: Iterable[str]) -> Sealed:
    """Who signed the lookup in ``path``, and for whom, once a key of ``trusted`` is known to have signed all of it.

    Raises LookupRefused and OSError. The file is read whole; its sections need no further check.
    """
    with path.open("rb") as source:
        head = source.read(seal.SIZE)
        if head[: len(seal.MAGIC)] != seal.MAGIC:
            raise LookupRefused("it is not signed: sign it with `vedette lookup sign`")
        size, digest = _body(source)
    try:
        sealed = seal.verified(head, size, digest, trusted)
    except BundleRefused as error:
        raise LookupRefused(str(error)) from None
    Lookup.open(path, native=False).close()
    return sealed


def stated(path: Path) -> tuple[str, str] | None:
    """Fleet and channel of a signed lookup, believed from nobody; None when it is not signed."""
    with path.open("rb") as source:
        head = source.read(seal.SIZE)
    if head[: len(seal.MAGIC)] != seal.MAGIC or len(head) < seal.SIZE:
        return None
    try:
        return seal.names(head)
    except BundleRefused as error:
        raise LookupRefused(str(error)) from None


def _body(source: BinaryIO) -> tuple[int, bytes]:
    """Size and SHA-256 of what follows the record, or of the whole file."""
    source.seek(0)
    head = source.read(len(seal.MAGIC))
    source.seek(seal.SIZE if head == seal.MAGIC else 0)
    size, digest = 0, hashlib.sha256()
    while piece := source.read(_PIECE):
        size += len(piece)
        digest.update(piece)
    return size, digest.digest()
