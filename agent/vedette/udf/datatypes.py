"""PyFlink's types by its names, ``DataTypes.BIGINT()`` or the text ``"BIGINT"``, and ``Row``.

A type is what ``query.dump`` gives for a ``Type`` (``["Type", name, precision, scale, ["", …]]``): the child loads
nothing of the plan. After Apache Flink 2.3, ``pyflink/table/types.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

Dumped = list[Any]


class Unsupported(TypeError):
    """PyFlink has it, this does not; the text says what to write instead."""


class DataType:
    def __init__(self, name: str, precision: int = 0, scale: int = 0, args: Iterable[Any] = ()) -> None:
        self.dumped: Dumped = ["Type", name, precision, scale, ["", *args]]

    def not_null(self) -> DataType:
        return self

    nullable = not_null


def _field(name: str, data_type: Any, description: str | None = None) -> tuple[str, DataType]:
    return name, data_type_of(data_type)


class DataTypes:
    """Constructors of types, by PyFlink's names. ``nullable`` says nothing here: any value may be NULL."""

    FIELD = staticmethod(_field)

    @staticmethod
    def NULL() -> DataType:
        raise Unsupported("a value of type NULL is no result: name a type")

    @staticmethod
    def CHAR(length: int, nullable: bool = True) -> DataType:
        return DataType("CHAR", length)

    @staticmethod
    def VARCHAR(length: int, nullable: bool = True) -> DataType:
        return DataType("VARCHAR", length)

    @staticmethod
    def STRING(nullable: bool = True) -> DataType:
        return DataType("STRING")

    @staticmethod
    def BOOLEAN(nullable: bool = True) -> DataType:
        return DataType("BOOLEAN")

    @staticmethod
    def BINARY(length: int, nullable: bool = True) -> DataType:
        return DataType("BINARY", length)

    @staticmethod
    def VARBINARY(length: int, nullable: bool = True) -> DataType:
        return DataType("VARBINARY", length)

    @staticmethod
    def BYTES(nullable: bool = True) -> DataType:
        return DataType("BYTES")

    @staticmethod
    def DECIMAL(precision: int, scale: int, nullable: bool = True) -> DataType:
        return DataType("DECIMAL", precision, scale)

    @staticmethod
    def TINYINT(nullable: bool = True) -> DataType:
        return DataType("TINYINT")

    @staticmethod
    def SMALLINT(nullable: bool = True) -> DataType:
        return DataType("SMALLINT")

    @staticmethod
    def INT(nullable: bool = True) -> DataType:
        return DataType("INT")

    @staticmethod
    def BIGINT(nullable: bool = True) -> DataType:
        return DataType("BIGINT")

    @staticmethod
    def FLOAT(nullable: bool = True) -> DataType:
        return DataType("FLOAT")

    @staticmethod
    def DOUBLE(nullable: bool = True) -> DataType:
        return DataType("DOUBLE")

    @staticmethod
    def DATE(nullable: bool = True) -> DataType:
        return DataType("DATE")

    @staticmethod
    def TIME(precision: int = 0, nullable: bool = True) -> DataType:
        return DataType("TIME", precision)

    @staticmethod
    def TIMESTAMP(precision: int = 6, nullable: bool = True) -> DataType:
        return DataType("TIMESTAMP", precision)

    @staticmethod
    def TIMESTAMP_LTZ(precision: int = 6, nullable: bool = True) -> DataType:
        return DataType("TIMESTAMP_LTZ", precision)

    TIMESTAMP_WITH_LOCAL_TIME_ZONE = TIMESTAMP_LTZ

    @staticmethod
    def ARRAY(element_type: Any, nullable: bool = True) -> DataType:
        return DataType("ARRAY", args=[data_type_of(element_type).dumped])

    @staticmethod
    def LIST_VIEW(element_type: Any) -> DataType:
        raise Unsupported("ListView is not supported: keep a list in the accumulator")

    @staticmethod
    def MAP_VIEW(key_type: Any, value_type: Any) -> DataType:
        raise Unsupported("MapView is not supported: keep a dict in the accumulator")

    @staticmethod
    def MAP(key_type: Any, value_type: Any, nullable: bool = True) -> DataType:
        return DataType("MAP", args=[data_type_of(key_type).dumped, data_type_of(value_type).dumped])

    @staticmethod
    def MULTISET(element_type: Any, nullable: bool = True) -> DataType:
        return DataType("MAP", args=[data_type_of(element_type).dumped, DataType("INT").dumped])

    @staticmethod
    def ROW(row_fields: Iterable[Any] = (), nullable: bool = True) -> DataType:
        pairs = [field if isinstance(field, tuple) else (f"f{at}", field) for at, field in enumerate(row_fields)]
        return DataType("ROW", args=[["", name, data_type_of(of).dumped] for name, of in pairs])


