"""How lookups are called where they lie: their files, and the parts of a bundle that are lookups."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

SUFFIX = ".vlookup"
"""Of the file of a lookup; what stands before it is what rules call it."""
FOLDER = "lookups/"
"""Begins the names of a bundle's parts that are lookups."""


def by_itself(paths: Iterable[Path]) -> set[str]:
    """Names of the lookups among ``paths`` that are given as files: each counts before one of its name in a folder."""
    return {path.name for path in paths if path.suffix == SUFFIX and not path.is_dir()}
