"""Values between SQL and a function's Python, by type: what PyFlink gives a function, and what it takes from one.

| type | in Python |
|---|---|
| ``DATE`` ``TIME`` | ``datetime.date``, ``datetime.time`` |
| ``TIMESTAMP`` ``TIMESTAMP_LTZ`` | ``datetime.datetime``, without a zone; in UTC |
| ``ARRAY`` ``MAP`` ``ROW`` | list, dict, ``Row`` |
| all others | as ``plan/query.py`` has them |

A value of another type than the function has declared raises ``TypeError``, but where Flink takes it: whole numbers for
floats, floats (cut) and booleans for whole numbers, whole numbers of a byte for booleans. NULL is None, anywhere. Types
are ``query.dump``ed. Runs in the child; after Apache Flink 2.3, ``pyflink/fn_execution/coder_impl_fast.pyx``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Any

import msgpack

from vedette.plan.numbers import BITS
from vedette.udf.datatypes import Row

Change = Callable[[Any], Any]
MAX_ACCUMULATOR = 1 << 20
"""Bytes of one accumulator, and of the value of one row."""
_EPOCH, _EPOCH_UTC = datetime(1970, 1, 1), datetime(1970, 1, 1, tzinfo=UTC)
_DAYS = 719_163
_MICROSECOND = timedelta(microseconds=1)
_WIDE = Context(prec=60)


def given(of: list[Any]) -> Change | None:
    """What makes a function's argument of a value of type ``of``; None: it is the value."""
    _, name, _, _, (_, *args) = of
    match name:
        case "DATE":
            return lambda value: date.fromordinal(value + _DAYS)
        case "TIME":
            return lambda value: (_EPOCH + timedelta(milliseconds=value)).time()
        case "TIMESTAMP":
            return lambda value: _EPOCH + value * _MICROSECOND
        case "TIMESTAMP_LTZ":
            return lambda value: _EPOCH_UTC + value * _MICROSECOND
        case "ARRAY":
            element = _null_too(given(args[0]))
            return list if element is None else lambda value: [element(item) for item in value]
        case "MAP":
            key, of_value = (_null_too(given(part)) or _same for part in args)
            return lambda value: {key(map_key): of_value(other) for map_key, other in value.items()}
        case "ROW":
            fields = [(pair[1], _null_too(given(pair[2])) or _same) for pair in args]
            return lambda value: Row(
                **{called: change(item) for (called, change), item in zip(fields, value, strict=True)}
            )
    return None


def taken(of: list[Any]) -> Change:
    """What checks a value that a function gave as of type ``of``, and makes SQL's value of it. Raises TypeError."""
    _, name, precision, scale, (_, *args) = of
    match name:
        case "BOOLEAN":
            return lambda value: bool(value) if isinstance(value, int) and 0 <= value < 256 else _wrong(name, value)
        case "TINYINT" | "SMALLINT" | "INT" | "BIGINT":
            return _whole(name)
        case "FLOAT" | "DOUBLE":
            return _approximate(name)
        case "DECIMAL":
            return _decimal(precision, scale)
        case "CHAR" | "VARCHAR" | "STRING":
            return _of(name, str)
        case "BINARY" | "VARBINARY" | "BYTES":
            return lambda value: bytes(value) if isinstance(value, bytes | bytearray) else _wrong(name, value)
        case "DATE":
            return lambda value: (
                value.toordinal() - _DAYS
                if isinstance(value, date)  # a datetime is one
                else _wrong(name, value)
            )
        case "TIME":
            return lambda value: _millis(value) if isinstance(value, time) else _wrong(name, value)
        case "TIMESTAMP" | "TIMESTAMP_LTZ":
            return _stamp(name, precision)
        case "ARRAY":
            element = _or_null(taken(args[0]))
            return lambda value: tuple(element(item) for item in value) if type(value) is list else _wrong(name, value)
        case "MAP":
            key, of_value = (_or_null(taken(part)) for part in args)
            return lambda value: (
                {key(map_key): of_value(other) for map_key, other in value.items()}
                if isinstance(value, dict)
                else _wrong(name, value)
            )
        case "ROW":
            return _row([_or_null(taken(pair[2])) for pair in args])
    raise TypeError(f"a function gives no {name}")


def _error(name: str, value: Any) -> TypeError:
    return TypeError(f"gave {type(value).__name__} {value!r:.60}, not {name}")


def _wrong(name: str, value: Any) -> Any:
    raise _error(name, value)


def _same(value: Any) -> Any:
    return value


def _null_too(change: Change | None) -> Change | None:
    return None if change is None else lambda value: None if value is None else change(value)


def _or_null(change: Change) -> Change:
    return lambda value: None if value is None else change(value)


