"""Counts of the alerts that a search finds: by the values of fields, and by time.

Counts read the newest alerts first, up to ``MOST_ROWS`` of them: of more the answer says since when it counts, and that
it is not complete.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta

from spark_jobs.tables.ask import time
from spark_jobs.tables.delta import DataFile
from spark_jobs.tables.schema import ALERTS
from vedette_console.data.alerts import files_of, now_or
from vedette_console.data.models import Bucket, Facet, Facets, FacetValue, Histogram
from vedette_console.data.query import Search, parse, term
from vedette_console.data.reader import Reader
from vedette_console.data.rows import EPOCH, moment
from vedette_console.data.sql import condition

MOST_ROWS = 20_000_000
VALUES = 8
"""Of a facet."""
FACETS = {
    "level": "level",
    "rule": "rule_title",
    "fleet": "fleet",
    "site": "site",
    "host": "host",
    "source": "source",
    "kind": "kind",
}
"""Fields of the language that are counted, and their columns."""
STEPS = (60, 300, 900, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86_400, 7 * 86_400, 28 * 86_400)
"""Seconds of a bucket."""
MAX_BUCKETS = 400


def facets(reader: Reader, q: str = "", now: datetime | None = None) -> Facets:
    """The commonest values of ``FACETS`` in what ``q`` finds. Raises Problem 400 for a wrong search."""
    at = now_or(now)
    asked = parse(q, at)
    return reader.cached(("facets", q, _minute(at)), (ALERTS,), lambda: _facets(reader, asked))


def _minute(at: datetime) -> datetime:
    """The minute of ``at``: the meaning of a search changes from minute to minute."""
    return at.replace(second=0, microsecond=0)


def _facets(reader: Reader, asked: Search) -> Facets:
    files, since, complete = newest_files(files_of(reader, asked))
    reader.show("alerts", ALERTS, files)
    columns = ", ".join(f"coalesce({column}, '') AS {name}" for name, column in FACETS.items())
    sets = ", ".join(f"({name})" for name in FACETS)
    # One pass over the alerts; of each field the few commonest.
    rows = reader.rows(
        f"""SELECT {", ".join(FACETS)}, g, n FROM (
            SELECT *, row_number() OVER (PARTITION BY g ORDER BY n DESC, {", ".join(FACETS)}) AS place FROM (
                SELECT {", ".join(FACETS)}, GROUPING({", ".join(FACETS)}) AS g, count(*) AS n
                FROM (SELECT {columns} FROM alerts WHERE {condition(asked)}) GROUP BY GROUPING SETS ({sets}, ())))
        WHERE place <= {VALUES} ORDER BY g, n DESC, {", ".join(FACETS)}"""
    )
    whole = (1 << len(FACETS)) - 1
    facets = []
    for number, name in enumerate(FACETS):
        mark = whole ^ (1 << (len(FACETS) - 1 - number))
        values = [FacetValue(value=row[name], alerts=row["n"], term=term(name, row[name]))
                  for row in rows if row["g"] == mark]  # fmt: skip
        facets.append(Facet(field=name, values=values))
    total = sum(row["n"] for row in rows if row["g"] == whole)
    return Facets(total=total, since=since, complete=complete, facets=facets)


def newest_files(files: Sequence[DataFile], most: int = MOST_ROWS) -> tuple[list[DataFile], datetime | None, bool]:
    """The first of ``files`` (newest first) with ``most`` rows at most, one at least; the time of the oldest alert in
    them, None when these are all; and whether they are."""
    chosen: list[DataFile] = []
    rows = 0
    for file in files:
        if chosen and rows + file.rows > most:
            lows = [low for file in chosen if (low := file.bounds.get("counted_at", (None, None))[0]) is not None]
            return chosen, moment(min(lows)) if lows else None, False
        chosen.append(file)
        rows += file.rows
    return chosen, None, True


def histogram(reader: Reader, q: str = "", buckets: int = 60, now: datetime | None = None) -> Histogram:
    """Alerts that ``q`` finds by time, in about ``buckets`` steps. Raises Problem 400 for a wrong search."""
    at = now_or(now)
    asked = parse(q, at)
    key = ("histogram", q, buckets, _minute(at))
    return reader.cached(key, (ALERTS,), lambda: _histogram(reader, asked, buckets, at))


def _histogram(reader: Reader, asked: Search, buckets: int, at: datetime) -> Histogram:
    files, since, complete = newest_files(files_of(reader, asked))
    reader.show("alerts", ALERTS, files)
    test = condition(asked)
    first, last = asked.since or since, asked.until
    if first is None or last is None:
        span = reader.only(f"SELECT min(counted_at) AS first, max(counted_at) AS last FROM alerts WHERE {test}")
        first, last = first or span["first"], last or span["last"]
        last = max(last, at) if last is not None and asked.since is not None else last
    if first is None or last is None:
        return Histogram(step=3600, since=None, until=None, total=0, complete=complete, buckets=[])
    span_seconds = (last - first).total_seconds()
    most = max(1, min(buckets, MAX_BUCKETS))
    step = next((step for step in STEPS if span_seconds / step <= most), STEPS[-1])
    start = _floor(first, step)
    if (last - start).total_seconds() / step > MAX_BUCKETS:
        start = _floor(last - timedelta(seconds=step * MAX_BUCKETS), step)
        complete = False
    rows = reader.rows(
        f"""SELECT (epoch(counted_at)::BIGINT // {step}) * {step} AS start, coalesce(level, '') AS level,
        count(*) AS n FROM alerts WHERE ({test}) AND counted_at >= {time(start)}::TIMESTAMPTZ
        AND counted_at <= {time(last)}::TIMESTAMPTZ GROUP BY 1, 2"""
    )
    levels: dict[int, dict[str, int]] = defaultdict(dict)
    for row in rows:
        levels[row["start"]][row["level"]] = row["n"]
    seconds = range(int((start - EPOCH).total_seconds()), int((last - EPOCH).total_seconds()) + 1, step)
    counted = [
        Bucket(start=EPOCH + timedelta(seconds=second), alerts=sum(levels[second].values()), levels=levels[second])
        for second in seconds
    ]
    total = sum(bucket.alerts for bucket in counted)
    return Histogram(step=step, since=start, until=last, total=total, complete=complete, buckets=counted)


def _floor(at: datetime, step: int) -> datetime:
    return EPOCH + timedelta(seconds=int((at - EPOCH).total_seconds()) // step * step)
