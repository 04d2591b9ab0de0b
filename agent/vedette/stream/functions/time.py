"""Dates and times, in UTC. Units are texts in capitals: YEAR, MONTH … (an option of the call).

A time before 1970 is cut towards 1970 by EXTRACT, and a TIMESTAMP by CAST, as in Flink.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import tzinfo
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from vedette.plan.query import Expression, Type
from vedette.stream.functions import arithmetic
from vedette.stream.functions.table import Function, WrongTypes, constant, count, shown, takes
from vedette.stream.values import dates
from vedette.stream.values.dates import DAY, HOUR, MINUTE, SECOND
from vedette.stream.values.formats import (
    BadFormat,
    check_loosely,
    check_reading,
    check_writing,
    formatted,
    read,
    read_loosely,
)
from vedette.stream.values.numbers import WRAP
from vedette.stream.values.types import (
    BIGINT,
    DATE,
    INT,
    INTERVAL,
    NUMERIC,
    STAMP,
    STRING,
    TEXT,
    TIMESTAMP_3,
    TIMESTAMP_LTZ_3,
    WHOLE,
    Failed,
)

_FIXED = {"SECOND": SECOND, "MINUTE": MINUTE, "HOUR": HOUR, "DAY": DAY, "WEEK": 7 * DAY, "MILLISECOND": 1000,
          "MICROSECOND": 1}  # fmt: skip
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_PARTS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "DOY", "DOW", "ISODOW", "ISOYEAR", "HOUR", "MINUTE", "SECOND",
          "MILLISECOND", "MICROSECOND", "NANOSECOND", "EPOCH", "DECADE", "CENTURY", "MILLENNIUM")  # fmt: skip
_OF_DAY = _PARTS[9:15]
_DATED = (*STAMP, "DATE")
USUAL = "yyyy-MM-dd HH:mm:ss"
_TIMED = (*_DATED, "TIME")


# --- EXTRACT


def _extract_types(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    takes((*_TIMED, *INTERVAL))(args)
    unit, source = options[0], args[0].type.name
    units: tuple[str, ...] = _PARTS
    if source == "TIME":
        units = ("HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND", "NANOSECOND", "EPOCH")
    elif source == "INTERVAL_SECOND":
        units = ("DAY", *_OF_DAY, "EPOCH")
    elif source == "INTERVAL_MONTH":
        units = ("YEAR", "MONTH")
    if unit not in units:
        raise WrongTypes(f"there is no {unit} of {args[0].type}; there is {', '.join(units)}")
    return BIGINT


def _extract(args: Sequence[Expression], options: tuple[Any, ...], type: Type) -> Callable[[Any], int]:
    return part_of(args[0].type, options[0])


def part_of(source: Type, unit: str) -> Callable[[Any], int]:
    """EXTRACT(``unit`` FROM a value of ``source``)."""
    match source.name:
        case "INTERVAL_MONTH":
            return (lambda value: arithmetic.divided(value, 12)) if unit == "YEAR" else (
                lambda value: arithmetic.remainder(value, 12))  # fmt: skip
        case "DATE":
            return lambda value: _part(unit, value, 0)
        case "TIME":
            return lambda value: _part(unit, 0, value * 1000)
        case "INTERVAL_SECOND" if unit == "DAY":
            return lambda value: arithmetic.divided(value, DAY)
    return lambda value: _part(unit, day := arithmetic.divided(value, DAY), value - day * DAY)


def _part(unit: str, day: int, rest: int) -> int:
    """Cut a part out of a day and the microseconds behind its beginning."""
    match unit:
        case "HOUR":
            return arithmetic.divided(rest, HOUR)
        case "MINUTE":
            return arithmetic.remainder(arithmetic.divided(rest, MINUTE), 60)
        case "SECOND":
            return arithmetic.remainder(arithmetic.divided(rest, SECOND), 60)
        case "MILLISECOND":
            return arithmetic.remainder(arithmetic.divided(rest, 1000), 1000)
        case "MICROSECOND":
            return arithmetic.remainder(arithmetic.divided(rest, 1000), 1000) * 1000
        case "NANOSECOND":
            return arithmetic.remainder(arithmetic.divided(rest, 1000), 1000) * 1_000_000
        case "EPOCH":
            return day * 86400 + arithmetic.divided(rest, SECOND)
        case "DOW":
            return (dates.weekday(day) + 1) % 7 + 1
        case "ISODOW":
            return dates.weekday(day) + 1
        case "WEEK":
            return dates.iso_week(day)[1]
        case "ISOYEAR":
            return dates.iso_week(day)[0]
    year, month, of_month = dates.civil(day)
    match unit:
        case "YEAR":
            return year
        case "QUARTER":
            return (month + 2) // 3
        case "MONTH":
            return month
        case "DAY":
            return of_month
        case "DOY":
            return day - dates.days(year, 1, 1) + 1
        case "DECADE":
            return year // 10
        case "CENTURY":
            return (year + 99) // 100
    return (year + 999) // 1000


def _named_part(unit: str, example: str, value: str) -> Function:
    def infer(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
        return _extract_types(args, (unit,))

    def bind(args: Sequence[Expression], options: tuple[Any, ...], type: Type) -> Callable[[Any], int]:
        return part_of(args[0].type, unit)

    return Function(infer, _part, bind=bind, example=example, gives=value)


# --- FLOOR and CEIL, of times and of numbers

_ROUNDED = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND")


def _whole_types(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    count(args, 1)
    if not options:
        return arithmetic.whole_types(args)
    takes(_TIMED)(args)
    if options[0] not in _ROUNDED or (args[0].type.name == "TIME" and options[0] in _ROUNDED[:5]):
        raise WrongTypes(f"TO {options[0]}: there is {', '.join(_ROUNDED)}")
    return args[0].type


def floored(value: int, unit: str) -> int:
    """A timestamp at the beginning of its unit; a WEEK begins on Sunday."""
    if unit == "WEEK":
        day = value // DAY
        return (day - (dates.weekday(day) + 1) % 7) * DAY
    if unit in _FIXED:
        return value - value % _FIXED[unit]
    year, month, _ = dates.civil(value // DAY)
    month = {"MONTH": month, "QUARTER": month - (month - 1) % 3, "YEAR": 1}[unit]
    return dates.days(year, month, 1) * DAY


def ceiled(value: int, unit: str) -> int:
    """Round up to a unit. Of units longer than a day the time of day does not count, and the 1st of January alone
    begins a QUARTER, as in Flink."""
    if unit in _FIXED and unit != "WEEK":
        return value + -value % _FIXED[unit]
    value = arithmetic.divided(value, DAY) * DAY
    begin = floored(value, unit)
    if begin == value and (unit != "QUARTER" or dates.civil(value // DAY)[1] == 1):
        return value
    if unit == "WEEK":
        return begin + 7 * DAY
    return dates.add_months(begin // DAY, _MONTHS[unit]) * DAY


def _whole(up: bool) -> Function:
    def bind(args: Sequence[Expression], options: tuple[Any, ...], type: Type) -> Callable[[Any], Any]:
        if not options:
            return arithmetic.to_whole(up, type)
        unit, step = options[0], ceiled if up else floored
        match type.name:
            case "DATE" if up and unit == "DAY":
                return lambda value: value + 1  # as in Flink
            case "DATE":
                return lambda value: step(value * DAY, unit) // DAY
            case "TIME":
                return lambda value: step(value * 1000, unit) // 1000
        if not up and unit in _MONTHS:  # before 1970 that of the day after, as in Flink
            return lambda value: step(arithmetic.divided(value, DAY) * DAY, unit)
        return lambda value: step(value, unit)

    return Function(_whole_types, ceiled if up else floored, bind=bind)


# --- TIMESTAMPADD, TIMESTAMPDIFF


def _add_types(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    takes(WHOLE, _TIMED)(args)
    unit, source = options[0], args[1].type
    if unit not in _FIXED and unit not in _MONTHS:
        raise WrongTypes(f"there is no unit {unit} here")
    if source.name == "TIME" and unit in _MONTHS:
        raise WrongTypes("a TIME has no months")
    if source.name == "DATE" and unit in ("HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND"):
        return Type("TIMESTAMP", 6)
    return source


def _add(args: Sequence[Expression], options: tuple[Any, ...], type: Type) -> Callable[[int, int], int]:
    unit, source = options[0], args[1].type
    months = unit in _MONTHS
    step = _MONTHS[unit] if months else _FIXED[unit]
    by = Type("INTERVAL_MONTH" if months else "INTERVAL_SECOND")
    if source.name == "DATE" and type.name == "TIMESTAMP":
        return lambda number, value: value * DAY + number * step
    return lambda number, value: arithmetic.shifted(value, source, number * step, by)


def _diff_types(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    takes(_DATED, _DATED)(args)
    if {argument.type.name for argument in args} & {"TIMESTAMP_LTZ"} and args[0].type.name != args[1].type.name:
        raise WrongTypes("a TIMESTAMP_LTZ is compared with another only; CAST one of them")
    if options[0] not in _FIXED and options[0] not in _MONTHS:
        raise WrongTypes(f"there is no unit {options[0]} here")
    return INT


def _diff(args: Sequence[Expression], options: tuple[Any, ...], type: Type) -> Callable[[int, int], int]:
    unit = options[0]
    first, last = (DAY if argument.type.name == "DATE" else 1 for argument in args)
    if unit in _FIXED:
        step = _FIXED[unit]
        return lambda a, b: WRAP["INT"](arithmetic.divided(b * last - a * first, step))
    step = _MONTHS[unit]
    return lambda a, b: arithmetic.divided(months_between(a * first, b * last), step)


def months_between(a: int, b: int) -> int:
    """Whole months from one timestamp to another."""
    months = _months_of_days(a // DAY, b // DAY)
    if dates.add_months(a // DAY, months) == b // DAY and b % DAY < a % DAY:
        months -= 1
    return months


def _months_of_days(a: int, b: int) -> int:
    """A day counts as the month's last where there is none of its number (Calcite's ``subtractMonths``)."""
    if b < a:
        return -_months_of_days(b, a)
    (year, month, _), (later, other, _) = dates.civil(a), dates.civil(b)
    months = (later - year) * 12 + other - month
    return months - (dates.add_months(a, months) > b)


# --- texts


def _checked_format(args: Sequence[Expression], check: Callable[[str], None]) -> None:
    pattern = constant(args[1]) if len(args) > 1 else None
    if isinstance(pattern, str):
        try:
            check(pattern)
        except BadFormat as error:
            raise WrongTypes(f"format {pattern!r:.60}: {error}") from error


def _format_types(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    takes((*STAMP, *TEXT), TEXT)(args)
    _checked_format(args, check_writing)
    return STRING


def _date_format(args: Sequence[Expression], options: tuple[Any, ...], type: Type) -> Callable[..., Any]:
    if args[0].type.name in TEXT:
        return _tried(lambda value, pattern: formatted(read_loosely(value, USUAL), pattern))
    return formatted


def _read_types(result: Type, check: Callable[[str], None]) -> Callable[..., Type]:
    def infer(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
        takes(TEXT, TEXT, least=1)(args)
        _checked_format(args, check)
        return result

    return infer


def _tried(compute: Callable[..., Any]) -> Callable[..., Any]:
    def tried(*values: Any) -> Any:
        try:
            return compute(*values)
        except ValueError:
            return None

    return tried


def _to_timestamp(text: str, pattern: str | None = None) -> int:
    if pattern is None:
        return dates.stamp_of_text(text, 3)
    try:
        return dates.cut_to(read(text, pattern), 3)
    except ValueError:
        return dates.cut_to(_of_jdbc(text), 3)


_JDBC = re.compile(
    r"(\d{4})-(\d\d?)-(\d\d?)(?: +([+-]?\d{1,4}):([+-]?\d{1,4}):([+-]?\d{1,4})(?:\.(\d{1,9}))?)?", re.ASCII
)


def _of_jdbc(text: str) -> int:
    """Read what Flink takes whatever the pattern: a date, or a date and a time, whose parts may be too large."""
    match = _JDBC.fullmatch(text.strip())
    if match is None or not (1 <= int(match[2]) <= 12 and 1 <= int(match[3]) <= 31):
        raise Failed(f"{text!r:.60} is no time")
    days = dates.days(int(match[1]) or 1, int(match[2]), 1) + int(match[3]) - 1
    hours, minutes, seconds = (int(part or 0) for part in match.group(4, 5, 6))
    fraction = int((match[7] or "").ljust(6, "0")[:6])
    return days * DAY + ((hours * 60 + minutes) * 60 + seconds) * SECOND + fraction


def _to_date(text: str, pattern: str | None = None) -> int:
    return dates.date_of_text(text) if pattern is None else read_loosely(text, pattern) // DAY


_FIRST, _LAST = dates.days(1, 1, 1) * DAY, dates.days(10000, 1, 1) * DAY


def _ltz_types(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    count(args, 1, 3)
    if args[0].type.name in NUMERIC:
        takes(NUMERIC, WHOLE, least=1)(args)
        if len(args) > 1 and constant(args[1]) not in (None, 0, 3):
            raise WrongTypes("the precision is 0 (seconds) or 3 (milliseconds)")
    else:
        takes(TEXT, TEXT, TEXT, least=1)(args)
        _checked_format(args, check_reading)
        zone = constant(args[2]) if len(args) > 2 else None
        if isinstance(zone, str) and _zone(zone) is None:
            raise WrongTypes(f"there is no time zone {zone!r:.40}")
    return TIMESTAMP_LTZ_3


def _ltz(args: Sequence[Expression], options: tuple[Any, ...], type: Type) -> Callable[..., Any]:
    if args[0].type.name in NUMERIC:
        return _of_epoch
    return _tried(_ltz_of_text)


def _of_epoch(number: Any, precision: int = 3) -> int | None:
    if isinstance(number, float) and number - number != 0:
        return None
    if precision not in (0, 3):
        raise Failed("the precision is 0 or 3")
    stamp = int(number) * (SECOND if precision == 0 else 1000)
    return stamp if _FIRST <= stamp < _LAST else None


def _ltz_of_text(text: str, pattern: str | None = None, zone: str | None = None) -> int:
    stamp = _to_timestamp(text, pattern)
    return stamp if zone is None else to_utc(stamp, zone)


@lru_cache(64)
def _zone(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


_SHORT = {
    "ACT": "Australia/Darwin", "AET": "Australia/Sydney", "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo", "AST": "America/Anchorage", "BET": "America/Sao_Paulo", "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare", "CNT": "America/St_Johns", "CST": "America/Chicago", "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa", "ECT": "Europe/Paris", "IET": "America/Indiana/Indianapolis", "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo", "MIT": "Pacific/Apia", "NET": "Asia/Yerevan", "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi", "PNT": "America/Phoenix", "PRT": "America/Puerto_Rico", "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal", "VST": "Asia/Ho_Chi_Minh",
}  # fmt: skip
"""Java's names of three letters."""
_GMT = re.compile(r"GMT([+-])(\d\d?)(?::?(\d\d))?", re.ASCII)


