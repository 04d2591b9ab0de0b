"""A release of the agent as the fleet names it.

The target of a release is its description; the zips of ``make dist``, one an architecture, come in pieces of ``PIECE``
bytes, each a target of its own, ``pieces/SHA256``::

    {"format": 1, "version": "0.2.0",
     "archives": {"x86_64": {"id": "0.2.0-2284f1b82ed9", "sha256": …, "size": bytes, "pieces": [SHA256, …],
                             "addons": {"archive": {"sha256": …, "size": bytes, "pieces": [SHA256, …]}}}, …}}

``id`` is the name of the release's folder on every host (``releases/ID``): version, and the digest of what the zip's
SHA256SUMS lists. ``addons``, by name: their files, of which a host fetches those that it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

from msgspec import Meta, Struct, to_builtins

from vedette.fleet.documents import canonical
from vedette.system import documents, foreign
from vedette.system.documents import Sha256
from vedette.system.installation import ID

PIECE = 1 << 20
"""Bytes; the last one may be shorter."""
MAX_SIZE = 512 << 20
"""Bytes of a zip."""
FORMAT = 1
_Id = Annotated[str, Meta(pattern=rf"\A(?:{ID.pattern})\Z", description="a version, '-' and 12 hex digits")]
_AddonName = Annotated[str, Meta(pattern=r"\A[a-z][a-z0-9]{0,19}\Z", description="at most 20 letters and digits")]


class File(Struct, frozen=True, omit_defaults=True):
    """That comes in pieces."""

    sha256: Sha256
    size: Annotated[int, Meta(gt=0, le=MAX_SIZE, description=f"1 to {MAX_SIZE} bytes")]
    pieces: tuple[Sha256, ...]
    """SHA-256 of each, in hex."""

    def __post_init__(self) -> None:
        if len(self.pieces) != -(-self.size // PIECE):
            raise ValueError(f"{self.size} bytes in {len(self.pieces)} pieces")

    def span(self, number: int) -> int:
        """Bytes of a piece."""
        return min(PIECE, self.size - number * PIECE)


class Archive(File, frozen=True):
    """The zip for one architecture, and what may be added to it there."""

    id: _Id
    addons: Mapping[_AddonName, File] = {}

    def files(self) -> Iterator[File]:
        yield self
        yield from self.addons.values()


class Release(Struct, frozen=True):
    version: str
    archives: Mapping[str, Archive]
    """By architecture, as ``uname -m`` names it."""

    def to_bytes(self) -> bytes:
        return canonical({"format": FORMAT, **to_builtins(self)})


def read(data: bytes) -> Release:
    """Raises ValueError."""
    try:
        return documents.read(Release, documents.of_format(foreign.read(data), FORMAT))
    except ValueError as error:
        raise ValueError(f"not a description of a release: {error}") from error
