"""Numbers as Java has them: wrapped integers, 32-bit floats, decimals of a precision and scale, and their texts."""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Callable
from decimal import ROUND_DOWN, ROUND_HALF_UP, Context, Decimal
from typing import Any

from vedette.plan.numbers import BITS
from vedette.plan.query import Type
from vedette.stream.values.types import Failed

EXACT = Context(prec=120, rounding=ROUND_HALF_UP)
"""Wide enough for a product or a quotient of any two decimals, before it is rounded to its scale."""
_WHOLE = re.compile(r"(?!\Z)([+-]?)(?!\Z)([0-9]*)(?:\.[0-9]*)?", re.ASCII)
_FLOAT = re.compile(r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
SPACES = "".join(map(chr, range(33)))
"""What Java's ``trim`` takes away."""


def wrapper(bits: int) -> Callable[[int], int]:
    """Brings an int into ``bits`` bits, two's complement."""
    half, mask = 1 << (bits - 1), (1 << bits) - 1

    def wrap(value: int) -> int:
        return value if -half <= value < half else ((value + half) & mask) - half

    return wrap


WRAP: dict[str, Callable[[int], int]] = {name: wrapper(bits) for name, bits in BITS.items()}


def single(value: float) -> float:
    """Round to 32 bits; beyond their range it is infinite."""
    return ctypes.c_float(value).value


def rounder(to: Type) -> Callable[[Any], Decimal | None]:
    """Brings a Decimal, an int or a float to a DECIMAL's scale, half away from zero; None when it is too wide."""
    step, most = Decimal(1).scaleb(-to.scale), Decimal(10) ** (to.precision - to.scale)

    def change(value: Any) -> Decimal | None:
        if type(value) is float:
            if not math.isfinite(value):
                raise Failed(f"{value} is no DECIMAL")
            value = Decimal(repr(value))
        elif type(value) is int:
            value = Decimal(value)
        if not -most < value < most:
            return None
        rounded: Decimal = value.quantize(step, context=EXACT)
        if not rounded:
            return rounded.copy_abs()  # no -0.00
        return rounded if -most < rounded < most else None

    return change


def cut(value: Any) -> int:
    """The whole part of a Decimal."""
    return int(value.to_integral_value(ROUND_DOWN))


def whole_of_float(value: float, name: str) -> int:
    """A float as Java casts it: to long or int first, where it stays at the ends, then wrapped."""
    bits = 64 if name == "BIGINT" else 32
    if value != value:
        return 0
    most = (1 << (bits - 1)) - 1
    whole = most if value >= most else -most - 1 if value <= -most - 1 else int(value)
    return WRAP[name](whole)


def whole_of_text(text: str, name: str) -> int:
    """Raises ``Failed``."""
    match = _WHOLE.fullmatch(text.strip(" "))
    if not match:
        raise Failed(f"{text!r:.60} is no {name}")
    value, most = int(f"{match[1]}0{match[2]}"), 1 << (BITS[name] - 1)
    if not -most <= value < most:
        raise Failed(f"{text!r:.60} is beyond {name}")
    return value


def float_of_text(text: str) -> float:
    """Raises ``Failed``."""
    trimmed = text.strip(SPACES)
    if not _FLOAT.fullmatch(trimmed):
        raise Failed(f"{text!r:.60} is no DOUBLE")
    return float(trimmed if trimmed[-1] not in "fFdD" else trimmed[:-1])


def decimal_of_text(text: str) -> Decimal:
    """Raises ``Failed``."""
    trimmed = text.strip(SPACES)
    if len(trimmed) > 500 or not _DECIMAL.fullmatch(trimmed):
        raise Failed(f"{text!r:.60} is no DECIMAL")
    return Decimal(trimmed)


def float_text(value: float, digits: str | None = None) -> str:
    """As Java writes a double; ``digits``: another repr of it."""
    if value != value:
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "-0.0" if math.copysign(1, value) < 0 else "0.0"
    sign, figures, exponent = Decimal(digits or repr(value)).as_tuple()
    shown = "".join(map(str, figures)).rstrip("0") or "0"
    point = len(figures) + int(exponent)  # digits before the point
    if 1e-3 <= abs(value) < 1e7:
        if point <= 0:
            text = "0." + "0" * -point + shown
        elif point >= len(shown):
            text = shown + "0" * (point - len(shown)) + ".0"
        else:
            text = f"{shown[:point]}.{shown[point:]}"
    else:
        text = f"{shown[0]}.{shown[1:] or '0'}E{point - 1}"
    return "-" + text if sign else text


def single_text(value: float) -> str:
    """As Java writes a float."""
    return float_text(value, repr(nearest(value)))


def nearest(value: float) -> float:
    """The number with the fewest digits that is ``value`` when it is rounded to 32 bits."""
    texts = (f"{value:.{figures}g}" for figures in range(1, 10))
    return next((float(text) for text in texts if single(float(text)) == value), value)


def decimal_text(value: Decimal) -> str:
    return format(value, "f")
