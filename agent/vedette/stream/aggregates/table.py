"""The aggregates of SQL by name, in one table: the type of each, the parts it takes and its value.

Values are exact and Flink's: sums of DOUBLE are rounded once (Flink adds in the order of arrival, so that its last
digits can differ), whole numbers wrap at their type's width, AVG and the variances of whole numbers are cut. Only
FIRST_VALUE, LAST_VALUE, LISTAGG, ARRAY_AGG and COLLECT depend on the order of rows: by arrival, lists of HOP(TABLE …)
by slice, the newest first (as Flink 2.3 does). The parts are in ``parts.py``; ``accumulators.py`` compiles them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, NamedTuple

from vedette.plan.query import PYTHON, Aggregate, Expression, Type
from vedette.stream.aggregates.parts import WIDE, total
from vedette.stream.functions.table import Refused, WrongTypes, count
from vedette.stream.values.numbers import WRAP, single, whole_of_float
from vedette.stream.values.types import APPROXIMATE, BIGINT, DOUBLE, INT, NUMERIC, STRING, TEXT, WHOLE


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


def _argument_type(args: Sequence[Expression]) -> Type:
    count(args, 1)
    return args[0].type


def _same(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    return _argument_type(args)


def _number(args: Sequence[Expression]) -> Type:
    if (kind := _argument_type(args)).name not in NUMERIC:
        raise WrongTypes(f"takes a number, not {kind}")
    return kind


def _compared(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    if (kind := _argument_type(args)).name in ("ARRAY", "MAP", "ROW", "NULL"):
        raise WrongTypes(f"values of {kind} have no order")
    return kind


def _sum_type(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    kind = _number(args)
    return Type("DECIMAL", 38, kind.scale) if kind.name == "DECIMAL" else kind


def _average_type(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    kind = _number(args)
    return Type("DECIMAL", 38, max(6, kind.scale)) if kind.name == "DECIMAL" else kind


def _count_type(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    if len(args) > 1:
        raise WrongTypes("takes one argument or *; put several into ROW(…)")
    return BIGINT


def _percentile_type(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    _number(args)
    if len(options) != 1:
        raise WrongTypes("takes a column and a constant percentage, or an ARRAY of such")
    wanted = options[0] if isinstance(options[0], tuple) else options
    if not all(isinstance(percentage, int | float | Decimal) and 0 <= percentage <= 1 for percentage in wanted):
        raise WrongTypes("takes a percentage between 0 and 1")
    return Type("ARRAY", args=(DOUBLE,)) if isinstance(options[0], tuple) else DOUBLE


def _text_type(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    if (kind := _argument_type(args)).name not in TEXT:
        raise WrongTypes(f"takes a text, not {kind}: use CAST(… AS STRING)")
    return STRING


def _as_float(kind: Type) -> Callable[[float], float]:
    return single if kind.name == "FLOAT" else float


def _as_decimal(kind: Type) -> Callable[[Decimal], Decimal | None]:
    """Rounded half up to the type's scale; what does not fit is NULL."""
    step, limit = Decimal(1).scaleb(-kind.scale), Decimal(10) ** (kind.precision - kind.scale)

    def cut(value: Decimal) -> Decimal | None:
        rounded = value.quantize(step, ROUND_HALF_UP, WIDE)
        return rounded if rounded.copy_abs() < limit else None

    return cut


def _cut(above: int, below: int) -> int:
    """The quotient towards zero."""
    return above // below if above >= 0 else -(-above // below)


def _sum_part(kind: Type) -> str:
    if kind.name in WHOLE:
        return "wrapping" if kind.name == "BIGINT" else "whole"
    return "float" if kind.name in APPROXIMATE else "decimal"


def _sum(aggregate: Aggregate) -> Finish:
    kind = aggregate.args[0].type
    part = _sum_part(kind)
    if part == "decimal":
        cut = _as_decimal(aggregate.type)
        return Finish((part,), lambda summed: None if summed is None else cut(summed))
    if part == "float":
        to = _as_float(kind)
        return Finish(("count", part), lambda n, *sums: to(total(*sums)) if n else None)
    narrow = WRAP[kind.name]
    return Finish(("count", part), lambda n, summed: narrow(summed) if n else None)


