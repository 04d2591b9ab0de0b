"""The viewer's time zone: the cookie ``tz``, set by the browser once and by Settings. Elsewhere times are UTC."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from urllib.parse import unquote
from zoneinfo import ZoneInfo, available_timezones

from fastapi import Request
from markupsafe import Markup


@dataclass(frozen=True, slots=True)
class Zone:
    """A zone of the IANA database by its name."""

    name: str = "UTC"

    @classmethod
    def of(cls, request: Request, otherwise: str = "") -> Zone:
        """The one that the request's cookie names, else ``otherwise``, else UTC: the first that is known."""
        given = unquote(request.cookies.get("tz", ""))
        return cls(next((name for name in (given, otherwise) if name in names()), "UTC"))

    def at(self, time: datetime) -> datetime:
        return time.astimezone(ZoneInfo(self.name))

    def label(self, time: datetime | None = None) -> str:
        """``UTC+01:00``: its distance from UTC, now or at ``time``."""
        shift = self.at(time or datetime.now(UTC)).utcoffset() or timedelta()
        minutes = int(shift.total_seconds()) // 60
        if not minutes:
            return "UTC"
        return f"UTC{'+' if minutes > 0 else '-'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"

    def show(self, given: datetime | str | None, how: str = "full") -> Markup:
        """A ``<time>`` with the moment in UTC for programs and, on touch, for people. ``how``: "full" (Thu 26 Nov
        12:47:55), "minute", "clock" (12:47:55), "short" (12:47), "day"."""
        time = moment(given)
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
        """From when to when, to the minute; the day of the end only where it is another."""
        since, until = moment(first), moment(last)
        if since is None or until is None:
            return self.show(since or until, "minute")
        same = self.at(since).date() == self.at(until).date()
        if self.at(since).replace(second=0, microsecond=0) == self.at(until).replace(second=0, microsecond=0):
            return self.show(since, "minute")
        return Markup("{} to {}").format(self.show(since, "minute"), self.show(until, "short" if same else "minute"))


def moment(given: datetime | str | None) -> datetime | None:
    """A time that a model gives, as an aware one: a datetime, or ISO 8601; None for anything else."""
    if isinstance(given, str):
        try:
            given = datetime.fromisoformat(given)
        except ValueError:
            return None
    if given is None:
        return None
    return given if given.tzinfo else given.replace(tzinfo=UTC)


@cache
def names() -> frozenset[str]:
    """All zones that may be chosen."""
    return frozenset(available_timezones()) | {"UTC"}
