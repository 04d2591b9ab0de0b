"""Formats of dates and times by letters, as Java's ``DateTimeFormatter`` has them, in English.

Letters: ``y u`` year, ``M L`` month (``MMM`` Feb, ``MMMM`` February), ``d`` day, ``D`` day of the year, ``E`` weekday,
``e`` its number (Sunday is 1), ``w`` week (from Sunday on), ``Q q`` quarter, ``a`` AM or PM, ``H k h K`` hour, ``m``
minute, ``s`` second, ``S`` fraction; what stands in ``'…'`` is itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from vedette.stream.values import dates
from vedette.stream.values.types import Failed

_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
           "November", "December")  # fmt: skip
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


class BadFormat(Failed):
    """Java does not take it, or it has letters that are not here."""


@lru_cache(512)
def _pieces(pattern: str) -> list[tuple[str, int]]:
    """Letters with how often they stand; texts with 0."""
    pieces: list[tuple[str, int]] = []
    at = 0
    while at < len(pattern):
        letter = pattern[at]
        if letter == "'":
            end = at + 1
            text = ""
            while True:
                if end >= len(pattern):
                    raise BadFormat("a ' is open")
                if pattern[end] == "'":
                    if pattern[end + 1 : end + 2] != "'":
                        break
                    end += 1
                text += pattern[end]
                end += 1
            pieces.append((text or "'", 0))
            at = end + 1
        elif letter.isascii() and letter.isalpha():
            times = len(pattern) - at - len(pattern[at:].lstrip(letter))
            pieces.append((letter, times))
            at += times
        elif letter in "{}#":
            raise BadFormat(f"{letter} is reserved; write '{letter}'")
        else:
            pieces.append((letter, 0))
            at += 1
    return pieces


class _Moment:
    """The parts of a timestamp."""

    __slots__ = ("day", "fraction", "month", "of_month", "seconds", "year")

    def __init__(self, stamp: int) -> None:
        self.day, rest = divmod(stamp, dates.DAY)
        self.seconds, self.fraction = divmod(rest, dates.SECOND)
        self.year, self.month, self.of_month = dates.civil(self.day)


Write = Callable[[_Moment], str]


def _number(get: Callable[[_Moment], int], times: int) -> Write:
    return lambda moment: str(get(moment)).rjust(times, "0")


def _us_week(moment: _Moment) -> int:
    """The week of the year whose first holds January 1st; it begins on Sunday. Days of the next year's are of it."""
    first = dates.days(moment.year, 1, 1)
    start = first - (dates.weekday(first) + 1) % 7
    following = dates.days(moment.year + 1, 1, 1)
    if moment.day >= following - (dates.weekday(following) + 1) % 7:
        return 1
    return (moment.day - start) // 7 + 1


_NUMBERS: dict[str, Callable[[_Moment], int]] = {
    "d": lambda moment: moment.of_month, "D": lambda moment: moment.day - dates.days(moment.year, 1, 1) + 1,
    "H": lambda moment: moment.seconds // 3600, "k": lambda moment: moment.seconds // 3600 or 24,
    "h": lambda moment: moment.seconds // 3600 % 12 or 12, "K": lambda moment: moment.seconds // 3600 % 12,
    "m": lambda moment: moment.seconds // 60 % 60, "s": lambda moment: moment.seconds % 60,
    "w": _us_week, "e": lambda moment: (dates.weekday(moment.day) + 1) % 7 + 1,
    "Q": lambda moment: (moment.month + 2) // 3, "q": lambda moment: (moment.month + 2) // 3,
}  # fmt: skip
_WIDTH = {"D": 3, "e": 1, "Q": 2, "q": 2}


def _writer(letter: str, times: int) -> Write:
    if times == 0:
        return lambda moment: letter
    match letter:
        case "y" | "u" if times == 2:
            return lambda moment: f"{moment.year % 100:02}"
        case "y" | "u":
            return _number(lambda moment: moment.year, times)
        case "M" | "L" if times <= 2:
            return _number(lambda moment: moment.month, times)
        case "M" | "L" if times <= 4:
            return lambda moment: _MONTHS[moment.month - 1][: 3 if times == 3 else None]
        case "E" if times <= 4:
            return lambda moment: _DAYS[dates.weekday(moment.day)][: 3 if times <= 3 else None]
        case "a" if times == 1:
            return lambda moment: "PM" if moment.seconds >= 43200 else "AM"
        case "S" if times <= 9:
            return lambda moment: f"{moment.fraction:06}".ljust(9, "0")[:times]
        case _ if letter in _NUMBERS and times <= _WIDTH.get(letter, 2):
            return _number(_NUMBERS[letter], times)
    raise BadFormat(f"there is no {letter * times}")


