"""Rows of statements as JSON objects, as Flink's format ``json`` writes them (its defaults, Apache Flink 2.3).

A time is text in the form of SQL (``2026-02-03 04:05:06.789``, with ``Z`` for TIMESTAMP_LTZ, no zeros behind the last
digit of a second), DATE and TIME likewise, TIME in whole seconds; DECIMAL is a number with all its digits; bytes are
base64; what is no number (NaN, Infinity) is text; NULL is null.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import orjson

from vedette.plan.query import SECOND, Named, Row, Type
from vedette.stream.values.dates import date_text, stamp_text, time_text
from vedette.stream.values.numbers import decimal_text, nearest

Change = Callable[[Any], Any]
Values = dict[str, Any]
_SAME = frozenset(
    {"BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "CHAR", "VARCHAR", "STRING", "INTERVAL_MONTH", "NULL"}
)
"""Types whose values JSON has as they are."""


def written(columns: tuple[Named, ...]) -> Callable[[Row], Values]:
    """Return what makes the values of JSON of a row with these columns."""
    names = tuple(column.name for column in columns)
    changes = [(at, change) for at, column in enumerate(columns) if (change := _change(column.type)) is not None]

    def values_of(row: Row) -> Values:
        values = dict(zip(names, row[1:], strict=True))
        for at, change in changes:
            if (value := row[at + 1]) is not None:
                values[names[at]] = change(value)
        return values

    return values_of


def as_line(values: Values) -> bytes:
    """Return the JSON object."""
    try:
        return orjson.dumps(values)
    except TypeError:  # a text with half a surrogate pair, which no UTF-8 has
        return orjson.dumps(_whole(values))


def _change(of: Type) -> Change | None:
    """What makes a value of JSON of one of this type that is not NULL; None: it is one."""
    if of.name in _SAME:
        return None
    match of.name:
        case "FLOAT":
            return lambda value: _number(nearest(value))
        case "DOUBLE":
            return _number
        case "DECIMAL":
            return lambda value: orjson.Fragment(decimal_text(value))
        case "TIMESTAMP" | "TIMESTAMP_LTZ":
            return partial(_stamp, "Z" if of.name == "TIMESTAMP_LTZ" else "")
        case "DATE":
            return date_text
        case "TIME":
            return lambda value: time_text(value, 0)
        case "BYTES" | "BINARY" | "VARBINARY":
            return lambda value: b64encode(value).decode()
        case "INTERVAL_SECOND":
            return lambda value: value // 1000
        case "ARRAY":
            item = _nullable(of.args[0])
            return lambda value: [item(each) for each in value]
        case "MAP":
            item = _nullable(of.args[1])
            return lambda value: {key: item(each) for key, each in value.items() if key is not None}
        case "ROW":
            parts = [(name, _nullable(kind)) for name, kind in of.args]
            return lambda value: {name: part(each) for (name, part), each in zip(parts, value, strict=True)}
    return str


_second = lru_cache(maxsize=1024)(lambda second: stamp_text(second * SECOND, 0))
"""Rows have their seconds in common."""


def _stamp(zone: str, value: int) -> str:
    second, fraction = divmod(value, SECOND)
    text = _second(second)
    return f"{text}.{fraction:06}".rstrip("0") + zone if fraction else text + zone


def _nullable(of: Type) -> Change:
    change = _change(of)
    return (lambda value: value) if change is None else (lambda value: None if value is None else change(value))


def _number(value: float) -> Any:
    if value - value == 0:
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def _whole(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case dict():
            return {_whole(key): _whole(each) for key, each in value.items()}
        case list():
            return [_whole(each) for each in value]
    return value
