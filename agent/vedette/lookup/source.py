"""Tables to build lookups from: CSV (RFC 4180, with a header line), JSON Lines, and Parquet where pyarrow is.

Each reader gives the columns with their types and then batches of rows, with the line (of Parquet the row) of each.
Texts that are empty in CSV are null. What cannot be read is a ``BuildRefused`` that names file and line.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

import orjson

from vedette.lookup.batch import Batch, BuildRefused
from vedette.lookup.layout import TYPES, Column

BATCH = 8192
"""Rows of a batch."""
BATCH_BYTES = 64 << 20
"""The same of Parquet, by what the file says of its size."""
MAX_FIELD = 1 << 20
"""Characters of a value."""
_MAX_LINE = 16 << 20
SUFFIXES = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}


class Source(NamedTuple):
    columns: tuple[Column, ...]
    batches: Iterator[Batch]


@contextmanager
def read(
    path: Path, types: Mapping[str, str], kinds: Mapping[str, str], columns: Sequence[str] = ()
) -> Iterator[Source]:
    """Open ``path``. ``types``: of columns, as declared; ``kinds``: of keys, which tell a type where none is declared;
    ``columns``: those to take, all if empty. Raises BuildRefused and OSError."""
    form = SUFFIXES.get(path.suffix.lower())
    if form is None:
        raise BuildRefused(f"{path}: expects a file that ends in {', '.join(SUFFIXES)}")
    wrong = [kind for kind in types.values() if kind not in TYPES]
    if wrong:
        raise BuildRefused(f"{wrong[0]!r} is no type of a column: expects one of {', '.join(TYPES)}")
    with ExitStack() as opened:
        if form == "parquet":
            source = _parquet(path, opened.enter_context(path.open("rb")), types, columns)
        elif form == "jsonl":
            source = _jsonl(path, opened.enter_context(path.open("rb")), types, kinds, columns)
        else:
            lines = opened.enter_context(path.open(encoding="utf-8-sig", newline=""))
            source = _csv(path, lines, "\t" if form == "tsv" else ",", types, kinds, columns)
        names = {column.name for column in source.columns}
        for name in (*types, *columns):
            if name not in names:
                raise BuildRefused(f"{path}: there is no column {name}; there are {', '.join(sorted(names))}")
        yield source


def header(path: Path) -> tuple[str, ...]:
    """The columns of a table. Raises as ``read``."""
    with read(path, {}, {}) as source:
        return tuple(column.name for column in source.columns)


def _type(name: str, types: Mapping[str, str], kinds: Mapping[str, str], otherwise: str = "text") -> str:
    return types.get(name) or {"number": "int", "range": "float"}.get(kinds.get(name, ""), otherwise)


def _csv(
    path: Path, lines: IO[str], delimiter: str, types: Mapping[str, str], kinds: Mapping[str, str],
    columns: Sequence[str],
) -> Source:  # fmt: skip
    csv.field_size_limit(MAX_FIELD)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    try:
        names = next(reader, None)
    except (csv.Error, UnicodeDecodeError) as error:
        raise BuildRefused(f"{path}:1: not CSV in UTF-8: {error}") from None
    if not names or not all(names) or len({*names}) != len(names):
        raise BuildRefused(f"{path}:1: expects a line with the names of the columns, each once")
    taken = [number for number, name in enumerate(names) if not columns or name in columns]

    def batches() -> Iterator[Batch]:
        while True:
            before = reader.line_num
            rows: list[list[str]] = []
            try:
                rows.extend(islice(reader, BATCH))
            except (csv.Error, UnicodeDecodeError) as error:
                raise BuildRefused(f"{path}:{reader.line_num}: not CSV in UTF-8: {error}") from None
            if not rows:
                return
            numbers: Sequence[int] = range(before + 1, before + 1 + len(rows))
            if reader.line_num - before != len(rows):
                numbers = _lines(rows, before)
            if {*map(len, rows)} != {len(names)}:
                there = [at for at, row in enumerate(rows) if row]  # an empty line is no row
                rows, numbers = [rows[at] for at in there], [numbers[at] for at in there]
                for number, row in zip(numbers, rows, strict=True):
                    if len(row) != len(names):
                        raise BuildRefused(f"{path}:{number}: {len(row)} values, expects {len(names)}")
            turned = list(zip(*rows, strict=True))
            if turned:
                yield Batch([_blank(turned[number]) for number in taken], numbers)

    return Source(tuple(Column(names[number], _type(names[number], types, kinds)) for number in taken), batches())


def _blank(values: Sequence[str]) -> Sequence[str | None]:
    return [value or None for value in values] if "" in values else values


def _lines(rows: Sequence[Sequence[str]], before: int) -> list[int]:
    """The line on which each row begins, where some values hold line ends."""
    numbers = []
    for row in rows:
        numbers.append(before + 1)
        before += 1 + sum(value.count("\n") for value in row)
    return numbers


def _jsonl(
    path: Path, file: IO[bytes], types: Mapping[str, str], kinds: Mapping[str, str], columns: Sequence[str]
) -> Source:
    """Columns are those of the first object, with its types: a later object may lack some, not have others."""

    def rows() -> Iterator[tuple[int, dict[str, Any]]]:
        number = 0
        while line := file.readline(_MAX_LINE):
            number += 1
            if not line.strip():
                continue
            try:
                row = orjson.loads(line)
            except ValueError as error:
                raise BuildRefused(f"{path}:{number}: not JSON: {error}") from None
            if type(row) is not dict:
                raise BuildRefused(f"{path}:{number}: expects an object")
            yield number, row

    ahead = rows()
    first = next(ahead, None)
    if first is None:
        raise BuildRefused(f"{path}: it is empty")
    guess = {str: "text", bool: "bool", int: "int", float: "float"}
    names = [name for name in first[1] if not columns or name in columns]
    listed = tuple(Column(name, _type(name, types, kinds, guess.get(type(first[1][name]), "text"))) for name in names)
    names_of_first = {*first[1]}

    def batches() -> Iterator[Batch]:
        pending = [first]
        while pending:
            for number, row in pending:
                if not row.keys() <= names_of_first:
                    other = next(name for name in row if name not in names_of_first)
                    raise BuildRefused(f"{path}:{number}: {other!r} is not among the keys of the first object")
            yield Batch([[row.get(name) for _, row in pending] for name in names], [number for number, _ in pending])
            pending = list(islice(ahead, BATCH))

    return Source(listed, batches())


def _parquet(path: Path, opened: IO[bytes], types: Mapping[str, str], columns: Sequence[str]) -> Source:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise BuildRefused(f"{path}: Parquet needs pyarrow: pip install 'vedette[region]', or give CSV") from None
    try:
        file = pyarrow.parquet.ParquetFile(opened)
    except pyarrow.ArrowInvalid as error:
        raise BuildRefused(f"{path}: not Parquet: {error}") from None
    of = pyarrow.types
    listed = []
    for field in file.schema_arrow:
        if columns and field.name not in columns:
            continue
        kind = next(
            (name for name, fits in (("bool", of.is_boolean), ("int", of.is_integer), ("float", of.is_floating),
                                     ("time", of.is_timestamp), ("text", of.is_string), ("text", of.is_large_string))
             if fits(field.type)), None)  # fmt: skip
        if kind is None:
            raise BuildRefused(f"{path}: column {field.name} is of type {field.type}: leave it out with --columns")
        listed.append(Column(field.name, types.get(field.name, kind)))

    def batches() -> Iterator[Batch]:
        row = 1
        size = sum(file.metadata.row_group(number).total_byte_size for number in range(file.num_row_groups))
        most = max(1, min(BATCH, BATCH_BYTES * file.metadata.num_rows // max(1, size)))
        for batch in file.iter_batches(most, columns=[column.name for column in listed]):
            values = []
            for column in batch.columns:
                if of.is_timestamp(column.type):
                    column = column.cast(pyarrow.timestamp("us")).cast(pyarrow.int64())
                values.append(column.to_pylist())
            yield Batch(values, range(row, row + batch.num_rows))
            row += batch.num_rows

    return Source(tuple(listed), batches())
