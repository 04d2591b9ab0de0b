"""Which days an entity alerted, by the table of counts: an address is looked for in the alerts of those days only.

The counts of a day that has ended tell of all its alerts. Those of the newest day may lag behind it, and a day that
the counts no longer keep tells nothing: both are looked through.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta

from spark_jobs.tables.ask import text
from spark_jobs.tables.delta import DataFile
from spark_jobs.tables.schema import ENTITY_KINDS, ENTITY_SITE_5M
from vedette_console.data.query import All, Search, Term, Tree
from vedette_console.data.reader import Reader
from vedette_console.data.rows import EPOCH

DAY = 86_400_000_000
"""Microseconds."""


def entities_of(tree: Tree) -> list[tuple[str, str]]:
    """Kinds and values of entities that whatever ``tree`` finds must have, of the kinds that are counted."""
    match tree:
        case Term(field, pattern, ":") if field in ENTITY_KINDS and len(pattern.parts) == 1:
            return [(field, pattern.parts[0])]
        case All(parts):
            return [one for part in parts for one in entities_of(part)]
    return []


def pruned(reader: Reader, asked: Search, files: Sequence[DataFile]) -> list[DataFile]:
    """Those of ``files`` of ``alerts`` that may hold what is asked for."""
    named = entities_of(asked.tree)
    counted = reader.catalog.days(ENTITY_SITE_5M)
    if not named or len(counted) < 2 or not files:
        return list(files)
    reader.view("seen", ENTITY_SITE_5M)
    rows = reader.rows(
        " INTERSECT ".join(
            f"SELECT DISTINCT date FROM seen WHERE kind = '{kind}' AND lower(value) = lower({text(value)})"
            for kind, value in named
        )
    )
    have = {row["date"] for row in rows}
    # Days of which the counts say that nothing is there.
    without = {day for day in counted[:-1] if day not in have}
    return [one for one in files if not _within(one, without)]


def _within(file: DataFile, days: set[str]) -> bool:
    """Whether all times of a file lie in ``days``."""
    low, high = file.bounds.get("counted_at", (None, None))
    if low is None or high is None or high - low > 400 * DAY:
        return False
    first, last = (EPOCH.date() + timedelta(days=number // DAY) for number in (low - 1000, high + 1000))
    return all(day in days for day in _between(first, last))


def _between(first: date, last: date) -> list[str]:
    return [(first + timedelta(days=number)).isoformat() for number in range((last - first).days + 1)]