def _average(aggregate: Aggregate) -> Finish:
    kind = aggregate.args[0].type
    part = _sum_part(kind)
    if part == "decimal":
        cut = _as_decimal(aggregate.type)
        return Finish(("count", part), lambda n, summed: cut(WIDE.divide(summed, Decimal(n))) if n else None)
    if part == "float":
        to = _as_float(kind)
        return Finish(("count", part), lambda n, *sums: to(total(*sums) / n) if n else None)
    narrow = WRAP[kind.name]
    return Finish(("count", part), lambda n, summed: narrow(_cut(summed, n)) if n else None)


def _deviation(sample: bool, root: bool) -> Callable[[Aggregate], Finish]:
    def finish(aggregate: Aggregate) -> Finish:
        kind = aggregate.args[0].type
        base, part = (10, "decimal squares") if kind.name == "DECIMAL" else (2, "squares")

        def value(n: int, sums: list[int] | None) -> Any:
            divisor = n - 1 if sample else n
            if divisor <= 0 or sums is None:
                return None
            scale, first, second, others = sums
            if others:
                return math.nan
            above, below = n * second - first * first, n * divisor * base ** (2 * scale)
            if kind.name in WHOLE:
                return whole_of_float(math.sqrt(above // below) if root else above // below, kind.name)
            if kind.name == "DECIMAL":
                exact = WIDE.divide(Decimal(above), Decimal(below))
                return _as_decimal(aggregate.type)(exact.sqrt(WIDE) if root else exact)
            try:
                variance = above / below
            except OverflowError:
                return math.inf
            return _as_float(kind)(math.sqrt(variance) if root else variance)

        return Finish(("count", part), value)

    return finish


def _stepwise(sample: bool, root: bool) -> Callable[[Aggregate], Finish]:
    """A variance in OVER, of whole numbers and DECIMAL: Flink computes it of sums, each step in the argument's type."""

    def finish(aggregate: Aggregate) -> Finish:
        kind = aggregate.args[0].type

        def of_whole(first: int, second: int, n: int, divisor: int) -> int:
            wrap = WRAP[kind.name]
            mean = _cut(wrap(wrap(first) * wrap(first)), n)
            variance = _cut(wrap(wrap(second) - mean), divisor)
            if not root:
                return variance
            return whole_of_float(math.sqrt(variance), kind.name) if variance > 0 else 0

        def of_decimal(scale: int, first: int, second: int, n: int, divisor: int) -> Decimal | None:
            step, to = Decimal(1).scaleb(-6), _as_decimal(aggregate.type)
            squared = Decimal(first * first).scaleb(-2 * scale, WIDE)
            mean = WIDE.divide(squared, Decimal(n)).quantize(step, ROUND_HALF_UP, WIDE)
            variance = to(WIDE.divide(Decimal(second).scaleb(-2 * scale, WIDE) - mean, Decimal(divisor)))
            if not root or variance is None:
                return variance
            return to(Decimal(math.sqrt(variance)))

        def value(n: int, sums: list[int] | None) -> Any:
            divisor = n - 1 if sample else n
            if divisor <= 0 or sums is None:
                return None
            scale, first, second, _ = sums
            if kind.name == "DECIMAL":
                return of_decimal(scale, first, second, n, divisor)
            return of_whole(first, second, n, divisor)

        return Finish(("count", "decimal squares" if kind.name == "DECIMAL" else "squares"), value)

    return finish


def _average_in_over(aggregate: Aggregate) -> Finish:
    """Of whole numbers: the sum wraps first."""
    kind = aggregate.args[0].type
    if kind.name not in WHOLE:
        return _average(aggregate)
    return Finish(("count", _sum_part(kind)), lambda n, summed: _cut(WRAP[kind.name](summed), n) if n else None)


def in_over(aggregate: Aggregate) -> Aggregate:
    """The aggregate as OVER computes it."""
    over = f"{aggregate.name} OVER"
    approximate = any(arg.type.name in APPROXIMATE for arg in aggregate.args)
    return aggregate if over not in _OVER or approximate else replace(aggregate, name=over)


def _percentile(aggregate: Aggregate) -> Finish:
    wanted = aggregate.options[0] if isinstance(aggregate.options[0], tuple) else aggregate.options

    def at(ranked: list[float], percentage: float) -> float:
        place = (len(ranked) - 1) * percentage
        low, high = math.floor(place), math.ceil(place)
        if low == high or ranked[low] == ranked[high]:
            return ranked[low]
        return (high - place) * ranked[low] + (place - low) * ranked[high]

    def value(counts: dict[Any, int] | None) -> Any:
        if not counts:
            return None
        ranked = [float(value) for value in sorted(counts) for _ in range(counts[value])]
        percentiles = tuple(at(ranked, float(percentage)) for percentage in wanted)
        return percentiles if isinstance(aggregate.options[0], tuple) else percentiles[0]

    return Finish(("bag",), value)


def _listed(aggregate: Aggregate) -> Finish:
    separator = str(aggregate.options[0]) if aggregate.options else ","
    return Finish(("list",), lambda texts: None if texts is None else separator.join(texts))


def _plain(part: str, value: Callable[..., Any] | None = None) -> Callable[[Aggregate], Finish]:
    return lambda aggregate: Finish((part,), value)


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
        lambda args, options: Type("MAP", args=(_argument_type(args), INT)),
        _plain("bag", lambda counts: dict(counts or {})),
        "values, and how often each occurs",
        "COLLECT(host)",
        ordered=True,
    ),
    "ARRAY_AGG": Function(
        lambda args, options: Type("ARRAY", args=(_argument_type(args),)),
        _plain("list", lambda values: None if values is None else tuple(values)),
        "values by arrival, NULL among them",
        "ARRAY_AGG(n)",
        ordered=True,
        nulls=True,
    ),
}
_AGGREGATE_OF_A_USER = Function(
    _same, lambda aggregate: Finish((_user(aggregate),), None), "", "", ordered=True, nulls=True
)


