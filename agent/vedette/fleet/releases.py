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

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from vedette.system import foreign
from vedette.system.installation import ID

PIECE = 1 << 20
"""Bytes; the last one may be shorter."""
MAX_SIZE = 512 << 20
"""Bytes of a zip."""
FORMAT = 1
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[a-z][a-z0-9]{0,19}")


@dataclass(frozen=True, slots=True)
class File:
    """That comes in pieces."""

    sha256: str
    size: int
    pieces: tuple[str, ...]
    """SHA-256 of each, in hex."""

    def span(self, number: int) -> int:
        """Bytes of a piece."""
        return min(PIECE, self.size - number * PIECE)

    def to_row(self) -> dict[str, Any]:
        return {"sha256": self.sha256, "size": self.size, "pieces": [*self.pieces]}


@dataclass(frozen=True, slots=True)
class Archive(File):
    """The zip for one architecture, and what may be added to it there."""

    id: str
    addons: Mapping[str, File] = field(default_factory=dict)

    def files(self) -> Iterator[File]:
        yield self
        yield from self.addons.values()

    def to_row(self) -> dict[str, Any]:
        addons = {"addons": {name: one.to_row() for name, one in self.addons.items()}} if self.addons else {}
        return {"id": self.id, **File.to_row(self), **addons}


@dataclass(frozen=True, slots=True)
class Release:
    version: str
    archives: Mapping[str, Archive]
    """By architecture, as ``uname -m`` names it."""

    def to_bytes(self) -> bytes:
        return json.dumps({
            "format": FORMAT, "version": self.version,
            "archives": {arch: one.to_row() for arch, one in self.archives.items()},
        }, sort_keys=True, separators=(",", ":")).encode() + b"\n"  # fmt: skip


def read(data: bytes) -> Release:
    """Raises ValueError."""
    try:
        given = foreign.read(data)
        if given["format"] != FORMAT:
            raise ValueError(f"format {given['format']!r}: this agent knows {FORMAT}")
        return Release(str(given["version"]), {str(arch): _archive(row) for arch, row in given["archives"].items()})
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a description of a release: {error!r}") from error


def _archive(row: dict[str, Any]) -> Archive:
    addons = {str(name): _file(one) for name, one in row.get("addons", {}).items()}
    file = _file(row)
    made = Archive(file.sha256, file.size, file.pieces, row["id"], addons)
    if not ID.fullmatch(made.id) or not all(_NAME.fullmatch(name) for name in addons):
        raise ValueError("not a description of a release: an id or a name is none")
    return made


def _file(row: dict[str, Any]) -> File:
    made = File(row["sha256"], row["size"], tuple(row["pieces"]))
    if not all(_SHA256.fullmatch(one) for one in (made.sha256, *made.pieces)):
        raise ValueError("not a description of a release: a digest is none")
    if type(made.size) is not int or not 0 < made.size <= MAX_SIZE or len(made.pieces) != -(-made.size // PIECE):
        raise ValueError(f"not a description of a release: {made.size} bytes in {len(made.pieces)} pieces")
    return made
