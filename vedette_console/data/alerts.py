"""Alerts by a search, newest first, and one alert in full.

A page is found by walking back in time, a few files at a time, until it is full: the table's log says between which
times a file's alerts lie, so that the newest of a hundred million are found in a day's files. Only the order's
columns are read of all of them, the others of the page's alerts. A text may be in any alert, so it is looked for in
``TEXT_DAYS`` days only, unless the search names a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from spark_jobs.common.attack import of_tags
from spark_jobs.tables.ask import Row, text, time
from spark_jobs.tables.delta import DataFile
from spark_jobs.tables.schema import ALERTS
from spark_jobs.tables.tables import Where
from vedette_console.data.models import Alert, AlertRow, Asset, Contributing, IntelHit, Listing, Place
from vedette_console.data.pruning import pruned
from vedette_console.data.query import Search, parse
from vedette_console.data.reader import Reader
from vedette_console.data.rows import (
    ALERT_ROW,
    NEWEST,
    alert_row,
    cursor,
    limited,
    mapped,
    micros,
    moment,
    none,
    place,
    raw_ref,
    row_values,
    technique,
)
from vedette_console.data.rules import titles
from vedette_console.data.spans import highlights
from vedette_console.data.sql import condition
from vedette_console.data.triage import decision_of
from vedette_console.security.principal import Principal
from vedette_console.web import Problem

FIRST_ROWS = 50_000
GROWTH = 4
"""So many rows of files are looked at first, then so many times as many."""
TEXT_DAYS = 14
ALWAYS = (datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC))


def search(
    reader: Reader, who: Principal, q: str = "", after: str = "", limit: int = 50, now: datetime | None = None
) -> Listing[AlertRow]:
    """Alerts that ``q`` finds, newest first. Raises Problem 400 for a search that cannot be understood."""
    asked, limit = parse(q, now_or(now)), limited(limit)
    last = place(after, int, str, str)
    files = files_of(reader, asked, moment(last[0]) if last else None)
    keys = walk(reader, files, condition(asked), last, limit + 1)
    items = [alert_row(row) for row in whole(reader, keys[:limit], ALERT_ROW)]
    if len(keys) <= limit:
        return Listing(items=items)
    end = keys[limit - 1]
    return Listing(items=items, next=cursor(micros(end["counted_at"]), end["agent_id"], end["alert_id"]))


def now_or(now: datetime | None) -> datetime:
    """``now``; None: the clock's."""
    return now or datetime.now(UTC)


def files_of(reader: Reader, asked: Search, before: datetime | None = None) -> list[DataFile]:
    """Files that may hold what is asked for, the newest first. Raises Problem 400 for a text without a time."""
    since, until = asked.since or ALWAYS[0], min(asked.until or ALWAYS[1], before or ALWAYS[1])
    since, until = max(since, ALWAYS[0]), max(until, ALWAYS[0])
    if since > until:
        return []
    files = reader.files(ALERTS, Where(near={"counted_at": [(since, until)]}))
    if asked.has("text") and not asked.timed:
        _bounded(files)
    return sorted(pruned(reader, asked, files), key=_newest, reverse=True)


def _bounded(files: Sequence[DataFile]) -> None:
    bounds = [one.bounds.get("counted_at", (None, None)) for one in files]
    lows, highs = [low for low, _ in bounds if low is not None], [high for _, high in bounds if high is not None]
    days = (max(highs) - min(lows)) / 86_400e6 if lows and highs else 0
    if days > TEXT_DAYS:
        raise Problem(400, f"a text in {days:.0f} days of alerts takes too long to look for", where="q",
                      what_to_do=f"add since:{TEXT_DAYS}d, or from: and to:")  # fmt: skip


def _newest(file: DataFile) -> float:
    high = file.bounds.get("counted_at", (None, None))[1]
    return float("inf") if high is None else float(high)


def portions(files: Sequence[DataFile], first: int = FIRST_ROWS) -> Iterator[tuple[list[DataFile], float]]:
    """``files`` a few at a time, ever more; and the newest time, in microseconds, that those after them may hold."""
    budget, taken, rows = first, [], 0
    for number, one in enumerate(files, 1):
        taken.append(one)
        rows += one.rows
        if rows >= budget or number == len(files):
            yield taken, _newest(files[number]) if number < len(files) else float("-inf")
            budget, taken, rows = budget * GROWTH, [], 0


def walk(reader: Reader, files: Sequence[DataFile], found: str, last: Sequence[Any] | None, limit: int) -> list[Row]:
    """The order's columns of the first ``limit`` alerts after ``last`` that are ``found`` (SQL), newest first."""
    if last is not None:
        at = f"{time(moment(last[0]))}::TIMESTAMPTZ"
        later = f"(agent_id, alert_id) > ({text(last[1])}, {text(last[2])})"
        found = f"({found}) AND counted_at <= {at} AND (counted_at < {at} OR {later})"
    rows: list[Row] = []
    for these, rest in portions(files):
        least = f" AND counted_at >= {time(rows[limit - 1]['counted_at'])}::TIMESTAMPTZ" if len(rows) >= limit else ""
        reader.show("alerts", ALERTS, these)
        rows += reader.rows(
            f"""SELECT received_date, counted_at, agent_id, alert_id FROM alerts WHERE ({found}){least}
            AND counted_at IS NOT NULL ORDER BY {NEWEST} LIMIT {limit}"""
        )
        rows.sort(key=lambda row: (-micros(row["counted_at"]), row["agent_id"], row["alert_id"]))
        del rows[limit:]
        if len(rows) == limit and micros(rows[-1]["counted_at"]) > rest:
            break
    return rows


