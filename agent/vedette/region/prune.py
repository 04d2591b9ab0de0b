"""What nobody can need any more of a fleet's folder, deleted.

Agents follow roots one by one, and of all other roles they take the newest version: one that was away for a year needs
no other. So all roots stay, and of the other metadata the newest ``KEPT`` versions, and ``MOST`` of those that are
younger than ``DAYS``, for people who look into what was in force. Files stay that a version which stays names, or what
is staged: with the desired document in force these are those of its roll-outs, and what they go back to. Lookups, which
are large, stay as the documents in force and staged name them.

Promises: whoever reads what is in force finds all of it, at any moment; killed anywhere, the next one finishes it. When
a version that stays cannot be read, no file is deleted. Whoever calls holds the folder's lock, so that nothing is
staged meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import orjson

from vedette.system.durable import sync_path

KEPT, MOST, DAYS = 10, 100, 30
ROLES = ("targets", "snapshot", "rollout")


class Pruned(NamedTuple):
    """How many files of each kind went."""

    metadata: int
    blobs: int
    lookups: int


def prune(folder: Path, lookups: set[str], now: float) -> Pruned:
    """``lookups``: names of the files in ``FOLDER/lookups`` that are needed; ``now``: seconds since 1970. Raises
    OSError, and ValueError when metadata cannot be read."""
    metadata = [path for role in ROLES for path in _old(folder, role, now)]
    _remove(folder / "tuf", metadata)
    named = {sha256 for path in _naming(folder) for sha256 in _named(path)}
    blobs = [path for path in _files(folder / "blobs") if path.name not in named]
    _remove(folder / "blobs", blobs)
    tables = [path for path in _files(folder / "lookups") if path.name not in lookups]
    _remove(folder / "lookups", tables)
    return Pruned(len(metadata), len(blobs), len(tables))


def _old(folder: Path, role: str, now: float) -> Iterator[Path]:
    """Versions of a role that need not stay."""
    versions = {int(path.name.partition(".")[0]): path for path in (folder / "tuf").glob(f"[1-9]*.{role}.json")}
    for place, (_, path) in enumerate(sorted(versions.items(), reverse=True)):
        if place >= MOST or (place >= KEPT and path.stat().st_mtime < now - DAYS * 86_400):
            yield path


def _naming(folder: Path) -> Iterator[Path]:
    """Metadata that name files."""
    for role in ("targets", "rollout"):
        yield from (folder / "tuf").glob(f"*.{role}.json")
    yield from (folder / "staged").glob("targets.json")


def _named(path: Path) -> Iterator[str]:
    """Raises ValueError."""
    try:
        for target in orjson.loads(path.read_bytes())["signed"]["targets"].values():
            yield str(target["hashes"]["sha256"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: not a file of metadata: {error}") from error


def _files(folder: Path) -> Iterator[Path]:
    """With what a killed writer left."""
    return (path for path in folder.glob("*") if path.is_file()) if folder.exists() else iter(())


def _remove(folder: Path, paths: list[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
    if paths:
        sync_path(folder)
