"""Tables given with rules: each that the rules ask is built into a lookup, with the keys that they ask it by.

JSON Lines, Parquet and TSV are tables. CSV is one where a rule asks it for a column (``%NAME.COLUMN%``, or in SQL);
else it is a list of the values of ``%NAME%`` (``sigma/pipelines.py``).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from vedette.lookup.names import SUFFIX
from vedette.lookup.recipe import Recipe
from vedette.lookup.source import SUFFIXES
from vedette.rules.asks import asks, by_column, recipe
from vedette.rules.ruleset import Describer

OTHERS = (".txt", SUFFIX)
"""Suffixes of lookups that are no tables."""


class Built(NamedTuple):
    """``lookups``: what rules are compiled with; ``unasked``: the tables given that no rule asks."""

    lookups: tuple[Path, ...]
    unasked: tuple[Path, ...] = ()


def build_lookups(
    paths: Iterable[Path],
    pipelines: Iterable[Path],
    lookups: Iterable[Path],
    functions: Describer | None,
    folder: Path,
    created: int,
) -> Built:
    """Build into ``folder`` what the rules at ``paths`` ask of the tables among ``lookups``.

    Raises ValueError, which names the table's file and line, and OSError.
    """
    from vedette.rules.build import joined, load

    files_of = [(path, _files(path)) for path in lookups]
    tables = [file for _, files in files_of for file in files if file.suffix.lower() in SUFFIXES]
    if not tables:
        return Built(tuple(path for path, _ in files_of))
    others = [file for _, files in files_of for file in files if file not in tables]
    rules = joined(load(paths, pipelines, others, functions, frozenset(table.stem for table in tables)))
    listed = {table for table in tables if table.suffix.lower() == ".csv" and not by_column(table.stem, rules)}
    asked = [table for table in tables if table not in listed and asks(table.stem, ("",), rules).keys]
    every = [file for _, files in files_of for file in files]
    for table in asked:
        if other := next((file for file in every if file.stem == table.stem and file != table), None):
            raise ValueError(f"{table}: {other} is a lookup of the same name: give one of them")
        recipe(table.stem, table, rules, Recipe()).build(
            table, folder / f"{table.stem}{SUFFIX}", name=table.stem, created=created
        )
    remaining: list[Path] = []
    for path, files in files_of:
        if path.is_dir() and not any(file in asked for file in files):
            remaining.append(path)
        else:
            remaining += (file for file in files if file not in tables or file in listed)
    unasked = tuple(path for path, _ in files_of if path in tables and path not in asked and path not in listed)
    return Built((*remaining, *(folder / f"{table.stem}{SUFFIX}" for table in asked)), unasked)


def _files(path: Path) -> list[Path]:
    """The file itself; of a folder the lookups in it."""
    if not path.is_dir():
        return [path]
    files = (file for file in sorted(path.iterdir()) if file.suffix.lower() in (*OTHERS, *SUFFIXES))
    return [file for file in files if not file.name.startswith(".") and not file.is_dir()]
