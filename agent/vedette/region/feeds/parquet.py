"""What feeds hold now as one Parquet file for the region's Spark jobs: the lookup ``intel`` of ingest.

Agents get a lookup for each kind of indicator; ingest joins one table by kind and value. ``KINDS`` says by which kind
of entity it knows a feed's kind. Written in small groups to a temporary file, then renamed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

KINDS: Mapping[str, str] = {
    "ip": "ip", "net": "cidr", "domain": "domain", "url": "url", "email": "email", "md5": "hash", "sha1": "hash",
    "sha256": "hash", "sha512": "hash",
}  # fmt: skip
"""Of a feed's kind what ingest calls it."""

OWN = frozenset(("exercise", "scanner", "shared"))
"""Threats by which the owner names what is no attack (``spark_jobs/intake/own.py``). A feed must not be able to: its
word for a threat gets the feed's name behind it."""

_ROWS = 8192


def kinds_in(path: Path) -> list[str] | None:
    """The feeds' kinds that ``write`` was given for ``path``; None where there is no such file."""
    import pyarrow.parquet as pq

    try:
        about = pq.read_schema(path).metadata or {}
    except (OSError, ValueError):
        return None
    return [kind for kind in about.get(b"kinds", b"").decode().split(",") if kind]


def write(path: Path, kinds: Mapping[str, Iterable[tuple[Any, ...]]]) -> int:
    """Make ``path`` the rows (``fetch.COLUMNS``) of each of ``kinds``; how many these are."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    time = pa.timestamp("us", tz="UTC")
    schema = pa.schema([
        ("kind", pa.string()), ("value", pa.string()), ("source", pa.string()), ("threat", pa.string()),
        ("score", pa.int32()), ("valid_from", time), ("valid_until", time),
    ]).with_metadata({"kinds": ",".join(kinds)})  # fmt: skip
    temporary, number = path.with_name(f".{path.name}.tmp"), 0
    with temporary.open("wb") as file:
        with pq.ParquetWriter(file, schema, compression="zstd") as writer:
            rows = _rows(kinds.items())
            while some := list(islice(rows, _ROWS)):
                columns = [
                    pa.array(column, of.type) for column, of in zip(zip(*some, strict=True), schema, strict=True)
                ]
                writer.write_table(pa.Table.from_arrays(columns, schema=schema))
                number += len(some)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    return number


def _rows(kinds: Iterable[tuple[str, Iterable[tuple[Any, ...]]]]) -> Iterator[tuple[Any, ...]]:
    for kind, rows in kinds:
        for value, feed, confidence, since, until, threat, _labels, _reference in rows:
            named = f"{threat} ({feed})" if threat.strip().casefold() in OWN else threat
            yield KINDS[kind], value, feed, named, confidence, since, until