def _of(name: str, kind: type) -> Change:
    return lambda value: (
        value if type(value) is kind else kind(value) if isinstance(value, kind) else _wrong(name, value)
    )


def _whole(name: str) -> Change:
    most = 1 << (BITS[name] - 1)

    def whole(value: Any) -> int:
        number = value if type(value) is int else int(value) if isinstance(value, int | float | Decimal) else None
        if number is None or not -most <= number < most:
            raise _error(name, value)
        return number

    return whole


def _approximate(name: str) -> Change:
    def number(value: Any) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool):
            _wrong(name, value)
        double = float(value)
        return struct.unpack("f", struct.pack("f", double))[0] if name == "FLOAT" else double

    return number


def _decimal(precision: int, scale: int) -> Change:
    step, limit = Decimal(1).scaleb(-scale), Decimal(10) ** (precision - scale)

    def number(value: Any) -> Decimal:
        if not isinstance(value, Decimal):
            _wrong("DECIMAL", value)
        rounded: Decimal = value.quantize(step, ROUND_HALF_EVEN, _WIDE)
        if rounded.copy_abs() >= limit:
            raise _error(f"DECIMAL({precision}, {scale})", value)
        return rounded

    return number


def _millis(value: time) -> int:
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1000 + value.microsecond // 1000


def _stamp(name: str, precision: int) -> Change:
    step: int = 10 ** max(0, 6 - precision)

    def micros(value: Any) -> int:
        if not isinstance(value, datetime):
            raise _error(name, value)
        since = value - _EPOCH if value.tzinfo is None else value - _EPOCH_UTC
        total: int = since // _MICROSECOND
        return total // step * step

    return micros


def _row(fields: list[Change]) -> Change:
    def values(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, tuple | list) or len(value) != len(fields):
            _wrong(f"ROW of {len(fields)}", value)
        return tuple(change(item) for change, item in zip(fields, value, strict=True))

    return values


# --- as bytes

_DECIMAL, _TUPLE, _ROW, _STAMP, _DATE, _TIME, _SPAN = 1, 2, 3, 4, 5, 6, 7


def pack(value: Any) -> bytes:
    """What the parent reads (``stream/keyed.py``)."""
    return bytes(msgpack.packb(value, default=_default, unicode_errors="surrogatepass"))


def unpack(data: bytes) -> Any:
    return msgpack.unpackb(data, strict_map_key=False, ext_hook=_ext, unicode_errors="surrogatepass", use_list=False)


def _default(value: Any) -> Any:
    if isinstance(value, Decimal):
        return msgpack.ExtType(_DECIMAL, str(value).encode())
    raise TypeError(f"{type(value).__name__} cannot be kept")


def pack_accumulator(value: Any) -> bytes:
    """An accumulator as it is kept. Raises TypeError for what it may not hold."""
    return bytes(msgpack.packb(value, default=_accumulated, strict_types=True, unicode_errors="surrogatepass"))


def unpack_accumulator(data: bytes) -> Any:
    return msgpack.unpackb(data, strict_map_key=False, ext_hook=_restored, unicode_errors="surrogatepass")


def _accumulated(value: Any) -> Any:
    if isinstance(value, Decimal):
        return msgpack.ExtType(_DECIMAL, str(value).encode())
    if isinstance(value, Row):
        return msgpack.ExtType(_ROW, pack_accumulator([list(value._fields), list(value)]))
    if isinstance(value, tuple):
        return msgpack.ExtType(_TUPLE, pack_accumulator(list(value)))
    if isinstance(value, datetime):
        return msgpack.ExtType(_STAMP, value.isoformat().encode())
    if isinstance(value, date):
        return msgpack.ExtType(_DATE, value.isoformat().encode())
    if isinstance(value, time):
        return msgpack.ExtType(_TIME, value.isoformat().encode())
    if isinstance(value, timedelta):
        return msgpack.ExtType(_SPAN, str(value // _MICROSECOND).encode())
    raise TypeError(
        f"an accumulator holds numbers, texts, bytes, times, lists, tuples, dicts and Rows, no {type(value).__name__}"
    )


def _ext(code: int, data: bytes) -> Any:
    return Decimal(data.decode()) if code == _DECIMAL else int(data, 16)


def _restored(code: int, data: bytes) -> Any:
    match code:
        case 1:
            return Decimal(data.decode())
        case 2:
            return tuple(unpack_accumulator(data))
        case 3:
            names, values = unpack_accumulator(data)
            return Row(**dict(zip(names, values, strict=True))) if names else Row(*values)
        case 4:
            return datetime.fromisoformat(data.decode())
        case 5:
            return date.fromisoformat(data.decode())
        case 6:
            return time.fromisoformat(data.decode())
    return timedelta(microseconds=int(data))
