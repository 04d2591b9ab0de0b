"""Parts of aggregates: accumulators that do not know which function reads them, and their fields as bytes.

``AVG(x)`` and ``SUM(x)`` share both of their parts, ``COUNT(x)`` has one of them: so a hundred statements over the same
column keep as little as one. A part has **fields** and code that adds a value to them and merges those of another
stretch of rows. Exact, and the same whatever the order in which stretches are merged: sums of DOUBLE are kept without
error and rounded once, whole numbers wrap.

Fields by kind:

| kind | value | in columns |
|---|---|---|
| ``q`` | whole number of 64 bits | array |
| ``d`` | float | array |
| ``v`` | a value of SQL, None at first | list |
| ``l`` | list, None at first | list |
| ``m`` | dict of value and count, None at first | list |
| ``x`` | list of whole numbers of any size, None at first | list |
| ``u`` | of a user's aggregate its accumulator's bytes and what it has not taken in yet, None at first | list |
"""

from __future__ import annotations

from decimal import Context, Decimal
from typing import Any, NamedTuple

from vedette.plan.numbers import exact_sum
from vedette.plan.query import PYTHON


class Part(NamedTuple):
    """``fields``: a letter for each. ``add``, ``merge``: lines of code; ``{0}`` … are the fields, ``{a}`` … those of
    the other stretch, ``v`` is the value, which is not NULL. ``leave``: the first value goes, where it can."""

    fields: str
    add: str
    merge: str
    leave: str = ""


def spill(rest: tuple[float, ...] | None, value: float) -> tuple[float, ...]:
    """Add what neither of two floats of a sum can hold."""
    return (*(rest or ()), value)


def total(high: float, low: float, rest: tuple[float, ...] | None) -> float:
    """The sum of all, rounded once."""
    return exact_sum((high, low, *rest)) if rest else high + low


def squares(sums: list[int] | None, value: Any) -> list[int]:
    """Sums of values and of their squares, exact: ``[scale, sum, squares, others]``, where a value is its whole number
    times 2 ** -scale, and ``others`` counts those that are no finite numbers."""
    scale, first, second, others = sums or (0, 0, 0, 0)
    if value - value != 0:
        return [scale, first, second, others + 1]
    above, below = value.as_integer_ratio()
    own = below.bit_length() - 1
    if own > scale:
        first <<= own - scale
        second <<= 2 * (own - scale)
        scale = own
    above <<= scale - own
    return [scale, first + above, second + above * above, others]


def squares_merged(sums: list[int] | None, other: list[int] | None) -> list[int] | None:
    if sums is None or other is None:
        return sums or (other and list(other))
    scale = max(sums[0], other[0])
    a, b = scale - sums[0], scale - other[0]
    return [scale, (sums[1] << a) + (other[1] << b), (sums[2] << 2 * a) + (other[2] << 2 * b), sums[3] + other[3]]


WIDE = Context(prec=200)


def decimal_squares(sums: list[int] | None, value: Decimal) -> list[int]:
    """As ``squares``, where a value is its whole number times 10 ** -scale; a column has one scale."""
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)
    whole = int(value.scaleb(-exponent, WIDE))
    scale, first, second, others = sums or (-exponent, 0, 0, 0)
    return [scale, first + whole, second + whole * whole, others]


_FSUM = """\
h = {0}
s = h + v
if s - s == 0.0:
    b = s - h
    e = (h - (s - b)) + (v - b)
    if e:
        l = {1}
        t = l + e
        b = t - l
        e = (l - (t - b)) + (e - b)
        {1} = t
        if e: {2} = spill({2}, e)
    {0} = s
else: {2} = spill({2}, v)"""
_FSUM_ALL = "for v in ({a}, {b}, *({c} or ())):\n" + "\n".join("    " + line for line in _FSUM.split("\n"))
_LIST = "if {0} is None: {0} = [v]\nelse: {0}.append(v)"
_LIST_ALL = "if {a} is not None:\n    if {0} is None: {0} = {a}[:]\n    else: {0}.extend({a})"
LIST_BEFORE = "if {a} is not None: {0} = {a}[:] if {0} is None else {a} + {0}"
_BAG = "m = {0}\nif m is None: {0} = {{v: 1}}\nelse: m[v] = m.get(v, 0) + 1"
_BAG_ALL = "if {a} is not None: {0} = bags({0}, {a})"


def bags(counts: dict[Any, int] | None, other: dict[Any, int]) -> dict[Any, int]:
    """``counts`` with ``other`` in it: it is its owner's alone, ``other`` is not."""
    if counts is None:
        return dict(other)
    for value, times in other.items():
        counts[value] = counts.get(value, 0) + times
    return counts


