"""Signed lookups: the record of a bundle (``bundle/seal.py``) and a list of digests before the file.

    0-383    the record, over size and SHA-256 of the list
    384-     the list: b"VDBLOCKS", the size of what follows (u32), msgpack; then NUL up to a multiple of 64
    then     the file, as it was built (``layout.py``)

The list names the lookup, its version and build time, the file's size and the SHA-256 of each of its blocks of
``BLOCK`` bytes. So the signature covers a few kilobytes, whoever has these can check each block by itself as it
arrives, in any order, and a file larger than memory is signed and verified in pieces. The same keys sign bundles; what
follows the record says which of the two it is.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgpack
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from vedette.bundle import seal
from vedette.bundle.seal import BundleRefused
from vedette.lookup.layout import NAME, LookupRefused
from vedette.lookup.table import Lookup
from vedette.system.durable import sync_path

BLOCK = 1 << 20
"""Bytes of a block; the last one may be shorter."""
MAX_BLOCKS = 1 << 14
MAX_SIZE = MAX_BLOCKS * BLOCK
"""Bytes of a lookup that is signed."""
_LIST = struct.Struct("<8sI")
_MAGIC = b"VDBLOCKS"
MAX_HEAD = seal.SIZE + 64 * MAX_BLOCKS
"""Bytes before the file, at most."""


class Signed(NamedTuple):
    """What is before a signed lookup's file."""

    name: str
    version: str
    """Of the lookup, in hex."""
    created: int
    """When it was built, UTC microseconds: the order of versions."""
    rows: int
    size: int
    """Of the file without ``head``."""
    digests: bytes
    """SHA-256 of each block, one behind the other."""
    fleet: str
    channel: str
    """Whom it is for; both empty: for no fleet."""
    head: bytes
    """Record and list as they were signed."""

    def __len__(self) -> int:
        """How many blocks there are."""
        return len(self.digests) // 32

    def span(self, block: int) -> tuple[int, int]:
        """Where the block begins in the file, and its size."""
        start = block * BLOCK
        return start, min(BLOCK, self.size - start)

    def digest(self, block: int) -> bytes:
        return self.digests[32 * block : 32 * block + 32]

    def fits(self, block: int, data: bytes) -> bool:
        return len(data) == self.span(block)[1] and hashlib.sha256(data).digest() == self.digest(block)


def sign(path: Path, target: Path, key: Ed25519PrivateKey, fleet: str = "", channel: str = "") -> None:
    """Write the lookup in ``path`` to ``target``, signed by ``key`` for ``fleet`` and ``channel`` or for none; a
    signature that it has is replaced. Raises LookupRefused, ValueError for names that are none, OSError."""
    temporary = target.with_name(f".{target.name}.tmp")
    with Lookup.open(path, native=False) as lookup, path.open("rb") as source:
        if (part := lookup.damaged()) is not None:
            raise LookupRefused(f"its part {part} is damaged: build it again")
        start = body_at(source)
        head = head_for(lookup, source, start, key, fleet, channel)
        with temporary.open("wb") as file:
            file.write(head)
            for piece in _pieces(source, start):
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
    temporary.rename(target)
    sync_path(target.parent)


def head_for(
    lookup: Lookup, source: BinaryIO, start: int, key: Ed25519PrivateKey, fleet: str = "", channel: str = ""
) -> bytes:
    """Record and list for ``lookup``, whose file lies in ``source`` from ``start`` on. Raises as ``sign``."""
    size = source.seek(0, os.SEEK_END) - start
    if size > MAX_SIZE:
        raise LookupRefused(f"{size} bytes are more than the {MAX_SIZE} a signed lookup may have: split the table")
    listed = bytes(
        msgpack.packb(
            {
                "name": lookup.name,
                "version": lookup.version,
                "created": lookup.header.created,
                "rows": lookup.header.rows,
                "size": size,
                "block": BLOCK,
                "blocks": b"".join(hashlib.sha256(piece).digest() for piece in _pieces(source, start)),
            }
        )
    )
    body = _LIST.pack(_MAGIC, len(listed)) + listed
    return seal.seal(body + bytes(-(seal.SIZE + len(body)) % 64), key, fleet, channel)


