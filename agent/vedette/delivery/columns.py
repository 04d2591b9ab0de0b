"""What a table's columns are made of, and the check that a mapping fits them.

A schema is a tuple of ``Column``; a row is a mapping from column names to plain Python values:

=============  ==================================================  ==========================================
type           value                                               Parquet (see ``delivery/parquet.py``)
=============  ==================================================  ==========================================
``STRING``     ``str`` of at most ``MAX_TEXT`` bytes of UTF-8      BYTE_ARRAY, STRING
``BINARY``     ``bytes``                                           BYTE_ARRAY
``BOOL``       ``bool``                                            BOOLEAN
``INT32/64``   ``int`` in range                                    INT32, INT64
``TIMESTAMP``  ``int``, UTC microseconds, years 1 to 9999          INT64, TIMESTAMP(MICROS, adjusted to UTC)
``List(t)``    list or tuple; elements are never null              3-level LIST
``MAP``        mapping from str to str                             MAP
``Struct(c)``  mapping from its columns' names to values           group
=============  ==================================================  ==========================================

A column that is not ``required`` may be None or absent. Repetition does not nest: a list's elements are scalars or
structs of scalars and structs. ``limit`` bounds a list's elements, a map's pairs, or a STRING in place of ``MAX_TEXT``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sized
from dataclasses import dataclass
from enum import Enum
from typing import Any

EARLIEST = -62_135_596_800_000_000
LATEST = 253_402_300_799_999_999
"""UTC microseconds of the first and the last moment every reader can show (years 1 and 9999)."""
MAX_TEXT = 1024
"""Bytes of a STRING whose column has no ``limit`` of its own, also within lists, maps and structs."""


class Scalar(Enum):
    """A type without parts: its name, the Python type of its values and, of numbers, the least and the greatest."""

    STRING = ("string", str)
    BINARY = ("binary", bytes)
    BOOL = ("bool", bool)
    INT32 = ("int32", int, -(1 << 31), (1 << 31) - 1)
    INT64 = ("int64", int, -(1 << 63), (1 << 63) - 1)
    TIMESTAMP = ("timestamp", int, EARLIEST, LATEST)

    def __init__(self, label: str, python: type[Any], least: int | None = None, most: int = 0) -> None:
        self.label, self.python, self.least, self.most = label, python, least, most


@dataclass(frozen=True, slots=True)
class List:
    """Zero or more of one type."""

    of: Scalar | Struct


@dataclass(frozen=True, slots=True)
class Map:
    """Strings by string."""


@dataclass(frozen=True, slots=True)
class Struct:
    """Named parts."""

    columns: tuple[Column, ...]


Type = Scalar | List | Map | Struct


@dataclass(frozen=True, slots=True)
class Column:
    """A name and what stands under it."""

    name: str
    type: Type
    required: bool = False
    limit: int = 0
    """Bytes of a STRING (0: ``MAX_TEXT``), elements of a list, pairs of a map (0: any number)."""


Schema = tuple[Column, ...]

STRING, BINARY, BOOL = Scalar.STRING, Scalar.BINARY, Scalar.BOOL
INT32, INT64, TIMESTAMP = Scalar.INT32, Scalar.INT64, Scalar.TIMESTAMP
MAP = Map()


def fit(schema: Schema, row: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """``row`` with exactly the schema's columns: unknown keys left out, absent nullable ones None.

    Raises ValueError naming the key (``where`` before it) that is missing, not of its type or beyond its bound.
    """
    fitted: dict[str, Any] = {}
    for column in schema:
        value = row.get(column.name)
        if value is None:
            if column.required:
                raise ValueError(f"{where}{column.name}: missing")
            fitted[column.name] = None
        elif column.type is STRING and type(value) is str and value.isascii() and len(value) <= MAX_TEXT:
            fitted[column.name] = value
        else:
            fitted[column.name] = _fit(column.type, value, where + column.name, column.limit)
    return fitted


def _fit(kind: Type, value: Any, where: str, limit: int = 0) -> Any:
    if isinstance(kind, Scalar):
        if type(value) is not kind.python:  # bool is an int and must not pass for one
            raise ValueError(f"{where}: expects {kind.label}, not {type(value).__name__}")
        if kind.least is not None:
            if not kind.least <= value <= kind.most:
                raise ValueError(f"{where}: {value} is out of range for {kind.label}")
        elif kind is STRING:
            _text(value, where, limit or MAX_TEXT)
        return value
    if isinstance(kind, List):
        if not isinstance(value, list | tuple):
            raise ValueError(f"{where}: expects a list, not {type(value).__name__}")
        _few(value, where, limit)
        return [_fit(kind.of, item, f"{where}[{i}]") for i, item in enumerate(value)]
    if isinstance(kind, Map):
        if not isinstance(value, Mapping):
            raise ValueError(f"{where}: expects a map, not {type(value).__name__}")
        _few(value, where, limit)
        for key, item in value.items():
            if type(key) is not str or type(item) is not str:
                raise ValueError(f"{where}: expects a map of strings, has {str(key)[:80]!r}: {type(item).__name__}")
            _text(key, where, MAX_TEXT)
            _text(item, where, MAX_TEXT)
        return dict(value)
    if not isinstance(value, Mapping):
        raise ValueError(f"{where}: expects a struct, not {type(value).__name__}")
    return fit(kind.columns, value, where + ".")


def _few(value: Sized, where: str, limit: int) -> None:
    if limit and len(value) > limit:
        raise ValueError(f"{where}: {len(value)} in it, at most {limit}")


def _text(text: str, where: str, limit: int) -> None:
    try:
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError as error:
        raise ValueError(f"{where}: is not valid Unicode: {error.reason}") from error
    if size > limit:
        raise ValueError(f"{where}: {size} bytes, at most {limit}")