def row_of(name: str) -> Function:
    """The row of an aggregate in a plan."""
    return _AGGREGATE_OF_A_USER if name == PYTHON else _OVER[name] if name in _OVER else AGGREGATES[name]


def _user(aggregate: Aggregate) -> str:
    """The name of the part of a user's aggregate: its function; what of it is kept follows from that and arguments."""
    if aggregate.distinct or len(aggregate.options) != 2 or not all(type(text) is str for text in aggregate.options):
        raise ValueError("not a user's aggregate")
    return " ".join((PYTHON, *aggregate.options))


for _alias, _name in (("STDDEV", "STDDEV_SAMP"), ("VARIANCE", "VAR_SAMP")):
    AGGREGATES[_alias] = AGGREGATES[_name]

_OVER = {
    f"{name} OVER": replace(row, finish=_stepwise(not name.endswith("_POP"), name.startswith("STDDEV")))
    for name, row in AGGREGATES.items()
    if name.startswith(("STDDEV", "VAR"))
}
_OVER["AVG OVER"] = replace(AGGREGATES["AVG"], finish=_average_in_over)
"""Of the aggregates that OVER computes in another way their rows."""

REFUSED: dict[str, Refused] = {
    "APPROX_COUNT_DISTINCT": Refused(
        "Flink 2.3 does not plan it over windows; write COUNT(DISTINCT …), which is exact"
    ),
    "JSON_OBJECTAGG": Refused("write COLLECT(…), or MAP[…] of other aggregates"),
    "JSON_ARRAYAGG": Refused("write ARRAY_AGG(…)"),
    "SINGLE_VALUE": Refused("write FIRST_VALUE(…)"),
}
