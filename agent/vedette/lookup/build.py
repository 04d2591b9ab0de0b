"""A table to a lookup's file: its rows are gathered, indexes built of them, and the file is written whole.

With the kernel ten million rows take minutes less than an hour and stay below 1.5 GB (``docs/lookups.md``); without it
a table may have ``PLAIN_ROWS`` rows. A bad row ends the build by ``BuildRefused``, which names source, line and column.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from vedette.engine import kernel
from vedette.lookup.assemble import Assembly
from vedette.lookup.batch import Batch, BuildRefused, Key
from vedette.lookup.earlier import NOTHING, Earlier, earlier
from vedette.lookup.gather import Table
from vedette.lookup.layout import NAME, TYPES, Column, Writer
from vedette.system.durable import sync_path

DUPLICATES = ("refuse", "keep", "first")


class Built(NamedTuple):
    version: str
    rows: int
    size: int
    indexes: tuple[str, ...]
    """Each with its layout, to show."""


def build(
    target: Path,
    columns: Sequence[Column],
    keys: Sequence[Key],
    batches: Iterable[Batch],
    *,
    created: int,
    name: str = "",
    source: str = "",
    valid: tuple[str, str] | None = None,
    duplicates: str = "refuse",
    previous: Path | None = None,
    native: bool = True,
) -> Built:
    """Write the lookup ``target``; what was there is replaced by rename once the new one is whole.

    ``previous``: the lookup's earlier version (None: what is at ``target``, if that is one), whose arrangement is kept,
    so that rows which did not change are the same bytes (``earlier.py``).

    ``name``: what rules call it; else that of the file. ``valid``: the columns of the times from which and until which
    a row holds. ``duplicates``: of a key that several rows have: ``refuse`` it, ``keep`` all rows (``Lookup.all`` gives
    them), or keep the ``first``. Raises BuildRefused and OSError.
    """
    name = name or target.name.partition(".")[0]
    library = kernel.LOADED if native else None
    before = earlier(previous or target, columns, keys, library)
    table = _gathered(name, columns, keys, batches, source or str(target), valid, duplicates, library, before)
    temporary = target.with_name(f".{target.name}.tmp")
    try:
        with temporary.open("wb") as file:
            writer = Writer(file)
            header = Assembly(table, writer, library, created, duplicates, valid).header(name)
            version = writer.finish(header)
            file.flush()
            os.fsync(file.fileno())
        size = temporary.stat().st_size
        temporary.rename(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_path(target.parent)
    shown = tuple(f"{i.name} {i.kind} ({x['layout']})" for i, x in zip(header.indexes, header.layouts, strict=True))
    return Built(version, header.rows, size, shown)


def of_keys(name: str, kind: str, keys: Sequence[str]) -> bytes:
    """A lookup of nothing but the texts ``keys``, once each, in its column ``value``: the same bytes for the same keys.

    Raises BuildRefused.
    """
    library, duplicates = kernel.LOADED, "keep" if kind == "cidr" else "first"
    batches = [Batch([keys], range(1, len(keys) + 1))]
    table = _gathered(
        name, [Column("value", "text")], [Key(("value",), kind)], batches, name, None, duplicates, library
    )
    file = io.BytesIO()
    writer = Writer(file)
    writer.finish(Assembly(table, writer, library, 0, duplicates, None).header(name))
    return file.getvalue()


def _gathered(
    name: str, columns: Sequence[Column], keys: Sequence[Key], batches: Iterable[Batch], source: str,
    valid: tuple[str, str] | None, duplicates: str, library: Any, before: Earlier = NOTHING,
) -> Table:  # fmt: skip
    _check(name, columns, keys, valid, duplicates)
    table = Table(columns, keys, source, library, before)
    for batch in batches:
        table.add(batch)
    return table


def _check(
    name: str, columns: Sequence[Column], keys: Sequence[Key], valid: tuple[str, str] | None, duplicates: str
) -> None:
    types = {column.name: column.type for column in columns}
    if not NAME.fullmatch(name):
        raise BuildRefused(f"{name!r} cannot be the name of a lookup: letters, digits, '_', '.', '-'")
    if duplicates not in DUPLICATES:
        raise BuildRefused(f"duplicates: expects one of {', '.join(DUPLICATES)}, not {duplicates!r}")
    if len(types) != len(columns):
        raise BuildRefused("two columns have the same name")
    for column in columns:
        if column.type not in TYPES:
            raise BuildRefused(f"column {column.name}: {column.type!r} is no type: expects one of {', '.join(TYPES)}")
    if not keys:
        raise BuildRefused("a lookup needs a key: --key COLUMN:KIND")
    if len({*keys}) != len(keys):
        raise BuildRefused("a key is there twice")
    for named in (*(c for key in keys for c in key.columns), *(valid or ())):
        if named not in types:
            raise BuildRefused(f"there is no column {named}; there are {', '.join(types)}")
    folded: dict[str, str] = {}
    for key in keys:
        wanted = {"number": ("int", "time"), "range": ("int", "float", "time")}.get(key.kind, ("text",))
        for named in key.columns:
            if types[named] not in wanted:
                raise BuildRefused(
                    f"key {key}: column {named} is of type {types[named]}, expects {' or '.join(wanted)}"
                )
            form = key.kind if key.kind in ("nocase", "domain", "ip", "cidr") else "text"
            if (
                types[named] == "text"
                and folded.setdefault(named, form) != form
                and {form, folded[named]} != {"ip", "cidr"}
            ):
                raise BuildRefused(
                    f"column {named} cannot be a key of kind {folded[named]} and of kind {form}:"
                    " write it as two columns"
                )
    if valid is not None and any(types[named] != "time" for named in valid):
        raise BuildRefused("the columns of validity have to be of type time: --type COLUMN:time")
    if duplicates == "first" and valid is not None:
        raise BuildRefused("duplicates: 'first' would drop the rows of other times of validity: 'refuse' or 'keep'")
    if duplicates == "first" and (len(keys) > 1 or keys[0].kind in ("cidr", "range")):
        raise BuildRefused("duplicates: 'first' goes with one key that is neither cidr nor range: remove them before")
