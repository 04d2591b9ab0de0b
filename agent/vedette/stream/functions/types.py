"""Flink's rules for types: families, the common type of several, and the results of arithmetic on DECIMAL.

After ``LogicalTypeMerging`` and ``FlinkTypeSystem`` of Apache Flink 2.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from vedette.plan.query import Expression, Literal, Type
from vedette.plan.widths import BITS
from vedette.stream.functions.table import Infer, WrongTypes

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
    found = NULL
    for one in types:
        merged = _merge(found, one)
        if merged is None:
            return None
        found = merged
    return found


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
        return max(a, b, key=lambda one: BITS[one.name])
    if a.name in APPROXIMATE or b.name in APPROXIMATE:
        if "DECIMAL" in (a.name, b.name):
            return DOUBLE
        return a if a.name in APPROXIMATE else b  # of two the first, as Calcite has it
    a, b = as_decimal(a), as_decimal(b)
    scale = max(a.scale, b.scale)
    return Type("DECIMAL", min(MAX_DIGITS, max(a.precision - a.scale, b.precision - b.scale) + scale), scale)


def _merge_nested(a: Type, b: Type) -> Type | None:
    if a.name == "ROW":
        parts = [(name, _merge(one, other)) for (name, one), (_, other) in zip(a.args, b.args, strict=True)]
        return None if any(part is None for _, part in parts) else Type("ROW", args=tuple(parts))
    merged = [_merge(one, other) for one, other in zip(a.args, b.args, strict=True)]
    return None if None in merged else Type(a.name, args=tuple(merged))


# --- infer


def constant(expression: Expression) -> Any:
    """The value of a literal; None for all else."""
    return expression.value if isinstance(expression, Literal) else None


def of(args: Sequence[Expression]) -> list[Type]:
    return [one.type for one in args]


def count(args: Sequence[Expression], least: int, most: int | None = None) -> None:
    """Raises ``WrongTypes`` unless there are ``least`` to ``most`` arguments."""
    most = least if most is None else most
    if not least <= len(args) <= most:
        wanted = str(least) if least == most else f"{least} or more" if most > 99 else f"{least} to {most}"
        raise WrongTypes(f"takes {wanted} argument{'s' if wanted != '1' else ''}, got {len(args)}")


def takes(*families: Sequence[str], least: int | None = None, more: bool = False) -> Callable[..., None]:
    """A check that the arguments are of these families, one for each; the last may repeat if ``more``."""
    needed = len(families) if least is None else least

    def check(args: Sequence[Expression]) -> None:
        count(args, needed, 1000 if more else len(families))
        for place, one in enumerate(args):
            family = families[min(place, len(families) - 1)]
            if one.type != NULL and one.type.name not in family:
                raise WrongTypes(f"argument {place + 1} must be {named(family)}, not {one.type}")

    return check


_FAMILIES = {NUMERIC: "a number", TEXT: "a text", WHOLE: "a whole number", BINARY: "bytes", STAMP: "a timestamp"}


def named(family: Sequence[str]) -> str:
    return _FAMILIES.get(tuple(family)) or " or ".join(family)


def gives(result: Type, check: Callable[[Sequence[Expression]], None]) -> Infer:
    """An ``infer`` for a function of one type of value, whatever its arguments' types are."""

    def infer(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
        check(args)
        return result

    return infer


def shared(args: Sequence[Expression], start: int = 0) -> Type:
    """The common type of the arguments from ``start`` on. Raises ``WrongTypes``."""
    found = common(of(args[start:]))
    if found is None:
        raise WrongTypes("the types have nothing in common; use CAST")
    return found