_WORDS = re.compile(r"\s*(`[^`]+`|\w+|[<>(),])")
_PLAIN = {
    "BOOLEAN": "BOOLEAN", "TINYINT": "TINYINT", "SMALLINT": "SMALLINT", "INT": "INT", "INTEGER": "INT",
    "BIGINT": "BIGINT", "FLOAT": "FLOAT", "DOUBLE": "DOUBLE", "STRING": "STRING", "BYTES": "BYTES", "DATE": "DATE",
}  # fmt: skip


def data_type_of(type_: Any) -> DataType:
    """A ``DataType`` as it is, or the one that a text as ``"ROW<a INT, b STRING>"`` names. Raises TypeError."""
    if isinstance(type_, DataType):
        return type_
    if not isinstance(type_, str):
        raise TypeError(f"a type is DataTypes.…() or a text, not {type_!r:.60}")
    words = _WORDS.findall(type_)
    if "".join(words) != re.sub(r"\s+", "", type_):
        raise TypeError(f"{type_!r:.60} names no type")
    words.append("")
    parsed = _parsed(words)
    if words != [""]:
        raise TypeError(f"{type_!r:.60} names no type")
    return parsed


def _parsed(words: list[str]) -> DataType:
    name = words.pop(0).upper()
    numbers: list[int] = []
    inner: list[Any] = []
    if words[0] == "(" and name != "ROW":
        words.pop(0)
        while words[0].isdecimal():
            numbers.append(int(words.pop(0)))
            if words[0] == ",":
                words.pop(0)
        _expect(words, ")")
    if words[0] in ("<", "(") and name in ("ARRAY", "MAP", "MULTISET", "ROW"):
        end = ">" if words.pop(0) == "<" else ")"
        while words[0] != end:
            called = words.pop(0).strip("`") if name == "ROW" else ""
            inner.append((called, _parsed(words)) if name == "ROW" else _parsed(words))
            if words[0] == ",":
                words.pop(0)
        _expect(words, end)
    if words[:2] == ["NOT", "NULL"]:
        del words[:2]
    elif words[0].upper() == "NULL":
        del words[0]
    if name in _PLAIN and not numbers:
        return DataType(_PLAIN[name])
    if name in ("ARRAY", "MAP", "MULTISET"):
        return DataType("MAP", args=[*(part.dumped for part in inner), DataType("INT").dumped]) \
            if name == "MULTISET" else DataType(name, args=[part.dumped for part in inner])  # fmt: skip
    if name == "ROW":
        return DataTypes.ROW(inner)
    if name in ("DECIMAL", "NUMERIC", "DEC"):
        return _sized("DECIMAL", numbers or [10])
    if name in ("TIME", "TIMESTAMP", "TIMESTAMP_LTZ", "CHAR", "VARCHAR", "BINARY", "VARBINARY"):
        usual = {"TIME": 0, "TIMESTAMP": 6, "TIMESTAMP_LTZ": 6}.get(name, 1)
        return _sized(name, numbers or [usual])
    raise TypeError(f"{name!r:.40} is no type")


def _sized(name: str, numbers: list[int]) -> DataType:
    precision, scale = (*numbers, 0)[:2]
    return DataType(name, precision, scale)


def _expect(words: list[str], sign: str) -> None:
    if not words or words.pop(0) != sign:
        raise TypeError(f"{sign} expected in a type")


class Row(list[Any]):
    """Values by place, or with names: ``Row(1, "a")``, ``Row(id=1, name="a")``. They can be set, in accumulators."""

    def __init__(self, *values: Any, **named: Any) -> None:
        if values and named:
            raise ValueError("a Row has values, or names and values, not both")
        super().__init__(values or named.values())
        self._fields: tuple[str, ...] = tuple(named)

    def __hash__(self) -> int:  # type: ignore[override]  # PyFlink's has one, for keys of a dict
        return hash(tuple(self))

    def __getattr__(self, name: str) -> Any:
        if name != "_fields" and name in self._fields:
            return self[name]
        raise AttributeError(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "_fields" and name in self._fields:
            self[name] = value
        else:
            super().__setattr__(name, value)

    def __getitem__(self, at: Any) -> Any:
        return super().__getitem__(self._fields.index(at) if isinstance(at, str) else at)

    def __setitem__(self, at: Any, value: Any) -> None:
        super().__setitem__(self._fields.index(at) if isinstance(at, str) else at, value)

    def as_dict(self, recursive: bool = False) -> dict[str, Any]:
        return dict(zip(self._fields, self, strict=True))