def _pieces(source: BinaryIO, start: int) -> Iterator[bytes]:
    source.seek(start)
    while piece := source.read(BLOCK):
        yield piece


def body_at(source: BinaryIO) -> int:
    """Where the lookup itself begins in a file, signed or not. Raises LookupRefused."""
    source.seek(0)
    start = source.read(seal.SIZE)
    return len(start) + seal.body_size(start) if start[: len(seal.MAGIC)] == seal.MAGIC else 0


def head_of(source: BinaryIO) -> bytes:
    """What is before the lookup in a signed file. Raises LookupRefused."""
    size = body_at(source)
    if not size:
        raise LookupRefused("it is not signed: sign it with `vedette lookup sign`")
    if size > MAX_HEAD:
        raise LookupRefused("what is before it is longer than it may be: sign it again")
    source.seek(0)
    head = source.read(size)
    if len(head) < size:
        raise LookupRefused("it is cut off: copy it again")
    return head


def opened(head: bytes, trusted: Iterable[str] | None) -> Signed:
    """What ``head`` (record and list) states, once a key of ``trusted`` is known to have signed it; None: believed from
    nobody. Raises LookupRefused."""
    if head[: len(seal.MAGIC)] != seal.MAGIC:
        raise LookupRefused("it is not signed: sign it with `vedette lookup sign`")
    try:
        sealed = seal.read(head) if trusted is None else seal.unseal(head, trusted)
    except BundleRefused as error:
        raise LookupRefused(str(error)) from None
    body = bytes(sealed.body)
    if body[: len(_MAGIC)] != _MAGIC:
        raise LookupRefused("what is signed is no lookup of this format: sign it again with `vedette lookup sign`")
    _, size = _LIST.unpack_from(body)
    try:
        header = msgpack.unpackb(body[_LIST.size : _LIST.size + size])
        signed = Signed(
            header["name"], header["version"], header["created"], header["rows"], header["size"], header["blocks"],
            sealed.fleet, sealed.channel, head,
        )  # fmt: skip
        count = -(-signed.size // BLOCK)
        if header["block"] != BLOCK or count > MAX_BLOCKS or len(signed.digests) != 32 * count or signed.created < 0:
            raise ValueError("blocks of another size or number")
        if not NAME.fullmatch(signed.name) or len(signed.version) != 64 or int(signed.version, 16) < 0:
            raise ValueError(f"the name {signed.name!r}")
    except (KeyError, TypeError, ValueError, msgpack.UnpackException) as error:
        raise LookupRefused(f"what is signed is no list of blocks ({error}): sign it again") from error
    return signed


def signed_in(source: BinaryIO, trusted: Iterable[str] | None) -> Signed:
    """``opened`` of a file that has as many bytes as were signed. Raises LookupRefused."""
    signed = opened(head_of(source), trusted)
    size = source.seek(0, os.SEEK_END) - len(signed.head)
    if size != signed.size:
        raise LookupRefused(f"it has {size} bytes and not the {signed.size} that were signed: copy it again")
    return signed


def verify(path: Path, trusted: Iterable[str] | None) -> Signed:
    """Who signed the lookup in ``path``, and for whom, once a key of ``trusted`` is known to have signed all of it;
    None: whose signature it is does not matter here.

    Raises LookupRefused and OSError. The file is read whole; its sections need no further check.
    """
    with path.open("rb") as source:
        signed = signed_in(source, trusted)
        for number, piece in enumerate(_pieces(source, len(signed.head))):
            if not signed.fits(number, piece):
                raise LookupRefused(f"block {number} was damaged or changed after signing: copy it again")
    same(path, signed)
    return signed


def same(path: Path, signed: Signed) -> None:
    """Raises LookupRefused unless the file is the lookup that its list names, and one that can be used."""
    with Lookup.open(path) as lookup:
        if (lookup.name, lookup.version, lookup.header.created) != (signed.name, signed.version, signed.created):
            raise LookupRefused("its list names another lookup than the file is: sign it again")


def stated(path: Path) -> tuple[str, str] | None:
    """Fleet and channel of a signed lookup, believed from nobody; None when it is not signed."""
    with path.open("rb") as source:
        if not body_at(source):
            return None
        signed = opened(head_of(source), None)
        return signed.fleet, signed.channel
