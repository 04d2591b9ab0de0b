"""The file of a lookup: sections at fixed places, a header that says what they are, digests over all of it.

    0-7      b"VDLOOKUP"
    8-11     format, little-endian: 2
    12-15    size of the header
    16-23    place of the header
    24-55    SHA-256 of the header
    56-63    zero
    64-      sections, each at a multiple of 64
    then     the header, in msgpack; the file ends with it

A signed file has a record and a list of digests before this (``sign.py``); places count from behind them. The header
holds the SHA-256 of each section, so its own digest, the lookup's **version**, covers the whole. ``parse`` checks the
header, ``damaged`` the sections (it reads all of the file: after a transfer, not at each start). All numbers are
little-endian.
``docs/lookups.md`` says what the sections hold.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO, NamedTuple

import msgpack

from vedette.bundle.seal import MAGIC as SEALED
from vedette.bundle.seal import SIZE as SEAL
from vedette.bundle.seal import body_size

MAGIC = b"VDLOOKUP"
FORMAT = 2
_START = struct.Struct("<8sIIQ32s8x")
_MAX_HEADER = 64 << 20
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
"""Of a lookup: what rules and SQL call it."""

TYPES = ("text", "int", "float", "bool", "time")
"""Of columns. A time is UTC microseconds."""
KINDS = ("text", "nocase", "number", "ip", "cidr", "domain", "range")
"""Of indexes."""


class LookupRefused(ValueError):
    """The file is no lookup that this version can use; the text says why and what to do."""


class Column(NamedTuple):
    """``type``: one of ``TYPES``; each value is of it or null."""

    name: str
    type: str


class Index(NamedTuple):
    """``name``: what callers ask by: the column, ``COLUMN:KIND`` where a column has several, ``LOW..HIGH`` of a range.
    ``unique``: a key has one row, of those that are valid at a time."""

    name: str
    kind: str
    columns: tuple[str, ...]
    unique: bool


@dataclass(frozen=True, slots=True)
class Header:
    """``stores[i]`` is how column i lies in a row, ``layouts[i]`` where index i finds its parts."""

    name: str
    rows: int
    created: int
    columns: tuple[Column, ...]
    indexes: tuple[Index, ...]
    valid: tuple[int, int] | None
    """The columns of the times from which and up to which a row holds."""
    stores: list[dict[str, Any]] = field(default_factory=list)
    layouts: list[dict[str, Any]] = field(default_factory=list)
    width: int = 0
    """Bytes of the fixed part of a row."""
    symbols: list[bytes] = field(default_factory=list)
    """What the codes of compressed texts mean; none: texts are not compressed."""
    sections: dict[str, tuple[int, int, bytes]] = field(default_factory=dict)
    """Place, size and SHA-256 by name."""


class Writer:
    """Writes a file section by section; ``finish`` makes it a lookup."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._at = _START.size
        self.sections: dict[str, tuple[int, int, bytes]] = {}
        file.write(bytes(_START.size))

    def section(self, name: str, *parts: bytes | bytearray | memoryview) -> None:
        self.stream(name, parts)

    def stream(self, name: str, parts: Iterable[bytes | bytearray | memoryview]) -> None:
        self._file.write(bytes(-self._at % 64))
        self._at += -self._at % 64
        digest, size = hashlib.sha256(), 0
        for part in parts:
            digest.update(part)
            self._file.write(part)
            size += memoryview(part).nbytes
        self.sections[name] = (self._at, size, digest.digest())
        self._at += size

    def finish(self, header: Header) -> str:
        """Returns the version."""
        packed = bytes(
            msgpack.packb(
                {
                    "name": header.name,
                    "rows": header.rows,
                    "created": header.created,
                    "columns": [[*c] for c in header.columns],
                    "indexes": [[i.name, i.kind, list(i.columns), i.unique] for i in header.indexes],
                    "valid": header.valid,
                    "stores": header.stores,
                    "layouts": header.layouts,
                    "width": header.width,
                    "symbols": header.symbols,
                    "sections": {name: list(span) for name, span in self.sections.items()},
                }
            )
        )
        digest = hashlib.sha256(packed).digest()
        self._file.write(packed)
        self._file.seek(0)
        self._file.write(_START.pack(MAGIC, FORMAT, len(packed), self._at, digest))
        return digest.hex()


def parse(data: Any) -> tuple[Header, int, str]:
    """Header, the place from which its places count, and version of the file ``data`` (bytes or a map of it).

    Raises LookupRefused.
    """
    if not len(data):
        raise LookupRefused("it is empty: copy it again")
    base = SEAL + body_size(bytes(data[:SEAL])) if data[: len(SEALED)] == SEALED else 0
    start = bytes(data[base : base + _START.size])
    if start[:8] != MAGIC:
        raise LookupRefused("it is no lookup: build one with `vedette lookup build`")
    if len(start) < _START.size:
        raise LookupRefused("it is cut off: copy it again")
    _, version, size, at, digest = _START.unpack(start)
    if version > FORMAT:
        raise LookupRefused(
            f"its format {version} is newer than {FORMAT}: upgrade the agent, or build it by this release"
        )
    if version < FORMAT:
        raise LookupRefused(f"its format {version} is older than {FORMAT}: build it again by this release")
    if len(data) != base + at + size or size > _MAX_HEADER:
        raise LookupRefused(f"it has {len(data)} bytes and not the {base + at + size} it states: copy it again")
    packed = bytes(data[base + at : base + at + size])
    if hashlib.sha256(packed).digest() != digest:
        raise LookupRefused("its header is damaged: copy it again")
    try:
        return _header(msgpack.unpackb(packed), at), base, digest.hex()
    except (KeyError, TypeError, ValueError, msgpack.UnpackException) as error:
        raise LookupRefused(f"its header is not one of a lookup ({error}): build it again") from error


def _header(document: Mapping[str, Any], end: int) -> Header:
    header = Header(
        name=document["name"],
        rows=document["rows"],
        created=document["created"],
        columns=tuple(Column(*column) for column in document["columns"]),
        indexes=tuple(Index(name, kind, tuple(of), unique) for name, kind, of, unique in document["indexes"]),
        valid=None if document["valid"] is None else (document["valid"][0], document["valid"][1]),
        stores=document["stores"],
        layouts=document["layouts"],
        width=document["width"],
        symbols=document["symbols"],
        sections={name: (at, size, digest) for name, (at, size, digest) in document["sections"].items()},
    )
    names = [column.name for column in header.columns]
    if any(at < _START.size or size < 0 or at + size > end for at, size, _ in header.sections.values()):
        raise ValueError("a section outside of the file")
    if any(column.type not in TYPES for column in header.columns):
        raise ValueError("a column of an unknown type")
    if any(index.kind not in KINDS or not set(index.columns) <= set(names) for index in header.indexes):
        raise ValueError("an index of an unknown kind or column")
    if len(header.stores) != len(names) or len(header.layouts) != len(header.indexes):
        raise ValueError("its parts do not fit together")
    return header


def damaged(data: Any, header: Header, base: int) -> str | None:
    """The first section whose digest does not fit, or None."""
    view = memoryview(data)
    try:
        for name, (at, size, digest) in header.sections.items():
            if hashlib.sha256(view[base + at : base + at + size]).digest() != digest:
                return name
        return None
    finally:
        view.release()
