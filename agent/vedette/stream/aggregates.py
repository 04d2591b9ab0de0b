"""The aggregates of SQL by name, in one table, and what operators over windows compile of them.

An aggregate is made of **parts**: accumulators that do not know which function reads them. ``AVG(x)`` and ``SUM(x)``
share both of theirs, ``COUNT(x)`` has one of them: so a hundred statements over the same column keep as little as one.
A part has **fields** and code that adds a value to them and merges those of another stretch of rows; ``Accumulators``
puts the code of many parts together for wherever the fields lie (a list for each group, columns for all groups).

Exact, and the same whatever the order in which stretches are merged: sums of DOUBLE are kept without error and rounded
once (Flink adds in the order of arrival, so that its last digits can differ), whole numbers wrap at their type's width
as Flink's do, AVG and the variances of whole numbers are cut. Only FIRST_VALUE, LAST_VALUE, LISTAGG, ARRAY_AGG and
COLLECT depend on the order of rows: by arrival, lists of HOP(TABLE …) by slice, the newest first (as Flink 2.3 does).

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

import math
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from functools import lru_cache, partial
from types import CodeType
from typing import Any, NamedTuple

from vedette.plan.query import PYTHON, Aggregate, Call, Column, Expression, Literal, Type
from vedette.stream.expression import one as evaluate
from vedette.stream.functions.table import Refused, WrongTypes
from vedette.stream.functions.types import (
    APPROXIMATE,
    BIGINT,
    BITS,
    DOUBLE,
    INT,
    NUMERIC,
    STRING,
    TEXT,
    WHOLE,
    count,
)
from vedette.stream.useraggregates import Users

# --- parts


class Part(NamedTuple):
    """``fields``: a letter for each. ``add``, ``merge``: lines of code; ``{0}`` … are the fields, ``{a}`` … those of
    the other stretch, ``v`` is the value, which is not NULL."""

    fields: str
    add: str
    merge: str


def wrapped(value: int, bits: int) -> int:
    """``value`` as a whole number of so many bits."""
    half = 1 << (bits - 1)
    return (value + half & (half << 1) - 1) - half


def spill(rest: tuple[float, ...] | None, value: float) -> tuple[float, ...]:
    """What neither of two floats of a sum can hold."""
    return (*(rest or ()), value)


def total(high: float, low: float, rest: tuple[float, ...] | None) -> float:
    """The sum of all, rounded once."""
    if not rest:
        return high + low
    every = [high, low, *rest]
    try:
        return math.fsum(every)
    except ValueError:  # infinities of both signs
        return math.nan
    except OverflowError:
        exact = sum(map(Fraction, every), Fraction())
        try:
            return float(exact)
        except OverflowError:
            return math.inf if exact > 0 else -math.inf


def squares(kept: list[int] | None, value: Any) -> list[int]:
    """Sums of values and of their squares, exact: ``[scale, sum, squares, others]``, where a value is its whole number
    times 2 ** -scale, and ``others`` counts those that are no finite numbers."""
    scale, first, second, others = kept or (0, 0, 0, 0)
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


def squares_merged(kept: list[int] | None, other: list[int] | None) -> list[int] | None:
    if kept is None or other is None:
        return kept or (other and list(other))
    scale = max(kept[0], other[0])
    a, b = scale - kept[0], scale - other[0]
    return [scale, (kept[1] << a) + (other[1] << b), (kept[2] << 2 * a) + (other[2] << 2 * b), kept[3] + other[3]]


_WIDE = Context(prec=200)


def decimal_squares(kept: list[int] | None, value: Decimal) -> list[int]:
    """As ``squares``, where a value is its whole number times 10 ** -scale; a column has one scale."""
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)
    whole = int(value.scaleb(-exponent, _WIDE))
    scale, first, second, others = kept or (-exponent, 0, 0, 0)
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
_LIST_ALL = "if {a} is not None: {0} = {a}[:] if {0} is None else {0} + {a}"
_LIST_BEFORE = "if {a} is not None: {0} = {a}[:] if {0} is None else {a} + {0}"
_BAG = "m = {0}\nif m is None: {0} = {{v: 1}}\nelse: m[v] = m.get(v, 0) + 1"
_BAG_ALL = "if {a} is not None: {0} = bags({0}, {a})"


def bags(kept: dict[Any, int] | None, other: dict[Any, int]) -> dict[Any, int]:
    found = dict(kept or ())
    for value, times in other.items():
        found[value] = found.get(value, 0) + times
    return found


_LEAST = "if {0} is None or v {sign} {0}: {0} = v"
_LEAST_ALL = "v = {a}\nif v is not None and ({0} is None or v {sign} {0}): {0} = v"
_DECIMAL = "{0} = v if {0} is None else WIDE.add({0}, v)"
_DECIMAL_ALL = "if {a} is not None: {0} = {a} if {0} is None else WIDE.add({0}, {a})"

_USER = Part(
    "u",
    "if {0} is None: {0} = [None, v]\nelse: {0}.append(v)",
    "if {a} is not None: {0} = [*{a}] if {0} is None else {0} + [x for x in {a} if x is not None]",
)
"""Of a user's aggregate: ``[accumulator, …]``, behind it what it has not taken in yet (``useraggregates.py``)."""

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
    "list": Part("l", _LIST, _LIST_ALL),
    "bag": Part("m", _BAG, _BAG_ALL),
    "squares": Part("x", "{0} = squares({0}, v)", "{0} = squares_merged({0}, {a})"),
    "decimal squares": Part("x", "{0} = decimal_squares({0}, v)", "{0} = squares_merged_10({0}, {a})"),
}
_GLOBALS = {
    "H": 1 << 63,
    "M": (1 << 64) - 1,
    "WIDE": _WIDE,
    "spill": spill,
    "squares": squares,
    "bags": bags,
    "squares_merged": squares_merged,
    "decimal_squares": decimal_squares,
    "squares_merged_10": lambda a, b: [a[0], a[1] + b[1], a[2] + b[2], a[3]] if a and b else a or (b and list(b)),
}