@lru_cache(64)
def _java_zone(name: str) -> tzinfo | None:
    """The zone that Java's ``TimeZone`` knows by this name; None where it takes GMT instead."""
    from datetime import timedelta, timezone

    match = _GMT.fullmatch(name)
    if match is not None:
        sign, hours, minutes = match[1], int(match[2]), int(match[3] or 0)
        if hours > 23 or minutes > 59:
            return None
        ahead = timedelta(hours=hours, minutes=minutes)
        return timezone(ahead if sign == "+" else -ahead)
    return _zone(_SHORT.get(name, name))


def _offset(stamp: int, zone: tzinfo, local: bool, fold: int = 0) -> int:
    """Microseconds that a zone is ahead of UTC at a time, of UTC or of the zone; ``fold`` as in ``datetime``."""
    from datetime import UTC, datetime, timedelta

    moment = datetime(1970, 1, 1, fold=fold) + timedelta(microseconds=stamp)
    moment = moment.replace(fold=fold)
    aware = moment.replace(tzinfo=zone) if local else moment.replace(tzinfo=UTC).astimezone(zone)
    ahead = aware.utcoffset()
    assert ahead is not None
    return ahead // timedelta(microseconds=1)


def to_utc(stamp: int, name: str) -> int:
    zone = _zone(name)
    if zone is None:
        raise Failed(f"there is no time zone {name!r:.40}")
    return stamp - _offset(stamp, zone, True)