def whole(reader: Reader, keys: Sequence[Row], columns: str) -> list[Row]:
    """``columns`` of the alerts that ``keys`` name, newest first."""
    if not keys:
        return []
    times = [row["counted_at"] for row in keys]
    near = (min(times), max(times))
    days = {row["received_date"] for row in keys}
    reader.show("alerts", ALERTS, reader.files(ALERTS, Where(only=days, near={"counted_at": [near]})))
    names = ", ".join(f"({text(row['agent_id'])}, {text(row['alert_id'])})" for row in keys)
    ids = ", ".join(text(row["alert_id"]) for row in keys)
    return reader.rows(
        f"""SELECT {columns} FROM alerts WHERE alert_id IN ({ids})
        AND counted_at BETWEEN {time(near[0])}::TIMESTAMPTZ AND {time(near[1])}::TIMESTAMPTZ
        AND (agent_id, alert_id) IN ({names}) ORDER BY {NEWEST}"""
    )


def newest(reader: Reader, found: str, since: datetime, until: datetime, limit: int) -> list[AlertRow]:
    """The newest alerts that are ``found`` (SQL), at times of a range, both ends included."""
    files = reader.files(ALERTS, Where(near={"counted_at": [(since, until)]}))
    within = f"counted_at BETWEEN {time(since)}::TIMESTAMPTZ AND {time(until)}::TIMESTAMPTZ"
    keys = walk(reader, sorted(files, key=_newest, reverse=True), f"({found}) AND {within}", None, limit)
    return [alert_row(row) for row in whole(reader, keys, ALERT_ROW)]


def alert(reader: Reader, who: Principal, day: str, agent_id: str, alert_id: str) -> Alert:
    """One alert in full. Raises Problem 404 when there is none that ``who`` sees."""
    row = one_alert(reader, day, agent_id, alert_id)
    tactics, techniques = of_tags(row["tags"])
    fields = mapped(row["fields"])
    contributing = [one for one in row["contributing"] or () if one]
    known = titles(reader, [one["rule_id"] or "" for one in contributing])
    return Alert(
        **row_values(row),
        parent_id=row["parent_id"],
        seq=row["seq"],
        rule_digest=row["rule_digest"] or "",
        tags=[tag for tag in row["tags"] or () if tag],
        tactics=tactics,
        techniques=[technique(name) for name in techniques],
        event_time=row["event_time"],
        detected_at=row["detected_at"],
        received_at=row["received_at"],
        logsource={key: value for key, value in (row["logsource"] or {}).items() if value},
        fields=fields,
        group_by=mapped(row["group_by"]),
        raw_ref=raw_ref(row["raw_ref"]),
        contributing=[
            Contributing(
                rule_id=one["rule_id"] or "",
                rule_title=known.get(one["rule_id"] or "", ""),
                event_time=one["event_time"],
                raw_ref=raw_ref(one["raw_ref"]),
            )
            for one in contributing
        ],
        first_time=row["first_time"],
        last_time=row["last_time"],
        bundle=row["bundle"],
        flags=[flag for flag in row["flags"] or () if flag],
        asset=_filled(Asset, row["asset"]),
        place=_filled(Place, row["place"]),
        intel=[hit for one in row["intel"] or () if (hit := _filled(IntelHit, one))],
        highlights=highlights(row["raw"] or "", fields),
        triage=decision_of(reader, f"alert:{agent_id}/{alert_id}", row["counted_at"]),
    )


def one_alert(reader: Reader, day: str, agent_id: str, alert_id: str) -> Row:
    """All columns of an alert. Raises Problem 404."""
    # A copy has the same day, so that the day and the two ids name one row in the files of one day.
    reader.show("alerts", ALERTS, reader.files(ALERTS, Where(only=(day,))))
    rows = reader.rows(
        f"SELECT * FROM alerts WHERE alert_id = {text(alert_id)} AND agent_id = {text(agent_id)} LIMIT 1"
    )
    if not rows:
        raise none("alert")
    return rows[0]


def _filled(model: Any, found: Row | None) -> Any:
    """A model of what a struct has; None for nothing."""
    values = {key: value for key, value in (found or {}).items() if value is not None}
    return model(**values) if values else None


def around(at: datetime, minutes: int) -> tuple[datetime, datetime]:
    """So many minutes before and after ``at``."""
    return at - timedelta(minutes=minutes), at + timedelta(minutes=minutes)
