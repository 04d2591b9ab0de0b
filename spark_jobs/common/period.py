"""The days that a job looks at, and what it takes for now."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta


@dataclass(frozen=True, slots=True)
class Period:
    """UTC days ``first`` to ``last``, both included, seen at ``now``: never later than the end of ``last``."""

    first: date
    last: date
    now: datetime
    begin: datetime | None = None
    """A full hour of ``first`` before which nothing is looked at; None: the whole day is."""

    @property
    def since(self) -> str:
        return self.first.isoformat()

    @property
    def until(self) -> str:
        return self.last.isoformat()

    @property
    def start(self) -> datetime:
        return self.begin or datetime(self.first.year, self.first.month, self.first.day, tzinfo=UTC)

    @property
    def end(self) -> datetime:
        """The beginning of the day after ``last``."""
        return datetime(self.last.year, self.last.month, self.last.day, tzinfo=UTC) + timedelta(days=1)

    @property
    def hours(self) -> int:
        """From ``start`` to ``end``; where the first day is not whole, up to ``now``."""
        end = self.end if self.begin is None else self.now
        return -(-int((end - self.start).total_seconds()) // 3600)

    @property
    def days(self) -> list[str]:
        """The days' names, ascending."""
        return [(self.first + timedelta(days=n)).isoformat() for n in range((self.last - self.first).days + 1)]

    def among(self, names: Collection[str]) -> list[str]:
        """Those of its days that are in ``names``, ascending."""
        return [day for day in self.days if day in names]

    def from_day(self, first: date) -> Period:
        """The same end, beginning at ``first``."""
        return Period(first, self.last, self.now)


def period(last: date, days: int, now: datetime | None = None) -> Period:
    """The ``days`` days that end with ``last``; ``now`` None: the clock's."""
    end = datetime(last.year, last.month, last.day, tzinfo=UTC) + timedelta(days=1)
    return Period(last - timedelta(days=days - 1), last, min(now or datetime.now(UTC), end))


def last_hours(now: datetime | None = None) -> Period:
    """The last 24 hours, from a full hour on; ``now`` None: the clock's."""
    at = now or datetime.now(UTC)
    begin = at.replace(minute=0, second=0, microsecond=0) - timedelta(hours=24)
    return Period(begin.date(), at.date(), at, begin)