def _convert_types(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    takes(TEXT, TEXT, TEXT)(args)
    for argument in args[1:]:
        name = constant(argument)
        if isinstance(name, str) and _java_zone(name) is None:
            raise WrongTypes(
                f"there is no time zone {name!r:.40} (Flink takes GMT); write 'Europe/Berlin' or 'GMT+01:00'"
            )
    return STRING


def _convert_tz(text: str, of: str, to: str) -> str | None:
    """A time that a zone has twice is the second, as in ``SimpleDateFormat``."""
    stamp = dates.cut_to(read_loosely(text, USUAL), 0)
    if (zone := _java_zone(of)) is not None:
        offset = _offset(stamp, zone, True, 1)
        later = _offset(stamp - offset, zone, False)
        stamp -= offset if later == offset else _offset(stamp, zone, True)
    if (zone := _java_zone(to)) is not None:
        stamp += _offset(stamp, zone, False)
    return dates.stamp_text(stamp, 0)


def _from_unixtime(seconds: int, pattern: str = USUAL) -> str:
    stamp = seconds * SECOND
    if not _FIRST <= stamp < _LAST:
        raise Failed(f"{seconds} seconds are beyond the calendar")
    return formatted(stamp, pattern)


def _from_unixtime_types(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    takes(NUMERIC, TEXT, least=1)(args)
    _checked_format(args, check_writing)
    return STRING


def _unix_types(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    if not args:
        raise WrongTypes("a replay must give the same; use the event's time (a column), or a text as argument")
    takes(TEXT, TEXT, least=1)(args)
    _checked_format(args, check_loosely)
    return BIGINT


def _unix(text: str, pattern: str = USUAL) -> int:
    try:
        return read_loosely(text, pattern) // SECOND
    except ValueError:
        return -(1 << 63)


FUNCTIONS: dict[str, Function] = {
    "EXTRACT": Function(_extract_types, _part, bind=_extract, example="EXTRACT(MONTH FROM DATE '2026-02-03')",
                        gives="2", says=", ".join(_PARTS)),
    "YEAR": _named_part("YEAR", "YEAR(DATE '2026-02-03')", "2026"),
    "QUARTER": _named_part("QUARTER", "QUARTER(DATE '2026-02-03')", "1"),
    "MONTH": _named_part("MONTH", "MONTH(DATE '2026-02-03')", "2"),
    "WEEK": _named_part("WEEK", "WEEK(DATE '2026-02-03')", "6"),
    "DAYOFYEAR": _named_part("DOY", "DAYOFYEAR(DATE '2026-02-03')", "34"),
    "DAYOFMONTH": _named_part("DAY", "DAYOFMONTH(DATE '2026-02-03')", "3"),
    "DAYOFWEEK": _named_part("DOW", "DAYOFWEEK(DATE '2026-02-03')", "3"),
    "HOUR": _named_part("HOUR", "HOUR(TIMESTAMP '2026-02-03 04:05:06')", "4"),
    "MINUTE": _named_part("MINUTE", "MINUTE(TIMESTAMP '2026-02-03 04:05:06')", "5"),
    "SECOND": _named_part("SECOND", "SECOND(TIMESTAMP '2026-02-03 04:05:06')", "6"),
    "FLOOR": _whole(False),
    "CEIL": _whole(True),
    "TIMESTAMPADD": Function(_add_types, _add, bind=_add, example="TIMESTAMPADD(MONTH, 1, DATE '2026-01-31')",
                             gives="2026-02-28"),
    "TIMESTAMPDIFF": Function(_diff_types, _diff, bind=_diff,
                              example="TIMESTAMPDIFF(DAY, DATE '2026-01-31', DATE '2026-02-03')", gives="3",
                              says="whole units from the first to the second"),
    "DATE_FORMAT": Function(_format_types, formatted, bind=_date_format,
                            example="DATE_FORMAT(TIMESTAMP '2026-02-03 04:05:06', 'dd.MM.yyyy')", gives="03.02.2026",
                            says="by Java's letters"),
    "TO_TIMESTAMP": Function(_read_types(TIMESTAMP_3, check_reading), _tried(_to_timestamp),
                             example="TO_TIMESTAMP('03/Feb/2026:04:05:06', 'dd/MMM/yyyy:HH:mm:ss')",
                             gives="2026-02-03 04:05:06.000", says="NULL for what is none"),
    "TO_TIMESTAMP_LTZ": Function(_ltz_types, _of_epoch, bind=_ltz, example="TO_TIMESTAMP_LTZ(1770091506, 0)",
                                 gives="2026-02-03 04:05:06.000",
                                 says="of seconds (0) or milliseconds (3), or a text, its format and its time zone"),
    "TO_DATE": Function(_read_types(DATE, check_loosely), _tried(_to_date),
                        example="TO_DATE('03.02.2026', 'dd.MM.yyyy')", gives="2026-02-03",
                        says="NULL for what is none"),
    "FROM_UNIXTIME": Function(_from_unixtime_types, _from_unixtime, example="FROM_UNIXTIME(1770091506)",
                              gives="2026-02-03 04:05:06"),
    "UNIX_TIMESTAMP": Function(_unix_types, _unix, example="UNIX_TIMESTAMP('2026-02-03 04:05:06')", gives="1770091506",
                               says="of a text; without one it is refused"),
    "CONVERT_TZ": Function(_convert_types, _tried(_convert_tz),
                           example="CONVERT_TZ('2026-02-03 04:05:06', 'UTC', 'America/New_York')",
                           gives="2026-02-02 23:05:06"),
}  # fmt: skip

shown(
    FUNCTIONS,
    {
        "FLOOR": ("FLOOR(DATE '2026-02-03' TO MONTH)", "2026-02-01", "of a time to its unit, or of a number"),
        "CEIL": ("CEIL(2.1)", "3", "likewise, upwards"),
    },
)
