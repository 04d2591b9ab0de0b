"""A release of the agent as the fleet names it, and which one runs here.

The target of a release is its description; the zips of ``make dist``, one an architecture, come in pieces of ``PIECE``
bytes, each a target of its own, ``pieces/SHA256``::

    {"format": 1, "version": "0.2.0",
     "archives": {"x86_64": {"id": "0.2.0-2284f1b82ed9", "sha256": …, "size": bytes, "pieces": [SHA256, …]}, …}}

``id`` is the name of the release's folder on every host (``releases/ID``): version, and the digest of what the zip's
SHA256SUMS lists. Which release runs is read off the place that this very code was loaded from.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import vedette

PIECE = 1 << 20
"""Bytes; the last one may be shorter."""
MAX_SIZE = 512 << 20
"""Bytes of a zip."""
FORMAT = 1
ID = re.compile(r"[0-9A-Za-z.+_~]{1,64}-[0-9a-f]{12}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Archive:
    """The zip for one architecture."""

    id: str
    sha256: str
    size: int
    pieces: tuple[str, ...]
    """SHA-256 of each, in hex."""

    def span(self, number: int) -> int:
        """Bytes of a piece."""
        return min(PIECE, self.size - number * PIECE)


@dataclass(frozen=True, slots=True)
class Release:
    version: str
    archives: Mapping[str, Archive]
    """By architecture, as ``uname -m`` names it."""

    def to_bytes(self) -> bytes:
        return json.dumps({
            "format": FORMAT, "version": self.version,
            "archives": {
                arch: {"id": one.id, "sha256": one.sha256, "size": one.size, "pieces": [*one.pieces]}
                for arch, one in self.archives.items()
            },
        }, sort_keys=True, separators=(",", ":")).encode() + b"\n"  # fmt: skip


def read(data: bytes) -> Release:
    """Raises ValueError."""
    try:
        given = json.loads(data)
        if given["format"] != FORMAT:
            raise ValueError(f"format {given['format']!r}: this agent knows {FORMAT}")
        return Release(str(given["version"]), {str(arch): _archive(row) for arch, row in given["archives"].items()})
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a description of a release: {error!r}") from error


def _archive(row: dict[str, Any]) -> Archive:
    made = Archive(row["id"], row["sha256"], row["size"], tuple(row["pieces"]))
    if not ID.fullmatch(made.id) or not all(_SHA256.fullmatch(one) for one in (made.sha256, *made.pieces)):
        raise ValueError("not a description of a release: an id or a digest is none")
    if type(made.size) is not int or not 0 < made.size <= MAX_SIZE or len(made.pieces) != -(-made.size // PIECE):
        raise ValueError(f"not a description of a release: {made.size} bytes in {len(made.pieces)} pieces")
    return made


@dataclass(frozen=True, slots=True)
class Installed:
    """The release that runs, as install.sh has installed it."""

    id: str
    prefix: Path


def running(package: Path | None = None) -> Installed | None:
    """None: this agent was not installed by install.sh, but by pip or from a clone."""
    folder = (package or Path(vedette.__file__).parent).resolve()
    release = folder.parent.parent  # PREFIX/releases/ID/packages/vedette
    if folder.parent.name != "packages" or release.parent.name != "releases" or not ID.fullmatch(release.name):
        return None
    return Installed(release.name, release.parent.parent)
