"""Arithmetic and mathematics. Whole numbers wrap as Java's do; decimals keep the precision and scale that Flink gives
them, and are NULL beyond; a division of whole numbers by zero fails, one of floats gives Infinity or NaN."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_UP, Decimal
from typing import Any

from vedette.plan.query import Expression, Type
from vedette.stream.functions.table import Function, Infer, WrongTypes, constant, count, gives, shown, takes
from vedette.stream.values import dates, numbers
from vedette.stream.values.types import (
    APPROXIMATE,
    BINARY,
    BYTES,
    DOUBLE,
    INTERVAL,
    NULL,
    NUMERIC,
    STAMP,
    STRING,
    TEXT,
    WHOLE,
    Failed,
    as_decimal,
    common,
    decimal,
)

Two = Callable[[Any, Any], Any]
_TIMES = (*STAMP, "DATE", "TIME")


# --- + - * / %


def _numbers(args: Sequence[Expression], sign: str) -> tuple[Type, Type]:
    count(args, 2)
    for place, argument in enumerate(args):
        if argument.type == NULL:
            raise WrongTypes("write CAST(NULL AS a type) for NULL")
        if argument.type.name not in NUMERIC:
            raise WrongTypes(f"argument {place + 1} must be a number, not {argument.type}; use CAST")
    return args[0].type, args[1].type


def _result(a: Type, b: Type, sign: str) -> Type:
    """The type of the value of numbers ``a sign b``."""
    if "DECIMAL" not in (a.name, b.name) or a.name in APPROXIMATE or b.name in APPROXIMATE:
        merged = common((a, b))
        assert merged is not None
        if sign == "%":
            if merged.name in APPROXIMATE:
                raise WrongTypes("takes whole numbers and DECIMAL")
            return b
        return merged
    a, b = as_decimal(a), as_decimal(b)
    scale = max(a.scale, b.scale)
    if sign in "+-":
        return decimal(max(a.precision - a.scale, b.precision - b.scale) + scale + 1, scale)
    if sign == "*":
        return decimal(a.precision + b.precision + 1, a.scale + b.scale)
    if sign == "/":
        scale = max(6, a.scale + b.precision + 1)
        return decimal(a.precision - a.scale + b.scale + scale, scale)
    if a.scale == b.scale == 0:
        return b
    return Type("DECIMAL", min(a.precision - a.scale, b.precision - b.scale) + scale, scale)


def _infer(sign: str) -> Infer:
    def infer(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
        count(args, 2)
        a, b = args[0].type, args[1].type
        times = _with_times(a, b, sign)
        return times or _result(*_numbers(args, sign), sign)

    return infer


def _with_times(a: Type, b: Type, sign: str) -> Type | None:
    """The type of a sum or difference with an interval, or of its multiple; None where there is none of them."""
    if sign in "+-":
        if a.name in INTERVAL and b.name == a.name:
            return a
        if a.name in _TIMES and b.name in INTERVAL:
            if a.name == "TIME" and b.name == "INTERVAL_MONTH":
                raise WrongTypes("a TIME has no months")
            return a
        if sign == "+" and a.name in INTERVAL and b.name in _TIMES:
            return _with_times(b, a, sign)
        if sign == "-" and a.name in _TIMES and b.name in _TIMES:
            raise WrongTypes("write TIMESTAMPDIFF(unit, from, to)")
    if sign == "*":
        if a.name in INTERVAL and b.name in NUMERIC:
            return a
        if b.name in INTERVAL and a.name in NUMERIC:
            return b
    return None


def divided(a: int, b: int) -> int:
    """Towards zero. Raises ZeroDivisionError."""
    return a // b if (a >= 0) == (b > 0) else -(-a // b)


def remainder(a: int, b: int) -> int:
    """With the sign of ``a``. Raises ZeroDivisionError."""
    return abs(a) % abs(b) if a >= 0 else -(abs(a) % abs(b))


def float_divided(a: float, b: float) -> float:
    if b:
        return a / b
    if a == 0 or a != a:
        return math.nan
    return math.copysign(math.inf, math.copysign(1, a) * math.copysign(1, b))


def _exact_modulo(a: Decimal, b: Decimal) -> Decimal:
    return numbers.EXACT.remainder(a, b)


_WHOLE: dict[str, Two] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": divided, "%": remainder,
}  # fmt: skip
_FLOATS: dict[str, Two] = {**_WHOLE, "/": float_divided}
_DECIMALS: dict[str, Two] = {
    "+": numbers.EXACT.add, "-": numbers.EXACT.subtract, "*": numbers.EXACT.multiply, "/": numbers.EXACT.divide,
    "%": _exact_modulo,
}  # fmt: skip


def _bind(sign: str) -> Callable[[Sequence[Expression], tuple[Any, ...], Type], Two]:
    def bind(args: Sequence[Expression], options: tuple[Any, ...], type: Type) -> Two:
        a, b = args[0].type, args[1].type
        if a.name in INTERVAL or b.name in INTERVAL:
            return _of_times(a, b, sign)
        if type.name in WHOLE:
            compute, wrap = _WHOLE[sign], numbers.WRAP[type.name]
            return lambda x, y: wrap(compute(x, y))
        if type.name in APPROXIMATE:
            compute = _FLOATS[sign]
            if type.name == "FLOAT":
                return lambda x, y: numbers.single(compute(float(x), float(y)))
            return lambda x, y: compute(float(x), float(y))
        exact, fit = _DECIMALS[sign], numbers.rounder(type)
        return lambda x, y: fit(exact(Decimal(x), Decimal(y)))

    return bind


def _of_times(a: Type, b: Type, sign: str) -> Two:
    if sign == "*":
        if a.name in INTERVAL:
            return lambda x, y: int(x * y)
        return lambda x, y: int(x * y)
    if a.name in INTERVAL and b.name not in INTERVAL:
        add = _of_times(b, a, sign)
        return lambda x, y: add(y, x)
    way = 1 if sign == "+" else -1
    if a.name in INTERVAL:
        return lambda x, y: x + way * y
    return lambda x, y: shifted(x, a, way * y, b)


def shifted(x: int, of: Type, by: int, unit: Type) -> int:
    """A time moved by an interval."""
    if unit.name == "INTERVAL_MONTH":
        if of.name == "DATE":
            return dates.add_months(x, by)
        day, rest = divmod(x, dates.DAY)
        return dates.add_months(day, by) * dates.DAY + rest
    if of.name == "DATE":
        return x + math.trunc(by / dates.DAY)
    if of.name == "TIME":
        return (x + by // 1000) % dates.DAY_MS
    return x + by


def _arithmetic(sign: str, example: str, value: str, says: str) -> Function:
    return Function(_infer(sign), _WHOLE[sign], bind=_bind(sign), example=example, gives=value, says=says)


def _negate_types(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    takes((*NUMERIC, *INTERVAL))(args)
    return args[0].type


def _negate(args: Sequence[Expression], options: tuple[Any, ...], type: Type) -> Callable[[Any], Any]:
    if type.name in WHOLE:
        wrap = numbers.WRAP[type.name]
        return lambda value: wrap(-value)
    if type.name == "DECIMAL":  # which has no -0
        return lambda value: value.copy_negate() if value else value
    return lambda value: -value


# --- of one number


def _same_type(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    takes(NUMERIC)(args)
    return args[0].type


def _abs(args: Sequence[Expression], options: tuple[Any, ...], type: Type) -> Callable[[Any], Any]:
    if type.name in WHOLE:
        wrap = numbers.WRAP[type.name]
        return lambda value: wrap(abs(value))
    return lambda value: value.copy_abs() if type.name == "DECIMAL" else abs(value)


def _sign(args: Sequence[Expression], options: tuple[Any, ...], type: Type) -> Callable[[Any], Any]:
    if type.name in WHOLE:
        return lambda value: (value > 0) - (value < 0)
    if type.name in APPROXIMATE:
        return lambda value: math.copysign(1.0, value) if value and value == value else value
    fit = numbers.rounder(type)
    return lambda value: fit((value > 0) - (value < 0))


def whole_types(args: Sequence[Expression]) -> Type:
    """Infer the type of FLOOR and CEIL of a number."""
    takes(NUMERIC)(args)
    number = args[0].type
    return Type("DECIMAL", number.precision, 0) if number.name == "DECIMAL" else number


def to_whole(up: bool, type: Type) -> Callable[[Any], Any]:
    """FLOOR or CEIL of a number of ``type``."""
    if type.name in WHOLE:
        return lambda value: value
    if type.name == "DECIMAL":
        fit, how = numbers.rounder(type), ROUND_CEILING if up else ROUND_FLOOR
        return lambda value: fit(value.to_integral_value(how))
    step = math.ceil if up else math.floor
    return lambda value: value if not math.isfinite(value) else math.copysign(float(step(value)), value)


def _round_types(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    takes(NUMERIC, WHOLE, least=1)(args)
    number = args[0].type
    if number.name != "DECIMAL":
        return number
    if len(args) > 1 and constant(args[1]) is None:
        return number
    digits = constant(args[1]) if len(args) > 1 else 0
    if digits >= number.scale:
        return number
    if digits < 0:
        return Type("DECIMAL", min(38, number.precision - number.scale + 1), 0)
    return Type("DECIMAL", number.precision - number.scale + 1 + digits, digits)


def _rounding(how: str) -> Function:
    def bind(args: Sequence[Expression], options: tuple[Any, ...], type: Type) -> Callable[..., Any]:
        fit = numbers.rounder(type) if type.name == "DECIMAL" else None

        def rounded(value: Any, digits: int = 0) -> Any:
            if fit is not None:
                step = Decimal(1).scaleb(-min(digits, type.scale if digits >= 0 else digits))
                return fit(value.quantize(step, how, numbers.EXACT))
            if type.name in WHOLE:
                if digits >= 0:
                    return value
                if digits < -20:
                    raise Failed(f"ROUND to {digits} digits")
                step = Decimal(1).scaleb(-digits)
                return numbers.WRAP[type.name](int(Decimal(value).quantize(step, how, numbers.EXACT)))
            if not math.isfinite(value):
                raise Failed(f"ROUND of {value}")
            if abs(digits) > 400:
                raise Failed(f"ROUND to {digits} digits")
            exact = Decimal(numbers.single_text(value) if type.name == "FLOAT" else repr(value))
            if int(exact.as_tuple().exponent) > -digits:
                return value if value else 0.0
            result = float(exact.quantize(Decimal(1).scaleb(-digits), how, _WIDE))
            return numbers.single(result) if type.name == "FLOAT" else result + 0.0

        return rounded

    return Function(_round_types, round, bind=bind)


_WIDE = numbers.EXACT.copy()
_WIDE.prec = 900


# --- of floats


def _floats(compute: Callable[..., float], arguments: int = 1) -> Function:
    """A function of DOUBLE: NaN outside of its domain, Infinity beyond the largest."""
    check = takes(*[NUMERIC] * arguments)

    def total(*values: Any) -> float:
        try:
            return compute(*map(float, values))
        except OverflowError:
            return math.inf
        except ValueError:
            return math.nan

    return Function(gives(DOUBLE, check), total)


def logarithm(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf if value == 0 else math.nan


def _log10(value: float) -> float:
    return math.log10(value) if value > 0 else -math.inf if value == 0 else math.nan


def _log(first: Any, second: Any = None) -> float:
    if second is None:
        return logarithm(float(first))
    return float_divided(logarithm(float(second)), logarithm(float(first)))


def power(base: float, exponent: float) -> float:
    if base == 0 and exponent < 0:
        odd = exponent % 2 == 1
        return math.copysign(math.inf, base) if odd else math.inf
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if base < 0 and exponent % 2 == 1 else math.inf
    except ValueError:
        return math.nan


# --- digits


def _hex(value: Any) -> str:
    if isinstance(value, int):
        return f"{value & ((1 << 64) - 1):X}"
    return (value.encode("utf-8", "replace") if isinstance(value, str) else value).hex().upper()


def _unhex(value: str) -> bytes | None:
    if len(value) % 2:
        value = "0" + value
    try:
        return bytes.fromhex(value) if value.isalnum() or not value else None
    except ValueError:
        return None


FUNCTIONS: dict[str, Function] = {
    "+": _arithmetic("+", "1 + 1.5", "2.5", "the sum; also of a time and an interval"),
    "-": _arithmetic("-", "3 - 5", "-2", "the difference"),
    "*": _arithmetic("*", "2 * 3", "6", "the product"),
    "/": _arithmetic("/", "-7 / 2", "-3", "the quotient; of whole numbers cut, by zero the row is dropped"),
    "%": _arithmetic("%", "-7 % 2", "-1", "the remainder, with the sign of the first"),
    "MOD": _arithmetic("%", "MOD(7, -2)", "1", "as `%`"),
    "NEGATE": Function(_negate_types, lambda value: -value, bind=_negate, example="-(1 + 1)", gives="-2",
                       says="the sign"),
    "ABS": Function(_same_type, abs, bind=_abs, example="ABS(-2)", gives="2"),
    "SIGN": Function(_same_type, abs, bind=_sign, example="SIGN(-2.5)", gives="-1.0"),
    "ROUND": _rounding(ROUND_HALF_UP),
    "TRUNCATE": _rounding(ROUND_DOWN),
    "POWER": _floats(power, 2),
    "SQRT": _floats(math.sqrt),
    "EXP": _floats(math.exp),
    "LN": _floats(logarithm),
    "LOG10": _floats(_log10),
    "LOG2": _floats(lambda value: logarithm(value) / math.log(2)),
    "LOG": Function(gives(DOUBLE, takes(NUMERIC, NUMERIC, least=1)), _log),
    "SIN": _floats(math.sin), "COS": _floats(math.cos), "TAN": _floats(math.tan),
    "COT": _floats(lambda value: float_divided(1.0, math.tan(value))),
    "ASIN": _floats(math.asin), "ACOS": _floats(math.acos), "ATAN": _floats(math.atan),
    "ATAN2": _floats(math.atan2, 2),
    "SINH": _floats(math.sinh), "COSH": _floats(math.cosh), "TANH": _floats(math.tanh),
    "DEGREES": _floats(math.degrees), "RADIANS": _floats(math.radians),
    "PI": Function(gives(DOUBLE, takes()), lambda: math.pi),
    "E": Function(gives(DOUBLE, takes()), lambda: math.e),
    "BIN": Function(gives(STRING, takes(WHOLE)), lambda value: f"{value & ((1 << 64) - 1):b}"),
    "HEX": Function(gives(STRING, takes((*WHOLE, *TEXT, *BINARY))), _hex),
    "UNHEX": Function(gives(BYTES, takes(TEXT)), _unhex),
}  # fmt: skip

shown(
    FUNCTIONS,
    {
        "ROUND": ("ROUND(2.45, 1)", "2.5", "half away from zero"),
        "TRUNCATE": ("TRUNCATE(2.49, 1)", "2.4", ""),
        "POWER": ("POWER(2, 3)", "8.0", ""),
        "SQRT": ("SQRT(9)", "3.0", ""),
        "EXP": ("EXP(0)", "1.0", ""),
        "LN": ("LN(1)", "0.0", ""),
        "LOG10": ("LOG10(100)", "2.0", ""),
        "LOG2": ("LOG2(8)", "3.0", ""),
        "LOG": ("LOG(2, 8)", "3.0", "to a base, natural without one"),
        "SIN": ("SIN(0)", "0.0", ""),
        "COS": ("COS(0)", "1.0", ""),
        "TAN": ("TAN(0)", "0.0", ""),
        "COT": ("COT(0)", "Infinity", ""),
        "ASIN": ("ASIN(0)", "0.0", ""),
        "ACOS": ("ACOS(1)", "0.0", ""),
        "ATAN": ("ATAN(0)", "0.0", ""),
        "ATAN2": ("ATAN2(0, 1)", "0.0", ""),
        "SINH": ("SINH(0)", "0.0", ""),
        "COSH": ("COSH(0)", "1.0", ""),
        "TANH": ("TANH(0)", "0.0", ""),
        "DEGREES": ("DEGREES(PI())", "180.0", ""),
        "RADIANS": ("RADIANS(0)", "0.0", ""),
        "PI": ("PI()", "3.141592653589793", ""),
        "E": ("E()", "2.718281828459045", ""),
        "BIN": ("BIN(5)", "101", ""),
        "HEX": ("HEX('abc')", "616263", "of a number, a text or bytes"),
        "UNHEX": ("DECODE(UNHEX('616263'), 'UTF-8')", "abc", "bytes; NULL for what is no hex"),
    },
)
