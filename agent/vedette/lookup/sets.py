"""The lookups that a rule set may ask, by name: those of files and folders, those that a bundle carries, those that are
installed on this host.

What opens and reads a lookup is imported by each function when there is a first: an agent without any loads none of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from vedette.engine.artifact import Artifact
from vedette.engine.match import Engine
from vedette.lookup.names import FOLDER, SUFFIX, by_itself
from vedette.plan.plan import Plan

if TYPE_CHECKING:
    from vedette.bundle.trust import Bundle
    from vedette.lookup.table import Lookup


def opened(paths: Iterable[Path]) -> dict[str, Lookup]:
    """Of files, and of what lies in folders; the name is that of the file without its suffix. One that is refused is
    left out, so that the rules that ask it do not run and the others do."""
    files = _files(paths)
    if not files:
        return {}
    from vedette.lookup.layout import LookupRefused
    from vedette.lookup.table import Lookup

    lookups = {}
    for file in files:
        with suppress(LookupRefused, OSError):
            lookups[file.stem] = Lookup.open(file)
    return lookups


def copied(paths: Iterable[Path], folder: Path) -> dict[Path, str]:
    """Have ``folder`` hold copies of the lookups in files and folders; see ``lookup/copies.py``."""
    files = _files(paths)
    if not files and not folder.is_dir():
        return {}
    from vedette.lookup.copies import take

    return take(files, folder)


def _files(paths: Iterable[Path]) -> list[Path]:
    paths = [*paths]
    separate = by_itself(paths)
    folders = {path: sorted(path.glob(f"*{SUFFIX}")) for path in paths if path.is_dir()}
    pairs = ((path, file) for path in paths for file in folders.get(path, [path]))
    listed = (file for path, file in pairs if file == path or file.name not in separate)
    return [file for file in listed if file.suffix == SUFFIX and not file.name.startswith(".")]


def delivered(folder: Path) -> list[dict[str, Lookup]]:
    """The current lookups by name, and those that were current before, opened; what cannot be opened is left out.

    ``folder``: of this host's installed lookups."""
    if not folder.is_dir():
        return [{}, {}]
    from vedette.lookup import installed

    return installed.delivered(folder)


def links(folder: Path) -> list[Path]:
    """The current lookup of each name that is installed, under a path whose stem is the name."""
    if not folder.is_dir():
        return []
    from vedette.lookup import installed

    return installed.links(folder)


def engine_of(artifact: Artifact, lookups: Mapping[str, Lookup] | None = None, *, route: bool = True) -> Engine:
    """An engine of ``artifact`` with ``lookups`` and those that it brings. Raises ValueError as ``Artifact.engine``."""
    return artifact.engine({**(lookups or {}), **made(artifact.lookups)}, route=route)


def bundled(bundle: Bundle) -> Artifact:
    """What a verified bundle carries, its lookups with it."""
    own = {
        part.removeprefix(FOLDER).removesuffix(SUFFIX): data
        for part, data in bundle.parts.items()
        if part.startswith(FOLDER)
    }
    return Artifact(bundle.plan, bundle.databases, bundle.manifest.hyperscan, own)


def carried(parts: Mapping[str, bytes]) -> dict[str, Lookup]:
    """Of a verified bundle's parts. Raises LookupRefused."""
    from vedette.lookup.layout import LookupRefused
    from vedette.lookup.table import Lookup

    lookups = {}
    for part, data in parts.items():
        if part.startswith(FOLDER):
            name = part.removeprefix(FOLDER).removesuffix(SUFFIX)
            try:
                lookups[name] = Lookup.of(data, name)
            except LookupRefused as error:
                raise LookupRefused(f"its part {part}: {error}") from error
    return lookups


def made(files: Mapping[str, bytes]) -> dict[str, Lookup]:
    """Those that came out of compiling rules, by name (``engine/artifact.py``). Raises LookupRefused."""
    if not files:
        return {}
    from vedette.lookup.table import Lookup

    return {name: Lookup.of(data, name) for name, data in files.items()}


def chosen(plan: Plan, *groups: Mapping[str, Lookup]) -> dict[str, Lookup]:
    """Of each name the newest lookup of ``groups`` that has what ``plan`` asks of it; where none has, the newest, so
    that who takes the plan says what lacks."""
    lookups = {}
    for name in dict.fromkeys(name for group in groups for name in group):
        listed = sorted((g[name] for g in groups if name in g), key=lambda lookup: lookup.header.created, reverse=True)
        lookups[name] = next((lookup for lookup in listed if not plan.lacks({name: lookup}, (name,))), listed[0])
    return lookups
