"""The days that a question is about, and the newest day of the tables that are written a day at a time."""

from __future__ import annotations

from datetime import UTC, datetime

from spark_jobs.common.period import Period, period
from spark_jobs.tables.schema import Table
from vedette_console.data.reader import Reader

MAX_DAYS = 90


def last_days(days: int, now: datetime | None = None) -> Period:
    """The last ``days`` days, within ``MAX_DAYS``, up to ``now`` (None: the clock's)."""
    at = now or datetime.now(UTC)
    return period(at.date(), max(1, min(days, MAX_DAYS)), at)


def newest_day(reader: Reader, name: str, table: Table, until: str = "9999") -> str:
    """Let ``name`` be the newest day of ``table`` up to ``until``, else its oldest; which, empty for none."""
    days = reader.catalog.days(table)
    day = max((one for one in days if one <= until), default=min(days, default=""))
    reader.view(name, table, day or "0", day or "0")
    return day
