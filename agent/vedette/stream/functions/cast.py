"""CAST and TRY_CAST, and what Flink converts without being asked.

A cast that has no value (a text that is no number) fails, which drops the row; TRY_CAST gives NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from vedette.plan.numbers import BITS
from vedette.plan.query import Expression, Type
from vedette.stream.functions.table import Function, WrongTypes, count
from vedette.stream.values import dates, numbers
from vedette.stream.values.types import APPROXIMATE, BINARY, NULL, NUMERIC, STAMP, TEXT, WHOLE, Failed

Change = Callable[[Any], Any]


def implicit(source: Type, to: Type) -> Change | None:
    """Return what brings values of ``source`` to ``to`` where SQL asks for no cast; None: nothing is to be done."""
    if source in (to, NULL) or (source.name in TEXT and to.name in TEXT):
        return None
    if source.name in WHOLE and to.name in WHOLE and BITS[source.name] <= BITS[to.name]:
        return None
    if source.name in STAMP and to.name in STAMP and source.precision <= to.precision:
        return None
    if source.name in BINARY and to.name in BINARY:
        return None
    change = conversion(source, to)
    if change is None:
        raise WrongTypes(f"{source} is not converted to {to}; use CAST")
    return change


def conversion(source: Type, to: Type) -> Change | None:
    """Return what casts a value (not NULL) of ``source`` to ``to``, which raises ``Failed``; None: Flink has no such
    cast."""
    if source == to:
        return _same
    if to.name in TEXT:
        return _to_text(source, to)
    if to.name in WHOLE:
        return _to_whole(source, to.name)
    match to.name:
        case "FLOAT" | "DOUBLE":
            return _to_float(source, to.name)
        case "DECIMAL":
            return _to_decimal(source, to)
        case "BOOLEAN":
            return _boolean if source.name in TEXT else bool if source.name in NUMERIC else None
        case "DATE" | "TIME" | "TIMESTAMP" | "TIMESTAMP_LTZ":
            return _to_time(source, to)
        case "BINARY" | "VARBINARY" | "BYTES":
            return _to_bytes(source, to)
        case "INTERVAL_SECOND" | "INTERVAL_MONTH" if source.name == to.name:
            return _same
        case "ARRAY" | "MAP" | "ROW" if source.name == to.name:
            return _to_nested(source, to)
    return None


def _same(value: Any) -> Any:
    return value


def _to_whole(source: Type, name: str) -> Change | None:
    wrap = numbers.WRAP[name]
    if source.name in WHOLE:
        return wrap
    if source.name in TEXT:
        return lambda value: numbers.whole_of_text(value, name)
    if source.name in APPROXIMATE:
        return lambda value: numbers.whole_of_float(value, name)
    if source.name == "DECIMAL":
        return lambda value: wrap(numbers.cut(value))
    return int if source.name == "BOOLEAN" else None


def _to_float(source: Type, name: str) -> Change | None:
    change: Change
    if source.name in TEXT:
        change = numbers.float_of_text
    elif source.name in NUMERIC or source.name == "BOOLEAN":
        change = float
    else:
        return None
    if name == "DOUBLE":
        return change
    return lambda value: numbers.single(change(value))


def _to_decimal(source: Type, to: Type) -> Change | None:
    change = numbers.rounder(to)
    if source.name in TEXT:
        return lambda value: _within(change(numbers.decimal_of_text(value)), value, to)
    if source.name == "FLOAT":
        return lambda value: change(Decimal(numbers.single_text(value)) if value - value == 0 else value)
    if source.name in NUMERIC:
        return change
    if source.name == "BOOLEAN":
        return lambda value: change(int(value))
    return None


def _within(rounded: Decimal | None, text: str, to: Type) -> Decimal:
    if rounded is None:
        raise Failed(f"{text!r:.60} is beyond {to}")
    return rounded


_TRUE = {"t", "true", "y", "yes", "1"}
_FALSE = {"f", "false", "n", "no", "0"}


def _boolean(value: str) -> bool:
    word = value.lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise Failed(f"{value!r:.60} is no BOOLEAN")


def _to_time(source: Type, to: Type) -> Change | None:
    digits = to.precision
    match source.name, to.name:
        case (("CHAR" | "VARCHAR" | "STRING"), "DATE"):
            return dates.date_of_text
        case (("CHAR" | "VARCHAR" | "STRING"), "TIME"):
            return lambda value: _cut_time(dates.time_of_text(value), digits)
        case (("CHAR" | "VARCHAR" | "STRING"), _):
            return lambda value: dates.stamp_of_text(value, digits)
        case ("TIMESTAMP", ("TIMESTAMP" | "TIMESTAMP_LTZ")):
            return lambda value: dates.cut_to(value, digits) if value >= 0 else -dates.cut_to(-value, digits)
        case ("TIMESTAMP_LTZ", ("TIMESTAMP" | "TIMESTAMP_LTZ")):
            return lambda value: dates.cut_to(value, digits)
        case ("TIMESTAMP", "DATE"):
            return lambda value: value // dates.DAY if value >= 0 else -(-value // dates.DAY)
        case ("TIMESTAMP_LTZ", "DATE"):
            return lambda value: value // dates.DAY
        case ("TIMESTAMP", "TIME"):
            return lambda value: _cut_time(
                value % dates.DAY // 1000 if value >= 0 else -(-value % dates.DAY // 1000), digits
            )
        case ("TIMESTAMP_LTZ", "TIME"):
            return lambda value: _cut_time(value % dates.DAY // 1000, digits)
        case "DATE", ("TIMESTAMP" | "TIMESTAMP_LTZ"):
            return lambda value: value * dates.DAY
        case "TIME", ("TIMESTAMP" | "TIMESTAMP_LTZ"):
            return lambda value: value * 1000
        case "TIME", "TIME":
            return _same
    return None


def _cut_time(of_day: int, digits: int) -> int:
    """Milliseconds of a day with so many digits of a second, towards midnight."""
    step = int(10 ** (3 - min(digits, 3)))
    return (of_day - of_day % step if of_day >= 0 else of_day + -of_day % step) % dates.DAY_MS


def _to_bytes(source: Type, to: Type) -> Change | None:
    most = to.precision
    if source.name not in (*TEXT, *BINARY):
        return None

    def change(value: Any) -> bytes:
        data = value.encode("utf-8", "replace") if isinstance(value, str) else value
        if most:
            data = data[:most]
            if to.name == "BINARY":
                data = data.ljust(most, b"\0")
        return data

    return change


def _to_nested(source: Type, to: Type) -> Change | None:
    if to.name == "ROW":
        pairs = zip(source.args, to.args, strict=True) if len(source.args) == len(to.args) else ()
        parts = [conversion(inner, other) for (_, inner), (_, other) in pairs]
    else:
        parts = [conversion(inner, other) for inner, other in zip(source.args, to.args, strict=True)]
    changes = [part for part in parts if part is not None]
    if not changes or len(changes) != len(parts):
        return None
    first, last = changes[0], changes[-1]
    if to.name == "ARRAY":
        return lambda value: tuple(None if element is None else first(element) for element in value)
    if to.name == "MAP":
        return lambda value: {first(key): None if item is None else last(item) for key, item in value.items()}
    return lambda value: tuple(
        None if field is None else change(field) for field, change in zip(value, changes, strict=True)
    )


# --- texts


def text_of(of: Type) -> Change | None:
    """Return what writes values of a type as CAST(… AS STRING) does."""
    match of.name:
        case "CHAR" | "VARCHAR" | "STRING":
            return _same
        case "TINYINT" | "SMALLINT" | "INT" | "BIGINT":
            return str
        case "BOOLEAN":
            return lambda value: "TRUE" if value else "FALSE"
        case "DOUBLE":
            return numbers.float_text
        case "FLOAT":
            return numbers.single_text
        case "DECIMAL":
            return numbers.decimal_text
        case "DATE":
            return dates.date_text
        case "TIME":
            return lambda value: dates.time_text(value, of.precision)
        case "TIMESTAMP" | "TIMESTAMP_LTZ":
            return lambda value: dates.stamp_text(value, of.precision)
        case "BINARY" | "VARBINARY" | "BYTES":
            return lambda value: value.decode("utf-8", "replace")
        case "INTERVAL_MONTH":
            return lambda value: f"{'-' if value < 0 else '+'}{abs(value) // 12}-{abs(value) % 12:02}"
        case "INTERVAL_SECOND":
            return _interval_text
        case "ARRAY" | "MAP" | "ROW":
            return _nested_text(of)
    return None


def _interval_text(value: int) -> str:
    seconds, milliseconds = divmod(abs(value) // 1000, 1000)
    days, seconds = divmod(seconds, 86400)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{milliseconds:03}"
    return f"{'-' if value < 0 else '+'}{days} {clock}"


def _nested_text(of: Type) -> Change | None:
    types = [kind for _, kind in of.args] if of.name == "ROW" else list(of.args)
    parts = [text_of(kind) for kind in types]
    writers = [part for part in parts if part is not None]
    if len(writers) != len(parts):
        return None
    first, last = (writers[0], writers[-1]) if writers else (str, str)

    def written(write: Change, value: Any) -> str:
        return "NULL" if value is None else write(value)

    if of.name == "ARRAY":
        return lambda value: f"[{', '.join(written(first, element) for element in value)}]"
    if of.name == "MAP":
        return lambda value: f"{{{', '.join(f'{written(first, k)}={written(last, v)}' for k, v in value.items())}}}"
    return lambda value: f"({', '.join(written(write, field) for write, field in zip(writers, value, strict=True))})"


def _to_text(source: Type, to: Type) -> Change | None:
    write = text_of(source)
    most = to.precision
    if write is None or not most:
        return write
    if to.name == "CHAR":
        return lambda value: write(value)[:most].ljust(most)
    return lambda value: write(value)[:most]


# --- rows


def _infer(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    count(args, 1)
    to: Type = options[0]
    if args[0].type != NULL and conversion(args[0].type, to) is None:
        raise WrongTypes(f"there is no cast to {to}")
    return to


def _cast(args: Sequence[Expression], options: tuple[Any, ...], type: Type) -> Change:
    return conversion(args[0].type, type) or _same


def _try_cast(args: Sequence[Expression], options: tuple[Any, ...], type: Type) -> Change:
    change = _cast(args, options, type)

    def tried(value: Any) -> Any:
        try:
            return change(value)
        except (ArithmeticError, ValueError):
            return None

    return tried


FUNCTIONS: dict[str, Function] = {
    "CAST": Function(
        _infer, _same, bind=_cast, example="CAST('42' AS INT)", gives="42",
        says="the value as another type; no value: the row is dropped and counted",
    ),
    "TRY_CAST": Function(
        _infer, _same, bind=_try_cast, example="TRY_CAST('x' AS INT)", gives="NULL",
        says="as `CAST`; no value: NULL",
    ),
}  # fmt: skip
