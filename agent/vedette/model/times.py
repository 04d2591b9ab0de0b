"""Every form of a time and of a duration that is read from text, each in one function.

| form | example | read by |
|---|---|---|
| duration | ``200ms``, ``90s``, ``10m``, ``2h``, ``30d``, ``1w`` | ``seconds`` |
| RFC 3339 | ``2026-11-20T10:00:00.5+01:00`` | ``iso_time`` |
| BSD syslog, without a year | ``Nov 20 10:00:00`` | ``bsd_time`` |
| a month's name and a year | ``20/Nov/2026:10:00:00 +0100``, ``Nov 20 2026 10:00:00 UTC`` | ``named_time``, ``dated`` |
| in JSON: RFC 3339, or a number since 1970 | ``1795168800.25`` | ``time_of`` |
| of PowerShell 5's and .NET's JSON | ``/Date(1795168800250)/`` | ``time_of`` |
| whatever a person may write | ``2026-11-20 10:00``, ``Fri, 20 Nov 2026 10:00:00 +0100`` | ``written_time`` |

An event's own time is never taken for more than ``MAX_SKEW`` after its receipt, nor for one before the year 1 of UTC,
which no table could hold: ``clamp``. What is good for a time is over when it comes from the future: ``lasts``.

All times are UTC microseconds since 1970. A function gives None for what is not of its form, but ``seconds``, which
raises ValueError. ``zone`` is taken where the text names none; None is UTC.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache

HOUR = 3_600_000_000
MAX_SKEW = 300_000_000
"""An event's time may lie so many microseconds after its receipt; so far may two clocks, or one, be apart."""
MONTHS = {name: i for i, name in enumerate(b"jan feb mar apr may jun jul aug sep oct nov dec".split(), 1)}
ZONES = {
    name: hours
    for hours, names in {
        -10: "HST", -9: "AKST", -8: "AKDT PST", -7: "MST PDT", -6: "CST MDT", -5: "EST CDT", -4: "EDT AST",
        -3.5: "NST", -3: "ADT", -2.5: "NDT", 0: "GMT UTC WET Z", 1: "BST CET MET WEST", 2: "CEST EET MEST SAST",
        3: "EEST IDT MSK", 5: "PKT", 8: "AWST HKT", 9: "JST KST", 9.5: "ACST", 10: "AEST", 10.5: "ACDT", 11: "AEDT",
        12: "NZST", 13: "NZDT",
    }.items()
    for name in names.split()
}  # fmt: skip
"""Hours east of Greenwich of what the tz database calls zones; of several that share a name RFC 5322's."""
_OFFSET = re.compile(r"(?:UTC|GMT|TZ)?([+-])(\d\d?):?(\d\d)?")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST = (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH) // _MICROSECOND
_AHEAD = 48 * HOUR
"""A yearless time may be so far after its receipt."""
_MAX_TIME = 64
"""Characters of a text that may be a time."""
_PLAUSIBLE = (631_152_000, 7_258_118_400)
"""Seconds since 1970 of the years 1990 and 2200."""
_SINCE_1970 = tuple((_PLAUSIBLE[0] * unit, _PLAUSIBLE[1] * unit, unit) for unit in (1, 1_000, 1_000_000, 1_000_000_000))
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
_DURATION = re.compile(r"([0-9]{1,15}(?:\.[0-9]+)?)\s*(ms|[smhdw])")
_ISO = re.compile(r"((?:19|20|21)\d\d-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:[.,](\d+))?(?: ?(Z|z|UTC|[+-]\d\d:?\d\d))?")
_DOTNET = re.compile(r"/Date\(([0-9]{1,15})(?:[+-][0-9]{4})?\)/")
_NAMED = re.compile(
    r"(?P<day>\d\d)/(?P<month>[A-Z][a-z]{2})/(?P<year>\d{4}):(?P<clock>\d\d:\d\d:\d\d) (?P<offset>[+-]\d{4})"
    r"|(?P<month_>[A-Z][a-z]{2}) (?P<day_>\d{1,2}) (?P<year_>\d{4}) (?P<clock_>\d\d:\d\d:\d\d(?:\.\d+)?)"
    r"(?P<utc>(?: (?:UTC|GMT|Z))?)"
)
_WRITTEN = ("%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M:%S %z", "%a, %d %b %Y %H:%M:%S %z")
"""Times other than ISO 8601's: dates with strokes, of mail (RFC 5322)."""


