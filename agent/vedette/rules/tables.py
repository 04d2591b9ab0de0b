"""Tables given with rules: each that the rules ask is built into a lookup, with the keys that they ask it by.

JSON Lines, Parquet and TSV are tables. CSV is one where a rule asks it for a column (``%NAME.COLUMN%``, or in SQL);
else it is a list of the values of ``%NAME%`` (``sigma/pipelines.py``).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from vedette.lookup.recipe import Recipe
from vedette.lookup.source import SUFFIXES
from vedette.lookup.table import SUFFIX
from vedette.rules.asks import asks, by_column, recipe
from vedette.rules.ruleset import Describer

OTHERS = (".txt", SUFFIX)
"""Of lookups that are no tables."""


class Made(NamedTuple):
    """``lookups``: what rules are compiled with; ``unasked``: the tables given that no rule asks."""

    lookups: tuple[Path, ...]
    unasked: tuple[Path, ...] = ()


def made(
    paths: Iterable[Path], pipelines: Iterable[Path], lookups: Iterable[Path], functions: Describer | None,
    folder: Path, created: int,
) -> Made:  # fmt: skip
    """Build into ``folder`` what the rules at ``paths`` ask of the tables among ``lookups``.

    Raises ValueError, which names the table's file and line, and OSError.
    """
    from vedette.rules.build import joined, load

    given = [(path, _files(path)) for path in lookups]
    tables = [one for _, files in given for one in files if one.suffix.lower() in SUFFIXES]
    if not tables:
        return Made(tuple(path for path, _ in given))
    others = [one for _, files in given for one in files if one not in tables]
    rules = joined(load(paths, pipelines, others, functions, frozenset(one.stem for one in tables)))
    listed = {one for one in tables if one.suffix.lower() == ".csv" and not by_column(one.stem, rules)}
    asked = [one for one in tables if one not in listed and asks(one.stem, ("",), rules).keys]
    every = [one for _, files in given for one in files]
    for table in asked:
        if other := next((one for one in every if one.stem == table.stem and one != table), None):
            raise ValueError(f"{table}: {other} is a lookup of the same name: give one of them")
        recipe(table.stem, table, rules, Recipe()).build(
            table, folder / f"{table.stem}{SUFFIX}", name=table.stem, created=created
        )
    kept: list[Path] = []
    for path, files in given:
        if path.is_dir() and not any(one in asked for one in files):
            kept.append(path)
        else:
            kept += (one for one in files if one not in tables or one in listed)
    unasked = tuple(path for path, _ in given if path in tables and path not in asked and path not in listed)
    return Made((*kept, *(folder / f"{one.stem}{SUFFIX}" for one in asked)), unasked)


def _files(path: Path) -> list[Path]:
    """The file itself; of a folder the lookups in it."""
    if not path.is_dir():
        return [path]
    found = (one for one in sorted(path.iterdir()) if one.suffix.lower() in (*OTHERS, *SUFFIXES))
    return [one for one in found if not one.name.startswith(".") and not one.is_dir()]
