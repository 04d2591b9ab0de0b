"""Values as templates write them: times in the viewer's zone, numbers, spans, bytes, levels, ATT&CK's names. Jinja
escapes texts.

The zone is that of the cookie ``tz``, set by the browser once and by Settings. Elsewhere times are UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import MAXYEAR, MINYEAR, UTC, datetime, timedelta
from functools import cache
from typing import Any
from urllib.parse import unquote
from zoneinfo import ZoneInfo, available_timezones

from fastapi import Request
from markupsafe import Markup, escape

from spark_jobs.common.attack import caption
from spark_jobs.common.plain import cut, plain, short
from spark_jobs.tables.ask import LEVELS
from vedette.region.steer.gates import DURATIONS, SHARES


@dataclass(frozen=True, slots=True)
class Zone:
    """A zone of the IANA database by its name."""

    name: str = "UTC"

    @classmethod
    def of(cls, request: Request, otherwise: str = "") -> Zone:
        """The one that the request's cookie names, else ``otherwise``, else UTC: the first that is known."""
        cookie = unquote(request.cookies.get("tz", ""))
        return cls(next((name for name in (cookie, otherwise) if name in names()), "UTC"))

    def at(self, time: datetime) -> datetime:
        return time.astimezone(ZoneInfo(self.name))

    def label(self, time: datetime | None = None) -> str:
        """``UTC+01:00``: its distance from UTC, now or at ``time``."""
        shift = self.at(time or datetime.now(UTC)).utcoffset() or timedelta()
        minutes = int(shift.total_seconds()) // 60
        if not minutes:
            return "UTC"
        return f"UTC{'+' if minutes > 0 else '-'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"

    def show(self, value: datetime | str | None, how: str = "full") -> Markup:
        """A ``<time>`` with the moment in UTC for programs and, on touch, for people. ``how``: "full" (Thu 26 Nov
        12:47:55), "minute", "clock" (12:47:55), "short" (12:47), "day"."""
        time = moment(value)
        if time is None:
            return Markup('<span class="soft">–</span>')
        here = self.at(time)
        year = "" if here.year == datetime.now(UTC).year else f" {here.year}"
        day = f"{here:%a} {here.day} {here:%b}{year}"
        text = {
            "full": f"{day} {here:%H:%M:%S}",
            "minute": f"{day} {here:%H:%M}",
            "clock": f"{here:%H:%M:%S}",
            "short": f"{here:%H:%M}",
            "day": day,
        }[how]
        utc = time.astimezone(UTC)
        return Markup('<time datetime="{}" title="{}">{}</time>').format(
            f"{utc:%Y-%m-%dT%H:%M:%SZ}", f"{utc:%Y-%m-%d %H:%M:%S} UTC", text
        )

    def span(self, first: datetime | str | None, last: datetime | str | None) -> Markup:
        """The span from when to when, to the minute; the day of the end only where it is another."""
        since, until = moment(first), moment(last)
        if since is None or until is None:
            return self.show(since or until, "minute")
        same = self.at(since).date() == self.at(until).date()
        if self.at(since).replace(second=0, microsecond=0) == self.at(until).replace(second=0, microsecond=0):
            return self.show(since, "minute")
        return Markup("{} to {}").format(self.show(since, "minute"), self.show(until, "short" if same else "minute"))