@lru_cache(512)
def _writers(pattern: str) -> tuple[Write, ...]:
    return tuple(_writer(letter, times) for letter, times in _pieces(pattern))


def check_writing(pattern: str) -> None:
    """Raises ``BadFormat`` for a pattern that ``formatted`` does not write."""
    _writers(pattern)


def formatted(stamp: int, pattern: str) -> str:
    """A timestamp as the pattern says. Raises ``BadFormat``."""
    moment = _Moment(stamp)
    return "".join(write(moment) for write in _writers(pattern))


# --- reading

_READ = {
    "d": "day", "H": "hour", "k": "hour", "h": "half", "K": "half", "m": "minute", "s": "second", "D": "doy",
}  # fmt: skip


@lru_cache(512)
def _reader(pattern: str) -> tuple[re.Pattern[str], tuple[str, ...]]:
    text, names = "", []
    pieces = _pieces(pattern)
    for place, (letter, times) in enumerate(pieces):
        adjacent = place + 1 < len(pieces) and pieces[place + 1][1] > 0 and pieces[place + 1][0] not in "aE"
        if times == 0:
            text += re.escape(letter)
            continue
        match letter:
            case "y" | "u":
                names.append("short" if times == 2 else "year")
                text += f"(\\d{{{times}}})" if adjacent or times == 2 else f"(\\d{{{times},{max(times, 9)}}})"
            case "M" | "L" if times >= 3:
                names.append("month3" if times == 3 else "month4")
                text += f"({'|'.join(name[: 3 if times == 3 else None] for name in _MONTHS)})"
            case "M" | "L":
                names.append("month")
                text += "(\\d{2})" if times == 2 else "(\\d{1,2})"
            case "E":
                text += f"(?:{'|'.join(name[: 3 if times <= 3 else None] for name in _DAYS)})"
            case "X" | "x":  # read over, as Flink does
                text += "(?:Z|[+-]\\d\\d(?::?\\d\\d)?)"
            case "a":
                names.append("half_of_day")
                text += "(AM|PM)"
            case "S":
                names.append("fraction")
                text += f"(\\d{{{times}}})"
            case _ if letter in _READ:
                names.append(_READ[letter])
                text += f"(\\d{{{times}}})" if times > 1 else "(\\d{1,2})"
            case _:
                raise BadFormat(f"{letter * times} is not read")
    return re.compile(text, re.ASCII), tuple(names)


def read(text: str, pattern: str) -> int:
    """The timestamp that a text says, by the pattern; parts that are missing are those of 1970-01-01. Raises Failed."""
    compiled, names = _reader(pattern)
    match = compiled.fullmatch(text)
    if not match:
        raise Failed(f"{text!r:.60} is not {pattern!r:.60}")
    parts: dict[str, Any] = dict(zip(names, match.groups(), strict=True))
    year = int(parts["year"]) if "year" in parts else 2000 + int(parts["short"]) if "short" in parts else 1970
    month = int(parts.get("month", 1))
    for key, letters in (("month3", 3), ("month4", None)):
        if key in parts:
            month = [name[:letters] for name in _MONTHS].index(parts[key]) + 1
    day, hour = int(parts.get("day", 1)), int(parts.get("hour", 0))
    if "half" in parts:
        hour = int(parts["half"]) % 12 + 12 * (parts.get("half_of_day") == "PM")
    minute, second = int(parts.get("minute", 0)), int(parts.get("second", 0))
    if not (1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second < 60 and 1 <= year <= 9999):
        raise Failed(f"{text!r:.60} is no date")
    days = dates.days(year, month, min(day, dates.month_length(year, month)))
    if "doy" in parts:
        days = dates.days(year, 1, 1) + int(parts["doy"]) - 1
    fraction = int(str(parts.get("fraction", "")).ljust(6, "0")[:6])
    return days * dates.DAY + ((hour * 60 + minute) * 60 + second) * dates.SECOND + fraction


