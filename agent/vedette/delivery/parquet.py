"""A Parquet writer in pure Python: rows of a ``columns.Schema`` to the bytes of one file.

The file, after the Parquet format 2.x (github.com/apache/parquet-format: README, Encodings.md, LogicalTypes.md,
parquet.thrift)::

    "PAR1"
    per leaf column one data page (v1):  page header (Thrift)  zstd( [repetition levels] [definition levels] values )
    footer: FileMetaData (Thrift)        its length, 4 bytes little-endian        "PAR1"

* One row group (none for no rows), one page per column, PLAIN values. A page's header carries the CRC-32 of its body.
* Thrift is the compact protocol, of which the few types below are used.
* Levels are the RLE/bit-packed hybrid: one RLE run when all are equal, else one bit-packed run.
* Lists are the 3-level form with required elements, maps have required keys and values; see ``columns`` for types.

A column is built whole by operations that run in C: levels are ``bytes`` with one byte a level, a bit-packed run is
one ``int(digits, 2 ** width)``. So the cost is per column and chunk, not per value and level.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple
from zlib import crc32

import zstandard

from vedette.delivery.columns import BINARY, BOOL, INT32, INT64, STRING, TIMESTAMP, List, Map, Scalar, Schema, Type

MAGIC = b"PAR1"
CREATED_BY = "vedette version 1.0.0 (build 0)"
ZSTD_LEVEL = 3
MAX_PAGE = (1 << 31) - 1
"""Bytes: sizes in a page header are signed 32-bit."""

_REQUIRED, _OPTIONAL, _REPEATED = 0, 1, 2
_PLAIN, _RLE = 0, 3
_ZSTD = 6


class _Leaf(NamedTuple):
    """One leaf column: ``values`` are the present ones; a slot is present when its level in ``defs`` is the highest."""

    path: tuple[str, ...]
    kind: Scalar
    values: list[Any]
    defs: bytes
    reps: bytes
    max_def: int
    max_rep: int


def write(columns: Schema, rows: Sequence[Mapping[str, Any]]) -> bytes:
    """The Parquet file that holds ``rows``.

    Raises ValueError, naming the column, when a value is not of its type, a required one is missing or a page would
    exceed ``MAX_PAGE``. Keys without a column are left out.
    """
    out = bytearray(MAGIC)
    chunks, total = [], 0
    if rows:
        compress = zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress
        slots = bytes(len(rows))
        for column in columns:
            values = [row.get(column.name) for row in rows]
            for leaf in _shred((column.name,), column.type, column.required, values, slots, slots, 0, 0):
                page, size = _page(leaf, compress)
                chunks.append(_chunk(leaf, len(out), size, len(page)))
                out += page
                total += size
    groups = []
    if rows:
        groups.append(_struct((1, chunks), (2, total), (3, len(rows)), (5, len(MAGIC)), (6, len(out) - len(MAGIC))))
    schema = [_element("schema", children=len(columns))]
    for column in columns:
        schema += _elements(column.name, column.type, _REQUIRED if column.required else _OPTIONAL)
    footer = _struct((1, _I32(2)), (2, schema), (3, len(rows)), (4, groups), (6, CREATED_BY))
    return bytes(out + footer + struct.pack("<I", len(footer)) + MAGIC)


# Rows to leaves. ``values`` holds what stands in the slots whose level in ``defs`` is ``top``, in order.


def _shred(
    path: tuple[str, ...], kind: Type, required: bool, values: list[Any], defs: bytes, reps: bytes, top: int, rep: int
) -> Iterator[_Leaf]:
    if None not in values:
        if not required:
            defs = defs.translate(_bump(top))
    elif required:
        raise ValueError(f"{'.'.join(path)}: missing, and the column is required")
    else:
        following = iter(values)
        defs = bytes([level + (level == top and next(following) is not None) for level in defs])
        values = [value for value in values if value is not None]
    top += not required
    try:
        if isinstance(kind, Scalar):
            yield _Leaf(path, kind, values, defs, reps, top, rep)
        elif isinstance(kind, List):
            if not {list, tuple}.issuperset(map(type, values)):
                raise TypeError("expects list or tuple")
            defs, reps = _repeat([len(value) for value in values], defs, top)
            elements = list(chain.from_iterable(values))
            yield from _shred((*path, "list", "element"), kind.of, True, elements, defs, reps, top + 1, 1)
        elif isinstance(kind, Map):
            defs, reps = _repeat([len(value) for value in values], defs, top)
            for name, parts in (("key", [value.keys() for value in values]), ("value", [v.values() for v in values])):
                items = list(chain.from_iterable(parts))
                yield from _shred((*path, "key_value", name), STRING, True, items, defs, reps, top + 1, 1)
        else:
            for column in kind.columns:
                parts = [value.get(column.name) for value in values]
                yield from _shred((*path, column.name), column.type, column.required, parts, defs, reps, top, rep)
    except (AttributeError, TypeError) as error:
        raise ValueError(f"{'.'.join(path)}: a value is not a {type(kind).__name__.lower()}: {error}") from error


def _bump(level: int) -> bytes:
    """The translation that raises ``level`` by one."""
    return bytes(n + (n == level) for n in range(256))


def _repeat(lengths: list[int], defs: bytes, top: int) -> tuple[bytes, bytes]:
    """Levels of the elements of lists with these lengths; an empty or absent list keeps one slot of its own."""
    present, none = bytes([top + 1]), bytes([top])
    if len(lengths) == len(defs):
        new_defs = [present * n or none for n in lengths]
    else:
        following = iter(lengths)
        slots = [next(following) if level == top else 0 for level in defs]
        new_defs = [present * n or bytes([level]) for n, level in zip(slots, defs, strict=True)]
        lengths = slots
    return b"".join(new_defs), b"".join([b"\0" + b"\1" * (n - 1) for n in lengths])


# Leaves to pages.


def _page(leaf: _Leaf, compress: Callable[[bytes], bytes]) -> tuple[bytes, int]:
    """A leaf's page, and the bytes it takes uncompressed."""
    try:
        values = _PLAIN_OF[leaf.kind](leaf.values)
    except (AttributeError, TypeError, ValueError, struct.error) as error:
        raise ValueError(f"{'.'.join(leaf.path)}: a value is not a {leaf.kind.label}: {error}") from error
    body = _levels(leaf.reps, leaf.max_rep) + _levels(leaf.defs, leaf.max_def) + values
    if len(body) > MAX_PAGE:
        raise ValueError(f"{'.'.join(leaf.path)}: {len(body)} bytes in one page, at most {MAX_PAGE}: write fewer rows")
    packed = compress(body)
    checksum = crc32(packed)
    data_page = _struct((1, _I32(len(leaf.defs))), (2, _I32(_PLAIN)), (3, _I32(_RLE)), (4, _I32(_RLE)))
    header = _struct(
        (1, _I32(0)),  # DATA_PAGE
        (2, _I32(len(body))),
        (3, _I32(len(packed))),
        (4, _I32(checksum - (checksum >> 31 << 32))),
        (5, data_page),
    )
    return header + packed, len(header) + len(body)