def moment(value: datetime | str | None) -> datetime | None:
    """A time that a model gives, as an aware one: a datetime, or ISO 8601; None for anything else, and for what stands
    for no time: the first year and the last, which no zone may shift."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if value is None or value.year in (MINYEAR, MAXYEAR):
        return None
    return value if value.tzinfo else value.replace(tzinfo=UTC)


@cache
def names() -> frozenset[str]:
    """All zones that may be chosen."""
    return frozenset(available_timezones()) | {"UTC"}


SIZES = ("bytes", "kB", "MB", "GB", "TB")
UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
STATES = {
    "good": "running as_wanted connected reports done applied ok taken resumed closed made live",
    "warn": "degraded behind paused waiting staged commands old expired interrupted connecting silent limited",
    "fail": "lost problem refused aborted failed away broker_away not_taken error",
    "busy": "rolling asking answering running_now queued building making open investigating new",
}
"""Words of states by how they look; anything else is plain."""
_CLASS = {word: kind for kind, words in STATES.items() for word in words.split()}


def number(value: float | int | None) -> str:
    """``1,234``; small fractions with one digit; an en dash for what is not known."""
    if value is None:
        return "–"
    return f"{value:,.1f}" if value % 1 and abs(value) < 10 else f"{value:,.0f}"


def share(value: float | None) -> str:
    """A share of 1 as per cent."""
    if value is None:
        return "–"
    return f"{value:.1%}" if 0 < value < 0.095 else f"{value:.0%}"


def size(value: float | None) -> str:
    """Bytes, in thousands."""
    if value is None:
        return "–"
    step = 0
    while abs(value) >= 1000 and step < len(SIZES) - 1:
        value, step = value / 1000, step + 1
    return f"{number(value)} {SIZES[step]}"


def span(seconds: float | None) -> str:
    """``3 d 4 h``: the two largest units."""
    if seconds is None:
        return "–"
    if seconds < 1:
        return "0 s" if not seconds else f"{seconds:.1f} s"
    left = int(seconds)
    parts: list[str] = []
    for length, name in UNITS:
        if left >= length or (parts and name == "s"):
            parts.append(f"{left // length} {name}")
            left %= length
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if not part.startswith("0 "))


def ago(time: datetime | str | None) -> str:
    """``5 min ago``; empty for no time."""
    at = moment(time)
    if at is None:
        return ""
    seconds = (datetime.now(UTC) - at).total_seconds()
    if seconds < 5:
        return "just now" if seconds > -60 else "in " + span(-seconds)
    length, name = next(unit for unit in UNITS if seconds >= unit[0])
    return f"{int(seconds // length)} {name} ago"


def level_class(name: str | None) -> str:
    return name if name in LEVELS else "other"


def state_class(name: str) -> str:
    return _CLASS.get(name.replace(" ", "_"), "")


def exact(text: str) -> Markup:
    """``text`` as it is, for a field in which it is changed and sent back."""
    return escape(text.replace("\0", "\N{REPLACEMENT CHARACTER}"))


def words(value: Any) -> str:
    """A fact of a record: a list as its parts."""
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def lines(text: str) -> Markup:
    """``text`` with its line ends kept and everything else that is not plain replaced."""
    return Markup("\n").join(plain(line) for line in text.split("\n"))


def marked(text: str, spans: list[Any]) -> list[tuple[str, str]]:
    """``text`` cut into pieces, each with the field that it is the value of, or ""; spans that overlap are left out."""
    pieces, at = [], 0
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        if span.start < at or span.end > len(text) or span.end <= span.start:
            continue
        if span.start > at:
            pieces.append((text[at : span.start], ""))
        pieces.append((text[span.start : span.end], span.field))
        at = span.end
    if at < len(text):
        pieces.append((text[at:], ""))
    return pieces


def limit(value: float | bool, name: str) -> str:
    """A limit of the roll-out's gates, as people write it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return span(value) if name in DURATIONS else share(value) if name in SHARES else number(value)


def what(text: str) -> str:
    """The thing that a change moves: ``bundles default`` is the rule set of that name."""
    return "rule set " + text.removeprefix("bundles ") if text.startswith("bundles ") else text


def plural(n: int | float | None, noun: str, more: str = "") -> str:
    """``3 sites``."""
    return f"{number(n)} {noun if n == 1 else more or noun + 's'}"


FILTERS: Mapping[str, Callable[..., Any]] = {
    "n": number,
    "share": share,
    "size": size,
    "span": span,
    "ago": ago,
    "limit": limit,
    "what": what,
    "level_class": level_class,
    "state_class": state_class,
    "exact": exact,
    "words": words,
    "lines": lines,
    "marked": marked,
    "plural": plural,
    "caption": caption,
    "cut": cut,
    "short": short,
}