def without(counts: dict[Any, int], value: Any) -> dict[Any, int] | None:
    """``counts`` less one of ``value``; None when it was the last. Of NaN, which equals nothing, the first goes."""
    if value not in counts:
        value = next((each for each in counts if each != each), next(iter(counts)))
    counts[value] -= 1
    if not counts[value]:
        del counts[value]
    return counts or None


_LEAST = "if {0} is None or v {sign} {0}: {0} = v"
_LEAST_ALL = "v = {a}\nif v is not None and ({0} is None or v {sign} {0}): {0} = v"
_DECIMAL = "{0} = v if {0} is None else WIDE.add({0}, v)"
_DECIMAL_ALL = "if {a} is not None: {0} = {a} if {0} is None else WIDE.add({0}, {a})"

_USER = Part(
    "u",
    "if {0} is None: {0} = [None, v]\nelse: {0}.append(v)",
    "if {a} is not None: {0} = [*{a}] if {0} is None else {0} + [x for x in {a} if x is not None]",
)
"""Of a user's aggregate: ``[accumulator, …]``, behind it what it has not taken in yet (``users.py``)."""

PARTS: dict[str, Part] = {
    "count": Part("q", "{0} += 1", "{0} += {a}"),
    "whole": Part("q", "{0} += v", "{0} += {a}"),
    "wrapping": Part("q", "{0} = ({0} + v + H & M) - H", "{0} = ({0} + {a} + H & M) - H"),
    "float": Part("ddv", _FSUM, _FSUM_ALL),
    "decimal": Part("v", _DECIMAL, _DECIMAL_ALL),
    "least": Part("v", _LEAST.replace("{sign}", "<"), _LEAST_ALL.replace("{sign}", "<")),
    "most": Part("v", _LEAST.replace("{sign}", ">"), _LEAST_ALL.replace("{sign}", ">")),
    "first": Part("v", "if {0} is None: {0} = v", "if {0} is None: {0} = {a}"),
    "last": Part("v", "{0} = v", "if {a} is not None: {0} = {a}"),
    "list": Part("l", _LIST, _LIST_ALL, "del {0}[0]\nif not {0}: {0} = None"),
    "bag": Part("m", _BAG, _BAG_ALL, "{0} = without({0}, v)"),
    "squares": Part("x", "{0} = squares({0}, v)", "{0} = squares_merged({0}, {a})"),
    "decimal squares": Part("x", "{0} = decimal_squares({0}, v)", "{0} = squares_merged_10({0}, {a})"),
}
GLOBALS = {
    "H": 1 << 63,
    "M": (1 << 64) - 1,
    "WIDE": WIDE,
    "spill": spill,
    "squares": squares,
    "bags": bags,
    "without": without,
    "squares_merged": squares_merged,
    "decimal_squares": decimal_squares,
    "squares_merged_10": lambda a, b: [a[0], a[1] + b[1], a[2] + b[2], a[3]] if a and b else a or (b and list(b)),
}


def part_of(name: str) -> Part:
    return _USER if name.startswith(PYTHON) else PARTS[name]


_FIXED = {"q": 8, "d": 8}


def size(kind: str, value: Any) -> int:
    """Bytes of a field's value, about."""
    if kind in _FIXED:
        return 8
    if value is None:
        return 8
    if kind == "v":
        return 8 + (49 + len(value) if isinstance(value, str | bytes) else 28)
    if kind == "u":
        return 64 + sum(57 + len(item) if isinstance(item, bytes) else 64 * (1 + len(item)) for item in value if item)
    if kind == "l":
        return 64 + sum(57 + len(item) if isinstance(item, str | bytes) else 36 for item in value)
    if kind == "m":
        return 240 + sum(110 + len(item) if isinstance(item, str | bytes) else 90 for item in value)
    return 64 + sum(36 + int(number).bit_length() // 8 for number in value)


def dump(kind: str, value: Any) -> Any:
    """A field's value as ``keyed.pack`` carries it."""
    if value is None or kind in "qd":
        return value
    if kind == "m":
        return [part for pair in value.items() for part in pair]
    if kind == "x":
        return [format(number, "x") for number in value]
    return value


def load(kind: str, data: Any) -> Any:
    """The inverse of ``dump``. A field's value belongs to one group: lists and dicts are new ones."""
    if data is None or kind in "qdv":
        return data
    if kind == "m":
        return dict(zip(data[::2], data[1::2], strict=True))
    if kind == "x":
        return [int(number, 16) for number in data]
    return list(data)
