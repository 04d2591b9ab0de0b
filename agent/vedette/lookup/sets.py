"""The lookups that a rule set may ask, by name: those of files and folders, those that a bundle carries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from vedette.lookup.layout import LookupRefused
from vedette.lookup.table import SUFFIX, Lookup

FOLDER = "lookups/"
"""Begins the names of a bundle's parts that are lookups."""


def opened(paths: Iterable[Path]) -> dict[str, Lookup]:
    """Of files, and of what lies in folders; the name is that of the file without its suffix. One that is refused is
    left out, so that the rules that ask it do not run and the others do."""
    found = {}
    for path in paths:
        for file in sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]:
            if file.suffix == SUFFIX and not file.name.startswith("."):
                with suppress(LookupRefused, OSError):
                    found[file.stem] = Lookup.open(file)
    return found


def carried(parts: Mapping[str, bytes]) -> dict[str, Lookup]:
    """Of a verified bundle's parts. Raises LookupRefused."""
    found = {}
    for part, data in parts.items():
        if part.startswith(FOLDER):
            name = part.removeprefix(FOLDER).removesuffix(SUFFIX)
            try:
                found[name] = Lookup.of(data, name)
            except LookupRefused as error:
                raise LookupRefused(f"its part {part}: {error}") from error
    return found


def made(files: Mapping[str, bytes]) -> dict[str, Lookup]:
    """Those that came out of compiling rules, by name (``engine/artifact.py``). Raises LookupRefused."""
    return {name: Lookup.of(data, name) for name, data in files.items()}


def version(path: Path) -> str:
    """What the file of a lookup holds: its version, or why it is none. Raises OSError."""
    try:
        with Lookup.open(path, native=False) as found:
            return found.version
    except LookupRefused as error:
        return str(error)
