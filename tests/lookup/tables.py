"""Small tables as lookups, for the tests of this room and of those that ask lookups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests import reference
from vedette.lookup.batch import Batch, Key
from vedette.lookup.build import build
from vedette.lookup.layout import Column
from vedette.lookup.table import Lookup


@cache
def reference_lookups() -> Mapping[str, Lookup]:
    """The tables of ``tests/reference.py`` as lookups."""
    with TemporaryDirectory() as folder:
        return {name: _of(Path(folder) / f"{name}.vlookup", table) for name, table in reference.TABLES.items()}


def _of(path: Path, table: Mapping[str, Sequence[str]]) -> Lookup:
    columns, cells = [], []
    for key, texts in table.items():
        names, _, kind = key.rpartition(":")
        whole = kind in ("number", "range")
        columns += [f"{name}:int" if whole else name for name in names.split("..")]
        parts = [text.split("..") if kind == "range" else [text] for text in texts]
        cells += [[int(one) if whole else one for one in column] for column in zip(*parts, strict=True)]
    return lookup_of(path, " ".join(columns), " ".join(table), [*zip(*cells, strict=True)])


def lookup_of(
    path: Path, columns: str, keys: str, rows: Sequence[Sequence[Any]], *, native: bool = True, **more: Any
) -> Lookup:
    """A lookup of ``rows``. ``columns``: ``name:type``, separated by blanks, of type text without one; ``keys`` as
    ``--key`` takes them."""
    named = [Column(name, kind or "text") for name, _, kind in (one.partition(":") for one in columns.split())]
    values = [[row[number] for row in rows] for number in range(len(named))]
    batches = [Batch(values, range(2, 2 + len(rows)))] if rows else []
    more.setdefault("created", 1_700_000_000_000_000)
    build(path, named, [Key.parse(k) for k in keys.split()], batches, native=native, **more)
    return Lookup.open(path, native=native)
