"""Types by Flink's rules: families, the common type of several, and the results of arithmetic on DECIMAL.

After ``LogicalTypeMerging`` and ``FlinkTypeSystem`` of Apache Flink 2.3.
"""

from __future__ import annotations

from collections.abc import Iterable

from vedette.plan.numbers import BITS
from vedette.plan.query import Type

BOOLEAN, TINYINT, SMALLINT, INT, BIGINT = map(Type, ("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT"))
FLOAT, DOUBLE, STRING, BYTES, DATE, NULL = map(Type, ("FLOAT", "DOUBLE", "STRING", "BYTES", "DATE", "NULL"))
TIMESTAMP_3, TIMESTAMP_LTZ_3 = Type("TIMESTAMP", 3), Type("TIMESTAMP_LTZ", 3)

WHOLE = tuple(BITS)
"""From narrow to wide."""
_DIGITS = {"TINYINT": 3, "SMALLINT": 5, "INT": 10, "BIGINT": 19}
APPROXIMATE = ("FLOAT", "DOUBLE")
NUMERIC = (*WHOLE, "DECIMAL", *APPROXIMATE)
TEXT = ("CHAR", "VARCHAR", "STRING")
BINARY = ("BINARY", "VARBINARY", "BYTES")
STAMP = ("TIMESTAMP", "TIMESTAMP_LTZ")
INTERVAL = ("INTERVAL_SECOND", "INTERVAL_MONTH")
MAX_DIGITS = 38


class Failed(ValueError):
    """A function has no value for these arguments; Flink's job dies of it, here the row is dropped and counted."""


def decimal(precision: int, scale: int) -> Type:
    """DECIMAL, brought within 38 digits as Flink does: the fraction gives way, down to 6 digits."""
    if precision <= MAX_DIGITS:
        return Type("DECIMAL", precision, scale)
    whole = precision - scale
    return Type("DECIMAL", MAX_DIGITS, max(MAX_DIGITS - whole, min(scale, 6)))


def as_decimal(of: Type) -> Type:
    """The DECIMAL that holds every value of a whole number's type."""
    return Type("DECIMAL", _DIGITS[of.name], 0) if of.name in _DIGITS else of


def common(types: Iterable[Type]) -> Type | None:
    """The type that values of all ``types`` are brought to (CASE, COALESCE, IN, UNION); None if there is none."""
    result = NULL
    for candidate in types:
        merged = _merge(result, candidate)
        if merged is None:
            return None
        result = merged
    return result


def _merge(a: Type, b: Type) -> Type | None:
    if a == b or b == NULL:
        return a
    if a == NULL:
        return b
    if a.name in NUMERIC and b.name in NUMERIC:
        return _merge_numbers(a, b)
    if a.name in TEXT and b.name in TEXT:
        if "STRING" in (a.name, b.name):
            return STRING
        return Type("VARCHAR" if a.name != "CHAR" or b.name != "CHAR" or a.precision != b.precision else "CHAR",
                    max(a.precision, b.precision))  # fmt: skip
    if a.name in BINARY and b.name in BINARY:
        return BYTES if "BYTES" in (a.name, b.name) else Type("VARBINARY", max(a.precision, b.precision))
    if a.name in STAMP and b.name in STAMP:
        return Type(a.name, max(a.precision, b.precision))
    if a.name == b.name and a.name in ("TIME", *INTERVAL):
        return a if a.precision >= b.precision else b
    if a.name == b.name and len(a.args) == len(b.args):
        return _merge_nested(a, b)
    return None


def _merge_numbers(a: Type, b: Type) -> Type:
    if a.name in WHOLE and b.name in WHOLE:
        return max(a, b, key=lambda kind: BITS[kind.name])
    if a.name in APPROXIMATE or b.name in APPROXIMATE:
        if "DECIMAL" in (a.name, b.name):
            return DOUBLE
        return a if a.name in APPROXIMATE else b  # of two the first, as Calcite has it
    a, b = as_decimal(a), as_decimal(b)
    scale = max(a.scale, b.scale)
    return Type("DECIMAL", min(MAX_DIGITS, max(a.precision - a.scale, b.precision - b.scale) + scale), scale)


def _merge_nested(a: Type, b: Type) -> Type | None:
    if a.name == "ROW":
        parts = [(name, _merge(inner, other)) for (name, inner), (_, other) in zip(a.args, b.args, strict=True)]
        return None if any(part is None for _, part in parts) else Type("ROW", args=tuple(parts))
    merged = [_merge(inner, other) for inner, other in zip(a.args, b.args, strict=True)]
    return None if None in merged else Type(a.name, args=tuple(merged))
