"""The lookups that a rule set may ask, by name: those of files and folders, those that a bundle carries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from vedette.bundle.trust import Bundle
from vedette.engine.artifact import Artifact
from vedette.engine.match import Engine
from vedette.lookup.layout import LookupRefused
from vedette.lookup.table import SUFFIX, Lookup
from vedette.plan.plan import Plan

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


def whole(plan: Plan) -> Artifact:
    """``plan`` compiled, with all lookups that its rules ask, to be evaluated where no file of them is."""
    return Artifact.of(plan)._replace(lookups={name: plan.lookups[name].data for name, _ in plan.asked})


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


def chosen(plan: Plan, *groups: Mapping[str, Lookup]) -> dict[str, Lookup]:
    """Of each name the newest lookup of ``groups`` that has what ``plan`` asks of it; where none has, the newest, so
    that who takes the plan says what lacks."""
    found = {}
    for name in dict.fromkeys(name for group in groups for name in group):
        listed = sorted((g[name] for g in groups if name in g), key=lambda one: one.header.created, reverse=True)
        found[name] = next((one for one in listed if not plan.lacks({name: one}, (name,))), listed[0])
    return found


def shape(path: Path) -> str:
    """What a rule that asks the lookup in a file depends on when it is compiled: columns and keys, not rows; or why it
    is none. Raises OSError."""
    try:
        with Lookup.open(path, native=False) as found:
            return repr((found.columns, found.indexes, found.header.valid))
    except LookupRefused as error:
        return str(error)
