"""Whether a child's answer is of the types that its function declared.

The child checks what a function gives (``values.taken``); a function can write to the pipe past that check. So what
comes out of the pipe is believed only when ``taken`` could have given it: a number with a billion digits would hold the
agent for as long as somebody computes with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from vedette.plan.numbers import BITS
from vedette.plan.query import Type
from vedette.stream.userfunctions import Spec
from vedette.udf.values import MAX_ACCUMULATOR

Check = Callable[[Any], bool]

_WHOLE = {
    "DATE": (-719_162, 2_932_896),
    "TIME": (0, 86_399_999),
    "TIMESTAMP": (-62_135_596_800_000_000, 253_402_300_799_999_999),
    "TIMESTAMP_LTZ": (-62_135_596_800_000_000, 253_402_300_799_999_999),
}
"""Days, milliseconds and microseconds that a date and a time of Python can be."""
_EXACT: dict[str, type] = {
    "BOOLEAN": bool, "FLOAT": float, "DOUBLE": float, "CHAR": str, "VARCHAR": str, "STRING": str, "BINARY": bytes,
    "VARBINARY": bytes, "BYTES": bytes,
}  # fmt: skip


def checked(spec: Spec) -> Check:
    """What tells whether the value of one row can be one of ``spec``'s; None is the value of a row that failed."""
    if spec.method == "fold":
        return _folded
    row = _row([_of(of) for of in spec.result])
    if len(spec.result) > 1:
        return _or_null(_each(row))
    scalar, rows = _of(spec.result[0]), _each(row)
    return lambda value: scalar(value) or rows(value)


def _folded(value: Any) -> bool:
    """An accumulator, how many items failed, why, and whether one took too long."""
    if value is None:
        return True
    if type(value) is not tuple or [*map(type, value)] != [bytes, int, str, bool]:
        return False
    accumulator, failed, _, _ = value
    return len(accumulator) <= MAX_ACCUMULATOR and failed >= 0


def _of(of: Type) -> Check:
    """For a value of one type, or NULL."""
    if of.name in _EXACT:
        exact = _EXACT[of.name]
        return lambda value: value is None or type(value) is exact
    if of.name in _WHOLE or of.name in BITS:
        most = 1 << BITS.get(of.name, 64) - 1
        low, high = _WHOLE.get(of.name, (-most, most - 1))
        return lambda value: value is None or (type(value) is int and low <= value <= high)
    match of.name:
        case "DECIMAL":
            exponent, limit = -of.scale, Decimal(10) ** (of.precision - of.scale)
            return lambda value: (
                value is None
                or (type(value) is Decimal and value.as_tuple().exponent == exponent and value.copy_abs() < limit)
            )
        case "ARRAY":
            return _or_null(_each(_of(of.args[0])))
        case "MAP":
            key, content = map(_of, of.args)
            return lambda value: (
                value is None or (type(value) is dict and all(map(key, value)) and all(map(content, value.values())))
            )
        case "ROW":
            return _or_null(_row([_of(part) for _, part in of.args]))
    return lambda value: False


def _or_null(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _each(check: Check) -> Check:
    return lambda value: type(value) is tuple and all(map(check, value))


def _row(checks: Sequence[Check]) -> Check:
    return lambda value: (
        type(value) is tuple
        and len(value) == len(checks)
        and all(check(part) for check, part in zip(checks, value, strict=True))
    )