def seconds(text: str) -> float:
    """A duration; raises ValueError."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f'expects a duration such as "10m" or "200ms", not {text!r}')
    return float(match[1]) * _UNITS[match[2]]


def lasts(since: int, span: int, now: int) -> bool:
    """Whether what began at ``since`` and is for ``span`` is not over. What begins more than ``MAX_SKEW`` after ``now``
    was begun under a clock that was wrong: nobody knows when, and it is over."""
    return since - MAX_SKEW <= now <= since + span


def clamp(event_time: int | None, received_at: int) -> tuple[int, bool]:
    """The event time to go by, and whether it was set to the receipt: it lies too far after it, or in no year."""
    if event_time is None:
        return received_at, False
    return (event_time, False) if _FIRST <= event_time <= received_at + MAX_SKEW else (received_at, True)


def micros(time: datetime) -> int:
    """UTC microseconds since 1970 of an aware ``time``."""
    return (time - _EPOCH) // _MICROSECOND


def iso_time(text: str, zone: tzinfo | None = None) -> int | None:
    """An RFC 3339 time of 1900-2199; a blank for T or before the offset, ``UTC``, a comma, no offset are accepted."""
    match = _ISO.fullmatch(text)
    if match is None:
        return None
    offset = match[4] or ""
    try:
        time = datetime.fromisoformat(f"{match[1]}T{match[2]}{'+00:00' if offset in ('Z', 'z', 'UTC') else offset}")
        if time.tzinfo is None:
            time = time.replace(tzinfo=zone or UTC)
        return micros(time) + (int(match[3][:6].ljust(6, "0")) if match[3] else 0)
    except (ValueError, OverflowError):
        return None


@lru_cache(maxsize=4096)
def bsd_time(stamp: bytes, year: int, received_hour: int, zone: tzinfo | None) -> int | None:
    """``Mmm dd hh:mm:ss`` of ``year``; 0: of the last such date not more than two days after the hour of its receipt.

    ``received_hour`` counts from 1970; where it is 0, too, the time is not known. A local time that occurs twice (end
    of summer time) means the later one unless that lies after the receipt.
    """
    month = MONTHS.get(stamp[:3].lower())
    if month is None or not (year or received_hour):
        return None
    day, hour, minute = int(stamp[4:6]), int(stamp[7:9]), int(stamp[10:12])
    second = min(int(stamp[13:15]), 59) if stamp[13:15] <= b"60" else 60
    received = received_hour * HOUR
    this_year = year or (_EPOCH + timedelta(hours=received_hour)).year
    for candidate in (year,) if year else range(this_year + 1, this_year - 9, -1):
        try:
            local = datetime(candidate, month, day, hour, minute, second, tzinfo=zone or UTC)
        except ValueError:
            continue
        time = micros(local)
        if zone is not None and (later := micros(local.replace(fold=1))) > time and later <= received + HOUR:
            time = later
        if year or time <= received + _AHEAD:
            return time
    return None


@lru_cache(maxsize=1024)
def stamped_zone(name: str, zone: tzinfo | None) -> tzinfo | None:
    """The zone that a stamp names: ``CEST``, ``+0100``, ``UTC+1``. Where ``zone`` has this name it is meant; it is
    taken, too, for a name that is not in ``ZONES``."""
    if offset := _OFFSET.fullmatch(name):
        shift = timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0))
        return timezone(-shift if offset[1] == "-" else shift) if shift < timedelta(days=1) else zone
    name = name.upper()
    for moment in () if zone is None else (datetime(2026, month, 1, tzinfo=zone) for month in (1, 7)):
        if moment.tzname() == name:
            return timezone(moment.utcoffset() or timedelta())
    return timezone(timedelta(hours=ZONES[name])) if name in ZONES else zone


def dated(year: str, month: str, day: str, clock: str, offset: str = "", zone: tzinfo | None = None) -> int | None:
    """A date by its parts: ``month`` is an English name of three letters, ``clock`` ``hh:mm:ss[.SSS]``."""
    number = MONTHS.get(month.lower().encode("utf-8", "replace"))
    clock = clock[:6] + "59" + clock[8:] if clock[6:8] == "60" else clock
    return None if number is None else iso_time(f"{year}-{number:02}-{int(day):02} {clock}{offset}", zone)


def named_time(text: str, zone: tzinfo | None = None) -> int | None:
    """``dd/Mmm/yyyy:hh:mm:ss +hhmm`` (Common Log Format) or ``Mmm dd yyyy hh:mm:ss[.SSS][ UTC]``."""
    match = _NAMED.fullmatch(text)
    if match is None:
        return None
    if match["day"] is not None:
        return dated(match["year"], match["month"], match["day"], match["clock"], match["offset"])
    return dated(match["year_"], match["month_"], match["day_"], match["clock_"], "Z" if match["utc"] else "", zone)


def time_of(value: object, zone: tzinfo | None = None) -> int | None:
    """A time in JSON: RFC 3339, .NET's, a number (or digits) of seconds, milli-, micro- or nanoseconds since 1970."""
    if isinstance(value, str):
        if len(value) > _MAX_TIME:
            return None
        if value[:1] == "/" and (dotnet := _DOTNET.fullmatch(value)):
            return int(dotnet[1]) * 1000
        if (time := iso_time(value, zone)) is not None:
            return time
        try:
            value = int(value) if value.isdigit() else float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    for least, most, unit in _SINCE_1970:
        if least <= value <= most:
            return int(value * 1_000_000) // unit if isinstance(value, int) else round(value * (1_000_000 / unit))
    return None


def written_time(text: str, zone: tzinfo | None = None) -> int | None:
    """A time as people write it: ISO 8601 in all its forms, ``named_time``, dates with strokes, of mail."""
    if len(text) > _MAX_TIME:
        return None
    if (named := named_time(text, zone)) is not None:
        return named
    for name in ("UTC", "GMT"):
        text = text.removesuffix(name).rstrip() + " +0000" if text.endswith(name) else text
    text = text.replace("/", "-", 2) if text[:4].isdigit() else text
    for form in ("", *_WRITTEN):
        try:
            moment = datetime.strptime(text, form) if form else datetime.fromisoformat(text)
        except ValueError:
            continue
        return micros(moment if moment.tzinfo else moment.replace(tzinfo=zone or UTC))
    return None
