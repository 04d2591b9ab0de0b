"""Parts of a time for Sigma's modifiers ``minute hour day week month year``: numbers cut out of a text.

The specification: "not designed to handle timezone or format conversions". So the time is taken as it is written,
whatever zone it names or means: ``2025-03-30T23:59:00-08:00`` is of hour 23. What is not written has no part: a
date has no hour, ``Nov 20 10:00:00`` (RFC 3164) no year and no week. A number of seconds, milli-, micro- or
nanoseconds since 1970 (years 1990 to 2200, as texts too) is read in UTC. ``week`` is ISO 8601's, 1 to 53.

Read are RFC 3339 and its kin (``2025/11/28 08:30``), RFC 3164, RFC 5322 and the web log's
``20/Nov/2025:10:00:00 +0100``.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime

from vedette.model.times import MONTHS, time_of

UNITS = {"minute": (0, 59), "hour": (0, 23), "day": (1, 31), "week": (1, 53), "month": (1, 12), "year": (1, 9999)}
"""Each with its least and its greatest number."""

MAX_LENGTH = 64
"""Characters of a text that may be a time."""

_CLOCK = r"(?P<hour>[01]\d|2[0-3]):(?P<minute>[0-5]\d)(?::(?:[0-5]\d|60)(?:[.,]\d+)?)?"
_ZONE = r"(?: ?(?:[Zz]|[+-]\d\d(?::?\d\d)?))?(?: .*)?"
_NAMED = r"(?P<name>[A-Z][a-z]{2})"
_FORMS = tuple(
    re.compile(form, re.ASCII)
    for form in (
        rf"(?P<year>\d{{4}})[-/](?P<month>\d\d)[-/](?P<day>\d\d)(?:(?:[Tt]| {{1,2}}){_CLOCK}{_ZONE})?",
        rf"{_NAMED} {{1,2}}(?P<day>\d\d?) {{1,2}}(?:(?P<year>\d{{4}}) )?{_CLOCK}(?: (?P<year_after>\d{{4}}))?(?: .*)?",
        rf"(?:[A-Z][a-z]{{2}}, )?(?P<day>\d\d?) {_NAMED} (?P<year>\d{{4}}) {_CLOCK}{_ZONE}",
        rf"(?P<day>\d\d?)/{_NAMED}/(?P<year>\d{{4}}):{_CLOCK}{_ZONE}",
    )
)


def part(text: str, unit: str) -> int | None:
    """The ``unit`` of the time that ``text`` is; None when it is no time or does not say."""
    if len(text) > MAX_LENGTH:
        return None
    text = text.strip()
    for form in _FORMS:
        if match := form.fullmatch(text):
            parts = {name: int(value) for name, value in match.groupdict().items() if value and name != "name"}
            if name := match.groupdict().get("name"):
                parts["month"] = MONTHS.get(name.lower().encode(), 0)
            parts["year"] = parts.get("year") or parts.pop("year_after", 0)
            return _of(parts, unit)
    micros = time_of(text, UTC) if re.fullmatch(r"\d+(\.\d+)?", text, re.ASCII) else None
    if micros is None:
        return None
    moment = datetime.fromtimestamp(micros / 1e6, UTC)
    return moment.isocalendar().week if unit == "week" else int(getattr(moment, unit))


def _of(parts: dict[str, int], unit: str) -> int | None:
    try:
        day = date(parts["year"] or 2000, parts["month"], parts["day"])  # 2000 has every day of a year
    except ValueError:
        return None
    if unit == "week":
        return day.isocalendar().week if parts["year"] else None
    return parts.get(unit) if unit != "year" else parts["year"] or None