# --- the table


class Finish(NamedTuple):
    """How a value follows from the fields of ``parts``."""

    parts: tuple[str, ...]
    value: Callable[..., Any] | None
    """Of all fields of the parts; None: the one field as it is."""


@dataclass(frozen=True)
class Function:
    """One row.

    ``infer``: as of a scalar function. ``finish``: of an aggregate, which parts it takes and what its value is.
    ``nulls``: whether rows whose argument is NULL count. ``ordered``: whether the order of rows matters.
    """

    infer: Callable[[Sequence[Expression], tuple[Any, ...]], Type]
    finish: Callable[[Aggregate], Finish]
    says: str
    example: str
    ordered: bool = False
    once: bool = False
    """DISTINCT makes no difference."""
    nulls: bool = False


def _one(args: Sequence[Expression]) -> Type:
    count(args, 1)
    return args[0].type


def _same(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    return _one(args)


def _number(args: Sequence[Expression]) -> Type:
    if (found := _one(args)).name not in NUMERIC:
        raise WrongTypes(f"takes a number, not {found}")
    return found


def _compared(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    if (found := _one(args)).name in ("ARRAY", "MAP", "ROW", "NULL"):
        raise WrongTypes(f"values of {found} have no order")
    return found


def _sum_type(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    found = _number(args)
    return Type("DECIMAL", 38, found.scale) if found.name == "DECIMAL" else found


def _average_type(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    found = _number(args)
    return Type("DECIMAL", 38, max(6, found.scale)) if found.name == "DECIMAL" else found


def _count_type(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    if len(args) > 1:
        raise WrongTypes("takes one argument or *; put several into ROW(…)")
    return BIGINT


def _percentile_type(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    _number(args)
    if len(options) != 1:
        raise WrongTypes("takes a column and a constant percentage, or an ARRAY of such")
    wanted = options[0] if isinstance(options[0], tuple) else options
    if not all(isinstance(one, int | float | Decimal) and 0 <= one <= 1 for one in wanted):
        raise WrongTypes("takes a percentage between 0 and 1")
    return Type("ARRAY", args=(DOUBLE,)) if isinstance(options[0], tuple) else DOUBLE


def _text_type(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    if (found := _one(args)).name not in TEXT:
        raise WrongTypes(f"takes a text, not {found}: use CAST(… AS STRING)")
    return STRING


def _narrow(kind: Type) -> Callable[[int], int]:
    bits = BITS[kind.name]
    return lambda value: wrapped(value, bits)


def _as_float(kind: Type) -> Callable[[float], float]:
    return _single if kind.name == "FLOAT" else float


def _single(value: float) -> float:
    try:
        found: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return found


def _as_decimal(kind: Type) -> Callable[[Decimal], Decimal | None]:
    """Rounded half up to the type's scale; what does not fit is NULL."""
    step, limit = Decimal(1).scaleb(-kind.scale), Decimal(10) ** (kind.precision - kind.scale)

    def cut(value: Decimal) -> Decimal | None:
        found = value.quantize(step, ROUND_HALF_UP, _WIDE)
        return found if abs(found) < limit else None

    return cut


def _cut(above: int, below: int) -> int:
    """The quotient towards zero."""
    return above // below if above >= 0 else -(-above // below)


def _sum_part(kind: Type) -> str:
    if kind.name in WHOLE:
        return "wrapping" if kind.name == "BIGINT" else "whole"
    return "float" if kind.name in APPROXIMATE else "decimal"


def _sum(one: Aggregate) -> Finish:
    kind = one.args[0].type
    part = _sum_part(kind)
    if part == "decimal":
        cut = _as_decimal(one.type)
        return Finish((part,), lambda found: None if found is None else cut(found))
    if part == "float":
        to = _as_float(kind)
        return Finish(("count", part), lambda n, *sums: to(total(*sums)) if n else None)
    narrow = _narrow(kind)
    return Finish(("count", part), lambda n, found: narrow(found) if n else None)


def _average(one: Aggregate) -> Finish:
    kind = one.args[0].type
    part = _sum_part(kind)
    if part == "decimal":
        cut = _as_decimal(one.type)
        return Finish(("count", part), lambda n, found: cut(_WIDE.divide(found, Decimal(n))) if n else None)
    if part == "float":
        to = _as_float(kind)
        return Finish(("count", part), lambda n, *sums: to(total(*sums) / n) if n else None)
    narrow = _narrow(kind)
    return Finish(("count", part), lambda n, found: narrow(_cut(found, n)) if n else None)


def _deviation(sample: bool, root: bool) -> Callable[[Aggregate], Finish]:
    def finish(one: Aggregate) -> Finish:
        kind = one.args[0].type
        base, part = (10, "decimal squares") if kind.name == "DECIMAL" else (2, "squares")

        def value(n: int, kept: list[int] | None) -> Any:
            divisor = n - 1 if sample else n
            if divisor <= 0 or kept is None:
                return None
            scale, first, second, others = kept
            if others:
                return math.nan
            above, below = n * second - first * first, n * divisor * base ** (2 * scale)
            if kind.name in WHOLE:
                found = math.isqrt(above // below) if root else above // below
                return min(found, (1 << BITS[kind.name] - 1) - 1)  # as a cast of DOUBLE does
            if kind.name == "DECIMAL":
                exact = _WIDE.divide(Decimal(above), Decimal(below))
                return _as_decimal(one.type)(exact.sqrt(_WIDE) if root else exact)
            try:
                variance = above / below
            except OverflowError:
                return math.inf
            return _as_float(kind)(math.sqrt(variance) if root else variance)

        return Finish(("count", part), value)

    return finish


def _percentile(one: Aggregate) -> Finish:
    wanted = one.options[0] if isinstance(one.options[0], tuple) else one.options

    def at(ranked: list[float], percentage: float) -> float:
        place = (len(ranked) - 1) * percentage
        low, high = math.floor(place), math.ceil(place)
        if low == high or ranked[low] == ranked[high]:
            return ranked[low]
        return (high - place) * ranked[low] + (place - low) * ranked[high]

    def value(kept: dict[Any, int] | None) -> Any:
        if not kept:
            return None
        ranked = [float(value) for value in sorted(kept) for _ in range(kept[value])]
        found = tuple(at(ranked, float(one)) for one in wanted)
        return found if isinstance(one.options[0], tuple) else found[0]

    return Finish(("bag",), value)


def _listed(one: Aggregate) -> Finish:
    separator = str(one.options[0]) if one.options else ","
    return Finish(("list",), lambda found: None if found is None else separator.join(found))


def _plain(part: str, value: Callable[..., Any] | None = None) -> Callable[[Aggregate], Finish]:
    return lambda one: Finish((part,), value)


AGGREGATES: dict[str, Function] = {
    "COUNT": Function(_count_type, _plain("count"), "rows, or those whose argument is not NULL", "COUNT(*)"),
    "SUM": Function(_sum_type, _sum, "sum, of the argument's type; whole numbers wrap", "SUM(n)"),
    "AVG": Function(_average_type, _average, "average, of the argument's type; of whole numbers it is cut", "AVG(n)"),
    "MIN": Function(_compared, _plain("least"), "least value", "MIN(n)", once=True),
    "MAX": Function(_compared, _plain("most"), "largest value", "MAX(n)", once=True),
    "STDDEV_POP": Function(_average_type, _deviation(False, True), "standard deviation of all rows", "STDDEV_POP(n)"),
    "STDDEV_SAMP": Function(
        _average_type, _deviation(True, True), "standard deviation of a sample, NULL of one", "STDDEV_SAMP(n)"
    ),
    "VAR_POP": Function(_average_type, _deviation(False, False), "variance of all rows", "VAR_POP(n)"),
    "VAR_SAMP": Function(_average_type, _deviation(True, False), "variance of a sample, NULL of one", "VAR_SAMP(n)"),
    "PERCENTILE": Function(
        _percentile_type, _percentile, "exact, interpolated; an ARRAY for an ARRAY", "PERCENTILE(n, 0.9)"
    ),
    "FIRST_VALUE": Function(
        _same, _plain("first"), "first that is no NULL, by arrival", "FIRST_VALUE(n)", ordered=True
    ),
    "LAST_VALUE": Function(_same, _plain("last"), "last that is no NULL, by arrival", "LAST_VALUE(n)", ordered=True),
    "LISTAGG": Function(
        _text_type,
        _listed,
        "texts by arrival with a separator between, a comma if none is given",
        "LISTAGG(host, '|')",
        ordered=True,
    ),
    "COLLECT": Function(
        lambda args, options: Type("MAP", args=(_one(args), INT)),
        _plain("bag", lambda found: dict(found or {})),
        "values, and how often each occurs",
        "COLLECT(host)",
        ordered=True,
    ),
    "ARRAY_AGG": Function(
        lambda args, options: Type("ARRAY", args=(_one(args),)),
        _plain("list", lambda found: None if found is None else tuple(found)),
        "values by arrival, NULL among them",
        "ARRAY_AGG(n)",
        ordered=True,
        nulls=True,
    ),
}
_AGGREGATE_OF_A_USER = Function(_same, lambda one: Finish((_user(one),), None), "", "", ordered=True, nulls=True)


def row_of(name: str) -> Function:
    """The row of an aggregate in a plan."""
    return _AGGREGATE_OF_A_USER if name == PYTHON else AGGREGATES[name]


def part_of(name: str) -> Part:
    return _USER if name.startswith(PYTHON) else PARTS[name]


def _user(one: Aggregate) -> str:
    """The name of the part of a user's aggregate: its function; what of it is kept follows from that and arguments."""
    if one.distinct or len(one.options) != 2 or not all(type(text) is str for text in one.options):
        raise ValueError("not a user's aggregate")
    return " ".join((PYTHON, *one.options))


for _alias, _name in (("STDDEV", "STDDEV_SAMP"), ("VARIANCE", "VAR_SAMP")):
    AGGREGATES[_alias] = AGGREGATES[_name]

REFUSED: dict[str, Refused] = {
    "APPROX_COUNT_DISTINCT": Refused(
        "Flink 2.3 does not plan it over windows; write COUNT(DISTINCT …), which is exact"
    ),
    "JSON_OBJECTAGG": Refused("write COLLECT(…), or MAP[…] of other aggregates"),
    "JSON_ARRAYAGG": Refused("write ARRAY_AGG(…)"),
    "SINGLE_VALUE": Refused("write FIRST_VALUE(…)"),
}

# --- compiled

Place = Callable[[int], str]


@dataclass(frozen=True)
class Held:
    """A part of particular rows: its name, of which argument (None: of rows), with which FILTER."""

    part: str
    arg: Expression | None
    when: Expression | None
    nulls: bool = False


def _shifted(place: Place, by: int) -> Place:
    return lambda i: place(i + by)


class Accumulators:
    """What ``aggregates`` have to keep, each part once, and the code that does it.

    ``fields``: the kinds of all fields, one after the other.
    """

    def __init__(self, aggregates: Iterable[Aggregate]) -> None:
        self.parts: dict[Held, int] = {}
        """With the number of its first field."""
        self.fields = ""
        self._finish: dict[Aggregate, tuple[list[int], Callable[..., Any] | None]] = {}
        self.users = Users()
        for one in aggregates:
            self._take(one)

    def _take(self, one: Aggregate) -> None:
        row = row_of(one.name)
        finish = _distinct(one) if one.distinct and not row.once else row.finish(one)
        arg = one.args[0] if one.args else None
        if one.name == PYTHON:
            kind = Type("ROW", args=tuple((f"f{at}", arg.type) for at, arg in enumerate(one.args)))
            arg = Call("ROW", one.args, kind) if one.args else Literal((), kind)
        numbers: list[int] = []
        for name in finish.parts:
            held = Held(name, arg, one.when, row.nulls)
            if held not in self.parts:
                self.parts[held] = len(self.fields)
                self.fields += part_of(name).fields
            start = self.parts[held]
            numbers += range(start, start + len(part_of(name).fields))
        self._finish[one] = (numbers, finish.value)
        if one.name == PYTHON:
            self.users.fields[one] = numbers[0]

    def new(self) -> list[Any]:
        """The fields of no rows."""
        return [0 if kind == "q" else 0.0 if kind == "d" else None for kind in self.fields]

    def add(self, place: Place, names: dict[str, Any]) -> tuple[list[str], list[str]]:
        """Code that adds ``row``: lines that evaluate arguments, which may raise, then lines that change fields.

        ``place``: the text for a field. ``names``: gets what the code refers to."""
        names.update(_GLOBALS)
        before: list[str] = []
        lines: list[str] = []
        texts: dict[Expression, str] = {}

        def text_of(one: Expression) -> str:
            if one not in texts:
                if isinstance(one, Column):
                    texts[one] = f"row[{one.index}]"
                else:
                    name = f"f{len(texts)}"
                    names[name] = evaluate(one)
                    texts[one] = f"{name}_"
                    before.append(f"{name}_ = {name}(row)")
            return texts[one]

        groups: dict[tuple[Expression | None, Expression | None, bool], list[Held]] = {}
        for held in self.parts:
            groups.setdefault((held.when, held.arg, held.nulls), []).append(held)
        for (when, arg, nulls), helds in groups.items():
            indent = ""
            if when is not None:
                lines.append(f"if {text_of(when)} is True:")
                indent = "    "
            if arg is not None:
                lines.append(f"{indent}v = {text_of(arg)}")
                if not nulls:
                    lines.append(f"{indent}if v is not None:")
                    indent += "    "
            for held in helds:
                lines += _filled(part_of(held.part).add, self.parts[held], place, None, indent)
        return before, lines

    def merge(
        self, place: Place, other: Accumulators, others: Place, names: dict[str, Any], before: bool = False
    ) -> list[str]:
        """Code that adds the fields of ``other``, which has all of these parts. ``before``: lists of later rows go
        before those of earlier ones."""
        names.update(_GLOBALS)
        lines: list[str] = []
        for held, start in self.parts.items():
            first = other.parts[held]
            code = _LIST_BEFORE if before and held.part == "list" else part_of(held.part).merge
            lines += _filled(code, start, place, _shifted(others, first), "")
        return lines

    def result(self, one: Aggregate, place: Place, names: dict[str, Any]) -> str:
        """Code for the value of ``one``."""
        numbers, value = self._finish[one]
        if one.name == PYTHON:
            value = partial(self.users.value, one)
        if value is None:
            return place(numbers[0])
        name = f"r{len(names)}"
        names[name] = value
        return f"{name}({', '.join(map(place, numbers))})"

    # --- groups as lists of fields

    def compiled(
        self, aggregates: Sequence[Aggregate]
    ) -> tuple[Callable[..., None], Callable[..., None], Callable[..., Any]]:
        """For fields in a list: ``add(fields, row)``, ``merge(fields, others)`` and ``values(fields)``, a tuple."""
        names: dict[str, Any] = {}

        def place(i: int) -> str:
            return f"a[{i}]"

        before, lines = self.add(place, names)
        merge = self.merge(place, self, lambda i: f"o[{i}]", names)
        values = "".join(f"{self.result(one, place, names)}, " for one in aggregates)
        text = "\n".join(
            [
                "def add(a, row):",
                *_in([*before, *lines] or ["pass"], 1),
                "def merge(a, o):",
                *_in(merge or ["pass"], 1),
                "def values(a):",
                f"    return ({values})",
            ]
        )
        made = run(text, names)
        return made["add"], made["merge"], made["values"]


def _distinct(one: Aggregate) -> Finish:
    """DISTINCT: the values are kept, and the aggregate is made of each once."""
    if one.name == "COUNT":
        return Finish(("bag",), lambda found: len(found or ()))
    plain = Aggregate(one.name, (Column(0, one.args[0].type),), one.type, options=one.options)
    whole = Accumulators([plain])
    add, _, values = whole.compiled([plain])

    def value(found: dict[Any, int] | None) -> Any:
        fields = whole.new()
        for each in found or ():
            add(fields, (each,))
        return values(fields)[0]

    return Finish(("bag",), value)


def _filled(code: str, start: int, place: Place, others: Place | None, indent: str) -> list[str]:
    own = [place(start + i) for i in range(3)]
    named = dict(zip("abc", (others(i) for i in range(3)), strict=True)) if others else {}
    return [indent + line for line in code.format(*own, **named).split("\n")]


def _in(lines: Iterable[str], depth: int) -> list[str]:
    return ["    " * depth + line for line in lines]


def run(text: str, names: dict[str, Any]) -> dict[str, Any]:
    """The functions that the generated ``text`` defines. It holds numbers and names of this module's making only."""
    made: dict[str, Any] = dict(names)
    exec(_code(text), made)  # noqa: S102
    return made


@lru_cache(256)
def _code(text: str) -> CodeType:
    return compile(text, "<aggregates>", "exec")


# --- fields as bytes

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
        return 64 + sum(57 + len(one) if isinstance(one, bytes) else 64 * (1 + len(one)) for one in value if one)
    if kind == "l":
        return 64 + sum(57 + len(one) if isinstance(one, str | bytes) else 36 for one in value)
    if kind == "m":
        return 240 + sum(110 + len(one) if isinstance(one, str | bytes) else 90 for one in value)
    return 64 + sum(36 + int(one).bit_length() // 8 for one in value)


def dump(kind: str, value: Any) -> Any:
    """A field's value as ``keyed.pack`` carries it."""
    if value is None or kind in "qd":
        return value
    if kind == "m":
        return [part for pair in value.items() for part in pair]
    if kind == "x":
        return [format(one, "x") for one in value]
    return value


def load(kind: str, data: Any) -> Any:
    """The inverse of ``dump``. A field's value belongs to one group: lists and dicts are new ones."""
    if data is None or kind in "qdv":
        return data
    if kind == "m":
        return dict(zip(data[::2], data[1::2], strict=True))
    if kind == "x":
        return [int(one, 16) for one in data]
    return list(data)