def check_reading(pattern: str) -> None:
    """Raises ``BadFormat`` for a pattern that ``read`` does not read."""
    _reader(pattern)


# --- reading as SimpleDateFormat does

_LOOSE = frozenset("yMLdDHkhKmsS")
"""Letters that are numbers."""
_PIVOT = 1947
"""Two digits are a year from here on, whenever they are read; Java has the eighty years before today."""


def read_loosely(text: str, pattern: str) -> int:
    """As ``read``, but by Java's ``SimpleDateFormat``: a number has any digits and may be too large for its part, what
    follows is not looked at, and the year is of this or the last century where ``y`` or ``yy`` reads two digits."""
    parts = {"y": 1970, "M": 1, "d": 1}
    at = 0
    pieces = _pieces(pattern)
    for (letter, times), (following, more) in zip(pieces, [*pieces[1:], ("", 0)], strict=True):
        number = bool(times) and letter in _LOOSE and (letter not in "ML" or times < 3)
        if number:
            adjacent = more > 0 and following in _LOOSE and (following not in "ML" or more < 3)
            end = at + times if adjacent else len(text)
            at += len(text[at:]) - len(text[at:].lstrip(" \t"))
            match = re.compile(r"-?\d{1,9}", re.ASCII).match(text, at, end)
        else:
            match = re.compile(_loose(letter, times), re.ASCII | re.IGNORECASE).match(text, at)
        if match is None:
            raise Failed(f"{text!r:.60} is not {pattern!r:.60}")
        at = match.end()
        if number:
            value = int(match[0])
            if letter == "y" and times <= 2 and len(match[0]) == 2 and match[0].isdecimal():
                value = _PIVOT + (value - _PIVOT) % 100
            parts["M" if letter == "L" else letter] = value
        elif times and letter in "ML":
            parts["M"] = [name[:3].lower() for name in _MONTHS].index(match[0][:3].lower()) + 1
        elif times and letter == "a":
            parts["a"] = 12 * (match[0].lower() == "pm")
        elif times and letter in "XZ" and match[0] not in "Zz":
            hours, minutes = int(match[0][1:3]), int(match[0][3:].lstrip(":") or 0)
            parts["X"] = (hours * 60 + minutes) * (-1 if match[0][0] == "-" else 1)
    year, month = divmod(parts["y"] * 12 + parts["M"] - 1, 12)
    days = dates.days(year, month + 1, 1) + parts["d"] - 1
    if "D" in parts:
        days = dates.days(year, 1, 1) + parts["D"] - 1
    hour = parts.get("H", parts.get("k", 0) % 24)
    if "h" in parts or "K" in parts:
        hour = parts.get("K", parts.get("h", 0) % 12) + parts.get("a", 0)
    seconds = (hour * 60 + parts.get("m", 0) - parts.get("X", 0)) * 60 + parts.get("s", 0)
    stamp = days * dates.DAY + seconds * dates.SECOND + parts.get("S", 0) * dates.MILLISECOND
    if not 1 <= dates.civil(stamp // dates.DAY)[0] <= 9999:
        raise Failed(f"{text!r:.60} is no date")
    return stamp


def _loose(letter: str, times: int) -> str:
    """What a part that is no number reads. Raises BadFormat."""
    match letter:
        case _ if times == 0:
            return f"(?-i:{re.escape(letter)})"
        case "M" | "L":
            return "|".join(f"{name}|{name[:3]}" for name in _MONTHS)
        case "E":
            return "|".join(f"{name}|{name[:3]}" for name in _DAYS)
        case "X" if times <= 3:
            return "Z|[+-]" + (r"\d\d", r"\d{4}", r"\d\d:\d\d")[times - 1]
        case "Z":
            return r"[+-]\d{4}"
        case "a":
            return "AM|PM"
    raise BadFormat(f"{letter * times} is not read")


@lru_cache(512)
def check_loosely(pattern: str) -> None:
    """Raises ``BadFormat`` for a pattern that ``read_loosely`` does not read."""
    for letter, times in _pieces(pattern):
        if times == 0 or letter not in _LOOSE:
            _loose(letter, times)