def _levels(levels: bytes, highest: int) -> bytes:
    """Levels (one byte each) as a page holds them; nothing when there is only level 0."""
    if highest == 0:
        return b""
    width = highest.bit_length()
    if levels.count(levels[0]) == len(levels):
        data = _varint(len(levels) << 1) + levels[:1]
    else:
        groups = -(-len(levels) // 8)
        data = _varint(groups << 1 | 1) + _bits(levels, width, groups * width)
    return struct.pack("<I", len(data)) + data


_DIGITS = bytes.maketrans(bytes(range(16)), b"0123456789abcdef")


def _bits(levels: bytes, width: int, size: int) -> bytes:
    """Bit-packed, the first value in the lowest bits; ``int`` of a power-of-two base takes linear time."""
    return int(levels[::-1].translate(_DIGITS), 1 << width).to_bytes(size, "little")


_LENGTH = [n.to_bytes(4, "little") for n in range(4096)]


def _binaries(values: Sequence[bytes]) -> bytes:
    parts = [b""] * (2 * len(values))
    parts[::2] = [_LENGTH[n] if (n := len(value)) < 4096 else n.to_bytes(4, "little") for value in values]
    parts[1::2] = values
    return b"".join(parts)


_PLAIN_OF: dict[Scalar, Callable[[list[Any]], bytes]] = {
    STRING: lambda values: _binaries([value.encode() for value in values]),
    BINARY: _binaries,
    BOOL: lambda values: _bits(bytes(values), 1, -(-len(values) // 8)) if values else b"",
    INT32: lambda values: struct.pack(f"<{len(values)}i", *values),
    INT64: lambda values: struct.pack(f"<{len(values)}q", *values),
    TIMESTAMP: lambda values: struct.pack(f"<{len(values)}q", *values),
}


# Thrift, compact protocol: a field is its id's distance from the last one and a type, then the value; zigzag varints.


class _I32(int):
    """An i32; a plain int is an i64."""


class _Struct(bytes):
    """An encoded struct."""


def _varint(n: int) -> bytes:
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def _value(value: Any) -> tuple[int, bytes]:
    """Type code and bytes."""
    if isinstance(value, bool):
        return (1 if value else 2), b""
    if isinstance(value, int):
        return (5 if isinstance(value, _I32) else 6), _varint(value << 1 if value >= 0 else (-value << 1) - 1)
    if isinstance(value, _Struct):
        return 12, value
    if isinstance(value, str):
        data = value.encode()
        return 8, _varint(len(data)) + data
    items = [_value(item) for item in value]
    kind = items[0][0] if items else 12
    size = len(items)
    head = bytes([size << 4 | kind]) if size < 15 else bytes([0xF0 | kind]) + _varint(size)
    return 9, head + b"".join(data for _, data in items)


def _struct(*fields: tuple[int, Any]) -> _Struct:
    """Fields by ascending id; ids are at most 15 apart."""
    out, last = bytearray(), 0
    for field, value in fields:
        kind, data = _value(value)
        out += bytes([(field - last) << 4 | kind]) + data
        last = field
    return _Struct(out + b"\0")


# The footer's parts, by parquet.thrift.

_EMPTY = _struct()
_PHYSICAL = {STRING: 6, BINARY: 6, BOOL: 0, INT32: 1, INT64: 2, TIMESTAMP: 2}
_MICROS_UTC = _struct((1, True), (2, _struct((2, _EMPTY))))
_LOGICAL: dict[Scalar | str, tuple[int, _Struct]] = {
    STRING: (0, _struct((1, _EMPTY))),
    TIMESTAMP: (10, _struct((8, _MICROS_UTC))),
    "map": (1, _struct((2, _EMPTY))),
    "list": (3, _struct((3, _EMPTY))),
}
"""Converted type (for old readers) and logical type."""


def _element(
    name: str, *, kind: Scalar | str | None = None, repetition: int | None = None, children: int | None = None
) -> _Struct:
    fields: list[tuple[int, Any]] = []
    if isinstance(kind, Scalar):
        fields.append((1, _I32(_PHYSICAL[kind])))
    if repetition is not None:
        fields.append((3, _I32(repetition)))
    fields.append((4, name))
    if children is not None:
        fields.append((5, _I32(children)))
    if kind in _LOGICAL:
        converted, logical = _LOGICAL[kind]
        fields += [(6, _I32(converted)), (10, logical)]
    return _struct(*fields)


def _elements(name: str, kind: Type, repetition: int) -> Iterator[_Struct]:
    """The schema elements of one column, depth first."""
    if isinstance(kind, Scalar):
        yield _element(name, kind=kind, repetition=repetition)
    elif isinstance(kind, List):
        yield _element(name, kind="list", repetition=repetition, children=1)
        yield _element("list", repetition=_REPEATED, children=1)
        yield from _elements("element", kind.of, _REQUIRED)
    elif isinstance(kind, Map):
        yield _element(name, kind="map", repetition=repetition, children=1)
        yield _element("key_value", repetition=_REPEATED, children=2)
        yield _element("key", kind=STRING, repetition=_REQUIRED)
        yield _element("value", kind=STRING, repetition=_REQUIRED)
    else:
        yield _element(name, repetition=repetition, children=len(kind.columns))
        for column in kind.columns:
            yield from _elements(column.name, column.type, _REQUIRED if column.required else _OPTIONAL)


def _chunk(leaf: _Leaf, offset: int, size: int, packed: int) -> _Struct:
    encodings = [_I32(_PLAIN), _I32(_RLE)]
    metadata = _struct(
        (1, _I32(_PHYSICAL[leaf.kind])),
        (2, encodings),
        (3, list(leaf.path)),
        (4, _I32(_ZSTD)),
        (5, len(leaf.defs)),
        (6, size),
        (7, packed),
        (9, offset),
    )
    return _struct((2, offset), (3, metadata))
