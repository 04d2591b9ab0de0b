"""Numbers as rules and statements read, add and bound them. Alone, as the processes of user functions load no more of
the plan."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

Number = int | float

BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
"""The widths of SQL's whole numbers."""
MAX_DIGITS = 300
"""Characters of a text that is read as a whole number of any size."""
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_EXACT = 1 << 53
"""Whole numbers up to this are floats exactly."""


def as_number(text: str) -> Number | None:
    """Return the number that ``text`` is written as, in JSON's syntax (but for leading zeros); None when it is none."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    return int(text) if len(text) <= MAX_DIGITS and match[1] is match[2] is None else float(text)


def number_of(value: Any) -> Number | None:
    """Return a finite number, or the one that a text is, whatever white space stands around it; None for all else.

    Whole numbers beyond 64 bits come as floats."""
    if isinstance(value, str):
        text = value.strip()
        value = as_number(text) if len(text) <= MAX_DIGITS else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value if abs(value) < 1 << 63 else float(value)


def exact_sum(values: Sequence[Number]) -> float:
    """Add up and round once, to the nearest double: infinite beyond the largest, NaN of infinities of both signs."""
    if not any(type(value) is int and abs(value) > _EXACT for value in values):
        try:
            return math.fsum(values)
        except ValueError:  # infinities of both signs
            return math.nan
        except OverflowError:
            pass  # on the way; the sum itself may be one
    if special := [value for value in values if type(value) is float and not math.isfinite(value)]:
        return sum(special)
    exact = sum(map(Fraction, values), Fraction())
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf
