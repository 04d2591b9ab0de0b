"""Days, times of day and timestamps as numbers (``plan/query.py`` has their units), and their texts.

The calendar is Gregorian throughout. ``civil`` and ``days`` are those of Howard Hinnant, "chrono-Compatible Low-Level
Date Algorithms".
"""

from __future__ import annotations

import re

from vedette.stream.values.types import Failed

MILLISECOND, SECOND, MINUTE, HOUR, DAY = 1_000, 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000
DAY_MS = 86_400_000
_LENGTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def days(year: int, month: int, day: int) -> int:
    """Days since 1970."""
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468


def civil(day: int) -> tuple[int, int, int]:
    """Year, month and day of days since 1970."""
    era, of_era = divmod(day + 719468, 146097)
    year_of_era = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    return year_of_era + era * 400 + (month <= 2), month, of_year - (153 * shifted + 2) // 5 + 1


def month_length(year: int, month: int) -> int:
    if month == 2 and (year % 4 or (year % 100 == 0 and year % 400)):
        return 28
    return _LENGTHS[month - 1]


def add_months(day: int, months: int) -> int:
    """A day so many months later; the last of its month where there is no such day."""
    year, month, of_month = civil(day)
    year, month = divmod(year * 12 + month - 1 + months, 12)
    return days(year, month + 1, min(of_month, month_length(year, month + 1)))


def weekday(day: int) -> int:
    """Monday is 0."""
    return (day + 3) % 7


def iso_week(day: int) -> tuple[int, int]:
    """Year and week by ISO 8601."""
    thursday = day - weekday(day) + 3
    year = civil(thursday)[0]
    return year, (thursday - days(year, 1, 1)) // 7 + 1


# --- texts

_DATE = re.compile(r"(\d+)(?:-(\d+)(?:-(\d+))?)?", re.ASCII)
_TIME = re.compile(r"(\d+)(?::(\d+)(?::(\d+)(?:\.(\d*))?)?)?", re.ASCII)


def date_of_text(text: str) -> int:
    """``2026-02-03``; also ``2026-2-3``, ``2026-02``, ``2026``; not what follows a space. Raises ``Failed``."""
    match = _DATE.fullmatch(text.strip().partition(" ")[0])
    if match:
        year, month, day = int(match[1]), int(match[2] or 1), int(match[3] or 1)
        if year <= 9999 and 1 <= month <= 12 and 1 <= day <= month_length(year, month):
            return days(year, month, day)
    raise Failed(f"{text!r:.60} is no DATE")


def time_of_text(text: str) -> int:
    """Milliseconds of a day. Raises ``Failed``."""
    match = _TIME.fullmatch(text.strip())
    if match:
        hour, minute, second = int(match[1]), int(match[2] or 0), int(match[3] or 0)
        if hour < 24 and minute < 60 and second < 60:
            return ((hour * 60 + minute) * 60 + second) * 1000 + int((match[4] or "").ljust(3, "0")[:3])
    raise Failed(f"{text!r:.60} is no TIME")


_STAMP = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})(?: (\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{0,9}))?)?", re.ASCII)


def stamp_of_text(text: str, digits: int) -> int:
    """Microseconds since 1970, cut to ``digits`` of a second; February 30th is its last day, as in Flink. Raises
    ``Failed``."""
    match = _STAMP.fullmatch(text)
    if match:
        year, month, day = int(match[1]), int(match[2]), int(match[3])
        hour, minute, second = (int(part or 0) for part in match.group(4, 5, 6))
        if year and 1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second < 60:
            day = min(day, month_length(year, month))
            fraction = cut_to(int((match[7] or "").ljust(6, "0")[:6]), digits)
            return days(year, month, day) * DAY + ((hour * 60 + minute) * 60 + second) * SECOND + fraction
    raise Failed(f"{text!r:.60} is no TIMESTAMP")


def cut_to(stamp: int, digits: int) -> int:
    """A timestamp with so many digits of a second."""
    return stamp if digits >= 6 else stamp - stamp % 10 ** (6 - digits)


def date_text(day: int) -> str:
    year, month, of_month = civil(day)
    return f"{year:04}-{month:02}-{of_month:02}"


def time_text(of_day: int, digits: int) -> str:
    seconds, milliseconds = divmod(of_day, 1000)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{milliseconds:03}"[: 9 + min(digits, 3)] if digits else text


def stamp_text(stamp: int, digits: int) -> str:
    """``2026-02-03 04:05:06.789``, with so many digits of a second."""
    day, of_day = divmod(stamp, DAY)
    seconds, fraction = divmod(of_day, SECOND)
    text = f"{date_text(day)} {seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{f'{fraction:06}'[:digits].ljust(digits, '0')}" if digits else text
