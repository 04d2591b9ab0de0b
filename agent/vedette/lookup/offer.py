"""What a region says of a lookup that it has published: an announcement, and the offer that it names.

* The **announcement** (JSON, retained, at most ``MAX_ANNOUNCEMENT`` bytes) names the lookup, its version and the
  SHA-256 of the offer. ``replaced`` is the offer that it took the place of: whose blobs are to be withdrawn.
* The **offer** (msgpack, a blob) holds the signed list of blocks (``sign.py``) and of each block the SHA-256 of the
  blob that is the whole block, and of one that is its delta against a part of the version ``base``, if there is one.

Nothing of both is believed but the signed list: a blob is good when the block that it gives has the digest listed
there. The rest can at worst make an agent fetch in vain, within these bounds.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import msgpack
import orjson

from vedette.lookup.delta import MAX_REFERENCE
from vedette.lookup.layout import NAME, LookupRefused
from vedette.lookup.sign import MAX_BLOCKS, MAX_HEAD

MAX_ANNOUNCEMENT = 64 << 10
MAX_OFFER = 2 * MAX_HEAD + 128 * MAX_BLOCKS
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Announcement(NamedTuple):
    name: str
    version: str
    created: int
    rows: int
    size: int
    offer: str
    """SHA-256 of the offer's blob, in hex."""
    replaced: str | None = None

    def to_bytes(self) -> bytes:
        return orjson.dumps(self._asdict())

    @classmethod
    def from_bytes(cls, data: bytes) -> Announcement:
        """Raises LookupRefused."""
        try:
            if len(data) > MAX_ANNOUNCEMENT:
                raise ValueError(f"{len(data)} bytes, at most {MAX_ANNOUNCEMENT}")
            document = orjson.loads(data)
            announcement = cls(
                document["name"],
                document["version"],
                document["created"],
                document["rows"],
                document["size"],
                document["offer"],
                document.get("replaced"),
            )
            if not NAME.fullmatch(announcement.name) or not _DIGEST.fullmatch(announcement.version):
                raise ValueError("name or version is none")
            offers = (announcement.offer, announcement.replaced or announcement.offer)
            if not all(_DIGEST.fullmatch(digest) for digest in offers):
                raise ValueError("offer: expects 64 lower-case hex digits")
            numbers = (announcement.created, announcement.rows, announcement.size)
            if any(type(number) is not int or number < 0 for number in numbers):
                raise ValueError("created, rows and size: expect integers")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise LookupRefused(f"not an announcement of a lookup: {error}") from error
        return announcement


class Delta(NamedTuple):
    """A block against ``length`` bytes from ``start`` on of the earlier file."""

    digest: bytes
    start: int
    length: int


class Offer(NamedTuple):
    head: bytes
    """``Signed.head``."""
    whole: bytes
    """SHA-256 of each block's blob, one behind the other."""
    base: str
    """The version that ``deltas`` are against."""
    deltas: dict[int, Delta]
    """By block; a block that is the same as in ``base``, or little like it, has none."""

    def to_bytes(self) -> bytes:
        listed = [[number, *delta] for number, delta in self.deltas.items()]
        return bytes(msgpack.packb({"head": self.head, "whole": self.whole, "base": self.base, "deltas": listed}))

    @classmethod
    def from_bytes(cls, data: bytes) -> Offer:
        """Raises LookupRefused."""
        try:
            if len(data) > MAX_OFFER:
                raise ValueError(f"{len(data)} bytes, at most {MAX_OFFER}")
            document: dict[str, Any] = msgpack.unpackb(data)
            deltas = {number: Delta(digest, start, length) for number, digest, start, length in document["deltas"]}
            offer = cls(document["head"], document["whole"], document["base"], deltas)
            if any(type(part) is not bytes for part in (offer.head, offer.whole)) or type(offer.base) is not str:
                raise ValueError("parts of another type")
            for number, (digest, start, length) in deltas.items():
                if type(number) is not int or type(digest) is not bytes or len(digest) != 32:
                    raise ValueError("a delta without a digest")
                if type(start) is not int or start < 0 or type(length) is not int or not 0 < length <= MAX_REFERENCE:
                    raise ValueError("a delta against no part of a file")
        except (KeyError, TypeError, ValueError, msgpack.UnpackException) as error:
            raise LookupRefused(f"not an offer of a lookup: {error}") from error
        return offer

    def blobs(self) -> set[str]:
        """Hex digests of all blobs that it names."""
        digests = {self.whole[at : at + 32].hex() for at in range(0, len(self.whole), 32)}
        return digests | {delta.digest.hex() for delta in self.deltas.values()}
